package cost_test

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/catalog/catalogtest"
	"billhook/internal/compose/worker/workertest"
	"billhook/internal/filetest"
)

const (
	// cpuOfEvent is what `make load` printed at 490 a second on two busy cores: of both services, broker and
	// store in one process, and so for each of the services an upper bound.
	cpuOfEvent = 0.0022
	// target is the part of its processor, and of its requests, at which Cloud Run keeps an instance.
	target = 0.6
	// window is how many pushes of one subscription Pub/Sub has under way at most.
	window = 1000
)

func webhookService(t *testing.T, variables string) *pool {
	t.Helper()
	match := matched(t, variables,
		`scaling += optional\(object\(\{ min = number, max = number \}\), \{ min = (\d+), max = (\d+) \}\)`)
	least, _ := strconv.Atoi(match[1]) // the expression matches digits only
	most, _ := strconv.Atoi(match[2])  // the same
	return &pool{name: "webhook", least: least, ofCatalog: least, most: most, slots: 80, enabled: true}
}

// pool is a worker. ofCatalog is the least that it keeps where worker.keeps is catalog.
type pool struct {
	name                          string
	least, most, ofCatalog, slots int
	queues                        []string
	enabled                       bool
}

// A worker keeps an instance where a queue of priority high has any in the catalog, as terraform/main.tf has
// it.
func poolsOf(c *catalog.Catalog) (pools []*pool) {
	for _, q := range c.Queues {
		at := slices.IndexFunc(pools, func(p *pool) bool { return p.name == q.Pool })
		if at < 0 {
			at, pools = len(pools), append(pools, &pool{name: q.Pool})
		}
		p := pools[at]
		if q.Priority == "high" && q.MinInstances > 0 {
			p.least = 1
		}
		p.ofCatalog, p.most, p.slots = max(p.ofCatalog, q.MinInstances), max(p.most, q.MaxInstances),
			p.slots+q.Concurrency
		p.queues, p.enabled = append(p.queues, q.ID), p.enabled || q.Enabled
	}
	return pools
}

func idlingOf(services []*pool) (kept, ofCatalog float64) {
	for _, p := range services {
		if p.enabled {
			kept, ofCatalog = kept+float64(p.least)*idleMonth, ofCatalog+float64(p.ofCatalog)*idleMonth
		}
	}
	return kept, ofCatalog
}

func poolTable(services, payNow []*pool) string {
	var b strings.Builder
	b.WriteString("| service | queues | at once, per instance | instances | a month without requests | a " +
		"month of all instances, busy |\n")
	b.WriteString("| --- | --- | ---: | ---: | ---: | ---: |\n")
	for _, p := range services {
		name := p.name
		if !p.enabled {
			name += ", not enabled"
		}
		fmt.Fprintf(&b, "| %s | %s | %d | %d to %d | $%.2f | $%.2f |\n", name, strings.Join(p.queues, ", "),
			p.slots, p.least, p.most,
			float64(p.least)*idleMonth, float64(p.most)*busyMonth)
	}
	kept, ofCatalog := idlingOf(services)
	alone, _ := idlingOf(payNow)
	fmt.Fprintf(&b, "\nAn instance costs $%.2f a month without requests, and $%.2f if it is busy all the "+
		"time. All services together\ncost **$%.2f** a month without requests, and $%.2f where PayNow's queues "+
		"run alone; $%.2f where `worker.keeps` is\n`catalog`, and nothing with `none` and no instance of the "+
		"webhook service's. The tasks' calls are\ncharged by the request where their pool keeps none.\n",
		idleMonth, busyMonth, kept, alone, ofCatalog)
	return b.String()
}

// requests is how many an instance takes at once, as terraform/main.tf has it.
func (p *pool) requests() int { return min(window, 4*p.slots+10) }

// instances are those that so many events a second need, each of which holds one of the slots for a time.
func instances(perSecond float64, holds time.Duration, slots, requests int) int {
	busy, cpu := perSecond*holds.Seconds(), perSecond*cpuOfEvent
	return int(math.Ceil(max(cpu/target, busy/float64(slots), busy/target/float64(requests))))
}

// simulated is how long an event has its slot on average, and the p99 from webhook to effect.
func simulated(t *testing.T, queue, eventType string, perSecond int) (holds, p99 time.Duration) {
	filetest.Bubble(t, func(t *testing.T) {
		l := workertest.Load{Queue: queue, EventType: eventType, PerSecond: perSecond, Seconds: 2}
		found := workertest.Simulate(t, l)
		require.Zero(t, found.Refused)
		holds = (found.Slots / time.Duration(perSecond*l.Seconds)).Round(time.Millisecond)
		p99 = found.Within(1)
	})
	return holds, p99
}

func TestTheSizesFollowFromTheCatalogAndTheSimulation(t *testing.T) {
	t.Parallel()
	require.Contains(t, read(t, "terraform/main.tf"), "= min(1000, 4 * each.value.concurrency + 10)")
	c, lives := catalogtest.Shipped(), livesOf(t)
	webhook, pools := webhookService(t, read(t, "terraform/variables.tf")), poolsOf(c)
	poolOf := func(queue string) *pool {
		return pools[slices.IndexFunc(pools, func(p *pool) bool { return slices.Contains(p.queues, queue) })]
	}
	var b strings.Builder
	b.WriteString("| events a second | each is | slots busy | webhook instances | worker instances " +
		"| the catalog allows | documents written a second | a month of it |\n" +
		strings.Repeat("| ---: ", 8) + "|\n")
	credit, credited := simulated(t, "paynow-events", "order.paid", 500)
	entry, posted := simulated(t, "fis-ingestion", "billing.invoice.paid", 10)
	order, ordered := simulated(t, "orders-process", "order.created", 10)
	for _, rate := range []float64{100, 500, 2000, 3000, 10_000} {
		kind, queue, holds := "a credit", "paynow-events", credit
		if rate == 10_000 { // the requirement of the ledger
			kind, queue, holds = "an entry of the journal", "fis-ingestion", entry
		}
		q, _ := c.Queue(queue)
		of := lives[slices.IndexFunc(lives, func(l life) bool { return l.kind == kind })].operations
		ingest := instances(rate, workertest.PublishTakes, webhook.slots, webhook.slots)
		workers := instances(rate, holds, q.Concurrency, poolOf(queue).requests())
		m := price(rate*monthSeconds, of, upkeep{}, leastBytes, 0)
		fmt.Fprintf(&b, "| %.0f | %s | %.0f | %d | %d | %d instances of %d slots | %.0f | $%.0f |\n",
			rate, kind, rate*holds.Seconds(), ingest, workers, q.MaxInstances, q.Concurrency, rate*of.writes,
			m.firestore+m.pubsub+m.requests+float64(ingest+workers)*busyMonth)
	}
	fmt.Fprintf(&b, "\nA credit has its slot for %s, an entry of the journal for %s, an order for %s; p99\n"+
		"from webhook to effect was %s, %s and %s at 500, 10 and 10 a second.\n",
		credit, entry, order, credited, posted, ordered)
	documented(t, "rates", b.String(), "..", "reference", "sizing.md")
	b.Reset()
	b.WriteString(
		"| queue | the catalog's least to most | kept by default | where `worker.keeps` is `catalog` " +
			"| depth | instances at that depth |\n| --- " + strings.Repeat("| ---: ", 5) + "|\n")
	scaled := "orders-process notifications-send search-index analytics-track fis-ingestion"
	for id := range strings.FieldsSeq(scaled) {
		q, _ := c.Queue(id)
		p := poolOf(id)
		deep := math.Ceil(min(window, float64(q.BacklogAlertAbove)) / target / float64(p.requests()))
		fmt.Fprintf(&b, "| %s | %d to %d | %d | %d | %d | %d |\n", id, q.MinInstances, q.MaxInstances,
			p.least, p.ofCatalog, q.BacklogAlertAbove, min(p.most, int(deep)))
	}
	p := poolOf("orders-process")
	fmt.Fprintf(&b, "\nOrders at 500 a second, their limit, hold %.0f slots: %d instances of %d.\n",
		500*order.Seconds(), instances(500, order, p.slots, p.requests()), p.slots)
	documented(t, "workers", b.String(), "..", "reference", "sizing.md")
}
