package main

// faultsOfStory are in what the record of an event tells of its attempts, and in where it is found.
var faultsOfStory = []fault{
	{"the log of a record grows without end", "internal/dedupe/attempts.go", `return log[max(0, len(log)-MaxLog):]`, `return log`,
		"internal/dedupe", "TestTheLogHasTheNewestAttempts"},
	{"an attempt that was counted has two lines in the log", "internal/dedupe/attempts.go", `	if r.listed() {
		return r.record.Log
	}`, ``, "internal/standin", "TestAnEventIsCompletedOnceOnTheEmbeddedStore"},
	{"an attempt that was none stays in the log", "internal/dedupe/attempts.go", `case end.Uncounted && r.listed():`, `case end.Uncounted && r.listed() && false:`,
		"internal/standin", "TestAnEventIsCompletedOnceOnTheEmbeddedStore"},
	{"a replay forgets the attempts before it", "internal/dedupe/once.go", `DeadLetters: dead.DeadLetters, Again: true, Log: dead.Log})`,
		`DeadLetters: dead.DeadLetters, Again: true})`, pushDir, "TestTheLogOfAnEventThatIsReplayedGoesOn"},
	{"a killed attempt has told of nothing", "internal/push/attempt.go", `slog.LevelInfo, "received"`, `slog.LevelDebug-4, "received"`,
		pushDir, "TestAnAttemptHasItsLineBeforeItRuns"},
	{"an event that waits to be published is unknown", "internal/lane/emit.go", `EventID: event.ID, Emits: knownAs}`, `EventID: event.ID}`,
		laneDir, "TestWhatWaitsNamesTheEventThatItWillBe"},
	{"a parked event does not say what it is parked behind", "internal/ops/spots.go", `	if !line.Stopped {`, `	if true {`,
		opsDir, "TestAnEventIsFoundInEveryPlaceThatItCanWaitIn"},
	{"deliveries that left nothing are passed over", "internal/ops/history.go", `first := last[a.MessageID] + 1; a.Delivery > first`, `first := a.Delivery; a.Delivery > first`,
		opsDir, "TestTheHistoryOfAnEventIsInTheOrderOfTime"},
	{"the door's time is that of the publishing", "internal/webhook/webhook.go", `a.DoorReceived = o.started.UTC()`, `a.DoorReceived = s.config.Now().UTC()`,
		"internal/webhook", "TestAMessageSaysWhenTheDoorReceivedIt"},
	{"the record forgets when the door received the event", "internal/push/attempt.go", `w.record.DoorReceivedAt = at`, `_ = at`, pushDir, "TestTheRecordHasALogOfItsAttempts"},
	{"what waits without a record has not passed the door", "internal/ops/history.go", `of = append(of, kept.Message.Attributes)`, `_ = kept`,
		opsDir, "TestTheHistoryBeginsAtTheDoor"},
	{"an instance does not say its revision", workerMain, `return revision + "-" + chance`, `return chance`, "cmd/worker", "TestAnInstanceIsNamedByItsRevision"},
	{"an event is asked for without its tenant", "cmd/billhook/events.go", `set(values, "tenant", tenant)`, `set(values, "tenant", "")`,
		"cmd/billhook", "TestAnEventIsAskedForByItsQueueAndTenant"},
}
