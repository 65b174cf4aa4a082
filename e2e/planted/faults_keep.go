package main

const pagesDir = "internal/ops/pages"

// faultsOfKeeping are those of the pages by which people change what they keep, and of the test that
// compares pages with commands.
var faultsOfKeeping = []fault{
	{"a page sets a product whatever it is worth by then", pagesDir + "/products.go", `set := ops.SetProduct{Points: points, Change: products.Change{Why: v.form("why"), Expect: &expect}}`,
		`_, set := expect, ops.SetProduct{Points: points, Change: products.Change{Why: v.form("why")}}`, pagesDir, "TestAProductIsSetAndRetiredOnItsPage"},
	{"a page links a customer whoever it is linked to by then", pagesDir + "/customers.go", `link := customers.Change{UID: strings.TrimSpace(v.form("uid")), Why: v.form("why"), Expect: &expect}`,
		`_, link := expect, customers.Change{UID: strings.TrimSpace(v.form("uid")), Why: v.form("why")}`, pagesDir, "TestACustomerIsFoundLinkedAndUnlinked"},
	{"a form that was refused is answered as one that was taken", pagesDir + "/pages.go", `p.render(v, problem.Status, file, data)`, `p.render(v, http.StatusOK, file, data)`, pagesDir, "TestAProductIsSetAndRetiredOnItsPage"},
	{"an endpoint that does not answer is a database that does not", pagesDir + "/keep.go", `if errors.Is(err, context.DeadlineExceeded) && v.ctx.Err() == nil {`, `if errors.Is(err, context.Canceled) {`, pagesDir, "TestAnEndpointIsTestedForAsLongAsAPageMayTake"},
	{"a page that counts removes", pagesDir + "/upkeep.go", `all.DryRun, all.Next = !all.Removing, from`, `all.DryRun, all.Next = false, from`, pagesDir, "TestACleanupIsCountedAndThenGoesOnPageByPage"},
	{"a command that counts removes", "cmd/billhook/cleanup.go", `found, err := p.clean(ctx, worker, older, true)`, `found, err := p.clean(ctx, worker, older, false)`, cmdDir, "TestACleanupCountsAllPagesBeforeItRemovesAny"},
	{"the outbox has no page", pagesDir + "/keep.go", "	p.upkeepRoutes(r)\n", "", cmdDir, "TestWhateverAPageDoesACommandDoesByTheSameCall"},
	{"a page asks for what no command does", pagesDir + "/upkeep.go", `v.get("/v1/ops/outbox?limit="+rows, &lanes)`, `v.get("/v1/ops/pauses?limit="+rows, &lanes)`, cmdDir, "TestWhateverAPageDoesACommandDoesByTheSameCall"},
}
