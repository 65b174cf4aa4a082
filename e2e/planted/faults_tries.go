package main

// Trials.
const (
	tries       = "internal/push/try.go"
	trialShown  = "internal/dryrun/changes.go"
	trialAsked  = "internal/dryrun/desk.go"
	trialWalks  = "internal/dryrun/compare.go"
	trialWorker = "internal/worker/tries.go"
	dryrunDir   = "internal/dryrun"
	workerTries = "internal/worker"

	trialDoesNothing = "TestATrialDoesNothingAndSaysWhatADeliveryDoes"
	listsDifferences = "TestOnlyWhatDiffersFromWhatWasDoneIsListed"
)

// faultsOfTries are those by which a trial would do something, or say what is not so.
var faultsOfTries = []fault{
	{"a trial runs a leased handler", tries, `planned, err := leased.Plan(ctx, event)`,
		`planned, err := leased.Plan(ctx, event)
			_, _ = leased.Do(ctx, event)`, workerTries, trialDoesNothing},
	{"a store for trials takes writes", "internal/dryrun/dryrun.go", `	return nil, retry.Permanent(Commits, nil)`, `	return nil, nil`, dryrunDir, "TestAStoreForTrialsTakesNoWrites"},
	{"a trial passes by the record", tries, `seen != dedupe.Fresh && seen != dedupe.Early && seen != dedupe.Waiting`, `false`, workerTries, trialDoesNothing},
	{"a trial passes by what is there", trialShown, `case w.Op == store.OpCreate && !missing,`, `case false,`, workerTries, "TestATrialAsksAgainWhereWhatItAssumedIsNotSo"},
	{"a trial shows secrets", trialShown, `strings.HasSuffix(name, "secret")`, `strings.HasSuffix(name, "secret?")`, dryrunDir, "TestAWriteIsShownAsWhatItChanges"},
	{"a closed dead letter goes before what waits", trialAsked, `c.rank = 3`, `c.rank = -1`, workerTries, "TestATrialPrefersWhatIsStillToBeDone"},
	{"a trial goes by the running catalog", trialWorker, `c.Catalog = replaced`, `_ = replaced`, "cmd/billhook", "TestEventsAreTriedFromATerminal"},
	{"another reason is the same", trialWalks, `return was.Outcome == t.Outcome && was.Reason == t.Reason, true`, `return was.Outcome == t.Outcome, true`, dryrunDir, listsDifferences},
	{"a page begins with the last of the page before", trialWalks, `at.id = doc.Key.ID`, `_ = doc.Key.ID`, dryrunDir, "TestAPageEndsWhenItsTimeIsOverAndLosesNothing"},
	{"what waits is not compared", trialWalks, `return place{stage: Delayed}, false`, `return place{}, true`, dryrunDir, listsDifferences},
}
