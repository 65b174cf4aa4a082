package main

// faultsOfDoors are those at the doors: memory before the signature, the metrics' port,
// and how long things are kept.
var faultsOfDoors = []fault{
	{"a body is read before its headers are looked at", "internal/webhook/admit.go", `claim, err := from.verifier.Headers(r.Header.Values)`,
		`_ = b.body.Read(w, r, from.MaxBodyBytes, s.bodies); claim, err := from.verifier.Headers(r.Header.Values)`, "internal/webhook", "TestWhatTheHeadersRefuseCostsNoByteOfItsBody"},
	{"a body without an encoding may not say so", "internal/webhook/admit.go", `!strings.EqualFold(encoding, "identity")`, `true`, "internal/webhook", "TestABodyThatIsNotEncodedMaySaySo"},
	{"a large buffer is kept", "internal/webhook/admit.go", `if cap(*buffer) > mostKept {`, `if cap(*buffer) > 64*mostKept {`, "internal/webhook", "TestALargeBufferIsNotKeptForTheNextRequest"},
	{"a budget has no end", "internal/serve/body.go", `if bytes > b.bytes-held {`, `if bytes < 0 {`, "internal/webhook", "TestBodiesInFlightHoldNoMoreThanTheirBudget"},
	{"bodies that were answered are still counted", "internal/serve/body.go", `budget.Release(b.claimed)`, `budget.Release(0)`, "internal/webhook", "TestAPanicGivesBackWhatItsBodyHeld"},
	{"what is announced is claimed", "internal/serve/body.go", `size := 2 * old`, `size := most + 1`, "internal/webhook", "TestAnAnnouncedLengthHoldsNothing"},
	{"a push that was answered holds its body", "internal/push/push.go", `defer d.release()
	a, record`, `a, record`, pushDir, "TestAnAnsweredPushHoldsNothing"},
	{"a dead letter that was kept holds its body", "internal/push/push.go", `defer d.release()
	ctx, cancel`, `ctx, cancel`, pushDir, "TestAnAnsweredPushHoldsNothing"},
	{"the metrics are on the public port too", "internal/webhook/webhook.go", `serve.Health(router, s.draining.Load)`,
		`serve.Health(router, s.draining.Load); router.Method(http.MethodGet, "/metrics", config.Metrics.Handler())`, "cmd/webhook", "TestTheMetricsAreNotOnThePublicPort"},
	{"an answer is cut off while its handler works", "internal/serve/serve.go", `s.ReadTimeout + s.Longest + toRead,`, `s.Longest,`, "internal/serve", "TestTheWriteTimeoutHoldsTheLongestRequestAndItsWork"},
	{"an emulator is asked for more than it keeps", "internal/gcp/pubsub/provision.go", `retention = min(retention, emulatorRetention)`, `retention = max(retention, emulatorRetention)`,
		"internal/gcp/pubsub", "TestWhatTheCatalogKeepsIsAskedForAsFarAsItCanBe"},
}
