package main

// faultsOfServices are in what somebody is told who sets up a service, a catalog or the queues.
var faultsOfServices = []fault{
	{"a port is any word", "internal/env/env.go", `strconv.ParseUint(string(text), 10, 16); err != nil {`, `strconv.ParseUint(string(text), 10, 16); err != nil && false {`,
		"internal/env", "TestAPortIsANumberThatAPortCanHave"},
	{"a mistake of the environment hides those of the catalog", workerMain, `errors.Join(envErr, catalogErr, keyErr); err != nil {`, `errors.Join(envErr, keyErr); err != nil {`,
		"cmd/worker", "TestABadEnvironmentIsReportedAtOnceAndWithoutItsSecrets"},
	{"a wrong use exits as a failure", "internal/serve/serve.go", `return coded.ExitCode()`, `return 1`, "cmd/worker", "TestAnArgumentIsWrongUse"},
	{"a default's mistake is every queue's", "catalog/mistake.go", `case caused[same] && (set || times > 1 && r.lines[queuesFile+": defaults"] > 0):`, `case false && set:`,
		"catalog", "TestAMistakeInADefaultIsToldOnce"},
	{"what follows from a default is a mistake too", "catalog/mistake.go", `return inQueue && (inherits || relates(m, m.Key))`, `return false && inQueue && inherits`,
		"catalog", "TestAMistakeInADefaultIsToldOnce"},
	{"a mistake is on the line of its entry", "catalog/mistake.go", `if line := l[place+": "+at]; line > 0 {`, `if line := l[place+": "+at]; line < 0 {`,
		"catalog", "TestEachMistakeNamesFileQueueAndKey"},
	{"a catalog that cannot be loaded is not asked about its handlers", "cmd/billhook/catalog.go", `unlessKnown(answer.Mistakes, refusedHandlers(c))...)`, `unlessKnown(answer.Mistakes, nil)...)`,
		"cmd/billhook", "TestCatalogCheckTellsEveryKindOfMistakeAtOnce"},
	{"one mistyped handler of orders is five", "internal/orders/orders.go", `if q, _ = c.HandledBy(name); q.ID != "" {`, `if q, _ = c.HandledBy(createHandler); q.ID != "" || name == "" {`,
		"cmd/billhook", "TestCatalogCheckTellsEveryKindOfMistakeAtOnce"},
	{"nobody answers, and everything is tried", provision, `	p.unanswered = errors.Is(`, `	p.unanswered = false && errors.Is(`, pubsubDir, "TestProvisionGoesOnAfterAFailureAndTellsWhatBecameOfEach"},
	{"a failure of provision is a success", "cmd/billhook/provision.go", `if failed > 0 {`, `if failed < 0 {`, "cmd/billhook", "TestProvisionTellsWhatBecameOfEachResource"},
}
