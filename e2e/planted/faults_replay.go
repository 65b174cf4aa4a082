package main

const (
	outcomes   = "internal/deadletter/outcome.go"
	leave      = "internal/push/leave.go"
	told       = "internal/push/letters.go"
	reasons    = "internal/audit/words.go"
	operations = "cmd/billhook/operations.go"
	auditDir   = "internal/audit"
)

// faultsOfReplays are those by which people would take a replay for what it is not, or could not stop it.
var faultsOfReplays = []fault{
	{"a replay ends and its dead letter is not told", perform, `s.replayEnds(w)...`, `s.replayEnds(w)[:0]...`, pushDir, "TestADeadLetterLearnsHowItsReplayHasEnded"},
	{"a replay that commits nothing is never over", told, `case a.Reason == processedBefore:`, `case a.Reason == processedBefore && false:`, pushDir, "TestADeadLetterLearnsHowItsReplayHasEnded"},
	{"a letter that could not be told is acknowledged", leave, `return again(retry.Decide(err), err) // the redelivery`, `_ = again // the redelivery`, pushDir, "TestAReplayThatEndsWithoutACommitIsNackedUntilItsLetterIsTold"},
	{"a late copy of a death opens what is processed", letters, `item.ReplayCount == died.ReplayCount && item.State != Replayed`, `item.ReplayCount == died.ReplayCount && item.State == Open`,
		lettersDir, "TestAReplayThatHasEndedIsNotReopenedByALateCopyOfAnEarlierDeath"},
	{"an earlier replay ends a later one", letters, `item.State == Replayed && item.ReplayCount == replays`, `item.State == Replayed && replays >= 0`,
		lettersDir, "TestAReplayThatHasEndedIsNotReopenedByALateCopyOfAnEarlierDeath"},
	{"an operation replays what it has replayed", operate, `item.Kept.After(op.CreatedAt) || item.Operation == op.ID {`, `item.Kept.After(op.CreatedAt) || item.Operation == "-" {`,
		lettersDir, "TestAnOperationReplaysAnItemOnceWhateverTheClocksSay"},
	{"a cancelled operation goes on", operate, `case op.Progress.Over():`, `case op.Progress == Finished:`, lettersDir, "TestNoHistoryReplaysAnItemTwiceOrGoesOnAfterItsEnd"},
	{"an operation is cancelled whatever its runner writes", outcomes, `err = o.commit(ctx, &op, "", []store.Write{entry})`,
		`_, err = o.Store.Commit(ctx, []store.Write{store.Set(op.key(), store.Encode(&op)), entry})`, lettersDir, "TestACancelDoesNotUndoWhatTheRunnerHasWritten"},
	{"the author of an operation may reject it", outcomes, `case to == Rejected && by.Who == op.Who:`, `case to == Rejected && by.Who == "":`, lettersDir, "TestTheSecondPersonMayReject"},
	{"a reason turns the direction of a terminal", reasons, `unicode.Is(unicode.Cf, r) && r != parts`, `unicode.Is(unicode.Cf, r) && r == parts`, auditDir, "TestAReasonAndANameHaveNoCharacterThatIsNotSeen"},
	{"a reason names a customer by an address", reasons, `pii.Detect(pii.UID, why); is {`, `pii.Detect(pii.UID, why); is && found != "email" {`, auditDir, "TestAReasonHasNoPersonalData"},
	{"a reason may not name an order", reasons, `len(word) > len("4111111111111111")`, `len(word) > 1000`, auditDir, "TestAReasonMayNameWhatItIsAbout"},
	{"a route keeps any reason", "internal/ops/api.go", `return audit.CheckWhy(reason.Why)`, `return audit.CheckWhy("")`, "internal/ops", "TestEveryRouteThatChangesSomethingNeedsAReasonThatMayBeKept"},
	{"a replay succeeds whatever becomes of it", operations, `case processed >= asked:`, `case processed <= asked:`, cmdDir, "TestAReplaySaysWhatBecameOfEach"},
}
