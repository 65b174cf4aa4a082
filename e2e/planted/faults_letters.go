package main

const (
	items       = "internal/deadletter/item.go"
	preview     = "internal/deadletter/preview.go"
	letterPages = "internal/ops/pages/letters.go"
)

// faultsOfNewest are those of lists of dead letters, operations and refunds.
var faultsOfNewest = []fault{
	{"a page of dead letters begins with the one before", items, `Until: f.Until.Truncate(time.Microsecond), After: after}`, `Until: f.Until.Truncate(time.Microsecond)}`,
		"internal/ops", "TestPagesOfDeadLettersShowEachOnceTheNewestFirst"},
	{"a dead letter that has expired ends a page", items, `			case !o.Now().Before(item.Expires):
`, `			case !o.Now().Before(item.Expires):
				return items, nil, nil
`, "internal/ops", "TestPagesOfDeadLettersShowEachOnceTheNewestFirst"},
	{"dead letters are read that are too old", items, `Since: f.Since.Truncate(time.Microsecond), `, ``, "internal/ops", "TestAPageOfDeadLettersCostsWhatItReturns"},
	{"a page token of dead letters is of one name of the queue", "internal/ops/deadletters.go", `params.values.Set("queue", f.Queue)`, `_ = f.Queue`,
		"internal/ops", "TestPagesOfDeadLettersShowEachOnceTheNewestFirst"},
	{"operations begin again with each page", operate, `store.Newest{After: after}`, `store.Newest{}`,
		"internal/ops", "TestOperationsAreListedTheNewestFirstAndCostWhatAPageReturns"},
	{"refunds are listed since they were settled", refund, `Field: "reserved_at", After`, `Field: "settled_at", After`, "internal/ops", "TestRefundsAreListedTheNewestFirstAndCostWhatAPageReturns"},
}

// faultsOfChoice are those of operations on dead letters that somebody chooses, and of their pages.
var faultsOfChoice = []fault{
	{"an operation touches more than was chosen", items, `return f.Item != "" || len(f.Items) > 0`, `return f.Item != ""`, lettersDir, "TestAnOperationTouchesTheItemsThatAreNamedAlone"},
	{"what has expired is counted for an operation", preview, `if f.selects(item, Open) {`, `if f.selects(item, Discarded) {`, lettersDir, "TestAPreviewCountsAllAndReadsTheNewestOnly"},
	{"a preview reads all that matches", preview, `p.Looked < MaxLooked; {`, `p.Looked < MaxItems; {`, lettersDir, "TestAPreviewCountsAllAndReadsTheNewestOnly"},
	{"reasons that were not found are passed over", preview, "	if c.left > 0 {\n		c.found = append(", "	if false {\n		c.found = append(", lettersDir, "TestReasonsAreCountedWithoutReadingTheirLetters"},
	{"a run that is cut off keeps its operation", operate, `if err != nil && ctx.Err() == nil {`, `if err != nil {`, lettersDir, "TestARunThatIsCutOffLeavesTheOperationToTheNextAtOnce"},
	{"a form in which nothing is chosen takes all", letterPages, `if v.query("chosen") != "" && len(f.Items) == 0 {`, `if false {`, pagesDir, "TestTheFormOfAReplaySaysHowManyAndWhatWouldHappen"},
	{"a page begins a replay without a reason", letterPages, `if strings.TrimSpace(v.form("why")) == "" {`, `if false {`, pagesDir, "TestTheFormOfAReplaySaysHowManyAndWhatWouldHappen"},
	{"a page begins an operation and leaves it", letterPages, `if op.Progress == deadletter.Running {`, `if false {`, pagesDir, "TestDeadLettersThatAreChosenAreReplayedAndTheOthersAreNot"},
}
