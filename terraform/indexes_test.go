package terraform_test

import (
	"context"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/stretchr/testify/require"

	"billhook/catalog"
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

// index is a composite index: the fields that are compared, and the time that orders what is found.
type index struct {
	collection string
	compared   []string
	time       string
	newest     bool
}

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

// queries are those that the code writes out, in the files that query.
type queries struct {
	// fields are those that single-field indexes are asked by: every name that stands as a key of a map, or as the field of
	// what is due; more than are queried, never fewer. Of a query that needs a composite index the time is not.
	fields []string
	// due are the fields that are compared, and the time, of queries that take what is due of what equals.
	due []string
}

func written(t *testing.T) (found queries) {
	t.Helper()
	composite := words(local(t, "firestore.tf", "composite"))
	member := func(of ast.Expr, name string) (value ast.Expr) {
		if c, ok := of.(*ast.CompositeLit); ok {
			for _, element := range c.Elts {
				if pair, ok := element.(*ast.KeyValueExpr); ok {
					if key, ok := pair.Key.(*ast.Ident); ok && key.Name == name {
						value = pair.Value
					}
				}
			}
		}
		return value
	}
	text := func(e ast.Expr) (value string) {
		if basic, ok := e.(*ast.BasicLit); ok && basic.Kind == token.STRING {
			value, _ = strconv.Unquote(basic.Value) // it was parsed
		}
		return value
	}
	keys := func(of ast.Expr) (keys []string) {
		if m, ok := of.(*ast.CompositeLit); ok {
			for _, element := range m.Elts {
				if pair, ok := element.(*ast.KeyValueExpr); ok {
					keys = append(keys, text(pair.Key))
				}
			}
		}
		return keys
	}
	visit := func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			return n.Name.Name != "fields" // what a document is written with
		case *ast.CallExpr:
			called, _ := n.Fun.(*ast.SelectorExpr)
			for i, argument := range n.Args {
				if called != nil && called.Sel.Name == "Equals" && i%2 == 0 {
					found.fields = append(found.fields, text(argument))
				}
			}
			return called == nil || called.Sel.Name != "Increment" // so is this
		case *ast.AssignStmt:
			for _, left := range n.Lhs {
				if index, ok := left.(*ast.IndexExpr); ok {
					found.fields = append(found.fields, text(index.Index))
				}
			}
		case *ast.CompositeLit:
			if _, isMap := n.Type.(*ast.MapType); isMap {
				found.fields = append(found.fields, keys(n)...)
			}
			if field := text(member(n, "Field")); !slices.Contains(composite, field) {
				found.fields = append(found.fields, field)
			}
			due, taken := member(n, "Due").(*ast.UnaryExpr)
			if equal := member(n, "Equal"); taken && equal != nil {
				require.NotEmpty(t, keys(equal), "a query that takes what is due of what equals writes both out, for this test to read")
				found.due = append(found.due, strings.Join(append(slices.Sorted(slices.Values(keys(equal))), text(member(due.X, "Field"))), ", "))
				return false // its fields need the composite index alone
			}
		}
		return true
	}
	require.NoError(t, filepath.WalkDir(filepath.Join("..", "internal"), func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") || strings.HasSuffix(filepath.Dir(path), "test") {
			return err
		}
		// The second makes the conditions of queries that another file asks.
		source := read(t, path)
		if !strings.Contains(source, "store.Query{") && !strings.Contains(source, "store.Equals(") {
			return nil
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), path, source, 0)
		if err == nil {
			ast.Inspect(parsed, visit)
		}
		return err
	}))
	return found
}

func TestNoQueryNeedsAnIndexThatIsSwitchedOff(t *testing.T) {
	t.Parallel()
	queried := written(t).fields
	require.Subset(t, queried, []string{"queue", "status", "event_id", "correlation_id", "tenant", "lease_until", "state", "reason", "ordering_key", "due_at", "oldest_at", "progress", "account"})
	off := words(local(t, "firestore.tf", "unindexed"))
	require.Greater(t, len(off), 5)
	for _, field := range off {
		require.NotContains(t, queried, field)
	}
}

// An emulator needs no index, so that a missing one would show in production alone.
func TestEveryIndexOfWhatIsDueIsOneThatAQueryNeeds(t *testing.T) {
	t.Parallel()
	var made []string
	for _, index := range composites(t) {
		if !index.newest {
			made = append(made, strings.Join(append(index.compared, index.time), ", "))
		}
	}
	due := written(t).due
	slices.Sort(due)
	slices.Sort(made) // two collections may have the same
	require.NotEmpty(t, due)
	require.Equal(t, slices.Compact(due), slices.Compact(made))
}

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
	s.queries = append(s.queries, q)
	return store.Page{}, nil
}

// newestAsked are the queries of lists, newest first, with each combination of their filters.
func newestAsked(t *testing.T) []store.Query {
	t.Helper()
	db, router := &asked{}, chi.NewRouter()
	reads := events.Reads{
		Store: db, Catalog: &catalog.Catalog{Queues: []catalog.Queue{{ID: "orders"}}}, Now: time.Now,
		Worker: func(map[string]string) (dryrun.Worker, error) { return nil, nil },
	}
	letters := &bulk.Operator{Store: db, Now: time.Now, Catalog: reads.Catalog}
	apps := operations.Apps{Store: db, Reads: reads, DeadLetters: letters}
	server := &api.Server{Catalog: operations.All(apps), Log: slog.New(slog.DiscardHandler), Author: access.Author, Now: time.Now, Store: db}
	router.Use(access.Access{OpenOnLoopback: true}.Guard)
	server.Routes(router)
	server.Scripts(router, operations.Scripts(apps))
	for path, filters := range map[string]url.Values{
		"/v1/ops/dead-letters":         {"queue": {"orders"}, "reason": {"r"}, "type": {"t"}, "event_id": {"e"}, "key": {"k"}, "since": {"7d"}, "state": {"all"}},
		"/v1/ops/dead-letters/reasons": {"queue": {"orders"}, "reason": {"r"}, "type": {"t"}, "event_id": {"e"}, "key": {"k"}},
		"/v1/ops/events":               {"queue": {"orders"}, "status": {"FAILED"}, "type": {"t"}, "event_id": {"e"}, "correlation_id": {"c"}, "key": {"k"}, "since": {"2s"}},
		"/v1/ops/dead-letters/preview": {"reason": {"r"}, "type": {"t"}, "event_id": {"e"}, "key": {"k"}},
		"/v1/ops/operations":           {"progress": {"running"}},
		"/v1/ops/audit":                {"kind": {bulk.AuditKind}, "subject": {"s"}, "who": {"w"}, "since": {"2s"}},
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
	_, _, err := letters.List(t.Context(), bulk.Filter{EventID: "e"}, deadletter.Open, store.Cursor{}, 1) // a retry's
	require.NoError(t, err)
	show, _ := console.NewCatalog(ledger.Operations(holding{db})).Find("accounts show")
	_, err = show.Call(t.Context(), audit.Author{}, console.Input{Path: map[string]string{"account": "points:user:u"}})
	require.NoError(t, err)
	return slices.DeleteFunc(db.queries, func(q store.Query) bool { return q.Newest == nil })
}

// holding is the same where there is an account.
type holding struct{ *asked }

func (holding) Get(context.Context, store.Key) (store.Document, error) {
	return store.Document{Version: 1}, nil
}

func TestEverythingThatASearchComparesHasAnIndex(t *testing.T) {
	t.Parallel()
	for _, tenant := range []string{"", "acme"} {
		db, collections, keyed := &asked{}, map[string]bool{}, false
		find := search.Reads{Reads: events.Reads{Store: db, Catalog: &catalog.Catalog{}, Now: time.Now}}.Operations()[0]
		query := url.Values{"q": {"id"}}
		if tenant != "" {
			query.Set("tenant", tenant)
		}
		_, err := find.Call(t.Context(), audit.Author{}, console.Input{Query: query})
		require.NoError(t, err)
		for _, q := range db.queries {
			collections[q.Collection] = true
			keyed = keyed || q.Collection == dedupe.Collection && q.Equal["idempotency_key"] != nil
			off := unindexed(t, q.Collection)
			for field := range q.Contains {
				require.NotContains(t, off, field, q.Collection)
			}
			for field := range q.Equal {
				require.True(t, q.Newest != nil || !slices.Contains(off, field), "%s of %s", field, q.Collection) // else an index of its own answers
			}
		}
		require.True(t, keyed)
		require.Greater(t, len(collections), 8)
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
