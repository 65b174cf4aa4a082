package main

const (
	only         = "catalog/only.go"
	balance      = "catalog/messages.go"
	shippedFile  = "catalog/queues.yaml"
	workerMain   = "cmd/worker/main.go"
	standInFile  = "internal/standin/receiver.go"
	narrowed     = "TestADeploymentRunsTheQueuesThatItNamesAlone"
	lacking      = "TestADeploymentThatLacksWhatItNeedsIsRefusedWithTheReason"
	documents    = "TestTheShippedNumbersAreThoseOfTheRequirements"
	overlap      = "TestPatternsOverlapWhereAKeyIsHeldByBoth"
	tasksOf      = "TestTheTasksAreOfAPoolThatRuns"
	chaosCount   = "e2e/chaos/count.go"
	twoOfOneType = "TestTwoHandlersForOneTypeAreRefusedWhereNeitherIsNarrower"
)

// faultsOfRunning are those of what a deployment runs, and of a catalog that does not hold
// together.
var faultsOfRunning = []fault{
	{"a queue that is not named runs", only, `only.Queues[i].Enabled = running[only.Queues[i].ID]`, `only.Queues[i].Enabled = c.Queues[i].Enabled`, catalogs, narrowed},
	{"an event is routed to a queue that does not run", only, `return !running[id] })`, `return id == "" })`, catalogs, "TestANarrowedCatalogNeedsNothingThatDoesNotRun"},
	{"a secret is asked for of a source that routes nowhere", only, `if len(s.Events) > 0 || name == Producers {`, `if true {`, "cmd/webhook", "TestRunAsksForNoSecretOfASourceThatRoutesNowhere"},
	{"producers have no door where nothing is routed", only, `|| name == Producers {`, `|| name == "" {`, catalogs, narrowed},
	{"a queue runs without the one that it emits to", only, `case !q.Enabled, isQueue && to.Enabled,`, `case !q.Enabled, isQueue && to.ID != "",`, catalogs, lacking},
	{"a misspelt queue is passed over", only, `		case !ok:
			mistakes`, `		case !ok && name == "":
			mistakes`, catalogs, lacking},
	{"a target that no running queue posts to is needed", targetFile, `(q.Enabled && (pool == "" || q.Pool == pool))`, `(pool == "" || q.Pool == pool)`, catalogs, narrowed},
	{"a handler's target is not opened", targetFile, `	return h.Calls
`, `	return nil
`, catalogs, "TestAHandlerOfGoSaysWhichTargetsItCalls"},
	{"a pool without a queue has a worker", workerMain, `c.Pool == "" || slices.Contains(runs, c.Pool):`, `c.Pool == "" || slices.Contains(cat.Pools(), c.Pool):`, "cmd/worker", "TestABadEnvironmentIsReportedAtOnceAndWithoutItsSecrets"},
	{"a binding may match nothing", balance, `case !slices.ContainsFunc(contracts.Types(q.Contract), meets(p)):`, `case false:`, catalogs, mistakes},
	{"a binding may have no handler", balance, `case len(q.Handlers) > 0 && !slices.ContainsFunc(types, meets(p)):`, `case false:`, catalogs, mistakes},
	{"a handler may wait for what is never let through", balance, `!slices.ContainsFunc(q.Bindings, lets) {`, `false && lets("") {`, catalogs, mistakes},
	{"spelling chooses between two handlers", routes, `return meet[0]`, `return false && meet[0]`, catalogs, twoOfOneType},
	{"a # stands for one word at least", routes, `meet[j] = below[j] || right && meet[j+1]`, `meet[j] = right && (below[j+1] || meet[j+1])`, routesDir, overlap},
	{"a number of the requirements is another", shippedFile, `rate: { per_second: 500, per_user: 5,`, `rate: { per_second: 500, per_user: 6,`, catalogs, documents},
	{"one path's key is another's", standInFile, `event, known := r.events[delivered{d.Path, d.Key}]`, `event, known := r.events[delivered{"", d.Key}]`, "internal/standin", "TestTheReceiverAppliesAKeyOnce"},
	{"the tasks are of a pool that does not run", only, `only.TasksPool = only.tasksPool(c.TasksPool)`, `only.TasksPool = c.tasksPool(c.TasksPool)`, catalogs, tasksOf},
	{"the tasks are of the first pool, whatever the catalog says", only, `if len(pools) == 0 || slices.Contains(pools, named) {`, `if len(pools) == 0 {`, catalogs, tasksOf},
	{"a pool without an enabled queue may have the tasks", loads, `if !slices.Contains(c.Pools(), file.TasksPool) {`, `if false {`, catalogs, mistakes},
	{"others have a topic that nobody tells", only, `func(t Topic) bool { return !only.emits(t.ID) })`, `func(t Topic) bool { return !c.emits(t.ID) })`, catalogs, narrowed},
	{"a payment that is refunded twice counts once", chaosCount, `f.times, f.unrecorded = o.gateway.Refunded(e.key), f.unrecorded`, `f.times, f.unrecorded = min(1, o.gateway.Refunded(e.key)), f.unrecorded`, "e2e/chaos", "TestAPaymentThatIsRefundedTwiceIsCounted"},
}
