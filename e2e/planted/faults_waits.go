package main

const (
	slots     = "internal/push/slots.go"
	calm      = "internal/push/calm.go"
	waiting   = "internal/push/delayed.go"
	inTx      = "internal/push/tx.go"
	answering = "internal/push/push.go"
	turns     = "TestSlotsGoRoundAsTheirModelSays"
	behind    = "TestWhatComesBehindAKeptMessageFindsItsLane"
	endsLane  = "TestWhatComesBackEndsItsLane"
	bounded   = "TestWhatWaitsForASlotIsBounded"
	budget    = "TestNacksForTheSakeOfSingleMessagesHaveABudget"
	kills     = "TestAnEventThatKillsItsWorkersKillsEight"
	noAttempt = "TestWhatIsNoAttemptIsNotCounted"
)

// faultsOfWaits are those of how a message comes to its slot and to its next attempt.
var faultsOfWaits = []fault{
	// Slots.
	{"a key takes every turn", slots, `s.keys = append(s.keys, key)
	}
	close(w.turn)`, `s.keys = append([]string{key}, s.keys...)
	}
	close(w.turn)`, pushDir, "TestAKeyWithAHundredWaitingDoesNotHoldUpAKeyWithOne"},
	{"who leaves stays in line", slots, `s.forget(key, w)`, `_ = w`, pushDir, turns},
	{"who leaves with a slot keeps it", slots, `case <-w.turn: // while it was leaving
		s.pass()`, `case <-w.turn: // while it was leaving`, pushDir, "TestATurnThatComesWithTheEndOfAWaitIsPassedOn"},
	{"any number waits for a slot", slots, `s.count == maxWaiting ||`, ``, pushDir, bounded},
	{"any size waits for a slot", slots, `|| s.bytes+size > maxWaitingBytes`, ``, pushDir, bounded},
	{"a slot is taken while draining", slots, `s.free--
		s.mu.Unlock()
		return s.unless(end)`, `s.free--
		s.mu.Unlock()
		return true`, pushDir, "TestAWaitForASlotEnds"},
	{"what waits in its request keeps its slot", "internal/push/deliver.go", `	defer q.slots.release()
	return run()`, `	a := run()
	s.until(ctx, a.resume)
	q.slots.release()
	return a`, pushDir, "TestAMessageThatWaitsInItsRequestHoldsNoSlot"},

	// Lanes that are rarely looked at.
	{"a queue is calm for ever", calm, `begun.Before(c.until)`, `!c.until.IsZero()`, pushDir, "TestThatAQueueIsCalmIsReadOnceASecondHoweverManyAsk"},
	{"an error is calm", calm, `if err == nil {`, `if err == nil || found {`, pushDir, "TestAReadThatFailsSaysNothingOfCalm"},
	{"calm begins when the read has ended", calm, `c.until, c.found = begun.Add(calmFor), found`, `c.until, c.found = now().Add(calmFor), found`, pushDir, "TestThatAQueueIsCalmIsReadOnceASecondHoweverManyAsk"},
	{"a lane has no queue", lanes, `l.QueueID = name.Queue`, `l.QueueID = ""`, pushDir, "TestOnlyTheFirstOfALaneHoldsItsAcknowledgement"},
	{"what is behind overtakes after a lost acknowledgement", "internal/push/deliver.go", `Reason: "delayed_before", hold: s.unsettled(w)}`, `Reason: "delayed_before"}`, pushDir, behind},
	{"what comes back takes its queue for calm", waiting, `case w.queue.waits, w.delivery.ticket() != "":`, `case w.queue.waits:`, pushDir, endsLane},
	{"what has expired leaves its lane", "internal/push/deliver.go", `		s.leave(ctx, q, d)
		return answer{Outcome: retry.Expired`, `		return answer{Outcome: retry.Expired`, pushDir, endsLane},
	{"every message of a lane holds its acknowledgement", waiting, `if w.newLane {
		a.hold`, `if w.newLane || !w.newLane {
		a.hold`, pushDir, "TestOnlyTheFirstOfALaneHoldsItsAcknowledgement"},

	// Nacks.
	{"a rejection is nacked beyond the budget", answering, `(a.quiet || !s.mayNack(q))`, `a.quiet`, pushDir, budget},
	{"what waited in vain is nacked", answering, `(a.quiet || !s.mayNack(q))`, `!s.mayNack(q)`, pushDir, "TestARefundBeforeItsOrderSlowsNobody"},
	{"a failure is nacked beyond the budget", waiting, `(w.delivery.attempt == 0 || w.delivery.attempt == failed) && s.mayNack(w.queue)`,
		`(w.delivery.attempt == 0 || w.delivery.attempt == failed)`, pushDir, budget},
	{"an outage is kept", waiting, `case verdict.Scope == retry.EveryMessage, verdict.Class == retry.Unavailable && w.queue.oneTarget:`,
		`case verdict.Class == retry.Unavailable && w.queue.oneTarget && verdict.Scope != retry.EveryMessage:`, pushDir, "TestOfOneTargetAnOutageIsNackedAndAFailureKept"},
	{"an outage of the only target is kept", waiting, `case verdict.Scope == retry.EveryMessage, verdict.Class == retry.Unavailable && w.queue.oneTarget:`,
		`case verdict.Scope == retry.EveryMessage:`, pushDir, "TestOfOneTargetAnOutageIsNackedAndAFailureKept"},
	{"a refund holds up its order", waiting, `lane.OrderingKey = "" // what it waits for may be behind it`, `_ = lane`, pushDir, "TestARefundBeforeItsOrderSlowsNobody"},
	{"a held lease is nacked beyond the budget", waiting, `case w.letsGo(), s.mayNack(w.queue):`, `case w.letsGo(), s.mayNack(w.queue), true:`, pushDir, "TestALeaseHeldBeyondTheBudgetIsKept"},
	{"any doubling is the broker's", "catalog/catalog.go", `p.Multiplier != 2 || p.Jitter != 0 ||`, `p.Multiplier != 2 ||`, "catalog", "TestTheBrokerKeepsTimeWhereItsWaitsAreThePolicyOfEveryType"},

	{"what corrects a dead letter waits behind it", "internal/push/park.go", `(w.delivery.replayed() || w.run.Corrects())`, `w.delivery.replayed()`,
		pushDir, "TestACorrectionPassesAndFreesTheKeyThatItsDeadLetterHoldsUp"},

	// Times.
	{"an attempt comes before its time", once, `waits := found.Status == Failed && !own && now.Before(found.NextRetryAt)`,
		`waits := found.Status == Failed && !own && now.Before(found.NextRetryAt) && found.DelayTicket != ""`, pushDir, "TestNoAttemptComesBeforeItsTime"},
	{"what comes early is kept without a ticket", once, `record.DelayTicket, record.UpdatedAt = r.kept.ticket, r.once.Now()`,
		`record.UpdatedAt = r.once.Now()`, dedupeDir, "TestWhatComesEarlyIsPostponedWithoutAnAttempt"},
	{"a request waits past its ack deadline", waiting, `at.Sub(received)+w.queue.SlotWait+w.spec().Timeout+bookkeeping < w.queue.AckDeadline`, `true`, pushDir, "TestARequestWaitsNoLongerThanItsAckDeadlineLets"},
	{"nobody rings for what is kept", waiting, `if a.due.IsZero() {
		return
	}`, `if a.Delayed {
		return
	}`, pushDir, "TestOnlyTheFirstOfALaneHoldsItsAcknowledgement"},

	// Attempts that are counted before they run.
	{"an event kills its workers for ever", inTx, `<= unexplained:`, `<= 100:`, pushDir, kills},
	{"what is no attempt stays counted", inTx, `	s.uncount(ctx, w, verdict)
	return again(verdict, err, 0)`, `	return again(verdict, err, 0)`, pushDir, noAttempt},
	{"no room stays counted", inTx, `		s.uncount(ctx, w, verdict)
		return s.busy(`, `		return s.busy(`, pushDir, noAttempt},
	{"a product that cannot be read is an attempt", "internal/billing/worth.go", `retry.Outage("store_unavailable", err)`, `retry.Down("store_unavailable", err)`, "internal/billing", "TestWhatIsNotKnownNowIsTriedAgain"},
}
