package terraform_test

import (
	"context"
	"go/ast"
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
	"billhook/internal/apps/customers"
	"billhook/internal/apps/ledger"
	"billhook/internal/apps/payments"
	"billhook/internal/console/ops"
	"billhook/internal/dedupe"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/platform/audit"
	"billhook/internal/platform/store"
)

// index is a composite index: the fields that are compared, and the time that orders what is found.
type index struct {
	collection string
	compared   []string
	time       string
	newest     bool
}

// composites are those that Terraform makes.
func composites(t *testing.T) (all []index) {
	t.Helper()
	for line := range strings.Lines(local(t, "firestore.tf", "composite")) {
		if named := words(line); len(named) > 0 { // collection, fields, order
			last := len(named) - 1
			all = append(all, index{named[0], named[1 : last-1], named[last-1], named[last] == "DESCENDING"})
		}
	}
	require.NotEmpty(t, all)
	return all
}

// TestEveryIndexOfWhatIsDueIsOneThatAQueryNeeds finds the queries that compare fields and take what is
// due besides, and holds the indexes against them: an emulator needs none, so that a missing one would show
// in production alone.
func TestEveryIndexOfWhatIsDueIsOneThatAQueryNeeds(t *testing.T) {
	t.Parallel()
	var needed, made []string
	inspectQueries(t, func(n ast.Node) {
		query, ok := n.(*ast.CompositeLit)
		if !ok {
			return
		}
		if kind, ok := query.Type.(*ast.SelectorExpr); !ok || kind.Sel.Name != "Query" {
			return
		}
		parts := map[string]ast.Expr{}
		for _, element := range query.Elts {
			if pair, ok := element.(*ast.KeyValueExpr); ok {
				parts[pair.Key.(*ast.Ident).Name] = pair.Value
			}
		}
		if parts["Due"] == nil || parts["Equal"] == nil {
			return
		}
		equal, ok := parts["Equal"].(*ast.CompositeLit)
		require.True(t, ok, "a query that takes what is due of what equals writes both out, for this test to read")
		fields := keysOf(t, equal)
		slices.Sort(fields)
		due := parts["Due"].(*ast.UnaryExpr).X.(*ast.CompositeLit)
		for _, element := range due.Elts {
			if pair := element.(*ast.KeyValueExpr); pair.Key.(*ast.Ident).Name == "Field" {
				fields = append(fields, text(t, pair.Value))
			}
		}
		needed = append(needed, strings.Join(fields, ", "))
	})
	for _, index := range composites(t) {
		if !index.newest {
			made = append(made, strings.Join(append(index.compared, index.time), ", "))
		}
	}
	slices.Sort(needed)
	slices.Sort(made)
	require.NotEmpty(t, needed)
	require.Equal(t, slices.Compact(needed), made)
}

// asked is an empty store that keeps the queries for the newest.
type asked struct {
	store.Store
	mu      sync.Mutex
	queries []store.Query
}

func (s *asked) Get(context.Context, store.Key) (store.Document, error) {
	return store.Document{}, store.ErrNotFound
}

func (s *asked) Query(_ context.Context, q store.Query) (store.Page, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if q.Newest != nil {
		s.queries = append(s.queries, q)
	}
	return store.Page{}, nil
}

// newestAsked are the queries of lists, newest first, with each combination of their filters.
func newestAsked(t *testing.T) []store.Query {
	t.Helper()
	db, router := &asked{}, chi.NewRouter()
	letters := &deadletter.Operator{Store: db, Now: time.Now}
	(&ops.API{
		Reads:    ops.Reads{Store: db, Catalog: &catalog.Catalog{Queues: []catalog.Queue{{ID: "orders"}}}, Now: time.Now},
		Operator: letters, Customers: &customers.Operator{Store: db, Now: time.Now}, Log: slog.New(slog.DiscardHandler), Access: ops.Access{OpenOnLoopback: true},
	}).Routes(router)
	for path, filters := range map[string]url.Values{
		"/v1/ops/dead-letters":         {"queue": {"orders"}, "reason": {"r"}, "type": {"t"}, "event_id": {"e"}, "key": {"k"}, "since": {"7d"}, "state": {"all"}},
		"/v1/ops/dead-letters/reasons": {"queue": {"orders"}, "reason": {"r"}, "type": {"t"}, "event_id": {"e"}, "key": {"k"}},
		"/v1/ops/events":               {"queue": {"orders"}, "status": {"FAILED"}, "type": {"t"}, "event_id": {"e"}, "correlation_id": {"c"}, "key": {"k"}, "since": {"2s"}},
		"/v1/ops/dead-letters/preview": {"reason": {"r"}, "type": {"t"}, "event_id": {"e"}, "key": {"k"}},
		"/v1/ops/operations":           {"progress": {"running"}},
		"/v1/ops/audit":                {"kind": {deadletter.AuditKind}, "subject": {"s"}, "who": {"w"}, "since": {"2s"}},
		"/v1/ops/refunds":              {"state": {"all"}},
		"/v1/ops/customers/c/activity": {"tenant": {"t"}},
		"/api/v1/events/dead-letter":   {},
	} {
		names := slices.Sorted(maps.Keys(filters))
		for some := range 1 << len(names) {
			query := url.Values{}
			for i, name := range names {
				if some>>i&1 == 1 {
					query[name] = filters[name]
				}
			}
			if strings.HasSuffix(path, "/preview") || query.Has("state") && strings.HasPrefix(path, "/v1/ops/dead-letters") {
				query.Set("queue", "orders")
			}
			request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path+"?"+query.Encode(), nil)
			request.RemoteAddr, request.Host = "127.0.0.1:4711", "127.0.0.1:8081"
			answer := httptest.NewRecorder()
			router.ServeHTTP(answer, request)
			require.Equal(t, http.StatusOK, answer.Code, answer.Body.String())
		}
	}
	_, _, err := ledger.BalanceAt(t.Context(), db, ledger.Move{Account: "a", CreatedAt: time.Now()})
	require.NoError(t, err)
	_, _, err = letters.List(t.Context(), deadletter.Filter{EventID: "e"}, deadletter.Open, store.Cursor{}, 1) // a retry's
	require.NoError(t, err)
	_, _, err = ops.Reads{Store: holding{db}}.Account(t.Context(), "acme", "points:user:u", time.Now(), store.Cursor{}, 1)
	require.NoError(t, err)
	require.NotEmpty(t, db.queries)
	return db.queries
}

// holding is the same where there is an account.
type holding struct{ *asked }

func (holding) Get(context.Context, store.Key) (store.Document, error) { return store.Document{}, nil }

// searched is an empty store that keeps all queries by what they compare, and how.
type searched struct {
	store.Store
	mu       sync.Mutex
	compared map[string][]string
}

func (s *searched) Get(context.Context, store.Key) (store.Document, error) {
	return store.Document{}, store.ErrNotFound
}

func (s *searched) Query(_ context.Context, q store.Query) (store.Page, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if q.Newest == nil { // else an index of its own answers
		for field := range q.Equal {
			s.compared[q.Collection] = append(s.compared[q.Collection], field)
		}
		for field := range q.Contains {
			s.compared[q.Collection] = append(s.compared[q.Collection], field)
		}
	}
	return store.Page{}, nil
}

func TestEverythingThatASearchComparesHasAnIndex(t *testing.T) {
	t.Parallel()
	for _, tenant := range []string{"", "acme"} {
		db := &searched{compared: map[string][]string{}}
		_, err := ops.Reads{Store: db, Catalog: &catalog.Catalog{}, Now: time.Now}.Search(t.Context(), "id", tenant)
		require.NoError(t, err)
		require.Contains(t, db.compared[dedupe.Collection], "idempotency_key")
		require.Greater(t, len(db.compared), 8)
		for collection, fields := range db.compared {
			for _, field := range fields {
				require.NotContains(t, unindexed(t, collection), field, collection)
			}
		}
	}
}

// ownIndex reports whether an index of exactly the compared fields has to answer, because a merge would
// walk far. One filter has one of its own, a queue's events of a status, and a queue's letters of a state
// or of one thing more; but not an event id, of which there are few in any index.
func ownIndex(fields []string) bool {
	switch {
	case slices.Contains(fields, "shard"):
		return len(fields) <= 2 || slices.Equal(fields, []string{"queue", "shard", "status"})
	case slices.Contains(fields, "event_id"):
		return false
	case slices.Contains(fields, "state") && !slices.Contains(fields, "queue"):
		return len(fields) == 1
	case slices.Contains(fields, "who"), slices.Contains(fields, "subject"):
		return len(fields) == 1 // people change little
	default:
		return len(fields) <= 2
	}
}

// answers reports whether the indexes answer a query, and without a merge that walks far.
func answers(indexes []index, q store.Query) bool {
	fields := slices.Sorted(maps.Keys(q.Equal))
	own := slices.ContainsFunc(indexes, func(x index) bool {
		return x.collection == q.Collection && x.newest && slices.Equal(slices.Sorted(slices.Values(x.compared)), fields)
	})
	return merges(indexes, q) && (own || !ownIndex(fields))
}

// merges reports whether indexes answer a query for the newest. The database intersects indexes that
// compare some of the query's fields and all end with its time, in its direction. An emulator needs
// none, so that this is checked nowhere else before production.
func merges(indexes []index, q store.Query) bool {
	covered := map[string]bool{}
	for _, x := range indexes {
		serves := x.newest && x.collection == q.Collection && x.time == q.Newest.Field
		for _, field := range x.compared {
			_, compares := q.Equal[field]
			serves = serves && compares
		}
		for _, field := range x.compared {
			covered[field] = covered[field] || serves
		}
	}
	for field := range q.Equal {
		if !covered[field] {
			return false
		}
	}
	return true
}

func TestIndexesMergeForEachCombinationOfFilters(t *testing.T) {
	t.Parallel()
	queries, all := newestAsked(t), composites(t)
	alone := map[string]bool{}
	for _, q := range queries {
		if len(q.Equal) == 0 {
			alone[q.Collection] = true
			require.NotContains(t, unindexed(t, q.Collection), q.Newest.Field, "the time alone needs its own index")
			continue
		}
		require.True(t, answers(all, q), "%s %v", q.Collection, q.Equal)
	}
	require.Equal(t, map[string]bool{audit.Collection: true, payments.RefundsCollection: true}, alone)
	for i, x := range all {
		if !x.newest {
			continue
		}
		others := slices.Delete(slices.Clone(all), i, i+1)
		require.True(t, slices.ContainsFunc(queries, func(q store.Query) bool { return !answers(others, q) }), "nothing needs %v", x)
	}
}

// unindexed are the fields of a collection that have no index of their own.
func unindexed(t *testing.T, collection string) []string {
	t.Helper()
	_, list, _ := strings.Cut(local(t, "firestore.tf", "unindexed"), " "+collection+" ")
	list, _, _ = strings.Cut(list, "]")
	return words(list)
}

// The time alone would be one hot spot: every index of it begins with what spreads.
func TestEachIndexOfTheJobLogIsSpread(t *testing.T) {
	t.Parallel()
	for _, x := range composites(t) {
		if x.collection == dedupe.Collection {
			require.Contains(t, x.compared, "shard")
		}
	}
	require.Contains(t, unindexed(t, dedupe.Collection), "shard")
}
