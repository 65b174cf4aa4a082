package worker_test

import (
	"context"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/internal/compose/worker"
	"billhook/internal/contract"
	"billhook/internal/platform/standin"
	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
)

// written remembers the documents that commits wrote.
type written struct {
	mu   sync.Mutex
	keys []store.Key
}

func (w *written) commit(_ context.Context, writes []store.Write, do func() error) error {
	w.mu.Lock()
	for _, write := range writes {
		w.keys = append(w.keys, write.Key)
	}
	w.mu.Unlock()
	return do()
}

func (w *written) since() []store.Key {
	w.mu.Lock()
	defer w.mu.Unlock()
	keys := w.keys
	w.keys = nil
	return keys
}

// somewhere is a broker that takes everything.
type somewhere struct{}

func (somewhere) Publish(context.Context, string, contract.Message) (string, error) { return "1", nil }

// TestNoDocumentIsWrittenByTwoUnrelatedEvents delivers events of every kind in pairs
// that have nothing in common but their queue, type and tenant. Were there a document
// that both write, a busy tenant would cost its neighbours.
func TestNoDocumentIsWrittenByTwoUnrelatedEvents(t *testing.T) {
	t.Parallel()
	service, err := standin.NewReceiver(standin.ReceiverConfig{Secrets: []string{"a-secret-of-more-than-24-bytes"}, Tolerance: time.Minute})
	require.NoError(t, err)
	server := httptest.NewServer(service)
	t.Cleanup(server.Close)
	docs := &written{}
	w, err := worker.New(config(t, func(c *worker.Config) {
		c.Store, c.Publisher = &storetest.Faults{Store: c.Store, OnCommit: docs.commit}, somewhere{}
		for i := range c.Catalog.Queues {
			c.Catalog.Queues[i].NackBudget = 0 // both of a pair get the same answer
		}
		c.Targets = postedTo(t, c.Catalog, server.URL)
	}))
	require.NoError(t, err)
	events, updates := "/push/paynow-events", "/push/pay-subscription-update"
	paynow := func(eventType string, data func(id string) contract.PayNowData) func(id string) contract.Body {
		return func(id string) contract.Body {
			return contract.Of(&contract.PayNow{EventID: id, EventType: eventType, Timestamp: "2026-03-02T10:15:00Z", Data: data(id)})
		}
	}
	order := func(product string) func(id string) contract.PayNowData {
		return func(id string) contract.PayNowData {
			return contract.PayNowData{Order: &contract.Order{ID: "order-" + id, CustomerID: "customer-" + id, Items: []contract.Item{{ProductID: product, Quantity: 1}}}}
		}
	}
	for name, test := range map[string]struct {
		path string
		body func(id string) contract.Body
		code int
		// least documents that one of the pair writes.
		least int
	}{
		"paid orders":        {events, paynow("order.paid", order("411486491630370501")), 200, 3},
		"closed chargebacks": {events, paynow("order.chargeback_closed", order("411486491630370501")), 200, 1},
		"dead letters":       {events, paynow("order.paid", order("999999999999999999")), 400, 1},
		"failing events":     {events, paynow("order.refunded", order("411486491630370501")), 200, 3},
		"subscriptions and what they emit": {events, paynow("subscription.renewed", func(id string) contract.PayNowData {
			return contract.PayNowData{Subscription: &contract.Subscription{ID: "subscription-" + id, CustomerID: "customer-" + id}}
		}), 200, 4},
		"leased events": {updates, func(id string) contract.Body {
			return contract.Of(&contract.Envelope{ID: id, Action: "renewal", CreatedAt: "2026-03-02T10:15:00Z", Payload: contract.Payload{SubscriptionID: "subscription-" + id}})
		}, 200, 2},
	} {
		// One after the other: what a commit wrote must be known to be this event's.
		deliver := func(id string) []store.Key {
			docs.since()
			require.Equal(t, test.code, posted(t, w, test.path, test.body(id)), name)
			return docs.since()
		}
		one, two := deliver("one-"+name[:4]), deliver("two-"+name[:4])
		require.GreaterOrEqual(t, len(one), test.least, name)
		for _, key := range one {
			require.False(t, slices.Contains(two, key), "%s: both write %s", name, key)
		}
	}
}
