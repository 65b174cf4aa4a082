package main

const (
	correct       = "internal/dedupe/corrected.go"
	correctPush   = "internal/push/corrected.go"
	correctLetter = "internal/deadletter/corrected.go"
	mayBe         = "TestOfWhatMayHaveBeenAppliedACorrectionIsAConflict"
	taken         = "TestACorrectedPayloadIsProcessedAndItsDeadLetterCloses"
	keepsIt       = "TestAMessageThatKeepsTheContractClosesTheDeadLetterOfOneThatBrokeIt"
)

// faultsOfCorrected are those of replays past their TTL and of corrected payloads.
var faultsOfCorrected = []fault{
	{"a replay expires", deliver, `case q.MessageTTL > 0 && !d.replayed() &&`, `case q.MessageTTL > 0 &&`, pushDir, outcome},
	{"whatever was attempted is corrected", correct, `case found.Status != DeadLettered || len(found.Corrected) == maxCorrected:`,
		`case len(found.Corrected) == maxCorrected:`, pushDir, mayBe},
	{"what was corrected is forgotten", correct, `case slices.Contains(found.Corrected, r.record.PayloadHash):`, `case false:`, pushDir, taken},
	{"an id is corrected for ever", correct, `|| len(found.Corrected) == maxCorrected:`, `:`, dedupeDir, "TestAnIDIsCorrectedSoManyTimesAndNoMore"},
	{"what broke the contract is a payload", correct, `case found.PayloadHash == "":`, `case false:`, dedupeDir, "TestWhatBrokeTheContractIsInNobodysWay"},
	{"a correction closes nothing", correct, `return r.letters.Close(others)`, `return nil`, pushDir, taken},
	{"a leased correction closes nothing", lease, `return r.settle(ctx, record, r.closing()...)`, `return r.settle(ctx, record)`, pushDir, "TestACorrectionOfALeasedEventAsksTheOtherSideFirst"},
	{"a correction that fails leaves both open", once, `return r.put(ctx, record, r.closing()...)`, `return r.put(ctx, record)`, pushDir, "TestACorrectionThatFailsForGoodIsADeadLetterInTheOthersPlace"},
	{"a replay corrects itself", correct, `func(id string) bool { return id == own })`, `func(id string) bool { return id == own+"x" })`, pushDir, "TestWhatBrokeTheContractAndIsReplayedDoesNotCorrectItself"},
	{"a broken message is remembered over a success", correct, `if found.Status != DeadLettered || slices.Contains(found.DeadLetters, letter[0])`,
		`if slices.Contains(found.DeadLetters, letter[0])`, dedupeDir, "TestWhatBrokeTheContractIsInNobodysWay"},
	{"nobody asks what was done outside", correctPush, `return err == nil && !applied, err`, `_ = applied; return err == nil, err`, pushDir, mayBe},
	{"every queue takes corrections", correctPush, `if l.queue.OnCorrected != catalog.Accept {`, `if false {`, pushDir, mayBe},
	{"a broken message claims the id of its attributes", correctPush, `|| (said != "" && said != id)`, `|| said == "?"`, pushDir, keepsIt},
	{"a broken message of another contract claims an id", correctPush, `case err != nil && retry.Decide(err).Reason == "contract_mismatch":`, `case false:`, pushDir, keepsIt},
	{"the old payload frees the key of its correction", "internal/push/park.go", `case a.Reason == correctedBefore:`, `case false:`, pushDir, "TestACorrectionPassesAndFreesTheKeyThatItsDeadLetterHoldsUp"},
	{"a late letter opens what is corrected", correctLetter, `case !item.Kept.IsZero():`, `case item.Kept.IsZero():`, lettersDir, "TestWhatIsCorrectedBeforeItArrivesIsShownAndFilled"},
	{"a late death opens what is corrected", letters, `case item.State == Corrected || item.ReplayCount > died.ReplayCount`, `case item.ReplayCount > died.ReplayCount`, lettersDir, "TestACorrectedItemStaysClosed"},
}
