package main

const (
	sendFile    = "cmd/billhook/send.go"
	repeatFile  = "cmd/billhook/repeat.go"
	enqueueFile = "cmd/billhook/enqueue.go"
	commandDir  = "cmd/billhook"
)

// faultsOfProduce are those of what people send by hand.
var faultsOfProduce = []fault{
	{"a refund is of an order that nobody has sent", sendFile, `cmp.Or(s.of, event.OrderID, event.EventID+"2")`, `cmp.Or(event.OrderID, event.EventID+"2")`,
		commandDir, "TestARefundAndAChargebackAreOfTheOrderThatIsNamed"},
	{"a webhook that is sent again under its id says something else", sendFile, `cmp.Or(s.of, event.OrderID, event.EventID+"2")`,
		`cmp.Or(s.of, event.OrderID, strconv.FormatInt(at.UnixMicro(), 10)+"2")`, commandDir, "TestASampleThatIsSentAgainUnderItsEventIDSaysTheSame"},
	{"what the door refuses is a success", repeatFile, `if one.answer().Status >= http.StatusBadRequest {`, `if one.answer().Status < 0 {`,
		commandDir, "TestWhatIsRefusedFailsTheCommandAndSaysWhy"},
	{"nobody can send again what may have been taken", repeatFile, `if id == "" {`, `if id != "-" {`, commandDir, "TestAnAnswerThatDoesNotComeNamesTheEventToSendAgain"},
	{"a message that is sent again under its id says something else", enqueueFile, `strings.TrimPrefix(e.eventID, samples.IDPrefix)`, `e.eventID`,
		commandDir, "TestASampleThatIsSentAgainUnderItsEventIDSaysTheSame"},
	{"a file is not sent as it is", enqueueFile, `} else if !e.changes() {`, `} else if false {`, commandDir, "TestAMessageIsSentAsTheFileHasItButForWhatTheFlagsSay"},
	{"a message tells when it was made", "internal/webhook/samples/message.go", `m.Shape != "timestamp"`, `m.Shape != ""`,
		"internal/webhook/samples", "TestAMessageKeepsItsContractAndSaysTheSameWheneverItIsMade"},
}
