package main

const items = "internal/deadletter/item.go"

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
