package main

const (
	sessionFile = "internal/ops/session.go"
	tailFile    = "internal/ops/tail.go"
	pageDoor    = "internal/ops/pages/door.go"

	forgery = "TestAForgedSessionIsNone"
)

// faultsOfTheDoor are those by which the wrong people look at pages, and those by which a tail is silent
// about something.
var faultsOfTheDoor = []fault{
	{"a session is believed without its MAC", sessionFile, `if !genuine || err != nil ||`, `if (!genuine && err != nil) ||`, "internal/ops", forgery},
	{"a session outlives its token", sessionFile, `proof, key = audit.SharedToken, keyOf(token)`, `proof, key = audit.SharedToken, keyOf("")`, "internal/ops", "TestWhoeverShowsTheTokenIsLetInForTwelveHours"},
	{"a session never ends", sessionFile, `!now.Before(end) || `, ``, "internal/ops", "TestWhoeverShowsTheTokenIsLetInForTwelveHours"},
	{"a name of this machine is one everywhere", sessionFile, `(signed.Proof == audit.ThisMachine && nameless)`, `signed.Proof == audit.ThisMachine`, "internal/ops", forgery},
	{"a change comes from nowhere", sessionFile, `case !looks && r.Header.Get("Sec-Fetch-Site") == "" && r.Header.Get("Origin") == "":`, `case false && !looks:`, pagesDir, "TestAChangeThatAnotherSiteSendsIsNotMade"},
	{"another site signs somebody in", "internal/ops/pages/pages.go", `r.Use(p.fromHere)`, `r.Use(p.refusing)`, pagesDir, "TestAChangeThatAnotherSiteSendsIsNotMade"},
	{"a sign-in leads away from the pages", pageDoor, `!strings.HasPrefix(path.Clean(to.Path)+"/", overview) || `, `path.Clean(to.Path) == "" || `, pagesDir, "TestASignInLeadsToThesePagesAlone"},
	{"a tail forgets what has not ended", tailFile, `if l.Status == dedupe.Processing || l.Status == dedupe.Failed {`, `if l.Status == dedupe.Processing {`, "internal/ops", "TestATailShowsWhatComesInAndWhatBecomesOfIt"},
	{"a tail begins at its newest line", tailFile, `page.Since = f.newest.Add(-tailOverlap)`, `page.Since = f.newest`, "internal/ops", "TestATailShowsWhatComesInAndWhatBecomesOfIt"},
	{"a new tail forgets what an earlier one followed", tailFile, `if f.resumed && f.oldest.Before(page.Since) {`, `if false {`, "internal/ops", "TestATailGoesOnWhereOneWas"},
	{"a tail keeps what it has skipped to itself", tailFile, `look.Skipped = more && `, `look.Skipped = false && more && `, "internal/ops", "TestATailSaysThatMoreHasComeInThanItShows"},
	{"a drain waits for tails", "internal/worker/worker.go", `	w.api.Drain()
`, ``, "internal/worker", "TestADrainEndsTheTails"},
}
