package operations_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"

	"billhook/internal/apps/ledger"
	"billhook/internal/apps/ledger/ledgertest"
	"billhook/internal/apps/orders"
	"billhook/internal/apps/orders/orderstest"
	"billhook/internal/apps/payments"
	"billhook/internal/apps/subscriptions"
	"billhook/internal/apps/usage"
	"billhook/internal/console"
	"billhook/internal/console/access"
	"billhook/internal/console/api"
	"billhook/internal/dedupe"
	"billhook/internal/filetest"
	"billhook/internal/inspect/bulk"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/pipeline/handler"
	"billhook/internal/pipeline/lane"
	"billhook/internal/pipeline/rates"
	"billhook/internal/platform/audit"
	"billhook/internal/platform/serve"
	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
)

// all is the bound of what reads all that it is asked about, in pages or up to a bound of its own: a proof or
// a verification has to know its entries.
const all = -1

// looks are what is asked of each GET route, and how many documents the database may read for that, however
// many there are. A count is one read for each thousand.
var looks = map[string]map[string]int64{
	"/v1/ops/openapi.json": {"": 0},
	"/v1/ops/queues":       {"": 2*12 + 120 + 8},
	// of each of ten keys its first message, their number, its lane and its dead letters
	"/v1/ops/queues/{id}": {"orders": (4*10 + 12) + 120 + 8 + 22 + 10*(3+2+20) + 20 + 48},
	"/v1/ops/rates":       {"": 24*4 + 1, "?hours=192&queue=orders": 192*4 + 1, "?days=90": 90*4 + 1},
	"/v1/ops/audit": {
		"": 2 * 101, "?limit=1000": 2 * 1000, "?kind=stock": 101, "?kind=operation&subject=op": 102,
		"?who=local": 2 * 101, "?since=1h&subject=hat": 102,
	},
	"/v1/ops/status":                 {"": 9},
	"/v1/ops/catalog":                {"": 0},
	"/v1/ops/catalog/queues/{id}":    {"orders": 0, "refunds": 0},
	"/v1/ops/catalog/contracts/{id}": {"x": 0},
	"/v1/ops/pauses":                 {"": 1},
	"/v1/ops/waiting":                {"": 224},
	"/v1/ops/outbox":                 {"": 51, "?limit=999": 1000},
	"/v1/ops/events": {
		"": 8 * 31, "?limit=200": 8 * 56, "?since=2s": 8 * 31, "?queue=orders&status=FAILED": 8 * 31, "?type=x": 8,
		"?event_id=e7": 8, "?correlation_id=c1&limit=200": 8 * 56,
	},
	"/v1/ops/events/{event_id}": {"e7": 50, "unknown": 10},
	"/v1/ops/accounts":          {"": 101},
	"/v1/ops/accounts/{account}": {
		"points:user:u1": 102, "points:user:u1?as_of=2026-03-02&limit=10": 14,
	},
	"/v1/ops/accounts/{account}/statement": {"cash?period=2026-03": all, "points:user:u1?period=2026-03": 101},
	"/v1/ops/search": {
		"?q=u1": 50, "?q=o1": 50, "?q=e7": 50, "?q=nothing": 50, "?q=u1&tenant=default": 50,
	},
	"/v1/ops/subscriptions": {
		"": 1001,
	},
	"/v1/ops/subscriptions/{subscription}": {"s1": 101},
	"/v1/ops/customers":                    {"": 101},
	"/v1/ops/customers/{id}":               {"c1": 4},
	"/v1/ops/customers/{id}/preview":       {"c1": 4},
	"/v1/ops/customers/{id}/changes":       {"c1": 101},
	"/v1/ops/customers/{id}/activity":      {"c1": 700},
	"/v1/ops/dead-letters": {
		"": 101, "?reason=r": 101, "?queue=orders&limit=5": 6, "?queue=orders&state=all&limit=5": 6,
		"?queue=orders&reason=r&since=9s&limit=1": 2, "?queue=orders&key=nobody": 1,
	},
	"/v1/ops/dead-letters/preview":      {"?queue=orders": 1 + 11 + 505 + 20, "?queue=orders&items=seed,x": 6},
	"/v1/ops/dead-letters/reasons":      {"": 10 + 11 + 20 + 11, "?queue=orders": 11 + 20 + 11},
	"/v1/ops/dead-letters/{id}":         {"seed": 1},
	"/v1/ops/operations":                {"": 101, "?progress=running&limit=7": 8},
	"/v1/ops/operations/{id}/items":     {"op": 102},
	"/v1/ops/operations/{id}/preview":   {"op": 1 + 1 + 11 + 505 + 20},
	"/v1/ops/operations/{id}":           {"op": 50},
	"/v1/ops/endpoints":                 {"": 101},
	"/v1/ops/endpoints/{id}":            {"e": 2},
	"/v1/ops/endpoints/{id}/changes":    {"e": 101},
	"/v1/ops/endpoints/{id}/deliveries": {"e": 1 + 50 + 48, "e?limit=200": 1 + 250},
	"/v1/ops/journal/tenants":           {"": 101},
	"/v1/ops/journal/entries": {
		"?period=2026-03": 501, "?period=2026-03&account=cash&limit=10": 11, "?account=points:user:u1&limit=10": 11,
	},
	"/v1/ops/journal/entries/{entry}":       {"x": 2},
	"/v1/ops/journal/entries/{entry}/proof": {"e1": all},
	"/v1/ops/journal/balances":              {"?period=2026-03": all},
	"/v1/ops/journal/verify":                {"": all},
	"/v1/ops/journal/seals":                 {"": 101},
	"/v1/ops/journal/periods":               {"": 101},
	"/v1/ops/journal/periods/{period}":      {"2026-02": all},
	"/v1/ops/orders":                        {"": 101, "?state=OrderShipped": 1},
	"/v1/ops/orders/{id}":                   {"o1": 2},
	"/v1/ops/stock":                         {"": 101},
	"/v1/ops/stock/{id}":                    {"hat": 2},
	"/v1/ops/stock/{id}/changes":            {"hat": 101},
	"/v1/ops/products":                      {"": 101},
	"/v1/ops/products/{id}":                 {"hat": 2},
	"/v1/ops/products/{id}/changes":         {"hat": 101},
	"/v1/ops/queues/{id}/pause":             {"orders": 2},
	"/v1/ops/queues/{id}/changes":           {"orders": 101},
	"/v1/ops/refunds":                       {"": 101, "?state=all&limit=7": 8},
	"/v1/ops/refunds/{payment}":             {"pay:1": 1},
	"/v1/ops/usage":                         {"": 101, "?subscription=s:1": 101, "?month=2026-03": 101},
	"/v1/ops/usage/{subscription}":          {"s:1": 1100},
	"/v1/ops/usage/{subscription}/entries":  {"s:1?meter=calls&period=2026-03": 120},
	"/api/v1/events/stats":                  {"": 6*11 + 1},
	"/api/v1/events/dead-letter":            {"": 101},
}

// bodies are what the routes that change something are sent; every other takes a reason alone.
var bodies = map[string]string{
	"PUT /v1/ops/products/{id}":            `{"points":5,"why":"w"}`,
	"PUT /v1/ops/stock/{id}":               `{"available":1,"why":"w"}`,
	"POST /v1/ops/stock/{id}/add":          `{"pieces":1,"why":"w"}`,
	"PUT /v1/ops/customers/{id}":           `{"uid":"u2","why":"w"}`,
	"POST /v1/ops/endpoints":               `{"url":"https://p.example/h","why":"w"}`,
	"POST /v1/ops/dead-letters/replay":     `{"queue":"orders","expect":1,"why":"w"}`,
	"POST /v1/ops/dead-letters/discard":    `{"queue":"orders","expect":1,"why":"w"}`,
	"POST /v1/ops/dead-letters/complete":   `{"queue":"orders","expect":1,"why":"w"}`,
	"POST /v1/ops/operations/{id}/approve": `{"expect":1,"why":"w"}`,
	"POST /v1/ops/events/try":              `{"event_id":"e1"}`,
}

// noReason are the routes that are no look, and take no reason.
var noReason = map[string]string{
	"POST /v1/ops/operations/{id}/run":                 "goes on with what was begun",
	"POST /v1/ops/events/try":                          "changes nothing",
	"POST /api/v1/events/dead-letter/{event_id}/retry": "scripts send no body: the audit has where it came from",
	"POST /v1/ops/endpoints/{id}/test":                 "sends a test event",
	"DELETE /api/v1/events/cleanup":                    "removes what has expired",
}

var parameter = regexp.MustCompile(`\{[a-z_]+\}`)

// ofOrders is the path of a route whose ids are orders, and whose period is February.
func ofOrders(route string) string {
	return parameter.ReplaceAllString(strings.Replace(route, "{period}", "2026-02", 1), "orders")
}

// each visits each route of the API, with a body that it takes: once, and a look with each of what is asked
// of it.
func (r *rig) each(t *testing.T, visit func(method, route, path, body string)) {
	t.Helper()
	routes := 0
	require.NoError(t,
		chi.Walk(r.router, func(method, route string, _ http.Handler, _ ...func(http.Handler) http.Handler) error {
			route = strings.TrimSuffix(route, "/")
			if routes++; method != http.MethodGet {
				visit(method, route, ofOrders(route), cmp.Or(bodies[method+" "+route], `{"why":"w"}`))
				return nil
			}
			require.NotEmpty(t, looks[route], "the route %s has no bound of its reads", route)
			for _, asked := range slices.Sorted(maps.Keys(looks[route])) {
				id, query, _ := strings.Cut(asked, "?")
				visit(method, route, strings.TrimSuffix(parameter.ReplaceAllLiteralString(route, id)+"?"+query,
					"?"), asked)
			}
			return nil
		}))
	require.Greater(t, routes, 80)
}

func TestEveryRouteRefusesStrangersAndOtherSites(t *testing.T) {
	t.Parallel()
	closed, local := newRig(t, access.Access{Tokens: []string{token}}), open(t)
	counter := &storetest.Counter{Store: local.store}
	local.over(counter)
	local.each(t, func(method, _, path, body string) {
		got := closed.send(t, method, path, body, from(far))
		require.Equal(t, []any{http.StatusUnauthorized, "Bearer"},
			[]any{got.Code, got.Header().Get("WWW-Authenticate")}, path)
		require.Equal(t, http.StatusForbidden, closed.send(t, method, path, body, from(far),
			header("Authorization", "Bearer "+next)).Code, path)
		for name, value := range map[string]string{"Sec-Fetch-Site": "cross-site", "Origin": "https://evil.example"} {
			local.refuses(t, method, path, body, http.StatusForbidden, "cross_origin", header(name, value))
		}
		local.refuses(t, method, path, body, http.StatusForbidden, "host_not_local", onHost("rebound.example"),
			header("Origin", "http://rebound.example"))
	})
	require.Zero(t, counter.Reads.Load()+counter.Commits.Load())
	require.NotContains(t, closed.log.String(), token)
}

func TestEveryRouteThatChangesSomethingNeedsAReasonThatMayBeKept(t *testing.T) {
	t.Parallel()
	r := open(t)
	left := maps.Clone(noReason)
	r.each(t, func(method, route, path, _ string) {
		if method == http.MethodGet || noReason[method+" "+route] != "" {
			delete(left, method+" "+route)
			return
		}
		for why, says := range map[string]string{
			"": "needs a reason", " \t ": "needs a reason",
			"mended\u202e": "not seen", "mended\x1b[2J": "not seen", "mended\u009b": "not seen",
			"two\nlines":                "not seen",
			"asked by ilse@example.org": "(email)", "card 4111 1111 1111 1111": "(card)",
			"call +49 30 901820":      "(phone)",
			strings.Repeat("w", 1001): "longer than 1000 bytes",
		} {
			body := filetest.Must(json.Marshal(map[string]string{"why": why}))(t)
			got := r.send(t, method, path, string(body))
			require.Equal(t, http.StatusUnprocessableEntity, got.Code, "%s: %s", path, got.Body)
			require.Contains(t, got.Body.String(), says, path)
			for _, value := range []string{"ilse@", "4111", "901820", "\u202e"} {
				require.NotContains(t, got.Body.String(), value, "the value is not repeated")
			}
		}
	})
	require.Empty(t, left, "these routes are gone")
}

// documented returns what holds an answer to the OpenAPI document that the API serves: every member that it
// must have, and none that the document does not know.
func (r *rig) documented(
	t *testing.T,
) (holds func(t *testing.T, method, route string, got *httptest.ResponseRecorder)) {
	t.Helper()
	document := filetest.Must(jsonschema.UnmarshalJSON(strings.NewReader(r.get(t, "openapi.json", nil))))(t)
	components := document.(map[string]any)["components"].(map[string]any) //nolint:forcetypeassert // Another document ends the test.
	for _, schema := range components["schemas"].(map[string]any) {        //nolint:forcetypeassert // As above.
		schema.(map[string]any)["additionalProperties"] = false //nolint:forcetypeassert // As above.
	}
	compiler := jsonschema.NewCompiler()
	require.NoError(t, compiler.AddResource("openapi.json", document))
	return func(t *testing.T, method, route string, got *httptest.ResponseRecorder) {
		t.Helper()
		if !strings.HasPrefix(route, "/v1/ops/") || route == "/v1/ops/openapi.json" {
			return
		}
		status, kind := "200", "application/json"
		if got.Code >= http.StatusBadRequest {
			status, kind = "default", "application/problem+json"
		}
		escaped := strings.NewReplacer("~", "~0", "/", "~1")
		schema, err := compiler.Compile(strings.Join([]string{
			"openapi.json#", "paths", escaped.Replace(route), strings.ToLower(method), "responses", status, "content",
			escaped.Replace(kind), "schema",
		}, "/"))
		require.NoError(t, err)
		answer := filetest.Must(jsonschema.UnmarshalJSON(got.Body))(t)
		if err := schema.Validate(answer); err != nil {
			t.Errorf("%s %s: %v", method, route, err)
		}
	}
}

func TestEveryLookIsAnsweredAsTheOpenAPIDocumentSays(t *testing.T) {
	t.Parallel()
	r := shelf(t)
	r.stock(t, 3)
	r.commit(t, subscriptions.Event{
		Tenant: "default", Subscription: "orders", EventID: "e", Customer: "c1", OccurredAt: "2026-03-01T00:00:00Z",
	}.Write())
	r.does(t, http.MethodPost, "/v1/ops/endpoints",
		`{"id":"orders","url":"https://p.example","why":"before"}`, nil)
	r.does(t, http.MethodPut, "/v1/ops/customers/orders", `{"uid":"u1","why":"before"}`, nil)
	holds, shown := r.documented(t), map[string]bool{
		// there is no contract here, and no seal
		"/v1/ops/catalog/contracts/{id}": true, "/v1/ops/journal/entries/{entry}/proof": true,
	}
	r.each(t, func(method, route, path, _ string) {
		if method != http.MethodGet {
			return
		}
		for _, path := range []string{path, ofOrders(route)} {
			got := r.send(t, method, path, "")
			shown[route] = shown[route] || got.Code == http.StatusOK
			holds(t, method, route, got)
		}
	})
	for route, ok := range shown {
		require.True(t, ok, "of %s only a refusal was seen", route)
	}
}

func TestAStoreThatIsDownIsNeverA4xx(t *testing.T) {
	t.Parallel()
	r := open(t)
	r.store.Down(true)
	r.each(t, func(method, route, path, body string) {
		got := r.send(t, method, path, body)
		if most, known := looks[route][body]; known && most == 0 {
			require.NotEqual(t, http.StatusServiceUnavailable, got.Code, "%s reads nothing", path)
			return
		}
		require.Equal(t, []any{http.StatusServiceUnavailable, "5"},
			[]any{got.Code, got.Header().Get("Retry-After")}, "%s: %s", path, got.Body)
		require.Contains(t, got.Body.String(), `"store_unavailable"`)
	})
}

func TestNoLookShowsAnotherTenantsThings(t *testing.T) {
	t.Parallel()
	r := open(t)
	r.stock(t, 3)
	tenants := 0
	r.each(t, func(method, _, path, _ string) {
		if method != http.MethodGet || codeOf(r.send(t, method, and(path, "tenant=a%2Fb"), "").Body.String()) !=
			"tenant_invalid" {
			return
		}
		tenants++
		require.NotContains(t, r.send(t, method, and(path, "tenant=acme"), "").Body.String(),
			`"tenant":"default"`, path)
	})
	require.Greater(t, tenants, 20)
}

// order has an order come in, in which a customer buys a hat.
func (r *rig) order(t *testing.T, event, order string, items ...string) {
	t.Helper()
	shop := filetest.Must(orderstest.Open(r.store))(t)
	_, err := shop.Deliver(t.Context(), r.store, orderstest.Created(event, order, items...), false)
	require.NoError(t, err)
}

// refund is the document of a payment's refund that was asked for that long before now.
func refund(tenant, payment string, state payments.State, ago time.Duration) store.Write {
	one := payments.Refund{
		PaymentID: payment, Tenant: tenant, State: state, Queue: "refunds", EventID: "r-" + payment,
		ReservedAt: at.Add(-ago),
	}
	return store.Create(store.Key{Collection: payments.RefundsCollection, ID: store.ID(tenant, payment)},
		store.Encode(&one))
}

// used is a total of a subscription in March, and its only entry.
func used(of usage.Total) []store.Write {
	of.Start, of.CountedAt, of.Entries, of.Month = time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC), at, 1,
		of.Tenant+"~2026-03"
	if of.Period == "" {
		of.Period = "2026-03"
	}
	key, event := usage.Key(of.Tenant, of.Subscription, of.Period, of.Meter), "u-"+of.Subscription+"-"+of.Meter
	entry := usage.Entry{
		Tenant: of.Tenant, Subscription: of.Subscription, Period: of.Period, Meter: of.Meter, EventID: event,
		Quantity: of.Used, OccurredAt: at, CountedAt: at, Total: key.ID,
	}
	return []store.Write{
		store.Create(key, store.Encode(&of)), store.Create(usage.EntryKey(of.Tenant, of.Subscription, event),
			store.Encode(&entry)),
	}
}

func waitingLane(id string, waits time.Duration) store.Write {
	return store.Create(store.Key{Collection: lane.Outbox.Lanes(), ID: id},
		map[string]any{"newest": "x", "due_at": at.Add(time.Second), "oldest_at": at.Add(-waits)})
}

// stock writes so many documents into each collection that a list shows.
func (r *rig) stock(t *testing.T, documents int) {
	t.Helper()
	r.order(t, "e-order", "o1")
	r.credit(t, "default", "first", "first", ledger.UserPoints("u1"), 100, 0)
	r.does(t, http.MethodPut, "/v1/ops/stock/hat", `{"available":5,"why":"counted"}`, nil)
	item := dead("orders", "seed", "r", 0)
	item.EventID, item.Operation = "e7", "op"
	writes := append(used(usage.Total{Tenant: "default", Subscription: "s:1", Meter: "calls", Used: 1}),
		inStore(item), waitingLane("seed", time.Hour), refund("default", "pay:1", payments.UnderWay, 0))
	r.commit(t, writes...)
	writes = nil
	for i := range documents {
		ago := time.Duration(i) * time.Second
		for unit, layout := range map[rates.Unit]string{rates.Hour: "hour-2006010215", rates.Day: "day-20060102"} {
			counted := at.Add(-time.Duration(i/rates.Shards) * time.Duration(unit))
			writes = append(writes, store.Create(
				store.Key{Collection: rates.Collection, ID: fmt.Sprintf("%s-%d", counted.Format(layout), i%rates.Shards)},
				map[string]any{"queues": map[string]any{"orders": map[string]any{"in": int64(1)}}}))
		}
		event := created("orders", fmt.Sprint("e", i),
			[]dedupe.Status{dedupe.Completed, dedupe.Failed, dedupe.DeadLettered}[i%3], ago)
		event.Emitted = []handler.Emitted{{EventID: "emitted"}}
		op := bulk.Operation{
			Kind: deadletter.Replay, Filter: bulk.Filter{Queue: "orders"}, Who: "ilse", Rate: 50,
			CreatedAt: at.Add(-ago),
			Progress:  []bulk.Progress{bulk.Finished, bulk.Running}[i%2],
		}
		entered := filetest.Must(ledger.Post(sale("default", fmt.Sprint("e", i), "2026-03", 100)))(t)
		credited := ledgertest.Credited(t, ledger.Move{
			Tenant: "default", Order: fmt.Sprint("o", i), EventID: "e", To: ledger.UserPoints("u1"), Amount: 1,
			CreatedAt: at,
		})
		writes = append(writes, own(event), entered[0], credited[0],
			store.Create(store.Key{Collection: audit.Collection, ID: fmt.Sprintf("op-%05d", i)}, store.Encode(&op)))
	}
	for _, collection := range []string{
		deadletter.Collection, lane.Outbox.Lanes(), payments.RefundsCollection, orders.Collection,
		orders.StockCollection, usage.Collection, usage.EntriesCollection, audit.Collection,
	} {
		seeds := storetest.All(t, r.store, collection)
		require.NotEmpty(t, seeds, collection)
		for i := range documents - 1 { // beside the seed: a preview of more than 10,000 dead letters is refused
			seed := seeds[0]
			writes = append(writes,
				store.Create(store.Key{Collection: collection, ID: fmt.Sprintf("%s-%05d", seed.Key.ID, i)}, seed.Fields))
		}
	}
	for some := range slices.Chunk(writes, store.MaxWrites) {
		r.commit(t, some...)
	}
}

func TestEachLookChangesNothingAndCostsTheSameOfAnyNumber(t *testing.T) {
	t.Parallel()
	most := 10_000
	if testing.Short() {
		most = 1_200
	}
	for _, documents := range []int{10, most} {
		t.Run(fmt.Sprint(documents, " documents"), func(t *testing.T) {
			t.Parallel()
			r := open(t)
			r.stock(t, documents)
			db := &storetest.Counter{Store: r.store}
			r.over(db)
			r.each(t, func(method, route, path, asked string) {
				if method != http.MethodGet {
					return
				}
				before := db.Reads.Load()
				answer := r.send(t, method, path, "")
				require.Zero(t, db.Commits.Load(), path)
				if most := looks[route][asked]; most != all {
					require.Contains(t, []int{http.StatusOK, http.StatusNotFound}, answer.Code, "%s: %s", path, answer.Body)
					require.LessOrEqual(t, db.Reads.Load()-before, most, path)
				}
			})
		})
	}
}

func TestOpenAccessNeedsTheMachinesOwnHost(t *testing.T) {
	t.Parallel()
	r := open(t)
	for host, want := range map[string]int{
		"localhost": 200, "localhost:8081": 200, "LocalHost:8081": 200, "127.0.0.1": 200, "127.0.0.1:8081": 200,
		"127.5.6.7:1": 200,
		"[::1]":       200, "[::1]:8081": 200, "[::ffff:127.0.0.1]:8081": 200,

		"rebound.example": 403, "rebound.example:8081": 403, "localhost.rebound.example": 403,
		"127.0.0.1.rebound.example": 403,
		"rebound.example:127.0.0.1": 403, "localhost.": 403, "xlocalhost": 403, "0.0.0.0:8081": 403,
		"[::]:8081": 403, "192.0.2.7:8081": 403,
		"127.0.0.1@rebound.example": 403, "128.0.0.1": 403, "": 403, ":8081": 403,
	} {
		for _, change := range []func(*http.Request){
			header("X-Operator", ""), header("X-Operator", "ada"), header("Sec-Fetch-Site", "same-origin"),
		} {
			require.Equal(t, want, r.send(t, http.MethodGet, "/v1/ops/events", "", change, onHost(host)).Code, host)
		}
		change := r.send(t, http.MethodPut, "/v1/ops/stock/hat", `{"available":1,"why":"mended"}`, onHost(host),
			header("Origin", "http://"+host))
		require.Equal(t, want, change.Code, "a page that was led here by its own name changes nothing")
	}
	closed := newRig(t, access.Access{Tokens: []string{token}, OpenOnLoopback: true})
	closed.does(t, http.MethodGet, "/v1/ops/events", "", nil, onHost("worker.example"),
		header("Authorization", "Bearer "+token))
}

// inPage runs what a page does that somebody on this machine has asked for.
func (r *rig) inPage(t *testing.T, server *api.Server, does func(*http.Request)) {
	t.Helper()
	guard := (&access.Sessions{Access: r.access, Log: server.Log, Now: server.Now}).
		Guard(func(w http.ResponseWriter, _ *http.Request, p *serve.Problem) { p.Write(w) })
	request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/ops/", nil)
	request.RemoteAddr, request.Host = here, "127.0.0.1:8081"
	request.Header.Set("X-Operator", "ann")
	guard(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		does(r)
	})).ServeHTTP(httptest.NewRecorder(), request)
}

// The time of a page may end between a change and its answer.
func TestAChangeThatWasMadeIsNotSaidToHaveFailed(t *testing.T) {
	t.Parallel()
	r := open(t)
	server := r.over(r.store)
	r.inPage(t, server, func(request *http.Request) {
		ctx, cancel := context.WithCancel(request.Context())
		r.store.OnCommit = func(_ context.Context, _ []store.Write, do func() error) error {
			defer cancel()
			return do()
		}
		set, _ := server.Find("products set")
		_, err := server.Call(ctx, set,
			console.Input{Path: map[string]string{"id": "hat"}, Body: []byte(`{"points":300,"why":"dearer"}`)})
		require.NoError(t, err)
	})
}

func TestTheAPITakesNoCookie(t *testing.T) {
	t.Parallel()
	guarded := access.Access{Tokens: []string{token}, OpenOnLoopback: true}
	r := newRig(t, guarded)
	sessions := access.Sessions{
		Access: guarded, Local: []byte("a key of this process"), Log: slog.New(slog.DiscardHandler),
		Now: func() time.Time { return at },
	}
	for peer, shown := range map[string]string{far: token, here: ""} {
		page := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/ops/", nil)
		page.RemoteAddr, page.Host = peer, "localhost:8081"
		cookie := filetest.Must(sessions.SignIn(page, shown, "ada"))(t)
		r.refuses(t, http.MethodGet, "/v1/ops/events", "", http.StatusUnauthorized, "unauthorized", from(far),
			func(request *http.Request) { request.AddCookie(cookie) })
	}
}
