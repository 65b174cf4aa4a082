package main

const (
	searches = "internal/ops/search.go"
	accounts = "internal/ops/accounts.go"
)

// faultsOfSearches are those by which people would be shown another thing than they looked for, or
// would not find it.
var faultsOfSearches = []fault{
	{"an id that no document can have stops a search", searches, `errors.Is(err, store.ErrNotFound) || errors.Is(err, store.ErrInvalid) {`,
		`errors.Is(err, store.ErrNotFound) {`, "internal/ops", "TestASearchFindsAnIDOfAnyKind"},
	{"a search of a tenant ends where others have many", searches, `equal["tenant"] = s.tenant`, `equal[field] = s.id`, "internal/ops", "TestASearchOfATenantIsNotLostAmongOthers"},
	{"a search takes control characters", searches, `audit.Escape(id) != id`, `audit.Escape(id) == ""`, "internal/ops", "TestASearchTakesWhatPeoplePaste"},
	{"the balance of a day is that of now", accounts, `found.Balance -= since`, `found.Balance -= 0 * since`, "internal/ops", "TestAnAccountIsShownAsOfADate"},
	{"an entry that comes meanwhile is counted by half", accounts, `now.Version == doc.Version`, `now.Version != 0`,
		"internal/ops", "TestAnEntryThatComesMeanwhileIsNotCountedByHalf"},
	{"a subscription stands as its oldest event says", "internal/subscriptions/subscriptions.go", `b.at().Compare(a.at())`, `a.at().Compare(b.at())`,
		"internal/subscriptions", "TestTheHistoryOfASubscriptionHasItsNewestEventFirst"},
	{"a verification forgets what it found a step before", "internal/ops/pages/journal.go", `done.Found+int64(len(part.Findings))`, `int64(len(part.Findings))`,
		"internal/ops/pages", "TestAVerificationStopsAtWhatItFindsAndGoesOn"},
}
