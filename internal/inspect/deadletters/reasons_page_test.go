package deadletters

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/internal/filetest"
)

// source is the program's own code, by the folder of each package.
type source map[string][]*ast.File

func readSource(t *testing.T) source {
	t.Helper()
	all, root := source{}, filepath.Join("..", "..")
	require.NoError(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		folder := filepath.ToSlash(filetest.Must(filepath.Rel(root, filepath.Dir(path)))(t))
		if !strings.HasSuffix(folder, "test") {
			file := filetest.Must(parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments))(t)
			all[folder] = append(all[folder], file)
		}
		return nil
	}))
	return all
}

// literal is a text of the code, or what begins it.
func literal(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		text, _ := strconv.Unquote(e.Value)
		return text
	case *ast.BinaryExpr:
		return literal(e.X)
	}
	return ""
}

// marked is a function of internal/retry that marks an error with the reason that stands first.
var marked = regexp.MustCompile(`^(Permanent|Unreadable|Conflicting|Transient|Down|Outage|Missing|Busy|Early|BadRequest)$`)

// reasonOf is the reason that a part of the code gives an error; empty where it gives none.
func reasonOf(n ast.Node) string {
	switch n := n.(type) {
	case *ast.CallExpr:
		name := ""
		switch called := n.Fun.(type) {
		case *ast.Ident:
			name = called.Name
		case *ast.SelectorExpr:
			if of, ok := called.X.(*ast.Ident); ok && of.Name == "retry" {
				name = called.Sel.Name
			}
		}
		if marked.MatchString(name) && len(n.Args) > 0 {
			return literal(n.Args[0])
		}
	case *ast.KeyValueExpr:
		if key, ok := n.Key.(*ast.Ident); ok && key.Name == "Reason" {
			return literal(n.Value)
		}
	case *ast.CompositeLit: // an order's answer: its state, the event, what it becomes, and the code
		if len(n.Elts) == 4 {
			if kind, ok := n.Elts[2].(*ast.Ident); ok && (kind.Name == "missing" || kind.Name == "illegal") {
				return literal(n.Elts[3])
			}
		}
	}
	return ""
}

func (s source) reasons() map[string]bool {
	found := map[string]bool{}
	for _, files := range s {
		for _, file := range files {
			ast.Inspect(file, func(n ast.Node) bool {
				if reason := reasonOf(n); reason != "" {
					found[reason] = true
				}
				return true
			})
		}
	}
	return found
}

var ofResults = regexp.MustCompile(`^(The results (?:of|that) |\w+ is the result of )`)

// constants are those of a type of a package, or its results, each with its comment.
func (s source) constants(t *testing.T, folder, of string) (found []string) {
	t.Helper()
	for _, file := range s[folder] {
		for _, declared := range file.Decls {
			group, ok := declared.(*ast.GenDecl)
			if !ok || group.Tok != token.CONST {
				continue
			}
			for _, spec := range group.Specs {
				value := spec.(*ast.ValueSpec)
				kind, _ := value.Type.(*ast.Ident)
				if len(value.Values) == 0 || literal(value.Values[0]) == "" ||
					(of == "" && !ofResults.MatchString(group.Doc.Text())) || (of != "" && (kind == nil || kind.Name != of)) {
					continue
				}
				said := cmp.Or(value.Doc.Text(), value.Comment.Text())
				if !group.Lparen.IsValid() {
					said = ofResults.ReplaceAllString(group.Doc.Text(), "")
				}
				said = strings.TrimSuffix(strings.Join(strings.Fields(said), " "), ".")
				require.NotEmpty(t, said, "%s.%s says nothing of itself", folder, value.Names[0].Name)
				said = strings.TrimPrefix(said, value.Names[0].Name+": ")
				found = append(found, fmt.Sprintf("`%s`: %s", literal(value.Values[0]), said))
			}
		}
	}
	require.NotEmpty(t, found, "%s %s", folder, of)
	return found
}

// shown are the sections of results and states: of what they are, and where they are declared.
var shown = []struct {
	title, intro string
	rows         []struct{ what, folder, of string }
}{
	{
		"Results", "What a record, a log line and `billhook events show` say of an event that needs nothing more. An order's\n" +
			"event that comes late has a code of [the table of orders](../why/orders.md).",
		[]struct{ what, folder, of string }{
			{"a message that is not handled", "pipeline/push", ""}, {"points", "apps/billing", ""},
			{"a payment, a refund", "apps/payments", ""}, {"usage", "apps/usage", ""}, {"the journal", "apps/journal", ""},
			{"notifications", "apps/notifications", ""}, {"a third party's endpoint", "apps/endpoints", ""},
			{"a batch", "pipeline/delivery", ""},
		},
	},
	{
		"States", "An event that waits and has no record yet is `WAITING`. The states of an order are in [orders](../why/orders.md).",
		[]struct{ what, folder, of string }{
			{"a delivery (outcome)", "retry", "Outcome"}, {"an event", "dedupe", "Status"}, {"a queue", "inspect/queues", "QueueState"},
			{"a dead letter", "pipeline/deadletter", "State"}, {"an operation", "inspect/bulk", "Progress"},
			{"a refund", "apps/payments", "State"}, {"a month", "apps/journal", "State"}, {"an endpoint", "apps/endpoints", "State"},
		},
	},
}

// Whoever marks an error with a new reason says here what it means, whose fault it is, and what to do.
func TestEveryReasonHasAnEntryOnThePageOfReasons(t *testing.T) {
	t.Parallel()
	s := readSource(t)
	names := map[string][]string{}
	for reason := range s.reasons() {
		name := causeOf(reason)
		require.NotEmpty(t, name, "say in causes what the reason %s means", reason)
		if strings.HasSuffix(reason, "_") {
			reason += "<status>"
		}
		names[name] = append(names[name], "`"+reason+"`")
	}
	var page strings.Builder
	page.WriteString("# Reasons, results and states\n\nMade of the code by `go test ./internal/inspect/deadletters -run Reasons -update`.\n\n" +
		"## Reasons\n\nWhy an attempt failed, or why a message waits: the reason of dead letters, records, log lines and metrics. A failure that\n" +
		"another attempt may help is tried again first, by the queue's `retry_policy`; what to do is about the dead letter that is left.\n" +
		"[Dead letters](../runbooks/dead-letters.md) has the commands. What a service answers a sender with is in [answers](answers.md).\n" +
		"Who is at fault can mend it; reasons that ask for the same share a row.\n\n" +
		"| reason, and what happened | at fault | what to do |\n| --- | --- | --- |\n")
	said := strings.NewReplacer("%s", "the called service", "%c", "that status")
	type answer struct{ fault, do string }
	together := map[answer][]string{} // those that ask for the same
	for _, name := range slices.Sorted(maps.Keys(causes)) {
		c := causes[name]
		reasons := cmp.Or(strings.Join(slices.Sorted(slices.Values(names[name])), ", "), "`"+name+"`")
		to := answer{c.fault, c.do}
		together[to] = append(together[to], reasons+": "+said.Replace(c.what))
	}
	for _, to := range slices.SortedFunc(maps.Keys(together), func(a, b answer) int {
		return cmp.Or(cmp.Compare(a.fault, b.fault), cmp.Compare(together[a][0], together[b][0]))
	}) {
		fmt.Fprintf(&page, "| %s | %s | %s |\n", strings.Join(together[to], "<br>"), to.fault, to.do)
	}
	for _, section := range shown {
		fmt.Fprintf(&page, "\n## %s\n\n%s\n\n| of | what it is |\n| --- | --- |\n", section.title, section.intro)
		for _, row := range section.rows {
			fmt.Fprintf(&page, "| %s | %s |\n", row.what, strings.Join(s.constants(t, row.folder, row.of), "<br>"))
		}
	}
	filetest.Recorded(t, page.String(), "..", "..", "..", "docs", "reference", "reasons.md")
}
