package worker_test

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/internal/compose/worker"
	"billhook/internal/contract"
	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
)

// confirmations is a broker that keeps what is told of paid orders of the shop.
type confirmations struct {
	mu   sync.Mutex
	told []contract.Message
}

func (c *confirmations) Publish(_ context.Context, _ string, m contract.Message) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if m.Attributes[contract.AttrEventType] == "order.payment_confirmed" {
		c.told = append(c.told, m)
	}
	return "1", nil
}

// pays delivers PayNow's event of an order, by its attributes, and returns the answer's status.
func pays(t *testing.T, h http.Handler, event, order string, attributes map[string]string) int {
	t.Helper()
	data, err := contract.Of(&contract.PayNow{EventID: event, EventType: "order.paid", Timestamp: "2026-03-02T10:15:00Z", Data: contract.PayNowData{
		Order: &contract.Order{ID: order, CustomerID: "c1", Items: []contract.Item{{ProductID: "411486491630370501", Quantity: 1}}},
	}}).Append(nil)
	require.NoError(t, err)
	all := map[string]string{"event_id": event, "event_type": "order.paid", "ordering_key": "c1", "paynow_customer_id": "c1"}
	maps.Copy(all, attributes)
	pushed, err := json.Marshal(map[string]any{
		"message":      map[string]any{"data": data, "messageId": "m-" + event, "publishTime": "2026-03-02T10:15:00Z", "attributes": all},
		"subscription": "projects/p/subscriptions/s",
	})
	require.NoError(t, err)
	recorder := httptest.NewRecorder()
	h.ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/push/paynow-events", bytes.NewReader(pushed)))
	return recorder.Code
}

// credits reports whether a commit is that of a credit.
func credits(writes []store.Write) bool {
	return slices.ContainsFunc(writes, func(w store.Write) bool { return w.Key.Collection == "entries" })
}

// TestWhatACreditCostsThatConfirmsAnOrderOfTheShop counts on the whole worker: what is told costs
// the two documents of the outbox, and nothing where the queue of orders does not run.
func TestWhatACreditCostsThatConfirmsAnOrderOfTheShop(t *testing.T) {
	t.Parallel()
	payNow := []string{"paynow-events", "pay-subscription-update"}
	for name, test := range map[string]struct {
		queues    []string
		shopOrder string
		documents int64
		told      int
	}{
		"every queue":                       {shopOrder: "cart-7", documents: 5, told: 1},
		"every queue, and nothing to tell":  {documents: 3},
		"PayNow alone":                      {queues: payNow, shopOrder: "cart-7", documents: 3},
		"PayNow alone, and nothing to tell": {queues: payNow, documents: 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var counter *storetest.Counter
			var reads, documents int64 // of the last credit: what had been read by its commit, and what that wrote
			broker := &confirmations{}
			w, err := worker.New(config(t, func(c *worker.Config) {
				var err error
				c.Catalog, err = c.Catalog.Only(test.queues)
				require.NoError(t, err)
				counter = &storetest.Counter{Store: c.Store}
				watched := &storetest.Faults{Store: counter, OnCommit: func(_ context.Context, writes []store.Write, do func() error) error {
					if credits(writes) {
						reads, documents = counter.Gets.Load()+counter.Queries.Load(), int64(len(writes))
					}
					return do()
				}}
				c.Store, c.Publisher, c.Now = watched, broker, func() time.Time { return time.Date(2026, 3, 2, 10, 15, 0, 0, time.UTC) }
			}))
			require.NoError(t, err)
			require.Equal(t, http.StatusOK, pays(t, w, "warm", "o0", nil)) // the product is known now, and that nothing waits
			counter.Gets.Store(0)
			counter.Queries.Store(0)
			counter.Commits.Store(0)
			attributes := map[string]string{}
			if test.shopOrder != "" {
				attributes["shop_order_id"] = test.shopOrder
			}
			require.Equal(t, http.StatusOK, pays(t, w, "e1", "o1", attributes))
			require.Zero(t, reads, "reads")
			require.Equal(t, test.documents, documents, "documents written")
			if test.told == 0 { // else the relay goes on after it
				require.Zero(t, counter.Gets.Load()+counter.Queries.Load(), "reads")
				require.EqualValues(t, 1, counter.Commits.Load(), "commits")
			}
			require.Len(t, broker.told, test.told)
			require.Equal(t, http.StatusNoContent, pays(t, w, "e1", "o1", attributes), "a duplicate")
			require.Len(t, broker.told, test.told, "tells nothing")
			for _, m := range broker.told {
				require.Equal(t, "cart-7", m.Attributes["order_id"])
				require.Contains(t, string(m.Data), `"data":{"order_id":"cart-7","payment_id":"o1"}`)
			}
		})
	}
}
