package worker_test

import (
	"context"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/internal/compose/worker"
	"billhook/internal/contract"
	"billhook/internal/platform/standin"
	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
)

// TestNoDocumentIsWrittenByTwoUnrelatedEvents delivers events of every kind in pairs that have nothing in common but their
// queue, type and tenant. Were there a document that both write, a busy tenant would cost its neighbours.
func TestNoDocumentIsWrittenByTwoUnrelatedEvents(t *testing.T) {
	t.Parallel()
	service, err := standin.NewReceiver(standin.ReceiverConfig{Secrets: []string{secret}, Tolerance: time.Minute})
	require.NoError(t, err)
	server := httptest.NewServer(service)
	t.Cleanup(server.Close)
	var keys []store.Key // those written since they were asked for last
	w := open(t, func(c *worker.Config) {
		c.Store = &storetest.Faults{Store: c.Store, OnCommit: func(_ context.Context, writes []store.Write, do func() error) error {
			for _, write := range writes {
				keys = append(keys, write.Key)
			}
			return do()
		}}
		for i := range c.Catalog.Queues {
			c.Catalog.Queues[i].NackBudget = 0 // both of a pair get the same answer
		}
		c.Targets = postedTo(t, c.Catalog, server.URL)
	})
	const events, updates, points = "/push/paynow-events", "/push/pay-subscription-update", "411486491630370501"
	paynow := func(eventType string, data func(id string) contract.PayNowData) func(id string) contract.Body {
		return func(id string) contract.Body {
			return contract.Of(&contract.PayNow{EventID: id, EventType: eventType, Timestamp: "2026-03-02T10:15:00Z", Data: data(id)})
		}
	}
	order := func(id string) contract.PayNowData {
		return contract.PayNowData{Order: &contract.Order{ID: "order-" + id, CustomerID: "customer-" + id, Items: []contract.Item{{ProductID: points, Quantity: 1}}}}
	}
	for name, test := range map[string]struct {
		path string
		body func(id string) contract.Body
		code int
		// least documents that one of the pair writes.
		least int
	}{
		"paid orders":        {events, paynow("order.paid", order), 200, 3},
		"closed chargebacks": {events, paynow("order.chargeback_closed", order), 200, 1},
		"dead letters":       {events, func(id string) contract.Body { return paidOrder(id, "customer-"+id, "999999999999999999") }, 400, 1},
		"failing events":     {events, paynow("order.refunded", order), 200, 3},
		"subscriptions and what they emit": {events, paynow("subscription.renewed", func(id string) contract.PayNowData {
			return contract.PayNowData{Subscription: &contract.Subscription{ID: "subscription-" + id, CustomerID: "customer-" + id}}
		}), 200, 4},
		"leased events": {updates, func(id string) contract.Body {
			return asks(id, "renewal", contract.Payload{SubscriptionID: "subscription-" + id})
		}, 200, 2},
	} {
		// One after the other: what a commit wrote must be known to be this event's.
		deliver := func(id string) []store.Key {
			keys = nil
			code, reason := posted(t, w, test.path, test.body(id))
			require.Equal(t, test.code, code, "%s: %s", name, reason)
			return keys
		}
		one, two := deliver("one-"+name[:4]), deliver("two-"+name[:4])
		require.GreaterOrEqual(t, len(one), test.least, name)
		for _, key := range one {
			require.NotContains(t, two, key, "%s: both write it", name)
		}
	}
}
