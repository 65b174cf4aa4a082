package worker_test

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/catalog/catalogtest"
	"billhook/internal/compose/worker"
	"billhook/internal/compose/worker/workertest"
	"billhook/internal/contract"
	"billhook/internal/filetest"
	"billhook/internal/ingest/webhook/samples"
	"billhook/internal/platform/standin"
	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
)

// cost is what the database charges for. Expired are the documents that TTL removes in the end.
type cost struct {
	Reads, Written, Removed, Expired int64
}

func (c cost) less(other cost) cost {
	return cost{
		c.Reads - other.Reads, c.Written - other.Written, c.Removed - other.Removed, c.Expired - other.Expired,
	}
}

// meter counts all that a store is charged for.
type meter struct {
	storetest.Counter

	mu       sync.Mutex
	removed  int64
	expiring map[store.Key]bool
	// about is what is pushed now; empty: nothing. by says what has written each document, and shared are those
	// that several have written: such a document would make a busy tenant slow.
	about  string
	by     map[store.Key]string
	shared []store.Key
}

func meterOf(s store.Store) *meter {
	return &meter{
		Counter: storetest.Counter{Store: s}, expiring: map[store.Key]bool{}, by: map[store.Key]string{},
	}
}

func (m *meter) Commit(ctx context.Context, writes []store.Write) ([]store.Version, error) {
	versions, err := m.Counter.Commit(ctx, writes)
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, w := range writes {
		if other := m.by[w.Key]; m.about != "" && other != "" && other != m.about {
			m.shared = append(m.shared, w.Key)
		}
		m.by[w.Key] = m.about
		_, expires := w.Fields["expire_at"]
		switch {
		case err != nil:
		case w.Op == store.OpDelete:
			m.removed++
			delete(m.expiring, w.Key)
		case expires:
			m.expiring[w.Key] = true
		}
	}
	return versions, err
}

func (m *meter) pushes(about string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.about = about
}

func (m *meter) spent() cost {
	m.mu.Lock()
	defer m.mu.Unlock()
	return cost{m.Reads.Load(), m.Written.Load() - m.removed, m.removed, int64(len(m.expiring))}
}

// life is a kind of event: its queue, its type, the type of the event before it, "itself" for a duplicate,
// and the reason of the answer.
type life struct{ queue, eventType, before, reason string }

var lives = map[string]life{
	"a credit":                           {"paynow-events", "order.paid", "", "credited"},
	"a credit of an order of the shop":   {"paynow-events", "order.paid", "shop", "credited"},
	"a credit, the first of a user":      {"paynow-events", "order.paid", "user", "credited"},
	"an order of the shop, out of stock": {"orders-process", "order.created", "", "cancelled_out_of_stock"},
	"a refund":                           {"paynow-events", "order.refunded", "order.paid", "reversed"},
	"a duplicate":                        {"paynow-events", "order.paid", "itself", ""},
	"a subscription's event":             {"paynow-events", "subscription.renewed", "", "recorded"},
	"an update posted to a service":      {"pay-subscription-update", "renewal", "", "delivered"},
	"a use of a meter":                   {"events-high", "usage_tracking", "", "counted"},
	"an entry of the journal":            {"fis-ingestion", "billing.invoice.paid", "", "posted"},
	"a reversal in the journal": {
		"fis-ingestion", "billing.invoice.reverted", "billing.invoice.paid", "reverted",
	},
	"a notification to be sent":            {"notifications-fanout", "order.confirmed", "", "fanned_out"},
	"a message of a queue without records": {"analytics-track", "analytics.event", "", ""},
}

// unpriced are kinds of events that are too rare to have a price.
var unpriced = map[string]life{
	"a closed chargeback":       {"paynow-events", "order.chargeback_closed", "", "noted"},
	"a refund before its order": {"paynow-events", "order.refunded", "", "order_not_seen"},
	"a dead letter":             {"paynow-events", "order.paid", "unknown product", "unknown_product"},
}

// TestCostsOfEachKindOfEventAreCounted pushes events of each kind to the whole worker, which publishes their
// emissions, seals and verifies their entries in the books, and counts the documents that TTL removes. No
// document is written by two unrelated events, which share only queue, type and tenant.
func TestCostsOfEachKindOfEventAreCounted(t *testing.T) {
	t.Parallel()
	service := filetest.Must(standin.NewReceiver(
		standin.ServiceConfig{Secrets: []string{workertest.Secret}, Tolerance: time.Minute}))(t)
	server := httptest.NewServer(service)
	t.Cleanup(server.Close)
	var mu sync.Mutex
	var rows []string
	all := maps.Clone(unpriced)
	maps.Copy(all, lives)
	t.Run("each", func(t *testing.T) {
		for name, of := range all {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				row := lived(t, of, server.URL)
				mu.Lock()
				defer mu.Unlock()
				if _, priced := lives[name]; priced {
					rows = append(rows, name+" | "+row+"\n")
				}
			})
		}
	})
	slices.Sort(rows)
	filetest.Recorded(t, strings.Join(rows, ""), "testdata", "lives.txt")
}

// lived returns what an event costs: reads, documents written, and documents removed; reads for its seal, and
// to verify it once; and what a seal reads and writes, however many entries it has.
func lived(t *testing.T, of life, url string) string {
	t.Helper()
	var counted, copies *meter
	now := morning
	w := open(t, func(c *worker.Config) {
		counted, copies = meterOf(c.Store), meterOf(storetest.Open(t))
		c.Store, c.Targets = counted, workertest.Targets(t, c.Catalog, url)
		c.Now = func() time.Time { return now }
		for i := range c.Catalog.Queues {
			// no other event is delivered that a batch could wait for
			c.Catalog.Queues[i].Batch.Wait = time.Millisecond
		}
		c.Mirror(copies, "one")
	})
	costs := func(do func()) cost {
		before, copied := counted.spent(), copies.spent()
		do()
		return counted.spent().less(before).less(copied.less(copies.spent()))
	}
	seal := func() { task(t, w, "seal-journal") }
	prepare := func(prefix string, n int) {
		switch of.before {
		case "", "shop", "user", "unknown product":
		case "itself":
			counted.push(t, w, of, of.eventType, prefix, n, true)
		default:
			counted.push(t, w, of, of.before, prefix, n, true)
		}
		seal()
	}
	prepare("warm", 20)
	// the caches are filled now, and each shard has entries
	counted.push(t, w, of, of.eventType, "warm", 20, false)
	seal()
	idle := costs(seal)
	var each, sealed, verified [2]cost
	counts := []int{60, 160}
	for i, n := range counts {
		prefix := fmt.Sprint("counted-", n)
		prepare(prefix, n)
		each[i] = costs(func() { counted.push(t, w, of, of.eventType, prefix, n, false) })
		sealed[i] = costs(seal).less(idle)
		now = morning.AddDate(0, 0, i+1)
		verified[i] = costs(func() { task(t, w, "verify-books") })
		now = morning
	}
	last, more := int64(counts[1]), int64(counts[1]-counts[0])
	per := func(n, of int64) string {
		return strings.TrimSuffix(fmt.Sprintf("%.2f", float64(n)/float64(of)), ".00")
	}
	require.Empty(t, counted.shared)
	require.Equal(t, per(each[0].Written, int64(counts[0])), per(each[1].Written, last), "each costs the same")
	seals := sealed[1].less(sealed[0]).Reads
	row := []string{
		per(each[1].Reads, last), per(each[1].Written, last), per(each[1].Removed+each[1].Expired, last),
		per(seals, more),
		per(verified[1].less(verified[0]).Reads, last), per(sealed[1].Reads-seals*last/more, 1),
		per(sealed[1].Written, 1),
	}
	return strings.Join(row, " | ")
}

// push pushes n events of a type: those before others, or the others.
func (m *meter) push(t *testing.T, w *worker.Worker, of life, eventType, prefix string, n int, first bool) {
	t.Helper()
	c := catalogtest.Shipped()
	q, _ := c.Queue(of.queue)
	for i := range n {
		unique := fmt.Sprintf("%s-%d", prefix, i)
		body := filetest.Must(samples.Message(c, q, eventType, unique, morning))(t)
		id := samples.IDPrefix + unique
		if !first && of.before != "itself" { // an event of its own about the same thing
			own := id + "-then"
			body = bytes.Replace(body, []byte(`d":"`+id+`"`), []byte(`d":"`+own+`"`), 1)
			body = bytes.Replace(body, []byte(`"reverts":"revert-`+unique+`"`), []byte(`"reverts":"`+id+`"`), 1)
			id = own
		}
		attributes := map[string]string{
			"event_id": id, "event_type": eventType, "ordering_key": "key-" + unique, "routing_key": eventType,
		}
		switch of.before {
		case "shop":
			attributes["shop_order_id"] = "cart-" + unique
		case "unknown product":
			body = bytes.ReplaceAll(body, []byte("411486491630370501"), []byte("999999999999999999"))
		case "user":
			attributes["uid"], attributes["paynow_customer_id"] = "uid-"+unique, "customer-"+unique
		}
		m.pushes(unique)
		_, outcome, reason := pushed(t, w, "/push/"+of.queue, "m-"+id, morning,
			contract.Message{Data: body, Attributes: attributes})
		m.pushes("")
		require.True(t, first || reason == of.reason, "%s %s: %s", outcome, reason, body)
	}
}
