package terraform_test

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/internal/apps/ledger"
	"billhook/internal/dedupe"
	"billhook/internal/filetest"
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
	return filetest.Tree(t, "..", func(path string) bool {
		return strings.HasPrefix(path, "internal/") && filetest.IsSource(path)
	})
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
	tag := regexp.MustCompile(`(?:store:|Field[A-Z][a-z]+ += )"([a-z_]+)`)
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
