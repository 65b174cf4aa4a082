package ops_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/stretchr/testify/require"

	"billhook/internal/apps/ledger"
	"billhook/internal/apps/orders"
	"billhook/internal/apps/orders/orderstest"
	"billhook/internal/apps/payments"
	"billhook/internal/apps/usage"
	"billhook/internal/dedupe"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/pipeline/lane"
	"billhook/internal/pipeline/rates"
	"billhook/internal/platform/audit"
	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
)

// readsOf bounds what the database reads for each GET route, however many documents there are. A
// count is one read for each thousand.
var readsOf = map[string]map[string]int64{
	"/v1/ops/queues":                       {"": 2*(4*10+12) + 120 + 8},
	"/v1/ops/queues/{id}":                  {"orders": (4*10 + 12) + 120 + 8 + 22 + 10*(3+2+20) + 20 + 48}, // of each of ten keys its first message, their number, its lane and its dead letters
	"/v1/ops/rates":                        {"": 24*4 + 1, "?hours=192&queue=orders": 192*4 + 1, "?days=90": 90*4 + 1},
	"/v1/ops/audit":                        {"": 2 * 51, "?limit=100": 2 * 101, "?kind=stock": 51, "?kind=operation&subject=op": 52, "?who=local": 2 * 51, "?since=1h&subject=hat": 52},
	"/v1/ops/status":                       {"": 9},
	"/v1/ops/catalog":                      {"": 0},
	"/v1/ops/catalog/queues/{id}":          {"orders": 0},
	"/v1/ops/catalog/contracts/{id}":       {"x": 0},
	"/v1/ops/pauses":                       {"": 1},
	"/v1/ops/waiting":                      {"": 224},
	"/v1/ops/outbox":                       {"": 51, "?limit=999": 1000},
	"/v1/ops/events":                       {"": 50 + 48, "?limit=200": 250, "?since=2s": 50 + 48, "?queue=orders&status=FAILED": 50 + 48, "?type=x": 8, "?event_id=e7": 8, "?correlation_id=c1&limit=200": 250},
	"/v1/ops/events/tail":                  {"": 100 + 48, "?status=FAILED": 100 + 48, "?queue=orders&correlation_id=c1": 100 + 48},
	"/v1/ops/events/{event_id}":            {"e7": 420, "unknown": 40},
	"/v1/ops/accounts/{account}":           {"points:user:u1": 102, "points:user:u1?as_of=2026-03-02&limit=10": 14},
	"/v1/ops/search":                       {"?q=u1": 160, "?q=o1": 160, "?q=nothing": 60, "?q=u1&tenant=default": 160},
	"/v1/ops/subscriptions/{subscription}": {"s1": 101},
	"/v1/ops/customers/{id}":               {"c1": 4},
	"/v1/ops/customers/{id}/preview":       {"c1": 4},
	"/v1/ops/customers/{id}/changes":       {"c1": 101},
	"/v1/ops/customers/{id}/activity":      {"c1": 700},
	"/v1/ops/dead-letters":                 {"": 101, "?reason=r": 101, "?queue=orders": 101, "?queue=orders&state=all": 101, "?queue=orders&reason=r": 101},
	"/v1/ops/dead-letters/preview":         {"?queue=orders": 1 + 11 + 505 + 20, "?queue=orders&items=seed,x": 4},
	"/v1/ops/dead-letters/reasons":         {"": 10 + 11 + 20 + 11, "?queue=orders": 11 + 20 + 11},
	"/v1/ops/dead-letters/{id}":            {"seed": 1},
	"/v1/ops/operations":                   {"": 101, "?progress=running": 101},
	"/v1/ops/operations/{id}/items":        {"op": 102},
	"/v1/ops/operations/{id}/preview":      {"op": 1 + 1 + 11 + 505 + 20},
	"/v1/ops/operations/{id}":              {"op": 50},
	"/v1/ops/endpoints":                    {"": 101},
	"/v1/ops/endpoints/{id}":               {"e": 2},
	"/v1/ops/endpoints/{id}/changes":       {"e": 101},
	"/v1/ops/journal/tenants":              {"": 101},
	"/v1/ops/journal/entries":              {"?tenant=default&period=2026-03": 501, "?account=points:user:u1&limit=10": 11},
	"/v1/ops/journal/entries/{entry}":      {"x": 2},
	"/v1/ops/journal/seals":                {"?tenant=default": 101},
	"/v1/ops/journal/periods":              {"?tenant=default": 101},
	"/v1/ops/orders":                       {"": 101, "?state=OrderShipped": 1},
	"/v1/ops/orders/{id}":                  {"o1": 2},
	"/v1/ops/stock":                        {"": 101},
	"/v1/ops/stock/{id}":                   {"hat": 2},
	"/v1/ops/stock/{id}/changes":           {"hat": 101},
	"/v1/ops/products":                     {"": 101},
	"/v1/ops/products/{id}":                {"hat": 2},
	"/v1/ops/products/{id}/changes":        {"hat": 101},
	"/v1/ops/queues/{id}/pause":            {"orders": 2},
	"/v1/ops/queues/{id}/changes":          {"orders": 101},
	"/v1/ops/refunds":                      {"": 101, "?state=all": 101},
	"/v1/ops/refunds/{payment}":            {"pay:1": 1},
	"/v1/ops/usage":                        {"?subscription=s:1": 101, "?month=2026-03": 101},
	"/v1/ops/usage/{subscription}":         {"s:1": 1100},
	"/v1/ops/usage/{subscription}/entries": {"s:1?meter=calls&period=2026-03": 120},
	"/api/v1/events/stats":                 {"": 6*11 + 1},
	"/api/v1/events/dead-letter":           {"": 101},
}

// readsAll are the routes that read all that they are asked about, in pages or up to a bound: a proof or
// a verification has to know its entries.
var readsAll = map[string]string{
	"/v1/ops/journal/entries/{entry}/proof": "the leaves of the entry's seal",
	"/v1/ops/journal/balances":              "the sums of the newest seal, and what is not sealed",
	"/v1/ops/journal/verify":                "the seals of a page, and their entries",
	"/v1/ops/journal/verify/rest":           "a page of entries",
	"/v1/ops/journal/periods/{period}":      "the seals behind the closing that have entries of the period",
}

// stock writes documents into each collection that a list shows, as many copies of one that was
// written by the code.
func (r *rig) stock(t *testing.T, documents int) {
	t.Helper()
	shop, err := orderstest.Open(r.store)
	require.NoError(t, err)
	_, err = shop.Deliver(t.Context(), r.store, orderstest.Created("e1", "o1"), false)
	require.NoError(t, err)
	refund(t, r.store, "default", "pay:1", "")
	count(t, r.store, "default", "s:1", "calls", 1)
	r.points(t, "default", "first", "u1")
	require.Equal(t, http.StatusOK, r.change(t, http.MethodPut, "/v1/ops/stock/hat", `{"available":5,"why":"counted"}`, nil))
	item := deadletter.Item{Queue: "orders", State: deadletter.Open, Reason: "r", Kept: at, DeadLettered: at, Expires: at.Add(time.Hour), EventID: "e7", Operation: "op"}
	r.commit(t, store.Create(store.Key{Collection: deadletter.Collection, ID: "seed"}, store.Encode(&item)), waitingLane("seed", time.Hour))
	var writes []store.Write
	for i := range documents {
		ago := time.Duration(i) * time.Second
		for unit, layout := range map[string]string{rates.Hours: "2006010215", rates.Days: "20060102"} {
			counted := at.Add(-time.Duration(i/rates.Shards) * map[string]time.Duration{rates.Hours: time.Hour, rates.Days: 24 * time.Hour}[unit])
			writes = append(writes, store.Create(store.Key{Collection: unit, ID: fmt.Sprintf("%s-%d", counted.Format(layout), i%rates.Shards)}, map[string]any{"queues": map[string]any{"orders": map[string]any{"in": int64(1)}}}))
		}
		writes = append(writes, own(created("orders", fmt.Sprint("e", i), []dedupe.Status{dedupe.Completed, dedupe.Failed, dedupe.DeadLettered}[i%3], ago)))
		entered, err := ledger.Post(sale("default", fmt.Sprint("e", i), "2026-03", 100))
		require.NoError(t, err)
		credited, err := ledger.Credit(ledger.Move{
			Tenant: "default", Order: fmt.Sprint("o", i), EventID: "e", From: ledger.IssuedPoints(fmt.Sprint("o", i)), To: ledger.UserPoints("u1"), Amount: 1, Currency: ledger.Points, CreatedAt: at,
		})
		require.NoError(t, err)
		writes = append(writes, entered[0], credited[0])
	}
	for _, collection := range []string{
		deadletter.Collection, lane.Outbox.Lanes(), payments.RefundsCollection, orders.Collection, orders.StockCollection, usage.Collection, usage.EntriesCollection, audit.Collection,
	} {
		page, err := r.store.Query(t.Context(), store.Query{Collection: collection, Limit: 1})
		require.NoError(t, err)
		require.NotEmpty(t, page.Documents, collection)
		for i := range documents - 1 { // beside the seed: a preview of more than 10,000 dead letters is refused
			seed := page.Documents[0]
			writes = append(writes, store.Create(store.Key{Collection: collection, ID: fmt.Sprintf("%s-%05d", seed.Key.ID, i)}, seed.Fields))
		}
	}
	for some := range slices.Chunk(writes, store.MaxWrites) {
		r.commit(t, some...)
	}
}

func TestEachReadCostsTheSameOfAnyNumber(t *testing.T) {
	t.Parallel()
	most := 10_000
	if testing.Short() {
		most = 1_500
	}
	for _, documents := range []int{10, most} {
		t.Run(fmt.Sprint(documents, " documents"), func(t *testing.T) {
			t.Parallel()
			r := open(t)
			r.stock(t, documents)
			db := &storetest.Counter{Store: r.store}
			r.over(db)
			require.NoError(t, chi.Walk(r.router, func(method, route string, _ http.Handler, _ ...func(http.Handler) http.Handler) error {
				route = strings.TrimSuffix(route, "/")
				if method != http.MethodGet || readsAll[route] != "" {
					return nil
				}
				require.NotEmpty(t, readsOf[route], "the route %s has no bound of its reads", route)
				for asked, most := range readsOf[route] {
					path := route + asked
					if i := strings.IndexByte(route, '{'); i >= 0 {
						end := strings.IndexByte(route, '}') + 1
						id, query, _ := strings.Cut(asked, "?")
						path = route[:i] + id + route[end:] + "?" + query
					}
					before := db.Reads.Load()
					answer := r.ask(t, path, nil, nil)
					require.Contains(t, []int{http.StatusOK, http.StatusNotFound}, answer.Code, "%s: %s", path, answer.Body)
					t.Logf("%s: %d reads, %d at most", path, db.Reads.Load()-before, most)
					require.LessOrEqual(t, db.Reads.Load()-before, most, path)
				}
				return nil
			}))
		})
	}
}
