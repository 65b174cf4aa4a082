package terraform_test

import (
	"cmp"
	"context"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
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
	"billhook/internal/filetest"
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
	t *testing.T
	// fields are those that single-field indexes are asked by: every name that stands as a key of a map, or as
	// the field of what is due; more than are queried, never fewer. Of a query that needs a composite index the
	// time is not.
	fields []string
	// alone are those of the job log and of the ledger's entries, by collection: what a query of it names and,
	// of each file that names the collection, what is compared in none that the file says there.
	alone map[string][]string
	// due are the fields that are compared, and the time, of queries that take what is due of what equals.
	due []string
}

// sources are the files of Go that are no tests', by their paths.
func sources(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	require.NoError(t, fs.WalkDir(os.DirFS(".."), "internal", func(path string, _ fs.DirEntry, err error) error {
		kit := strings.HasSuffix(path, "_test.go") || strings.HasSuffix(filepath.Dir(path), "test")
		if err == nil && filepath.Ext(path) == ".go" && !kit {
			all[path] = read(t, filepath.Join("..", path))
		}
		return err
	}))
	return all
}

// member is a member of what is written out, or nil.
func member(of *ast.CompositeLit, name string) (value ast.Expr) {
	for _, element := range of.Elts {
		if pair, ok := element.(*ast.KeyValueExpr); ok {
			if key, ok := pair.Key.(*ast.Ident); ok && key.Name == name {
				value = pair.Value
			}
		}
	}
	return value
}

// reader reads what a file compares.
type reader struct {
	*queries
	composite []string
	constants map[string]string // the names of fields that have a name in Go
	own       string            // the file's package
}

// name is that of a package's own or of another's: dedupe.Collection.
func (r reader) name(of ast.Expr) string {
	switch of := of.(type) {
	case *ast.Ident:
		return r.own + "." + of.Name
	case *ast.SelectorExpr:
		pkg, _ := of.X.(*ast.Ident)
		return fmt.Sprint(pkg) + "." + of.Sel.Name
	}
	return ""
}

func (r reader) text(e ast.Expr) string {
	if basic, ok := e.(*ast.BasicLit); ok && basic.Kind == token.STRING {
		value, _ := strconv.Unquote(basic.Value) // it was parsed
		return value
	}
	return r.constants[strings.TrimPrefix(filepath.Ext(r.name(e)), ".")]
}

func (r reader) keys(of ast.Expr) (keys []string) {
	if m, ok := of.(*ast.CompositeLit); ok {
		for _, element := range m.Elts {
			if pair, ok := element.(*ast.KeyValueExpr); ok {
				keys = append(keys, r.text(pair.Key))
			}
		}
	}
	return keys
}

func (r reader) compare(collection string, fields ...string) {
	r.fields, r.alone[collection] = append(r.fields, fields...), append(r.alone[collection], fields...)
}

// read takes what is compared in a collection, or in one that the file does not say there.
func (r reader) read(collection string) func(ast.Node) bool {
	return func(n ast.Node) bool {
		in, inside := collection, []ast.Node(nil)
		switch n := n.(type) {
		case *ast.FuncDecl:
			return n.Name.Name != "fields" // what a document is written with
		case *ast.CallExpr:
			for i, argument := range n.Args {
				inside = append(inside, argument)
				if said := ofAll[r.name(argument)]; said != "" { // a helper's, with the name of a field
					in = said
					r.compare(said, r.text(n.Args[min(i+1, len(n.Args)-1)]))
				}
				if strings.HasSuffix(r.name(n.Fun), ".Equals") && i%2 == 0 {
					r.compare(in, r.text(argument))
				}
			}
			if strings.HasSuffix(r.name(n.Fun), ".Increment") {
				return false // so is this
			}
			inside = append(inside, n.Fun)
		case *ast.AssignStmt:
			for _, left := range n.Lhs {
				if index, ok := left.(*ast.IndexExpr); ok && n.Tok != token.ADD_ASSIGN {
					r.compare(in, r.text(index.Index))
				}
			}
			return true
		case *ast.CompositeLit:
			of := r.name(member(n, "Collection"))
			if ast.IsExported(strings.TrimPrefix(filepath.Ext(of), ".")) {
				in = cmp.Or(ofAll[of], "another")
			}
			if _, isMap := n.Type.(*ast.MapType); isMap {
				r.compare(in, r.keys(n)...)
			}
			if field := r.text(member(n, "Field")); !slices.Contains(r.composite, field) {
				r.compare(in, field)
			}
			if due, taken := member(n, "Due").(*ast.UnaryExpr); taken && member(n, "Equal") != nil {
				equal, until := r.keys(member(n, "Equal")), due.X.(*ast.CompositeLit)
				require.NotEmpty(r.t, equal,
					"a query of what is due of what equals writes both out, for this test to read")
				slices.Sort(equal)
				r.due = append(r.due, strings.Join(append(equal, r.text(member(until, "Field"))), ", "))
				return false // its fields need the composite index alone
			}
			if member(n, "Newest") != nil || strings.HasSuffix(r.name(n.Type), ".Listing") {
				in = "another" // so do these
			}
			for _, element := range n.Elts {
				inside = append(inside, element)
			}
		default:
			return true
		}
		for _, part := range inside {
			ast.Inspect(part, r.read(in))
		}
		return false
	}
}

// ofAll are the collections of which no other field has an index than those that queries compare.
var ofAll = map[string]string{"dedupe.Collection": dedupe.Collection, "ledger.Entries": ledger.Entries}

func written(t *testing.T) queries {
	t.Helper()
	files, found := sources(t), queries{t: t, alone: map[string][]string{}}
	r := reader{&found, words(local(t, "firestore.tf", "composite")), map[string]string{}, ""}
	constant := regexp.MustCompile(`(?m)\b([Ff]ield[A-Z]\w*) += "([a-z_]+)"`)
	for _, source := range files {
		for _, named := range constant.FindAllStringSubmatch(source, -1) {
			r.constants[named[1]] = named[2]
		}
	}
	for path, source := range files {
		// The second makes the conditions of queries that another file asks.
		if !strings.Contains(source, "store.Query{") && !strings.Contains(source, "store.Equals(") {
			continue
		}
		parsed := filetest.Must(parser.ParseFile(token.NewFileSet(), path, source, 0))(t)
		r.own = parsed.Name.Name
		ast.Inspect(parsed, r.read(""))
		for name, collection := range ofAll {
			if strings.Contains(source, name) || strings.HasPrefix(name, r.own+".") {
				r.compare(collection, found.alone[""]...)
			}
		}
		found.alone[""] = nil
	}
	return found
}

// Where no other field has an index, those that a query compares have one, and no others: a query without
// would fail in production alone.
func TestWhatQueriesCompareHasAnIndexOfItsOwn(t *testing.T) {
	t.Parallel()
	queries := written(t)
	require.Subset(t, queries.fields, []string{
		"queue", "status", "event_id", "correlation_id", "tenant", "lease_until", "state", "reason", "ordering_key",
		"due_at", "oldest_at", "progress", "account",
	})
	for _, field := range words(local(t, "firestore.tf", "unindexed")) {
		require.NotContains(t, queries.fields, field)
	}
	files, asked := sources(t), searched(t)
	tag := regexp.MustCompile(`store:"([a-z_]+)`)
	for collection, stored := range map[string][]string{
		dedupe.Collection: all(tag, files["internal/dedupe/record.go"]),
		ledger.Entries:    all(tag, files["internal/apps/ledger/entry.go"]+files["internal/apps/ledger/points.go"]),
	} {
		require.Equal(t, []string{"*"}, listed(t, "unindexed", collection))
		compared := slices.Concat(queries.alone[collection], asked[collection])
		compared = slices.DeleteFunc(compared, func(field string) bool {
			return !slices.Contains(stored, field) || field == "expire_at" // which the time to live goes by
		})
		slices.Sort(compared)
		require.ElementsMatch(t, slices.Compact(compared), listed(t, "indexed", collection), collection)
	}
	ofList := `endswith(each.key, ".` + ledger.FieldPostings + `") ?`
	require.Equal(t, 2, strings.Count(read(t, "firestore.tf"), ofList), "a list has an index of another kind")
}

// listed are the fields of a collection in one of the lists.
func listed(t *testing.T, list, collection string) []string {
	t.Helper()
	_, fields, _ := strings.Cut(local(t, "firestore.tf", list), " "+collection+" ")
	fields, _, _ = strings.Cut(fields, "]")
	return words(fields)
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

// newestAsked are the queries of lists, newest first, with each combination of their filters, where these
// handlers run.
func newestAsked(t *testing.T, handlers ...string) []store.Query {
	t.Helper()
	db, router := &asked{}, chi.NewRouter()
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
	for path, filters := range map[string]url.Values{
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
	} {
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
type holding struct{ *asked }

func (holding) Get(context.Context, store.Key) (store.Document, error) {
	return store.Document{Version: 1}, nil
}

// searched are the fields that a search compares, by collection.
func searched(t *testing.T) map[string][]string {
	t.Helper()
	compared, keyed := map[string][]string{}, false
	for _, tenant := range []string{"", "acme"} {
		db := &asked{}
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
	queries, all := newestAsked(t, payments.RefundHandler, endpoints.Handler, catalog.JournalPost), composites(t)
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
	for _, q := range newestAsked(t) {
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
