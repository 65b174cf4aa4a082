package worker_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/apps/customers"
	"billhook/internal/compose/worker"
	"billhook/internal/contract"
	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
)

// paid delivers an order of a customer as Pub/Sub does; uid may be empty.
// A uid with an asterisk was looked up by the customer.
func paid(t *testing.T, h http.Handler, event, customer, uid string) (reason string) {
	t.Helper()
	uid, lookedUp := strings.CutSuffix(uid, "*")
	body := contract.Of(&contract.PayNow{EventID: event, EventType: "order.paid", Timestamp: "2026-03-02T10:15:00Z", Data: contract.PayNowData{
		Order: &contract.Order{ID: "order-" + event, CustomerID: customer, Items: []contract.Item{{ProductID: "411486491630370501", Quantity: 1}}},
	}})
	data, err := body.Append(nil)
	require.NoError(t, err)
	attributes := map[string]string{"event_id": event, "event_type": "order.paid", "ordering_key": customer, "paynow_customer_id": customer}
	if uid != "" {
		maps.Copy(attributes, map[string]string{"uid": uid, "ordering_key": uid})
	}
	if lookedUp {
		attributes["uid_source"] = "customer"
	}
	pushed, err := json.Marshal(map[string]any{
		"message":      map[string]any{"data": data, "messageId": "m-" + event, "publishTime": "2026-03-02T10:15:00Z", "attributes": attributes},
		"subscription": "projects/p/subscriptions/s",
	})
	require.NoError(t, err)
	recorder := httptest.NewRecorder()
	h.ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/push/paynow-events", bytes.NewReader(pushed)))
	require.Equal(t, http.StatusOK, recorder.Code, recorder.Body)
	var answer struct{ Reason string }
	require.NoError(t, json.Unmarshal(recorder.Body.Bytes(), &answer))
	return answer.Reason
}

// TestWhatACreditCostsByWhatIsKnownOfItsCustomer counts on the whole worker, with the program's own
// handlers: a credit of a known customer is one round trip, no read, three documents.
func TestWhatACreditCostsByWhatIsKnownOfItsCustomer(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		// mapped is what the store says of the customer, which this worker has not heard.
		mapped string
		// before are the uids of orders that this worker has credited to the customer.
		before []string
		uid    string
		reason string

		reads, commits, documents int64
	}{
		"a guest's":                                  {uid: "", reason: "credited", commits: 1, documents: 3},
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
			now := time.Now()
			w, err := worker.New(config(t, func(c *worker.Config) {
				c.Now = func() time.Time { return now }
				c.Catalog.Queues = only(t, c.Catalog, "paynow-events", "pay-subscription-update")
				if test.mapped != "" {
					_, err := c.Store.Commit(t.Context(), []store.Write{store.Create(customers.Key("default", "c1"), map[string]any{"uid": test.mapped})})
					require.NoError(t, err)
				}
				counter = &storetest.Counter{Store: c.Store}
				c.Store, c.Now = counter, func() time.Time { return time.Date(2026, 3, 2, 10, 15, 0, 0, time.UTC) }
			}))
			require.NoError(t, err)
			paid(t, w, "warm", "another", "") // the product is known now, and that nothing waits
			for i, uid := range test.before {
				paid(t, w, "before-"+string(rune('a'+i)), "c1", uid)
			}
			counter.Gets.Store(0)
			counter.Queries.Store(0)
			counter.Commits.Store(0)
			counter.Written.Store(0)
			require.Equal(t, test.reason, paid(t, w, "e1", "c1", test.uid))
			require.Equal(t, test.reads, counter.Gets.Load()+counter.Queries.Load(), "reads")
			require.Equal(t, test.commits, counter.Commits.Load(), "commits")
			require.Equal(t, test.documents, counter.Written.Load(), "documents written")
		})
	}
}

// only is some queues of a catalog.
func only(t *testing.T, c *catalog.Catalog, ids ...string) (queues []catalog.Queue) {
	t.Helper()
	for _, id := range ids {
		q, ok := c.Queue(id)
		require.True(t, ok)
		queues = append(queues, q)
	}
	return queues
}
