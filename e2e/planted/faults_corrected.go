package main

const (
	correct = "internal/dedupe/corrected.go"
	mayBe   = "TestOfWhatMayHaveBeenAppliedACorrectionIsAConflict"
	taken   = "TestACorrectedPayloadIsProcessedAndItsDeadLetterCloses"
	keepsIt = "TestAMessageThatKeepsTheContractClosesTheDeadLetterOfOneThatBrokeIt"
)

// faultsOfCorrected are those of replays past their TTL and of corrected payloads.
var faultsOfCorrected = []fault{
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
	{"a broken message claims the id of its attributes", "internal/push/event.go", `|| (attribute != "" && attribute != claim.ID)`, `|| attribute == "?"`, pushDir, keepsIt},
	{"a broken message of another contract claims an id", "internal/push/event.go", `case errors.Is(err, contract.ErrFormat):
		return handler.Event{}, record, marked(err)`, `case false && errors.Is(err, contract.ErrFormat):
		return handler.Event{}, record, marked(err)`, pushDir, keepsIt},
	{"the old payload frees the key of its correction", "internal/push/leave.go", `(a.Outcome == retry.Duplicate && a.Reason != correctedBefore)`, `a.Outcome == retry.Duplicate`, pushDir, "TestACorrectionPassesAndFreesTheKeyThatItsDeadLetterHoldsUp"},
	{"a late letter opens what is corrected", letters, `case !item.Kept.IsZero():`, `case item.Kept.IsZero():`, lettersDir, "TestWhatIsCorrectedBeforeItArrivesIsShownAndFilled"},
	{"a late death opens what is corrected", letters, `case item.State == Corrected || item.ReplayCount > died.ReplayCount`, `case item.ReplayCount > died.ReplayCount`, lettersDir, "TestACorrectedItemStaysClosed"},
}
