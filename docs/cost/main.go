// Command cost computes what a month costs, from operations that tests count and from
// list prices with their date, and writes the table into docs/deploying.md. It owns the
// assumptions; it refuses to estimate what has no price here.
package main

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
	"billhook/internal/alarm"
)

// List prices in US dollars, as stored copies of the pages that docs/deploying.md names
// had them on 2026-11-21.
const (
	readsPer100k   = 0.06 // Firestore, United States multi-region
	writesPer100k  = 0.18
	deletesPer100k = 0.02
	storagePerGiB  = 0.18 // a month

	throughputPerTiB = 40.0 // Pub/Sub
	freeThroughput   = 10 * gib
	leastBytes       = 1000 // a request is charged as

	cpuSecond      = 0.000024 // Cloud Run, billed by request, tier 1
	memorySecond   = 0.0000025
	millionRequest = 0.40
	freeCPU        = 180_000
	freeMemory     = 360_000
	freeRequests   = 2_000_000

	millionOperations = 0.40 // Cloud Tasks, beyond the first million of a month

	gib = 1 << 30
	tib = 1 << 40
)

// Assumptions.
const (
	memoryGiB = 0.5
	// billedSeconds of an instance for each request: the least that is billed, as if no
	// two requests ever shared an instance.
	billedSeconds = 0.1
	// attributeBytes of a message, with its id and timestamp.
	attributeBytes = 450
	// storedBytes that an event leaves behind, with its index entries.
	storedBytes = 4096
	// monthSeconds of 30 days.
	monthSeconds = 30 * 24 * 3600
)

// kinds is what a hundred events are, by the rows of docs/exactly-once.md.
var kinds = []struct {
	row     string
	percent float64
}{
	{"new `Tx` event whose effect needs no state (a credit)", 95},
	{"new `Tx` event whose effect needs state (a refund)", 3},
	{"duplicate", 2},
}

// operations on the store of one event on average.
type operations struct{ reads, writes, deletes float64 }

// counted reads what a delivery costs the store from the table that tests hold.
func counted(document string) (operations, error) {
	var all operations
	for _, kind := range kinds {
		match := regexp.MustCompile(`(?m)^\| ` + regexp.QuoteMeta(kind.row) + ` \| (\d+) \| [^|]+ \| (\d+) \|$`).FindStringSubmatch(document)
		if match == nil {
			return operations{}, fmt.Errorf("cost: docs/exactly-once.md has no row %q", kind.row)
		}
		reads, _ := strconv.ParseFloat(match[1], 64)  // digits, as the expression says
		writes, _ := strconv.ParseFloat(match[2], 64) // the same
		share := kind.percent / 100
		all.reads += share * reads
		all.writes += share * writes
		if writes > 0 {
			all.deletes += share // the record, by TTL
		}
	}
	return all, nil
}

// upkeep is what the tasks of a month cost, whatever the number of events: their runs, what these read of
// the store where there is nothing to do, and the lines they log.
type upkeep struct{ runs, reads, lines int }

// idle is one run of a task that finds nothing: a query without a result is charged as a read.
func idle(task string, lettered int) upkeep {
	switch task {
	case "relay-outbox", "release-delayed":
		return upkeep{runs: 1, reads: 2, lines: 1} // what is due, and the oldest
	case "count-dead-letters":
		return upkeep{runs: 1, reads: lettered, lines: lettered + 1}
	default:
		return upkeep{runs: 1, reads: 1, lines: 1}
	}
}

// lettered is how many queues keep dead letters.
func lettered(c *catalog.Catalog) int {
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

// scheduled is how often a month each task is called, by Terraform's configuration.
func scheduled(configuration string) (map[string]int, error) {
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
		if err != nil { // nothing said: every minute
			every = 1
		}
		called[entry[1]] = monthSeconds / 60 / every
	}
	return called, nil
}

// millionAlarms is what a million calls of an alarm cost, beyond what is free: the task is
// made and dispatched, and the run finds nothing, which is the least.
func millionAlarms() float64 {
	run := idle("release-delayed", 0)
	return 2*millionOperations + millionRequest + 1_000_000*billedSeconds*(cpuSecond+memoryGiB*memorySecond) + 10*float64(run.reads)*readsPer100k
}

// kept is the upkeep of a month.
func kept(called map[string]int, lettered int) upkeep {
	var all upkeep
	for task, runs := range called {
		one := idle(task, lettered)
		all.runs += runs * one.runs
		all.reads += runs * one.reads
		all.lines += runs * one.lines
	}
	return all
}

// month is what a month costs.
type month struct{ firestore, storage, pubsub, cpu, memory, requests float64 }

func (m month) total() float64 {
	return m.firestore + m.storage + m.pubsub + m.cpu + m.memory + m.requests
}

func price(events float64, of operations, beside upkeep, messageBytes float64) month {
	requests := 2*events + float64(beside.runs) // the webhook and the push, and the tasks
	seconds := requests * billedSeconds
	return month{
		firestore: events/100_000*(of.reads*readsPer100k+of.writes*writesPer100k+of.deletes*deletesPer100k) + float64(beside.reads)/100_000*readsPer100k,
		storage:   events * storedBytes / gib * storagePerGiB,
		pubsub:    max(0, 2*events*max(leastBytes, messageBytes)-freeThroughput) / tib * throughputPerTiB, // published, and pushed
		cpu:       max(0, seconds-freeCPU) * cpuSecond,
		memory:    max(0, seconds*memoryGiB-freeMemory) * memorySecond,
		requests:  max(0, requests-freeRequests) / 1_000_000 * millionRequest,
	}
}

// table is what stands between the marks.
func table(of operations, beside upkeep, messageBytes float64) string {
	var b strings.Builder
	b.WriteString("| events a month | Firestore operations | Firestore storage | Pub/Sub | Cloud Run CPU | memory | requests | together |\n")
	b.WriteString("| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n")
	for _, millions := range []float64{1, 10, 100} {
		m := price(millions*1_000_000, of, beside, messageBytes)
		fmt.Fprintf(&b, "| %.0f million | $%.2f | $%.2f | $%.2f | $%.2f | $%.2f | $%.2f | **$%.2f** |\n",
			millions, m.firestore, m.storage, m.pubsub, m.cpu, m.memory, m.requests, m.total())
	}
	fmt.Fprintf(&b, "\nAn event is %.2f documents read, %.2f written and %.2f removed on average, and %.0f bytes on its topic, charged twice.\n",
		of.reads, of.writes, of.deletes, max(leastBytes, messageBytes))
	fmt.Fprintf(&b, "The tasks are in it, and cost the same for any number of events: %d runs a month, which find\nnothing in %d reads ($%.2f) and log %d lines.\n",
		beside.runs, beside.reads, float64(beside.reads)/100_000*readsPer100k, beside.lines)
	fmt.Fprintf(&b, "Alarms are not in it: a million cost $%.2f, beside the messages that they release. One releases all that is due in a\nquarter of a second, so that an instance asks for %.1f million a month at most.\n",
		millionAlarms(), float64(monthSeconds*time.Second/alarm.Step)/1_000_000)
	fmt.Fprintf(&b, "An instance that is kept all month costs at most $%.2f: as if it were busy all the time, without the free part.\n",
		monthSeconds*(cpuSecond+memoryGiB*memorySecond))
	return b.String()
}

const (
	begin = "<!-- go run ./docs/cost -->\n"
	end   = "<!-- end -->\n"
)

// written returns the document with the table in it.
func written(document, table string) (string, error) {
	before, rest, ok := strings.Cut(document, begin)
	_, after, closed := strings.Cut(rest, end)
	if !ok || !closed {
		return "", errors.New("cost: docs/deploying.md has lost the marks of the table")
	}
	return before + begin + table + end + after, nil
}

// generate returns the document as it is and as it should be.
func generate(root string) (have, want string, err error) {
	read := func(path string) string {
		text, failed := os.ReadFile(filepath.Join(root, path)) //nolint:gosec // paths of this file alone
		err = errors.Join(err, failed)
		return string(text)
	}
	have = read("docs/deploying.md")
	counts, order := read("docs/exactly-once.md"), read("internal/contract/testdata/paynow.v1/order_paid.json")
	configuration := read("terraform/main.tf")
	if err != nil {
		return "", "", err
	}
	of, err := counted(counts)
	if err != nil {
		return "", "", err
	}
	called, err := scheduled(configuration)
	if err != nil {
		return "", "", err
	}
	queues, err := catalog.Load("")
	if err != nil {
		return "", "", err
	}
	var message bytes.Buffer
	if err := json.Compact(&message, []byte(order)); err != nil {
		return "", "", err
	}
	want, err = written(have, table(of, kept(called, lettered(queues)), float64(message.Len()+attributeBytes)))
	return have, want, err
}

func run() error {
	_, want, err := generate(".")
	if err != nil {
		return err
	}
	return os.WriteFile("docs/deploying.md", []byte(want), 0o644) //nolint:gosec // a document that everybody may read
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
