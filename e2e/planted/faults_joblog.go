package main

const (
	list    = "internal/dedupe/list.go"
	listing = "TestPagesShowEachEventOnce"
)

// faultsOfLists are those of lists that go by a time, and of the job log.
var faultsOfLists = []fault{
	{"the newest include what is too new", queryFile, `if !l.Newest.Until.IsZero() {`, `if false {`, standinDir, queriesModel},
	{"the newest end too late", queryFile, `bytes.Compare(key, from) >= 0`, `bytes.HasPrefix(key, begins)`, standinDir, queriesModel},
	{"the newest begin with the page before", queryFile, `if after := l.Newest.After; after != nil {`, `if after := l.Newest.After; after != nil && after.ID == "" {`, standinDir, queriesModel},
	{"a part is asked for the same again", list, `behind.After = positionOf(page.Documents[found-1])`, `behind.After = positionOf(page.Documents[0])`, "internal/ops", listing},
	{"a page goes on though a part is unknown", list, `			if newest.unknown() {
				break
			}
`, ``, "internal/dedupe", "TestAPageIsInOrderWhereOnePartHasTheNewest"},
	{"a page reads as much of each part as it may hold", list, `min(chunk, page.Limit-len(records))`, `page.Limit`, standinDir, "TestAPageOfTheJobLogCostsTheSameOfAnyNumber"},
	{"a page of the job log ends among those of one moment", list, `cmp.Or(a.At.Compare(b.At), cmp.Compare(a.ID, b.ID)) > 0`, `cmp.Or(a.At.Compare(b.At), 0) > 0`, "internal/ops", listing},
	{"a token leaves the span that was asked for", "internal/ops/filter.go", `at.at.Before(at.since), `, ``, "internal/ops", "TestAPageTokenGoesWithItsListAndItsFilters"},
}
