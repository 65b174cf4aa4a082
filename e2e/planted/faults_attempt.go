package main

// faultsOfAttempt are in what both kinds of handler share.
var faultsOfAttempt = []fault{
	{"what a leased handler writes is left out", once, `return record, end.Effect.Writes, Own`, `return record, end.Effect.Writes[:0], Own`,
		pushDir, "TestWhatALeasedHandlerWritesAndEmitsIsCommittedWithItsCompletion"},
	{"what came too late is processed", answer, `if w.superseded {`, `if false {`, pushDir, "TestAnEffectThatCameTooLateIsSuperseded"},
	{"a conflict does again what was done outside", perform, `if (w.repeated || event.Try > 0) &&`, `if w.repeated &&`,
		pushDir, "TestALeasedHandlerThatAssumedWhatIsNoLongerSoIsAskedAgain"},
	{"a lost lease writes", once, `	write := store.Update(r.key, r.version, record.Fields())`, `	write := store.Update(r.key, r.version, record.Fields())
	if r.claimed && record.Status == Completed {
		write = store.Set(r.key, write.Fields)
	}`, pushDir, "TestALeasedEffectOfAWorkerThatHasLostItsLeaseDoesNotHappen"},
	{"a handler takes whatever comes", "internal/handler/handler.go", `if registered.body != nil {`, `if registered.body != nil && false {`,
		"internal/handler", "TestAQueueWhoseMessagesItsHandlerDoesNotTakeIsRefused"},
}
