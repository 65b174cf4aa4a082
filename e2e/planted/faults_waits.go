package main

const (
	slots     = "internal/push/slots.go"
	calm      = "internal/push/turn.go"
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

	{"what corrects a dead letter waits behind it", "internal/push/claim.go", `w.frees = w.parks && w.run.Corrects()`, `w.frees = false`,
		pushDir, "TestACorrectionPassesAndFreesTheKeyThatItsDeadLetterHoldsUp"},

	// Times.
	{"an attempt comes before its time", once, `waits := found.Status == Failed && now.Before(found.NextRetryAt)`,
		`waits := found.Status == Failed && now.Before(found.NextRetryAt) && found.DelayTicket != ""`, pushDir, "TestNoAttemptComesBeforeItsTime"},
	{"what comes early is kept without a ticket", once, `record.DelayTicket, record.UpdatedAt = end.Kept.Ticket, r.once.Now()`,
		`record.UpdatedAt = r.once.Now()`, dedupeDir, "TestWhatComesEarlyIsPostponedWithoutAnAttempt"},
	{"a request waits past its ack deadline", plan, `min(maxResume, q.AckDeadline-q.SlotWait-w.policy.Timeout-bookkeeping-1)`, `maxResume`, pushDir, "TestARequestWaitsNoLongerThanItsAckDeadlineLets"},
	{"no alarm is set for a kept message", attempt, `if !a.due.IsZero() {`, `if !a.due.IsZero() && !a.Delayed {`, pushDir, "TestOnlyTheFirstOfALaneHoldsItsAcknowledgement"},

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
}
