package worker_test

import (
	"bytes"
	"encoding/json"
	"log/slog"
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
	"billhook/internal/console/ops"
	"billhook/internal/contract"
	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
	"billhook/internal/platform/telemetry"
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

// What a person links through this worker is known to it, and a mapping that differs is in the log, the
// metrics and the event's story.
func TestAMappingThatDiffersIsSaid(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	w, err := worker.New(config(t, func(c *worker.Config) { c.Log = telemetry.NewLogger(&log, slog.LevelInfo) }))
	require.NoError(t, err)
	ask := func(method, path, body string, into any) {
		r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
		r.RemoteAddr, r.Host = "127.0.0.1:4711", "127.0.0.1:8081"
		recorder := httptest.NewRecorder()
		w.ServeHTTP(recorder, r)
		require.Equal(t, http.StatusOK, recorder.Code, recorder.Body)
		if into != nil {
			require.NoError(t, json.Unmarshal(recorder.Body.Bytes(), into))
		}
	}
	require.Equal(t, "credited", paid(t, w, "e1", "c1", "u1"))
	require.Equal(t, "credited_mapping_differs", paid(t, w, "e2", "c1", "u2"))
	require.Contains(t, log.String(), `"customer_id":"c1","uid":"u2","mapped_uid":"u1"`)
	require.Contains(t, log.String(), `"result":"credited_mapping_differs"`)
	var event ops.Event
	ask(http.MethodGet, "/v1/ops/events/e2", "", &event)
	require.Equal(t, "credited_mapping_differs", event.Result)
	var state customers.State
	ask(http.MethodGet, "/v1/ops/customers/c1", "", &state)
	require.Equal(t, "u1", state.UID)
	require.Equal(t, "e1", state.TaughtBy)

	ask(http.MethodPut, "/v1/ops/customers/c1", `{"uid":"u2","why":"the same person"}`, nil)
	require.Equal(t, "credited", paid(t, w, "e3", "c1", "u2"))
	require.Equal(t, "credited_mapping_differs", paid(t, w, "e4", "c1", "u1"))
	ask(http.MethodDelete, "/v1/ops/customers/c1", `{"why":"two people"}`, nil)
	require.Equal(t, "credited", paid(t, w, "e0", "c1", "u2*"), "it was looked up before")
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/v1/ops/customers/c1", nil)
	r.RemoteAddr, r.Host = "127.0.0.1:4711", "127.0.0.1:8081"
	recorder := httptest.NewRecorder()
	w.ServeHTTP(recorder, r)
	require.Equal(t, http.StatusNotFound, recorder.Code, "what was looked up does not bring it back")
	require.Equal(t, "credited", paid(t, w, "e5", "c1", "u3"))
	ask(http.MethodGet, "/v1/ops/customers/c1", "", &state)
	require.Equal(t, "u3", state.UID, "the next order that names both teaches again")

	for account, points := range map[string]int64{"points:user:u1": 2000, "points:user:u2": 3000, "points:user:u3": 1000} {
		var a ops.Account
		ask(http.MethodGet, "/v1/ops/accounts/"+account, "", &a)
		require.Equal(t, points, a.Balance, account)
	}
}
