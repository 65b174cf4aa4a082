// Package cost_test computes the costs of a month, and holds the table in docs/reference/costs.md to
// it. It starts from the operations that tests count and from list prices with their date. It
// owns the assumptions. It refuses to estimate an item that has no price here.
package cost_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/catalog/catalogtest"
	"billhook/internal/apps/ledger"
	"billhook/internal/apps/ledger/seal"
	"billhook/internal/filetest"
	"billhook/internal/inspect/bulk"
	"billhook/internal/pipeline/alarm"
	"billhook/internal/pipeline/lane"
	"billhook/internal/pipeline/rates"
	"billhook/internal/pipeline/tasks"
	"billhook/internal/platform/backlog"
	"billhook/internal/platform/mirror"
	"billhook/internal/platform/store/storetest"
	"billhook/internal/platform/telemetry"
)

// List prices in US dollars, from the pages that docs/reference/costs.md names, as of 2026-11-21.
const (
	readsPer100k     = 0.06 // Firestore, United States multi-region
	writesPer100k    = 0.18
	deletesPer100k   = 0.02
	storagePerGiB    = 0.18 // per month
	throughputPerTiB = 40.0 // Pub/Sub
	freeThroughput   = 10 * gib
	leastBytes       = 1000     // the least that a request is charged as
	cpuSecond        = 0.000024 // Cloud Run, billed by request, tier 1
	memorySecond     = 0.0000025
	millionRequest   = 0.40
	// An instance that is kept without requests has its memory, and next to no CPU.
	idleCPUSecond     = 0.0000025
	idleMemorySecond  = 0.0000025
	freeCPU           = 180_000
	freeMemory        = 360_000
	freeRequests      = 2_000_000
	millionOperations = 0.40 // Cloud Tasks, beyond the first million of a month
	gib               = 1 << 30
	tib               = 1 << 40
)

// Assumptions.
const (
	memoryGiB = 0.5
	// Of an instance per request: the least that is billed, as if no two requests shared one.
	billedSeconds  = 0.1
	attributeBytes = 450 // of a message, including its id and timestamp
	monthSeconds   = 30 * 24 * 3600
)

// kinds are the shares of the events by kind, under the names that the counting test of their lives gives
// them.
var kinds = map[string]float64{"a credit": 0.95, "a refund": 0.03, "a duplicate": 0.02}

// life is what an event of a kind costs from the push to the removal of its record, as
// internal/compose/worker counts it.
type life struct {
	kind string
	operations
	// sealing are those of the reads that its seal costs, and verifying those of each verification, beside them.
	sealing, verifying float64
	// seal is what a run of the sealer costs that finds such entries, however many.
	seal operations
}

func livesOf(t *testing.T) (all []life) {
	t.Helper()
	for line := range strings.Lines(read(t, "internal/compose/worker/testdata/lives.txt")) {
		kind, rest, _ := strings.Cut(strings.TrimSpace(line), " | ")
		var n [7]float64
		for i, text := range strings.Split(rest, " | ") {
			number := filetest.Must(strconv.ParseFloat(text, 64))(t)
			n[i] = number
		}
		all = append(all,
			life{kind, operations{n[0] + n[3], n[1], n[2]}, n[3], n[4], operations{reads: n[5], writes: n[6]}})
	}
	return all
}

type operations struct{ reads, writes, deletes float64 }

func (o operations) dollars(events float64) float64 {
	return events / 100_000 * (o.reads*readsPer100k + o.writes*writesPer100k + o.deletes*deletesPer100k)
}

func matched(t *testing.T, text, expression string) []string {
	t.Helper()
	match := regexp.MustCompile(expression).FindStringSubmatch(text)
	require.NotNil(t, match, expression)
	return match
}

func averageOf(lives []life) (all operations) {
	for _, of := range lives {
		share := kinds[of.kind]
		all = operations{all.reads + share*of.reads, all.writes + share*of.writes, all.deletes + share*of.deletes}
	}
	return all
}

func lifeTable(t *testing.T, lives []life, runs int) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("| kind of event | read | of it for its seal | written | removed | a million |\n| --- | " +
		"---: | ---: | ---: | ---: | ---: |\n")
	number := func(n float64) string { return strconv.FormatFloat(n, 'f', -1, 64) }
	byKind := map[string]life{}
	for _, of := range lives {
		byKind[of.kind] = of
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | $%.2f |\n", of.kind, number(of.reads), number(of.sealing),
			number(of.writes), number(of.deletes), of.dollars(1_000_000))
	}
	credit, entry := byKind["a credit"], byKind["an entry of the journal"]
	require.Equal(t, credit.seal, entry.seal)
	fmt.Fprintf(&b, "\nA seal is made in each run of its task that finds entries of a tenant: %s reads and %s "+
		"writes beside those of its entries, $%.2f a month\n"+
		"for a tenant that has some in every minute. ", number(credit.seal.reads), number(credit.seal.writes),
		credit.seal.dollars(float64(runs)))
	month := func(of life, millions int64) float64 { // each day
		all := int64(of.verifying * 1_000_000 * float64(millions))
		return operations{reads: float64(min(all, seal.DailyReads(all)))}.dollars(30)
	}
	fmt.Fprintf(&b,
		"A verification reads %s documents for each credit that the books hold, where each user has\n"+
			"one, and %s for each entry of the journal, on each day at most %d or a 28th of all: "+
			"$%.2f a month for a\nmillion credits that are kept, and $%.2f for ten million, "+
			"which no table here has in it.\n",
		number(credit.verifying), number(entry.verifying), seal.DailyReads(0), month(credit, 1), month(credit, 10))
	q, _ := catalogtest.Shipped().HandledBy("points.credit")
	record, of := creditStored(t)
	saved, kept := operations{writes: 1, deletes: 1}.dollars(1_000_000),
		1_000_000*float64(record)/gib*storagePerGiB
	fmt.Fprintf(&b, "With its index entries the record of a credit takes %d bytes, for %d days, and its entry "+
		"%d, for ever. One document of both would save\n"+
		"$%.2f a million once, and cost up to $%.2f a month from then on: more than it saves after %.1f months.\n",
		record, int(q.RememberFor.Hours()/24), of, saved, kept, saved/kept)
	return b.String()
}

// upkeep is what the tasks of a month do without any event: their runs, the documents they
// read and write, and the lines they log.
type upkeep struct{ runs, reads, writes, lines int }

func (u upkeep) store() float64 {
	return operations{reads: float64(u.reads), writes: float64(u.writes)}.dollars(1)
}

// A query without a result is charged as one read.
func idleRun(task string, deadLetterQueues int) upkeep {
	switch task {
	case "relay-outbox":
		return upkeep{runs: 1, reads: 4, lines: 1} // what is due, the oldest, what is to be copied, how far all was
	case "release-delayed":
		return upkeep{runs: 1, reads: 2, lines: 1} // what is due, and the oldest
	case "count-dead-letters":
		return upkeep{runs: 1, reads: deadLetterQueues, lines: deadLetterQueues + 1}
	case "count-backlogs":
		return upkeep{runs: 1, writes: 2, lines: 1} // all queues in a document, for people and for ingest
	case "seal-journal":
		return upkeep{runs: 1, reads: 1 + ledger.Shards, writes: 1, lines: 1} // the database's time, and each shard
	default:
		return upkeep{runs: 1, reads: 1, lines: 1}
	}
}

func deadLetterQueues(c *catalog.Catalog) int {
	return len(slices.DeleteFunc(slices.Clone(c.Queues), func(q catalog.Queue) bool {
		return q.DeadLetter.Drop
	}))
}

func runsPerMonth(t *testing.T, configuration string) map[string]int {
	t.Helper()
	require.Contains(t, configuration, `schedule         = "* * * * *"`)
	called := map[string]int{}
	for _, name := range regexp.MustCompile(`"([a-z-]+)"`).FindAllStringSubmatch(matched(t, configuration,
		`(?s)\n  tasks = \[\n(.+?)\n  \]`)[1], -1) {
		called[name[1]] = monthSeconds / 60
	}
	return called
}

// The task is created and dispatched, beyond the free part, and the run finds nothing.
func millionAlarms() float64 {
	run := idleRun("release-delayed", 0)
	return 2*millionOperations + millionRequest + 1_000_000*billedSeconds*(cpuSecond+memoryGiB*memorySecond) +
		10*float64(run.reads)*readsPer100k
}

type month struct{ firestore, storage, pubsub, cpu, memory, requests float64 }

func price(events float64, of operations, tasks upkeep, messageBytes, storedBytes float64) month {
	requests := 2*events + float64(tasks.runs) // webhook and push of each event, and the tasks
	seconds := requests * billedSeconds
	return month{
		firestore: of.dollars(events) + tasks.store(),
		storage:   events * storedBytes / gib * storagePerGiB,
		// published and pushed
		pubsub:   max(0, 2*events*max(leastBytes, messageBytes)-freeThroughput) / tib * throughputPerTiB,
		cpu:      max(0, seconds-freeCPU) * cpuSecond,
		memory:   max(0, seconds*memoryGiB-freeMemory) * memorySecond,
		requests: max(0, requests-freeRequests) / 1_000_000 * millionRequest,
	}
}

func table(of operations, tasks upkeep, messageBytes, storedBytes float64) string {
	var b strings.Builder
	b.WriteString("| events a month | Firestore operations | Firestore storage | Pub/Sub | Cloud Run CPU " +
		"| memory | requests | together |\n")
	b.WriteString("| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n")
	for _, millions := range []float64{1, 10, 100} {
		m := price(millions*1_000_000, of, tasks, messageBytes, storedBytes)
		fmt.Fprintf(&b, "| %.0f million | $%.2f | $%.2f | $%.2f | $%.2f | $%.2f | $%.2f | **$%.2f** |\n",
			millions, m.firestore, m.storage, m.pubsub, m.cpu, m.memory, m.requests,
			m.firestore+m.storage+m.pubsub+m.cpu+m.memory+m.requests)
	}
	fmt.Fprintf(&b, "\nAn event is %.2f documents read, %.2f written and %.2f removed on average, and %.0f "+
		"bytes on its topic, charged twice.\n",
		of.reads, of.writes, of.deletes, max(leastBytes, messageBytes))
	fmt.Fprintf(&b, "The tasks are in it, and cost the same for any number of events: %d requests a month, "+
		"which look for work\nin %d reads ($%.2f), write how many messages wait, and a seal each minute ($%.2f), "+
		"and log %d lines.\n",
		tasks.runs, tasks.reads, float64(tasks.reads)/100_000*readsPer100k,
		float64(tasks.writes)/100_000*writesPer100k, tasks.lines)
	fmt.Fprintf(&b,
		"Alarms are not in it: a million cost $%.2f, and an instance requests %.1f million a month at most.\n",
		millionAlarms(), float64(monthSeconds*time.Second/alarm.Step)/1_000_000)
	fmt.Fprintf(&b, "What becomes of deliveries is counted for people, for any number of events: an instance "+
		"that is busy all month adds it with\n%d reads and %d writes ($%.2f), and one that has nothing to count, "+
		"and a CPU, with a quarter of that.\n",
		flushes*flushReads, flushes*flushWrites,
		upkeep{reads: flushes * flushReads, writes: flushes * flushWrites}.store())
	return b.String()
}

// What an instance reads and writes to add what it has counted, and how often in a month.
const (
	flushReads, flushWrites = 2, 2
	flushes                 = monthSeconds * int(time.Second) / int(rates.FlushEvery)
	// What an instance costs in a month: without a request, and busy all the time, both without the free part.
	idleMonth = monthSeconds * (idleCPUSecond + memoryGiB*idleMemorySecond)
	busyMonth = monthSeconds * (cpuSecond + memoryGiB*memorySecond)
)

func read(t *testing.T, path string) string { return filetest.Read(t, "..", "..", path) }

// documented holds a part of a document to what is computed.
func documented(t *testing.T, name, text string, path ...string) {
	t.Helper()
	filetest.Part(t, text, "<!-- "+name+": go test ./docs/cost -update -->\n",
		"<!-- end of "+name+" -->\n", path...)
}

func TestTheDocumentsHaveTheTablesOfTheCosts(t *testing.T) {
	t.Parallel()
	queues := catalogtest.Shipped()
	service := webhookService(t, read(t, "terraform/variables.tf"))
	var message bytes.Buffer
	require.NoError(t, json.Compact(&message,
		[]byte(read(t, "internal/contract/testdata/payment.v1/order_paid.json"))))
	events, found := queues.HandledBy("subscriptions.record")
	updates, emits := queues.EmitsTo("subscriptions.record")
	require.True(t, found && emits)
	payNow := filetest.Must(queues.Only([]string{events.ID, updates.ID}))(t)
	lives, called := livesOf(t), runsPerMonth(t, read(t, "terraform/main.tf"))
	credit := slices.IndexFunc(lives, func(of life) bool { return of.kind == "a credit" })
	tasks := upkeep{ // of one tenant that has entries in every minute
		reads:  called["seal-journal"] * int(lives[credit].seal.reads),
		writes: called["seal-journal"] * int(lives[credit].seal.writes),
	}
	record, entry := creditStored(t)
	documented(t, "lives", lifeTable(t, lives, called["seal-journal"]), "..", "reference", "costs.md")
	for task, runs := range called {
		one := idleRun(task, deadLetterQueues(queues))
		tasks = upkeep{
			runs, tasks.reads + runs*one.reads, tasks.writes + runs*one.writes, tasks.lines + runs*one.lines,
		}
	}
	documented(t, "month", table(averageOf(lives), tasks, float64(message.Len()+attributeBytes),
		float64(record+entry)), "..", "reference", "costs.md")
	services, alone := append([]*pool{service}, poolsOf(queues)...), append([]*pool{service}, poolsOf(payNow)...)
	documented(t, "pools", poolTable(services, alone), "..", "reference", "costs.md")
}

func TestAnIdleTaskAndAFlushOfRatesCostTheirDeclaredReadsWritesAndLines(t *testing.T) {
	t.Parallel()
	c := catalogtest.Shipped()
	db := storetest.Open(t)
	counter := &storetest.Counter{Store: db}
	subscriptions := meter{}
	for _, q := range c.Queues {
		subscriptions[q.PushSubscription()] = backlog.Held{}
	}
	var log bytes.Buffer
	copies := &storetest.Counter{Store: storetest.Open(t)}
	spent := func() (reads, writes int) {
		for _, of := range []*storetest.Counter{counter, copies} {
			reads, writes = reads+int(of.Gets.Load()+of.Queries.Load()), writes+int(of.Written.Load())
		}
		return reads, writes
	}
	service := &tasks.Service{
		Ingest:  &mirror.Mirror{Store: counter, Copies: copies, NewID: uuid.NewString},
		Catalog: c, Store: counter, Outbox: &lane.Relay{Of: lane.Outbox, Store: counter, Now: time.Now},
		Delayed:    &lane.Relay{Of: lane.Delayed, Store: counter, Now: time.Now},
		Operations: (&bulk.Operator{Store: counter, Catalog: c, Now: time.Now, NewID: uuid.NewString}).RunAll,
		Log:        slog.New(slog.NewJSONHandler(&log, nil)), Metrics: telemetry.NewMetrics(), Now: time.Now,
		Backlogs: subscriptions,
	}
	router := chi.NewRouter()
	service.Routes(router)
	called := runsPerMonth(t, read(t, "terraform/main.tf"))
	require.NotContains(t, called, "cleanup", "that is TTL's")
	require.Len(t, called, len(tasks.Names)-1)
	for task := range called {
		// A day's first run of verify-books verifies; the idle ones look whether the day is over.
		router.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodPost,
			"/tasks/"+task, nil))
		log.Reset()
		reads, writes := spent()
		answer := httptest.NewRecorder()
		router.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/tasks/"+task, nil))
		require.Equal(t, http.StatusOK, answer.Code)
		want := idleRun(task, deadLetterQueues(c))
		read, written := spent()
		require.Equal(t, []int{want.reads, want.writes}, []int{read - reads, written - writes}, task)
		require.Equal(t, want.lines, bytes.Count(log.Bytes(), []byte("\n")), task)
	}
	counter = &storetest.Counter{Store: db}
	recorder := rates.NewRecorder(
		rates.Config{Store: counter, Self: rates.Service{Instance: "i1"}, Now: time.Now})
	recorder.Arrived("orders")
	require.NoError(t, recorder.Flush(t.Context()))
	require.EqualValues(t, flushReads, counter.Reads.Load())
	require.EqualValues(t, flushWrites, counter.Written.Load())
}

type meter map[string]backlog.Held

func (m meter) Backlogs(context.Context) (map[string]backlog.Held, time.Time, error) {
	return m, time.Now(), nil
}

func TestTheFreePartOfAMonthCostsNothing(t *testing.T) {
	t.Parallel()
	credit := operations{writes: 3, deletes: 1}
	// By hand: three million writes and a million deletes.
	require.InDelta(t, 5.60, price(1_000_000, credit, upkeep{}, 900, 0).firestore, 0.001)
	require.Zero(t, price(1_000_000, credit, upkeep{}, 900, 0).pubsub, "2 GB of 10 GiB")
	require.InDelta(t, 20_000_000-180_000, price(100_000_000, credit, upkeep{}, 900, 0).cpu/cpuSecond, 0.01)
	// A hundred thousand reads and as many writes more, and ten thousand requests of a tenth of a second.
	more := upkeep{runs: 10_000, reads: 100_000, writes: 100_000}
	require.InDelta(t, 5.84, price(1_000_000, credit, more, 900, 0).firestore, 0.001)
	require.InDelta(t, 21_000, price(1_000_000, credit, more, 900, 0).cpu/cpuSecond, 0.01)
	// 200 GB less 10 GiB.
	require.InDelta(t, (200e9-10*gib)/tib*40, price(100_000_000, credit, upkeep{}, 900, 0).pubsub, 0.001)
	// A million alarms: $0.80, $0.40, $2.40 and $0.125, $1.20. An instance of a month: without requests, and
	// busy.
	require.InDelta(t, 4.925, millionAlarms(), 0.001)
	require.InDelta(t, 9.72, idleMonth, 0.001)
	require.InDelta(t, 65.448, busyMonth, 0.001)
}
