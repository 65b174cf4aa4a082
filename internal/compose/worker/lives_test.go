package worker_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/catalog/catalogtest"
	"billhook/internal/compose/worker"
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
}

func (m *meter) Commit(ctx context.Context, writes []store.Write) ([]store.Version, error) {
	versions, err := m.Counter.Commit(ctx, writes)
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, w := range writes {
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

// TestCostsOfEachKindOfEventAreCounted pushes events of each kind to the whole worker, which publishes their
// emissions, seals and verifies their entries in the books, and counts the documents that TTL removes.
func TestCostsOfEachKindOfEventAreCounted(t *testing.T) {
	t.Parallel()
	service, err := standin.NewReceiver(standin.ServiceConfig{Secrets: []string{secret}, Tolerance: time.Minute})
	require.NoError(t, err)
	server := httptest.NewServer(service)
	t.Cleanup(server.Close)
	var mu sync.Mutex
	var rows []string
	t.Run("each", func(t *testing.T) {
		for name, of := range lives {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				row := lived(t, of, server.URL)
				mu.Lock()
				defer mu.Unlock()
				rows = append(rows, name+" | "+row+"\n")
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
		counted = &meter{Counter: storetest.Counter{Store: c.Store}, expiring: map[store.Key]bool{}}
		copies = &meter{Counter: storetest.Counter{Store: storetest.Open(t)}}
		c.Store, c.Targets = counted, postedTo(t, c.Catalog, url)
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
		case "", "shop", "user":
		case "itself":
			push(t, w, of, of.eventType, prefix, n, true)
		default:
			push(t, w, of, of.before, prefix, n, true)
		}
		seal()
	}
	prepare("warm", 20)
	// the caches are filled now, and each shard has entries
	push(t, w, of, of.eventType, "warm", 20, false)
	seal()
	idle := costs(seal)
	var each, sealed, verified [2]cost
	counts := []int{60, 160}
	for i, n := range counts {
		prefix := fmt.Sprint("counted-", n)
		prepare(prefix, n)
		each[i] = costs(func() { push(t, w, of, of.eventType, prefix, n, false) })
		sealed[i] = costs(seal).less(idle)
		now = morning.AddDate(0, 0, i+1)
		verified[i] = costs(func() { task(t, w, "verify-books") })
		now = morning
	}
	last, more := int64(counts[1]), int64(counts[1]-counts[0])
	per := func(n, of int64) string {
		return strings.TrimSuffix(fmt.Sprintf("%.2f", float64(n)/float64(of)), ".00")
	}
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
func push(t *testing.T, w *worker.Worker, of life, eventType, prefix string, n int, first bool) {
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
		case "user":
			attributes["uid"], attributes["paynow_customer_id"] = "uid-"+unique, "customer-"+unique
		}
		_, outcome, reason := pushed(t, w, "/push/"+of.queue, "m-"+id, morning,
			contract.Message{Data: body, Attributes: attributes})
		require.True(t, first || reason == of.reason, "%s %s: %s", outcome, reason, body)
	}
}
