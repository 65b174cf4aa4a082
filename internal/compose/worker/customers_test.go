package worker_test

import (
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/internal/apps/customers"
	"billhook/internal/compose/worker"
	"billhook/internal/contract"
	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
)

// paid delivers an order of a customer as Pub/Sub does; uid and the order of the shop may be empty.
// A uid with an asterisk was looked up by the customer.
func paid(t *testing.T, w http.Handler, event, customer, uid, shopOrder string) (code int, reason string) {
	t.Helper()
	uid, lookedUp := strings.CutSuffix(uid, "*")
	data, err := contract.Of(&contract.PayNow{EventID: event, EventType: "order.paid", Timestamp: "2026-03-02T10:15:00Z", Data: contract.PayNowData{
		Order: &contract.Order{ID: "order-" + event, CustomerID: customer, Items: []contract.Item{{ProductID: "411486491630370501", Quantity: 1}}},
	}}).Append(nil)
	require.NoError(t, err)
	attributes := map[string]string{"event_id": event, "event_type": "order.paid", "ordering_key": customer, "paynow_customer_id": customer}
	if uid != "" {
		maps.Copy(attributes, map[string]string{"uid": uid, "ordering_key": uid})
	}
	if lookedUp {
		attributes["uid_source"] = "customer"
	}
	if shopOrder != "" {
		attributes["shop_order_id"] = shopOrder
	}
	code, _, reason = pushed(t, w, "/push/paynow-events", "m-"+event, morning, contract.Message{Data: data, Attributes: attributes})
	return code, reason
}

// TestWhatACreditCostsByWhatIsKnownOfItsCustomer counts on the whole worker, with the program's own
// handlers: a credit of a known customer is one round trip, no read, three documents. What is told of an
// order of the shop costs the two documents of the outbox, and two reads and a commit that remove them when it is
// published. It costs nothing where the queue of orders does not run.
func TestWhatACreditCostsByWhatIsKnownOfItsCustomer(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		// mapped is what the store says of the customer, which this worker has not heard.
		mapped string
		// before are the uids of orders that this worker has credited to the customer.
		before []string
		uid    string
		// shopOrder is the shop's own order that was paid. everyQueue runs, that of orders too.
		shopOrder  string
		everyQueue bool
		reason     string

		reads, commits, documents int64
	}{
		"a guest's":                                  {uid: "", reason: "credited", commits: 1, documents: 3},
		"a guest's, where every queue runs":          {everyQueue: true, reason: "credited", commits: 1, documents: 3},
		"of an order of the shop":                    {shopOrder: "cart-7", everyQueue: true, reason: "credited", reads: 2, commits: 2, documents: 7},
		"of an order of the shop, which runs not":    {shopOrder: "cart-7", reason: "credited", commits: 1, documents: 3},
		"a customer's first that names both":         {uid: "u1", reason: "credited", commits: 1, documents: 4},
		"the next":                                   {before: []string{"u1"}, uid: "u1", reason: "credited", commits: 1, documents: 3},
		"one after a guest's":                        {before: []string{""}, uid: "u1", reason: "credited", commits: 1, documents: 4},
		"whom another instance knows":                {mapped: "u1", uid: "u1", reason: "credited", commits: 2, reads: 2, documents: 3},
		"who is known from looking":                  {mapped: "u1", before: []string{"u1"}, uid: "u1", reason: "credited", commits: 1, documents: 3},
		"whom another instance knows as another":     {mapped: "u2", uid: "u1", reason: "credited_mapping_differs", commits: 2, reads: 2, documents: 3},
		"who is known here as another":               {before: []string{"u2"}, uid: "u1", reason: "credited_mapping_differs", commits: 1, reads: 1, documents: 3},
		"one whose uid was looked up":                {mapped: "u1", uid: "u1*", reason: "credited", commits: 1, documents: 3},
		"a guest's, though it is known who they are": {before: []string{"u1"}, uid: "", reason: "credited", commits: 1, documents: 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var counter *storetest.Counter
			broker := &shelves{}
			w, err := worker.New(config(t, func(c *worker.Config) {
				if !test.everyQueue {
					var err error
					c.Catalog, err = c.Catalog.Only([]string{"paynow-events", "pay-subscription-update"})
					require.NoError(t, err)
				}
				if test.mapped != "" {
					_, err := c.Store.Commit(t.Context(), []store.Write{store.Create(customers.Key("default", "c1"), map[string]any{"uid": test.mapped})})
					require.NoError(t, err)
				}
				counter = &storetest.Counter{Store: c.Store}
				c.Store, c.Publisher, c.Now = counter, broker, func() time.Time { return morning }
			}))
			require.NoError(t, err)
			paid(t, w, "warm", "another", "", "") // the product is known now, and that nothing waits
			for i, uid := range test.before {
				paid(t, w, "before-"+string(rune('a'+i)), "c1", uid, "")
			}
			broker.take("")
			did := spent(counter, func() {
				_, reason := paid(t, w, "e1", "c1", test.uid, test.shopOrder)
				require.Equal(t, test.reason, reason)
			})
			require.Equal(t, []int64{test.reads, test.commits, test.documents}, did, "reads, commits, documents written")
			told := broker.take("orders")
			require.Equal(t, test.shopOrder != "" && test.everyQueue, len(told) == 1)
			code, _ := paid(t, w, "e1", "c1", test.uid, test.shopOrder)
			require.Equal(t, http.StatusNoContent, code, "a duplicate")
			require.Empty(t, broker.take("orders"), "tells nothing")
			for _, m := range told {
				require.Equal(t, "cart-7", m.Attributes["order_id"])
				require.Contains(t, string(m.Data), `"data":{"order_id":"cart-7","payment_id":"order-e1"}`)
			}
		})
	}
}
