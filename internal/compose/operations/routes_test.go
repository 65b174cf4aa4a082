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

	"billhook/internal/apps/subscriptions"
	"billhook/internal/console/access"
	"billhook/internal/filetest"
	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
)

// all is the bound of routes that read all documents of their subject, in pages or up to their own bound: a
// proof or a verification needs all its entries.
const all = -1

// looks are the requests to each GET route, with the most documents that the database may read for each,
// however many there are. A count is one read for each thousand.
var looks = map[string]map[string]int64{
	"/v1/ops/openapi.json": {"": 0},
	"/v1/ops/queues":       {"": 2*12 + 120 + 8},
	// for each of ten keys its first message, their number, its lane and its dead letters
	"/v1/ops/queues/{id}": {"orders": (4*8*2 + 12) + 120 + 8 + 22 + 10*(3+2+20) + 20 + 48},
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
	"/api/v1/events/stats":                  {"": 3*8*2 + 3*11 + 1},
	"/api/v1/events/dead-letter":            {"": 101},
}

// bodies are those of routes that change something; the other routes take a reason alone.
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

// noReason are the routes beside GET that take no reason.
var noReason = map[string]string{
	"POST /v1/ops/operations/{id}/run":                 "continues an operation",
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

// each visits each route of the API with a valid body: a GET route with each of its requests, others once.
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
			for _, look := range slices.Sorted(maps.Keys(looks[route])) {
				id, query, _ := strings.Cut(look, "?")
				visit(method, route, strings.TrimSuffix(parameter.ReplaceAllLiteralString(route, id)+"?"+query,
					"?"), look)
			}
			return nil
		}))
	require.Greater(t, routes, 80)
}

func TestEveryRouteRefusesUnknownPeopleAndOtherSites(t *testing.T) {
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
		for name, value := range map[string]string{
			"Sec-Fetch-Site": "cross-site", "Origin": "https://evil.example",
		} {
			local.refuses(t, method, path, body, http.StatusForbidden, "cross_origin", header(name, value))
		}
		local.refuses(t, method, path, body, http.StatusForbidden, "host_not_local", onHost("rebound.example"),
			header("Origin", "http://rebound.example"))
	})
	require.Zero(t, counter.Reads.Load()+counter.Commits.Load())
	require.NotContains(t, closed.log.String(), token)
}

func TestEveryChangeNeedsAReasonWithoutPersonalData(t *testing.T) {
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
			"repaired\u202e": "invisible", "repaired\x1b[2J": "invisible", "repaired\u009b": "invisible",
			"two\nlines":                    "invisible",
			"requested by ilse@example.org": "(email)", "card 4111 1111 1111 1111": "(card)",
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
	require.Empty(t, left, "these routes do not exist")
}

// documented returns a check of an answer against the OpenAPI document that the API serves: it has each
// required member, and no undocumented one.
func (r *rig) documented(
	t *testing.T,
) (holds func(t *testing.T, method, route string, got *httptest.ResponseRecorder)) {
	t.Helper()
	document := filetest.Must(jsonschema.UnmarshalJSON(strings.NewReader(r.get(t, "openapi.json", nil))))(t)
	//nolint:forcetypeassert // Another document ends the test.
	components := document.(map[string]any)["components"].(map[string]any)
	for _, schema := range components["schemas"].(map[string]any) { //nolint:forcetypeassert // As above.
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
		schema := filetest.Must(compiler.Compile(strings.Join([]string{
			"openapi.json#", "paths", escaped.Replace(route), strings.ToLower(method), "responses", status, "content",
			escaped.Replace(kind), "schema",
		}, "/")))(t)
		answer := filetest.Must(jsonschema.UnmarshalJSON(got.Body))(t)
		if err := schema.Validate(answer); err != nil {
			t.Errorf("%s %s: %v", method, route, err)
		}
	}
}

func TestEveryGETIsAnsweredAsTheOpenAPIDocumentSays(t *testing.T) {
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
		// neither contracts nor seals exist here
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
		require.True(t, ok, "%s was only refused", route)
	}
}

func TestStoreThatIsDownIsNeverA4xx(t *testing.T) {
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

// Nor does it show a document of another tenant.
func TestGETChangesNothingAndHasABoundedCost(t *testing.T) {
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
			tenants := 0
			r.each(t, func(method, route, path, look string) {
				if method != http.MethodGet {
					return
				}
				if codeOf(r.send(t, method, and(path, "tenant=a%2Fb"), "").Body.String()) == "tenant_invalid" {
					tenants++
					require.NotContains(t, r.send(t, method, and(path, "tenant=acme"), "").Body.String(),
						`"tenant":"default"`, path)
				}
				before := db.Reads.Load()
				answer := r.send(t, method, path, "")
				require.Zero(t, db.Commits.Load(), path)
				if most := looks[route][look]; most != all {
					require.Contains(t, []int{http.StatusOK, http.StatusNotFound}, answer.Code, "%s: %s", path, answer.Body)
					require.LessOrEqual(t, db.Reads.Load()-before, most, path)
				}
			})
			require.Greater(t, tenants, 20)
		})
	}
}

// The time of a page may end between a change and its answer.
func TestCommittedChangeIsNotReportedAsFailed(t *testing.T) {
	t.Parallel()
	r := open(t)
	ctx, cancel := context.WithCancel(t.Context())
	r.store.OnCommit = func(_ context.Context, _ []store.Write, do func() error) error {
		defer cancel()
		return do()
	}
	r.does(t, http.MethodPut, "/v1/ops/products/hat", `{"points":300,"why":"dearer"}`, nil,
		func(request *http.Request) { *request = *request.WithContext(ctx) })
	require.Error(t, ctx.Err())
}

func TestAPIAcceptsNoCookie(t *testing.T) {
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
