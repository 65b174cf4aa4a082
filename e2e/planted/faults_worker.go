package main

const (
	correct   = "internal/dedupe/corrected.go"
	mayBe     = "TestOfWhatMayHaveBeenAppliedACorrectionIsAConflict"
	taken     = "TestACorrectedPayloadIsProcessedAndItsDeadLetterCloses"
	keepsIt   = "TestAMessageThatKeepsTheContractClosesTheDeadLetterOfOneThatBrokeIt"
	slots     = "internal/push/slots.go"
	calm      = "internal/push/turn.go"
	turns     = "TestSlotsGoRoundAsTheirModelSays"
	behind    = "TestWhatComesBehindAKeptMessageFindsItsLane"
	endsLane  = "TestWhatComesBackEndsItsLane"
	bounded   = "TestWhatWaitsForASlotIsBounded"
	budget    = "TestNacksForTheSakeOfSingleMessagesHaveABudget"
	kills     = "TestAnEventThatKillsItsWorkersKillsEight"
	noAttempt = "TestWhatIsNoAttemptIsNotCounted"
	delay     = "internal/lane/delay.go"
	inLine    = "TestWhateverWaitsBehindWhateverAKeyIsDoneInOrder"
	stopped   = "TestALaneThatIsStoppedIsLeftAsItIs"
)

// faultsOfWorker are those of attempts, their waits, their lanes and the alarm.
var faultsOfWorker = []fault{
	// In what both kinds of handler share.
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
	// Those of replays past their TTL and of corrected payloads.
	{"a replay expires", turn, `case q.MessageTTL > 0 && !w.replayed &&`, `case q.MessageTTL > 0 &&`, pushDir, outcome},
	{"whatever was attempted is corrected", once, `case found.Status != DeadLettered || len(found.Corrected) == maxCorrected:`,
		`case len(found.Corrected) == maxCorrected:`, pushDir, mayBe},
	{"what was corrected is forgotten", once, `case slices.Contains(found.Corrected, r.record.PayloadHash):`, `case false:`, pushDir, taken},
	{"an id is corrected for ever", once, `|| len(found.Corrected) == maxCorrected:`, `:`, dedupeDir, "TestAnIDIsCorrectedSoManyTimesAndNoMore"},
	{"what broke the contract is a payload", once, `replaceable := found.PayloadHash == ""`, `replaceable := false`, dedupeDir, "TestWhatBrokeTheContractIsInNobodysWay"},
	{"a correction closes nothing", once, `also = r.letters.Close(others)`, `_ = others`, pushDir, taken},
	{"a leased correction closes nothing", once, `also = r.letters.Close(others)`, `if end.Status != Completed || !r.claimed {
			also = r.letters.Close(others)
		}`, pushDir, "TestACorrectionOfALeasedEventAsksTheOtherSideFirst"},
	{"a correction that fails leaves both open", once, `also = r.letters.Close(others)`, `if end.Status == Completed {
			also = r.letters.Close(others)
		}`, pushDir, "TestACorrectionThatFailsForGoodIsADeadLetterInTheOthersPlace"},
	{"a replay corrects itself", once, `return slices.Contains(own, id) })`, `return id == "x" })`, pushDir, "TestWhatBrokeTheContractAndIsReplayedDoesNotCorrectItself"},
	{"a broken message is remembered over a success", correct, `if found.Status != DeadLettered || slices.Contains(found.DeadLetters, letter[0])`,
		`if slices.Contains(found.DeadLetters, letter[0])`, dedupeDir, "TestWhatBrokeTheContractIsInNobodysWay"},
	{"an outside effect is not reconciled", "internal/push/letters.go", `return err == nil && !applied, err`, `_ = applied; return err == nil, err`, pushDir, mayBe},
	{"every queue takes corrections", "internal/push/letters.go", `if l.queue.OnCorrected != catalog.Accept {`, `if false {`, pushDir, mayBe},
	{"a broken message claims the id of its attributes", "internal/push/event.go", `|| (attribute != "" && attribute != id)`, `|| attribute == "?"`, pushDir, keepsIt},
	{"a broken message of another contract claims an id", "internal/push/event.go", `case errors.Is(err, contract.ErrFormat):
		return handler.Event{}, record, marked(err)`, `case false && errors.Is(err, contract.ErrFormat):
		return handler.Event{}, record, marked(err)`, pushDir, keepsIt},
	{"the old payload frees the key of its correction", "internal/push/leave.go", `(a.Outcome == retry.Duplicate && a.Reason != correctedBefore)`, `a.Outcome == retry.Duplicate`, pushDir, "TestACorrectionPassesAndFreesTheKeyThatItsDeadLetterHoldsUp"},
	{"a late letter opens what is corrected", letters, `case !item.Kept.IsZero():`, `case item.Kept.IsZero():`, lettersDir, "TestWhatIsCorrectedBeforeItArrivesIsShownAndFilled"},
	{"a late death opens what is corrected", letters, `case item.State == Corrected || item.ReplayCount > died.ReplayCount`, `case item.ReplayCount > died.ReplayCount`, lettersDir, "TestACorrectedItemStaysClosed"},
	// Those of how a message comes to its slot and to its next attempt.
	// Slots.
	{"a key takes every turn", slots, `s.keys = append(s.keys, key)
	}
	close(w.turn)`, `s.keys = append([]string{key}, s.keys...)
	}
	close(w.turn)`, pushDir, "TestAKeyWithAHundredWaitingDoesNotHoldUpAKeyWithOne"},
	{"who leaves stays in line", slots, `s.forget(key, w)`, `_ = w`, pushDir, turns},
	{"who leaves with a slot keeps it", slots, `case <-w.turn: // while it was leaving
		s.handOver()`, `case <-w.turn: // while it was leaving`, pushDir, "TestATurnThatComesWithTheEndOfAWaitIsPassedOn"},
	{"any number waits for a slot", slots, `s.count == maxWaiting ||`, ``, pushDir, bounded},
	{"any size waits for a slot", slots, `|| s.bytes+size > maxWaitingBytes`, ``, pushDir, bounded},
	{"a slot is taken while draining", slots, `s.free--
		s.mu.Unlock()
		return s.unlessEnded()`, `s.free--
		s.mu.Unlock()
		return true`, pushDir, "TestAWaitForASlotEnds"},
	{"what waits in its request keeps its slot", attempt, `			return s.leave(ctx, w, v.answer)`, `			s.wait(ctx, v.answer.resume)
			return s.leave(ctx, w, v.answer)`, pushDir, "TestAMessageThatWaitsInItsRequestHoldsNoSlot"},

	// Lanes that are rarely looked at.
	{"a queue is calm for ever", calm, `begun.Before(c.until)`, `!c.until.IsZero()`, pushDir, "TestThatAQueueIsCalmIsReadOnceASecondHoweverManyAsk"},
	{"an error is calm", calm, `if err == nil {`, `if err == nil || found {`, pushDir, "TestAReadThatFailsSaysNothingOfCalm"},
	{"calm begins when the read has ended", calm, `c.until, c.found = begun.Add(calmFor), found`, `c.until, c.found = now().Add(calmFor), found`, pushDir, "TestThatAQueueIsCalmIsReadOnceASecondHoweverManyAsk"},
	{"a lane has no queue", lanes, `l.QueueID = name.Queue`, `l.QueueID = ""`, pushDir, "TestOnlyTheFirstOfALaneHoldsItsAcknowledgement"},
	{"what is behind overtakes after a lost acknowledgement", answer, `a.Reason, a.hold = "delayed_before", w.calms`, `a.Reason = "delayed_before"`, pushDir, behind},
	{"what comes back takes its queue for calm", turn, `q.waits || w.returned ||`, `q.waits ||`, pushDir, endsLane},
	{"what has expired leaves its lane", turn, `		w.ends = w.returned
		return verdict{course: final, answer: answer{Outcome: retry.Expired`, `		return verdict{course: final, answer: answer{Outcome: retry.Expired`, pushDir, endsLane},
	{"every message of a lane holds its acknowledgement", settle, `a.hold = w.calms && !place.Exists()`, `a.hold = w.calms`, pushDir, "TestOnlyTheFirstOfALaneHoldsItsAcknowledgement"},

	// Nacks.
	{"a rejection is nacked beyond the budget", answer, `&& !a.quiet && q.nacks.AllowN(now, 1)`, `&& !a.quiet`, pushDir, budget},
	{"what waited in vain is nacked", answer, `&& !a.quiet && q.nacks.AllowN(now, 1)`, `&& q.nacks.AllowN(now, 1)`, pushDir, "TestARefundBeforeItsOrderSlowsNobody"},
	{"a failure is nacked beyond the budget", plan, `(w.delivery.attempt == 0 || w.delivery.attempt == v.attempt) && q.nacks.AllowN(now, 1):`,
		`(w.delivery.attempt == 0 || w.delivery.attempt == v.attempt):`, pushDir, budget},
	{"an outage is kept", plan, `case v.means.Scope == retry.EveryMessage, v.means.Class == retry.Unavailable && q.oneTarget,`,
		`case v.means.Scope != retry.EveryMessage && v.means.Class == retry.Unavailable && q.oneTarget,`, pushDir, "TestOfOneTargetAnOutageIsNackedAndAFailureKept"},
	{"an outage of the only target is kept", plan, `case v.means.Scope == retry.EveryMessage, v.means.Class == retry.Unavailable && q.oneTarget,`,
		`case v.means.Scope == retry.EveryMessage,`, pushDir, "TestOfOneTargetAnOutageIsNackedAndAFailureKept"},
	{"a refund holds up its order", plan, `p.name.OrderingKey = "" // what it waits for may be behind it`, `_ = p`, pushDir, "TestARefundBeforeItsOrderSlowsNobody"},
	{"a held lease is nacked beyond the budget", plan, `case !frees && !q.nacks.AllowN(now, 1):`, `case false:`, pushDir, "TestALeaseHeldBeyondTheBudgetIsKept"},
	{"any doubling is the broker's", "catalog/catalog.go", `p.Multiplier != 2 || p.Jitter != 0 ||`, `p.Multiplier != 2 ||`, "catalog", "TestTheBrokerKeepsTimeWhereItsWaitsAreThePolicyOfEveryType"},

	{"what corrects a dead letter waits behind it", "internal/push/claim.go", `w.frees = w.parks && seen != dedupe.Gone && w.run.Corrects()`, `w.frees = false`,
		pushDir, "TestACorrectionPassesAndFreesTheKeyThatItsDeadLetterHoldsUp"},

	// Times.
	{"an attempt comes before its time", once, `waits := found.Status == Failed && now.Before(found.NextRetryAt)`,
		`waits := found.Status == Failed && now.Before(found.NextRetryAt) && found.DelayTicket != ""`, pushDir, "TestNoAttemptComesBeforeItsTime"},
	{"what comes early is kept without a ticket", once, `record.DelayTicket, record.UpdatedAt = end.Kept.Ticket, r.once.Now()`,
		`record.UpdatedAt = r.once.Now()`, dedupeDir, "TestWhatComesEarlyIsPostponedWithoutAnAttempt"},
	{"a request waits past its ack deadline", plan, `min(maxResume, q.AckDeadline-q.SlotWait-w.policy.Timeout-bookkeeping-1)`, `maxResume`, pushDir, "TestARequestWaitsNoLongerThanItsAckDeadlineLets"},
	{"no alarm is set for a kept message", attempt, `if due.IsZero() {`, `if due == a.due {`, pushDir, "TestOnlyTheFirstOfALaneHoldsItsAcknowledgement"},

	// Attempts that are counted before they run.
	{"an event kills its workers for ever", "internal/push/claim.go", `<= unexplained
`, `<= 100
`, pushDir, kills},
	{"what is no attempt stays counted", settle, `if _, err := w.run.Uncount(ctx, a.Reason); err != nil {`, `if v.course == uncertain {
			break
		}
		if _, err := w.run.Uncount(ctx, a.Reason); err != nil {`, pushDir, noAttempt},
	{"no room stays counted", settle, `if _, err := w.run.Uncount(ctx, a.Reason); err != nil {`, `if v.course == busy {
			break
		}
		if _, err := w.run.Uncount(ctx, a.Reason); err != nil {`, pushDir, noAttempt},
	{"a product that cannot be read is an attempt", "internal/billing/worth.go", `retry.Outage("store_unavailable", err)`, `retry.Down("store_unavailable", err)`, "internal/billing", "TestWhatIsNotKnownNowIsTriedAgain"},
	// Those of how messages of one ordering key wait in line.
	{"a lane that was stopped is relayed", relay, `if l.Stopped {`, `if false {`, laneDir, stopped},
	{"a lane is not stopped by its dead letter", delay, `next.Stopped, next.DueAt, next.OldestAt, next.ExpireAt = true, never, never, time.Time{}`, `next.DueAt, next.OldestAt = never, never`, laneDir, stopped},
	{"what joins a lane makes it younger", delay, `if !l.Holds() {`, `if next.OldestAt = due; !l.Holds() {`, laneDir, "TestAMessageThatJoinsALaneDoesNotMakeItYounger"},
	{"an entry that cannot be read is removed without a dead letter", relay, `done = append(done, r.Unreadable(doc, l.QueueID, r.Now())...)`, `_ = r.Unreadable(doc, l.QueueID, r.Now())`, laneDir, "TestAnEntryThatCannotBeReadBecomesADeadLetterAndItsKeyGoesOn"},
	{"what is put aside again is overtaken", delay, `next.Held = t.number`, `next.Held = l.Held`, laneDir, inLine},
	{"what is put aside again goes to the end of its line", delay, `	if !again {
		t.rank`, `	if t.rank = 0; true {
		t.rank`, laneDir, inLine},
	{"what comes back waits for ever", relay, `l.stamp(e.Message)`, `e.Message`, laneDir, inLine},
	{"a lane is over before its last message", delay, `l.entryID(t) != l.Newest`, `t.rank == 0`, laneDir, "TestALaneIsOverWithItsLastMessage"},
	{"a lane that was changed is written over", lanes, `store.Update(l.key, l.version, next.fields())`, `store.Set(l.key, next.fields())`, laneDir, inLine},
	// Those that would have what is kept released early, late, never or all the time.
	{"a moment is before the time asked for", "internal/alarm/moments.go", `if moment.Before(at) {`, `if false {`,
		"internal/alarm", "TestATimeIsRoundedUpToAQuarterOfASecond"},
	{"moments are not remembered", "internal/alarm/moments.go", `a.micros = slices.Insert(a.micros, at, moment.UnixMicro())`, `_ = at`,
		"internal/alarm", "TestEveryRequestedTimeGetsACall"},
	{"memory of moments has no bound", "internal/alarm/moments.go", `if len(a.micros) >= MaxMoments {`, `if false {`,
		"internal/alarm", "TestMoreMomentsThanFitAreRefused"},
	{"what is asked for during a call is taken for done", "internal/alarm/timer.go", `if !moment.After(t.last) {`, `if false {`,
		"internal/alarm", "TestARequestDuringACallGetsACallAfterIt"},
	{"an earlier moment does not set the timer anew", "internal/alarm/timer.go", `(t.stop != nil && !first.Before(t.armed))`, `t.stop != nil`,
		"internal/alarm", "TestAnEarlierTimeMovesTheTimerForward"},
	{"a timer runs while a call does", "internal/alarm/timer.go", `if !ok || t.calling || t.closed ||`, `if !ok || t.closed ||`,
		"internal/alarm", "TestARequestDuringACallGetsACallAfterIt"},
	{"a closed timer is set again", "internal/alarm/timer.go", `for !t.closed {`, `for t.ctx != nil {`,
		"internal/alarm", "TestCloseEndsARunningCallAndTheNextOnes"},
	{"a task for each message", "internal/gcp/tasks/tasks.go", `return a.requested.Has(moment)`, `return false`,
		"internal/gcp/tasks", "TestEveryRequestedTimeGetsATask"},
	{"a moment that was refused is not asked for again", "internal/gcp/tasks/tasks.go", `if err := a.create(context.WithoutCancel(ctx), moment); err != nil {`,
		`a.requested.Add(moment); if err := a.create(context.WithoutCancel(ctx), moment); err != nil {`, "internal/gcp/tasks", "TestARefusedTaskIsRequestedAgain"},
	{"a task has a name that rises", "internal/gcp/tasks/tasks.go", `ScheduleTime: timestamppb.New(at), DispatchDeadline`,
		`Name: fmt.Sprint(a.config.Queue, "/tasks/", at.Unix()), ScheduleTime: timestamppb.New(at), DispatchDeadline`, "internal/gcp/tasks", "TestATaskPostsToTheWorkerAsThePushAccount"},
	{"Cloud Tasks that hangs holds a push", "internal/gcp/tasks/tasks.go", `timeout = 1500 * time.Millisecond`, `timeout = 15 * time.Second`,
		"internal/gcp/tasks", "TestAtReturnsInTimeWhereCloudTasksHangs"},
	{"an alarm that fails is the handler's timeout", "internal/gcp/tasks/tasks.go", `return retry.Down("alarm_unavailable", err)`, `return err`,
		"internal/gcp/tasks", "TestAtReturnsInTimeWhereCloudTasksHangs"},
	{"clocks are taken to agree", "internal/gcp/tasks/tasks.go", `alarm.Moment(at.Add(skew))`, `alarm.Moment(at)`,
		"internal/gcp/tasks", "TestEveryRequestedTimeGetsATask"},
	{"a worker that drains goes on releasing", "internal/worker/worker.go", `w.timer.Close()`, `_ = w.timer`,
		"internal/worker", "TestAWorkersOwnAlarmReleasesWhatIsKeptOnTimeWithoutTheScheduler"},
	{"what a release leaves behind waits for the minute", tasks, `if !done.More || done.Published == 0 || ctx.Err() != nil {`, `if true {`,
		tasksDir, "TestAllThatIsDueIsReleasedByOneCall"},
}
