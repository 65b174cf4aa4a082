package terraform_test

import (
	"context"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/apps/endpoints"
	"billhook/internal/apps/journal"
	"billhook/internal/apps/ledger"
	"billhook/internal/apps/payments"
	"billhook/internal/compose/operations"
	"billhook/internal/console"
	"billhook/internal/console/access"
	"billhook/internal/console/api"
	"billhook/internal/dedupe"
	"billhook/internal/inspect/bulk"
	"billhook/internal/inspect/events"
	"billhook/internal/inspect/search"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/pipeline/dryrun"
	"billhook/internal/platform/audit"
	"billhook/internal/platform/store"
)

type recorder struct {
	store.Store
	mu      sync.Mutex
	queries []store.Query
}

func (s *recorder) Get(context.Context, store.Key) (store.Document, error) {
	return store.Document{}, store.ErrNotFound
}

func (s *recorder) Query(_ context.Context, q store.Query) (store.Page, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queries = append(s.queries, q)
	return store.Page{}, nil
}

// filtersOf are the filters of each list, by its path, and a value of each.
var filtersOf = map[string]url.Values{
	"/v1/ops/dead-letters": {
		"queue": {"orders"}, "reason": {"r"}, "type": {"t"}, "event_id": {"e"}, "key": {"k"}, "since": {"7d"},
		"state": {"all"},
	},
	"/v1/ops/dead-letters/reasons": {
		"queue": {"orders"}, "reason": {"r"}, "type": {"t"}, "event_id": {"e"}, "key": {"k"},
	},
	"/v1/ops/events": {
		"queue": {"orders"}, "status": {"FAILED"}, "type": {"t"}, "event_id": {"e"}, "correlation_id": {"c"},
		"key": {"k"}, "since": {"2s"},
	},
	"/v1/ops/dead-letters/preview": {"reason": {"r"}, "type": {"t"}, "event_id": {"e"}, "key": {"k"}},
	"/v1/ops/operations":           {"progress": {"running"}},
	"/v1/ops/audit":                {"kind": {bulk.AuditKind}, "subject": {"s"}, "who": {"w"}, "since": {"2s"}},
	"/v1/ops/refunds":              {"state": {"under_way"}},
	"/v1/ops/endpoints":            {"state": {"disabled"}},
	"/v1/ops/search?q=id":          {"tenant": {"t"}},
	"/v1/ops/journal/entries":      {"account": {"cash"}},
	"/v1/ops/endpoints/":           {"tenant": {"t"}},
	"/v1/ops/customers/c/activity": {"tenant": {"t"}},
	"/api/v1/events/dead-letter":   {},
	"/api/v1/events/stats":         {},
	"/v1/ops/queues/orders":        {},
}

// newestQueries are the queries of lists, newest first, with each combination of their filters, where these
// handlers run.
func newestQueries(t *testing.T, handlers ...string) []store.Query {
	t.Helper()
	db, router := &recorder{}, chi.NewRouter()
	running := catalog.Queue{ID: "orders", Enabled: true, Handlers: map[string]catalog.Handler{}}
	for _, name := range handlers {
		running.Handlers[name] = catalog.Handler{Name: name}
	}
	reads := events.Reads{
		Store: db, Catalog: &catalog.Catalog{Queues: []catalog.Queue{running}}, Now: time.Now,
		Worker: func(map[string]string) (dryrun.Worker, error) { return nil, nil },
	}
	letters := &bulk.Operator{Store: db, Now: time.Now, Catalog: reads.Catalog}
	apps := operations.Apps{
		Store: db, Reads: reads, DeadLetters: letters,
		Endpoints: &endpoints.Editor{Store: db, Now: time.Now, Off: len(handlers) == 0},
		Periods:   &journal.Periods{Now: time.Now},
	}
	server := &api.Server{
		Catalog: operations.All(apps), Log: slog.New(slog.DiscardHandler), Author: access.Author,
		Now: time.Now, Store: db,
	}
	router.Use(access.Access{OpenOnLoopback: true}.Guard)
	server.Routes(router)
	server.Scripts(router, operations.Scripts(apps))
	for path, filters := range filtersOf {
		names := slices.Sorted(maps.Keys(filters))
		for some := range 1 << len(names) {
			query := url.Values{}
			for i, name := range names {
				if some>>i&1 == 1 {
					query[name] = filters[name]
				}
			}
			if strings.HasSuffix(path, "/preview") || query.Has("state") &&
				strings.HasPrefix(path, "/v1/ops/dead-letters") {
				query.Set("queue", "orders")
			}
			request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, strings.TrimSuffix(path,
				"/")+map[bool]string{true: "&", false: "?"}[strings.Contains(path, "?")]+query.Encode(), nil)
			request.RemoteAddr, request.Host = "127.0.0.1:4711", "127.0.0.1:8081"
			answer := httptest.NewRecorder()
			router.ServeHTTP(answer, request)
			off := len(handlers) == 0 && strings.Contains(answer.Body.String(), `_off"`)
			require.True(t, off || answer.Code == http.StatusOK, answer.Body.String())
		}
	}
	// a retry's
	_, _, err := letters.List(t.Context(), bulk.Filter{EventID: "e"}, deadletter.Open, store.Cursor{}, 1)
	require.NoError(t, err)
	show, _ := console.NewCatalog(ledger.Operations(holding{db})).Find("accounts show")
	_, err = show.Call(t.Context(), audit.Author{},
		console.Input{Path: map[string]string{"account": "points:user:u"}})
	require.NoError(t, err)
	byControl := func(q store.Query) bool { return q.Contains[ledger.FieldPostings] != "" }
	require.Equal(t, slices.Contains(handlers, catalog.JournalPost), slices.ContainsFunc(db.queries, byControl))
	return slices.DeleteFunc(db.queries, func(q store.Query) bool { return q.Newest == nil })
}

// holding is the same where there is an account.
type holding struct{ *recorder }

func (holding) Get(context.Context, store.Key) (store.Document, error) {
	return store.Document{Version: 1}, nil
}

// searched are the fields that a search compares, by collection.
func searched(t *testing.T) map[string][]string {
	t.Helper()
	compared, keyed := map[string][]string{}, false
	for _, tenant := range []string{"", "acme"} {
		db := &recorder{}
		find := search.Reads{
			Reads: events.Reads{Store: db, Catalog: &catalog.Catalog{}, Now: time.Now},
		}.Operations()[0]
		query := url.Values{"q": {"id"}}
		if tenant != "" {
			query.Set("tenant", tenant)
		}
		_, err := find.Call(t.Context(), audit.Author{}, console.Input{Query: query})
		require.NoError(t, err)
		for _, q := range db.queries {
			keyed = keyed || q.Collection == dedupe.Collection && q.Equal["idempotency_key"] != nil
			if q.Newest != nil { // an index of its own answers
				continue
			}
			fields := slices.AppendSeq(slices.Collect(maps.Keys(q.Contains)), maps.Keys(q.Equal))
			for _, field := range fields {
				require.NotContains(t, listed(t, "unindexed", q.Collection), field, q.Collection)
			}
			compared[q.Collection] = append(compared[q.Collection], fields...)
		}
	}
	require.True(t, keyed)
	require.Greater(t, len(compared), 8)
	return compared
}

// ownIndex reports whether an index of exactly the compared fields has to answer, because a merge would
// walk far. One filter has one of its own, and so have a queue's events of a status.
func ownIndex(fields []string) bool {
	if slices.Contains(fields, "shard") {
		return len(fields) <= 2 || slices.Equal(fields, []string{"queue", "shard", "status"})
	}
	return len(fields) == 1 || slices.Equal(fields, []string{"account", "tenant"})
}

// answers reports whether the indexes answer a query, and without a merge that walks far.
func answers(indexes []index, q store.Query) bool {
	fields := slices.Sorted(maps.Keys(q.Equal))
	own := slices.ContainsFunc(indexes, func(x index) bool {
		return x.collection == q.Collection && x.newest &&
			slices.Equal(slices.Sorted(slices.Values(x.compared)), fields)
	})
	return merges(indexes, q) && (own || !ownIndex(fields))
}

// merges reports whether indexes answer a query for the newest. The database intersects indexes that
// compare some of the query's fields and all end with its time, in its direction. An emulator needs
// none, so that this is checked nowhere else before production.
func merges(indexes []index, q store.Query) bool {
	covered, unasked := map[string]bool{}, func(field string) bool { return q.Equal[field] == nil }
	for _, x := range indexes {
		if !x.newest || x.collection != q.Collection || x.time != q.Newest.Field ||
			slices.ContainsFunc(x.compared, unasked) {
			continue
		}
		for _, field := range x.compared {
			covered[field] = true
		}
	}
	return len(covered) == len(q.Equal)
}

func TestIndexesMergeForEachCombinationOfFilters(t *testing.T) {
	t.Parallel()
	queries := newestQueries(t, payments.RefundHandler, endpoints.Handler, catalog.JournalPost)
	all := composites(t)
	alone := map[string]bool{}
	for _, q := range queries {
		if len(q.Equal) == 0 {
			alone[q.Collection] = true
			require.Empty(t, listed(t, "unindexed", q.Collection), "the time alone needs its own index")
			continue
		}
		require.True(t, answers(all, q), "%s %v", q.Collection, q.Equal)
	}
	require.Equal(t, map[string]bool{
		audit.Collection: true, payments.RefundsCollection: true, endpoints.Collection: true,
	}, alone)
	for i, x := range all {
		if !x.newest {
			continue
		}
		others := slices.Delete(slices.Clone(all), i, i+1)
		require.True(t, slices.ContainsFunc(queries, func(q store.Query) bool { return !answers(others, q) }),
			"nothing needs %v", x)
	}
	// Where an app does not run, its collection has no index, and nobody asks.
	for collection, handler := range map[string]string{
		payments.RefundsCollection: payments.RefundHandler, endpoints.Collection: endpoints.Handler,
	} {
		app, _, _ := strings.Cut(handler, ".")
		require.Regexp(t, collection+` += "`+app+`"`, local(t, "firestore.tf", "of_app"))
		all = slices.DeleteFunc(all, func(x index) bool { return x.collection == collection })
	}
	for _, q := range newestQueries(t) {
		require.True(t, len(q.Equal) == 0 || answers(all, q), "%s %v", q.Collection, q.Equal)
	}
}

// The time alone would be one hot spot: every index of it begins with what spreads.
func TestEachIndexOfTheJobLogIsSpread(t *testing.T) {
	t.Parallel()
	for _, x := range composites(t) {
		if x.collection == dedupe.Collection {
			require.Contains(t, x.compared, "shard")
		}
	}
	require.NotContains(t, listed(t, "indexed", dedupe.Collection), "shard")
}
