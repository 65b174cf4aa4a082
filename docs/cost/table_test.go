// Package cost_test computes the costs of a month, and holds the table in docs/deploying.md to
// it. It starts from the operations that tests count and from list prices with their date. It
// owns the assumptions. It refuses to estimate an item that has no price here.
package cost_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"billhook/catalog"
	"billhook/internal/pipeline/alarm"
	"billhook/internal/pipeline/rates"
)

// List prices in US dollars, from the pages that docs/deploying.md names, as of 2026-11-21.
const (
	readsPer100k   = 0.06 // Firestore, United States multi-region
	writesPer100k  = 0.18
	deletesPer100k = 0.02
	storagePerGiB  = 0.18 // per month

	throughputPerTiB = 40.0 // Pub/Sub
	freeThroughput   = 10 * gib
	leastBytes       = 1000 // the least that a request is charged as

	cpuSecond      = 0.000024 // Cloud Run, billed by request, tier 1
	memorySecond   = 0.0000025
	millionRequest = 0.40
	// An instance that is kept without requests has its memory, and next to no CPU.
	idleCPUSecond    = 0.0000025
	idleMemorySecond = 0.0000025
	freeCPU          = 180_000
	freeMemory       = 360_000
	freeRequests     = 2_000_000

	millionOperations = 0.40 // Cloud Tasks, beyond the first million of a month

	gib = 1 << 30
	tib = 1 << 40
)

// Assumptions.
const (
	memoryGiB = 0.5
	// billedSeconds of an instance per request: the least that is billed, as if no two requests
	// shared an instance.
	billedSeconds = 0.1
	// attributeBytes of a message, including its id and timestamp.
	attributeBytes = 450
	// storedBytes of an event, including its index entries.
	storedBytes = 4096
	// monthSeconds of 30 days.
	monthSeconds = 30 * 24 * 3600
)

// kinds are the shares of the events by kind, under the names of the rows in
// docs/exactly-once.md.
var kinds = []struct {
	row     string
	percent float64
}{
	{"new `Tx` event whose effect needs no state (a credit)", 95},
	{"new `Tx` event whose effect needs state (a refund)", 3},
	{"duplicate", 2},
}

// operations on the store for an average event.
type operations struct{ reads, writes, deletes float64 }

// parseOperations reads the operations of a delivery from the table that tests check.
func parseOperations(document string) (operations, error) {
	var all operations
	for _, kind := range kinds {
		match := regexp.MustCompile(`(?m)^\| ` + regexp.QuoteMeta(kind.row) + ` \| (\d+) \| [^|]+ \| (\d+) \|$`).FindStringSubmatch(document)
		if match == nil {
			return operations{}, fmt.Errorf("cost: docs/exactly-once.md has no row %q", kind.row)
		}
		reads, _ := strconv.ParseFloat(match[1], 64)  // the expression matches digits only
		writes, _ := strconv.ParseFloat(match[2], 64) // the same
		share := kind.percent / 100
		all.reads += share * reads
		all.writes += share * writes
		if writes > 0 {
			all.deletes += share // TTL removes the record
		}
	}
	return all, nil
}

// Rows of docs/exactly-once.md: a message of a queue with a leased handler, and one of a queue
// without records.
const (
	leasedRow = "new leased event"
	lossyRow  = "any message of a queue without records (`remember_for: \"0s\"`), whatever becomes of it"
)

// millionRecords is what a million messages of a leased queue cost the database for their records.
func millionRecords(document string) (dollars, written float64, err error) {
	operationsOf := func(row string) (reads, writes float64) {
		match := regexp.MustCompile(`(?m)^\| ` + regexp.QuoteMeta(row) + ` \| (\d+) \| [^|]+ \| (\d+) \|$`).FindStringSubmatch(document)
		if match == nil {
			err = fmt.Errorf("cost: docs/exactly-once.md has no row %q", row)
			return 0, 0
		}
		reads, _ = strconv.ParseFloat(match[1], 64)  // the expression matches digits only
		writes, _ = strconv.ParseFloat(match[2], 64) // the same
		return reads, writes
	}
	reads, writes := operationsOf(leasedRow)
	none, nothing := operationsOf(lossyRow)
	removed := 1.0 // by TTL
	return 10 * ((reads-none)*readsPer100k + (writes-nothing)*writesPer100k + removed*deletesPer100k), writes - nothing, err
}

// upkeep is what the tasks of a month do without any event: their runs, the documents they
// read and write, and the lines they log.
type upkeep struct{ runs, reads, writes, lines int }

// idleRun is one run of a task that finds nothing. A query without a result is charged as one
// read.
func idleRun(task string, letterQueues int) upkeep {
	switch task {
	case "relay-outbox", "release-delayed":
		return upkeep{runs: 1, reads: 2, lines: 1} // what is due, and the oldest
	case "count-dead-letters":
		return upkeep{runs: 1, reads: letterQueues, lines: letterQueues + 1}
	case "count-backlogs":
		return upkeep{runs: 1, writes: 1, lines: 1} // all queues in one document
	default:
		return upkeep{runs: 1, reads: 1, lines: 1}
	}
}

// letterQueues counts the queues that keep dead letters.
func letterQueues(c *catalog.Catalog) int {
	count := 0
	for _, q := range c.Queues {
		if !q.DeadLetter.Drop {
			count++
		}
	}
	return count
}

var (
	schedules = regexp.MustCompile(`(?s)\n  tasks = \{\n(.+?)\n  \}`)
	schedule  = regexp.MustCompile(`^ +([a-z-]+) += "\*(?:/(\d+))? \* \* \* \*"$`)
)

// runsPerMonth returns how often a month each task runs, from Terraform's configuration.
func runsPerMonth(configuration string) (map[string]int, error) {
	match := schedules.FindStringSubmatch("\n" + configuration)
	if match == nil {
		return nil, errors.New("cost: terraform/main.tf has no tasks")
	}
	called := map[string]int{}
	for line := range strings.Lines(match[1]) {
		entry := schedule.FindStringSubmatch(strings.TrimSuffix(line, "\n"))
		if entry == nil {
			return nil, fmt.Errorf("cost: terraform/main.tf calls a task neither every minute nor every few: %s", strings.TrimSpace(line))
		}
		every, err := strconv.Atoi(entry[2])
		if err != nil { // "*" is every minute
			every = 1
		}
		called[entry[1]] = monthSeconds / 60 / every
	}
	return called, nil
}

// millionAlarms is the cost of a million alarm calls beyond the free part: the task is created
// and dispatched, and the run finds nothing.
func millionAlarms() float64 {
	run := idleRun("release-delayed", 0)
	return 2*millionOperations + millionRequest + 1_000_000*billedSeconds*(cpuSecond+memoryGiB*memorySecond) + 10*float64(run.reads)*readsPer100k
}

// upkeepOf adds up the runs of a month.
func upkeepOf(called map[string]int, letterQueues int) upkeep {
	var all upkeep
	for task, runs := range called {
		one := idleRun(task, letterQueues)
		all.runs += runs * one.runs
		all.reads += runs * one.reads
		all.writes += runs * one.writes
		all.lines += runs * one.lines
	}
	return all
}

// month holds the costs of a month.
type month struct{ firestore, storage, pubsub, cpu, memory, requests float64 }

func (m month) total() float64 {
	return m.firestore + m.storage + m.pubsub + m.cpu + m.memory + m.requests
}

func price(events float64, of operations, tasks upkeep, messageBytes float64) month {
	requests := 2*events + float64(tasks.runs) // webhook and push of each event, and the tasks
	seconds := requests * billedSeconds
	return month{
		firestore: events/100_000*(of.reads*readsPer100k+of.writes*writesPer100k+of.deletes*deletesPer100k) + float64(tasks.reads)/100_000*readsPer100k + float64(tasks.writes)/100_000*writesPer100k,
		storage:   events * storedBytes / gib * storagePerGiB,
		pubsub:    max(0, 2*events*max(leastBytes, messageBytes)-freeThroughput) / tib * throughputPerTiB, // published and pushed
		cpu:       max(0, seconds-freeCPU) * cpuSecond,
		memory:    max(0, seconds*memoryGiB-freeMemory) * memorySecond,
		requests:  max(0, requests-freeRequests) / 1_000_000 * millionRequest,
	}
}

// table is the generated text between the marks.
func table(of operations, tasks upkeep, messageBytes, recordDollars, recordWrites float64) string {
	var b strings.Builder
	b.WriteString("| events a month | Firestore operations | Firestore storage | Pub/Sub | Cloud Run CPU | memory | requests | together |\n")
	b.WriteString("| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n")
	for _, millions := range []float64{1, 10, 100} {
		m := price(millions*1_000_000, of, tasks, messageBytes)
		fmt.Fprintf(&b, "| %.0f million | $%.2f | $%.2f | $%.2f | $%.2f | $%.2f | $%.2f | **$%.2f** |\n",
			millions, m.firestore, m.storage, m.pubsub, m.cpu, m.memory, m.requests, m.total())
	}
	fmt.Fprintf(&b, "\nAn event is %.2f documents read, %.2f written and %.2f removed on average, and %.0f bytes on its topic, charged twice.\n",
		of.reads, of.writes, of.deletes, max(leastBytes, messageBytes))
	fmt.Fprintf(&b, "The tasks are in it, and cost the same for any number of events: %d runs a month, which find\nnothing in %d reads ($%.2f), write how many messages wait ($%.2f) and log %d lines.\n",
		tasks.runs, tasks.reads, float64(tasks.reads)/100_000*readsPer100k, float64(tasks.writes)/100_000*writesPer100k, tasks.lines)
	fmt.Fprintf(&b, "Alarms are not in it: a million cost $%.2f, beside the messages that they release. One releases all that is due in a\nquarter of a second, so that an instance asks for %.1f million a month at most.\n",
		millionAlarms(), float64(monthSeconds*time.Second/alarm.Step)/1_000_000)
	fmt.Fprintf(&b, "Queues without records save these: a million messages that are posted cost $%.2f less, for %.0f documents written and one\nremoved each, and leave nothing to be stored.\n", recordDollars, recordWrites)
	fmt.Fprintf(&b, "What becomes of deliveries is counted for people, for any number of events: an instance that is busy all month adds it with\n%d reads and %d writes ($%.2f), and one that has nothing to count, and a CPU, with a quarter of that.\n",
		flushes*flushReads, flushes*flushWrites, float64(flushes*flushReads)/100_000*readsPer100k+float64(flushes*flushWrites)/100_000*writesPer100k)
	return b.String()
}

// What an instance reads and writes to add what it has counted, and how often it does in a month.
const (
	flushReads, flushWrites = 2, 2
	flushes                 = monthSeconds * int(time.Second) / int(rates.FlushEvery)
)

// What an instance costs in a month: without a request, and busy all the time, both without the
// free part.
const (
	idleMonth = monthSeconds * (idleCPUSecond + memoryGiB*idleMemorySecond)
	busyMonth = monthSeconds * (cpuSecond + memoryGiB*memorySecond)
)

// instances are those of a service, at least and at most.
type instances struct{ least, most int }

var webhookScaling = regexp.MustCompile(`(?s)\nvariable "webhook_scaling" \{.+?default += \{ min = (\d+), max = (\d+) \}`)

// atTheDoor are the instances of the webhook service, from Terraform's variables.
func atTheDoor(variables string) (instances, error) {
	match := webhookScaling.FindStringSubmatch(variables)
	if match == nil {
		return instances{}, errors.New("cost: terraform/variables.tf has no webhook_scaling")
	}
	least, _ := strconv.Atoi(match[1]) // the expression matches digits only
	most, _ := strconv.Atoi(match[2])  // the same
	return instances{least, most}, nil
}

// pool is a worker.
type pool struct {
	instances
	name         string
	ofCatalog    int // the least that it keeps with catalog_min_instances
	queues       []string
	slots        int
	anyIsEnabled bool
}

// poolsOf are the workers in the catalog's order. One keeps an instance where a queue of priority
// high has any in the catalog, as terraform/main.tf has it.
func poolsOf(c *catalog.Catalog) []*pool {
	pools, order := map[string]*pool{}, []*pool{}
	for _, q := range c.Queues {
		p := pools[q.Pool]
		if p == nil {
			p = &pool{name: q.Pool}
			pools[q.Pool], order = p, append(order, p)
		}
		if q.Priority == "high" && q.MinInstances > 0 {
			p.least = 1
		}
		p.ofCatalog, p.most, p.slots = max(p.ofCatalog, q.MinInstances), max(p.most, q.MaxInstances), p.slots+q.Concurrency
		p.queues, p.anyIsEnabled = append(p.queues, q.ID), p.anyIsEnabled || q.Enabled
	}
	return order
}

// idling is what a month without requests costs.
type idling struct{ kept, ofCatalog, payNow float64 }

// idlingOf is what the instances cost that are kept: of the whole catalog by default and with its own
// numbers, and of PayNow's queues alone.
func idlingOf(c, payNow *catalog.Catalog, door instances) idling {
	cost := idling{kept: float64(door.least), ofCatalog: float64(door.least), payNow: float64(door.least)}
	for _, p := range poolsOf(c) {
		if p.anyIsEnabled {
			cost.kept += float64(p.least)
			cost.ofCatalog += float64(p.ofCatalog)
		}
	}
	for _, p := range poolsOf(payNow) {
		if p.anyIsEnabled {
			cost.payNow += float64(p.least)
		}
	}
	return idling{cost.kept * idleMonth, cost.ofCatalog * idleMonth, cost.payNow * idleMonth}
}

// sentence is the generated text of terraform/README.md.
func (i idling) sentence() string {
	return fmt.Sprintf("A month without requests costs **$%.2f** for the instances that are kept where every queue of the catalog runs, and $%.2f\n"+
		"where PayNow's alone do. With `catalog_min_instances = true` it is $%.2f, with `scale_to_zero = true` nothing.\n", i.kept, i.payNow, i.ofCatalog)
}

// poolTable is what each service costs: the webhook service, and a worker for each pool.
func poolTable(c *catalog.Catalog, door instances) string {
	var b strings.Builder
	row := func(name, queues, slots string, n instances) {
		fmt.Fprintf(&b, "| %s | %s | %s | %d to %d | $%.2f | $%.2f |\n", name, queues, slots, n.least, n.most, float64(n.least)*idleMonth, float64(n.most)*busyMonth)
	}
	b.WriteString("| service | queues | at once, per instance | instances | a month without requests | a month of all instances, busy |\n")
	b.WriteString("| --- | --- | ---: | ---: | ---: | ---: |\n")
	row("webhook", "", "80", door)
	for _, p := range poolsOf(c) {
		name := p.name
		if !p.anyIsEnabled {
			name += ", not enabled"
		}
		row(name, strings.Join(p.queues, ", "), strconv.Itoa(p.slots), p.instances)
	}
	cost := idlingOf(c, &catalog.Catalog{}, door)
	fmt.Fprintf(&b, "\nAn instance costs $%.2f a month without requests, and $%.2f if it is busy all the time. Pools without an enabled queue have no\nservice. "+
		"The others and the webhook service cost **$%.2f** a month without requests, $%.2f with `catalog_min_instances = true`, and\nnothing with `scale_to_zero = true`.\n", idleMonth, busyMonth, cost.kept, cost.ofCatalog)
	return b.String()
}

// marks are the lines around what is generated.
type marks struct{ begin, end string }

var (
	ofMonth  = marks{"<!-- go test ./docs/cost -update -->\n", "<!-- end -->\n"}
	ofPools  = marks{"<!-- pools: go test ./docs/cost -update -->\n", "<!-- end of pools -->\n"}
	ofIdling = marks{"<!-- idling: go test ./docs/cost -update -->\n", "<!-- end of idling -->\n"}
)

// insert returns the document with the table between the marks.
func (m marks) insert(document, table string) (string, error) {
	before, rest, ok := strings.Cut(document, m.begin)
	_, after, closed := strings.Cut(rest, m.end)
	if !ok || !closed {
		return "", errors.New("cost: a document does not have the marks of a table: " + m.begin)
	}
	return before + m.begin + table + m.end + after, nil
}

// document is a generated one as it is and as it should be.
type document struct{ path, have, want string }

// generate returns the documents that have tables.
func generate(root string) (documents []document, err error) {
	read := func(path string) string {
		text, failed := os.ReadFile(filepath.Join(root, path))
		err = errors.Join(err, failed)
		return string(text)
	}
	deploying := document{path: filepath.Join(root, "docs", "deploying.md"), have: read("docs/deploying.md")}
	readme := document{path: filepath.Join(root, "terraform", "README.md"), have: read("terraform/README.md")}
	counts, order := read("docs/exactly-once.md"), read("internal/contract/testdata/paynow.v1/order_paid.json")
	configuration, variables := read("terraform/main.tf"), read("terraform/variables.tf")
	if err != nil {
		return nil, err
	}
	of, err := parseOperations(counts)
	if err != nil {
		return nil, err
	}
	dollars, written, err := millionRecords(counts)
	if err != nil {
		return nil, err
	}
	called, err := runsPerMonth(configuration)
	if err != nil {
		return nil, err
	}
	queues, err := catalog.Load("")
	if err != nil {
		return nil, err
	}
	payNow, err := ofPayNow(queues)
	if err != nil {
		return nil, err
	}
	var message bytes.Buffer
	if err := json.Compact(&message, []byte(order)); err != nil {
		return nil, err
	}
	door, err := atTheDoor(variables)
	if err != nil {
		return nil, err
	}
	deploying.want, err = ofMonth.insert(deploying.have, table(of, upkeepOf(called, letterQueues(queues)), float64(message.Len()+attributeBytes), dollars, written))
	if err == nil {
		deploying.want, err = ofPools.insert(deploying.want, poolTable(queues, door))
	}
	if err == nil {
		readme.want, err = ofIdling.insert(readme.have, idlingOf(queues, payNow, door).sentence())
	}
	return []document{deploying, readme}, err
}

// ofPayNow is the catalog with the queue of PayNow's events, and the one that it emits to, alone.
func ofPayNow(c *catalog.Catalog) (*catalog.Catalog, error) {
	const handler = "subscriptions.record"
	events, found := c.HandledBy(handler)
	told, tells := c.EmitsTo(handler)
	if !found || !tells {
		return nil, fmt.Errorf("cost: no queue has the handler %s, or it emits nothing", handler)
	}
	return c.Only([]string{events.ID, told.ID})
}
