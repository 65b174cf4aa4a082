package deadletters

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/internal/filetest"
)

// source is the program's own code, by the names of its files.
type source map[string]string

func readSource(t *testing.T) source {
	t.Helper()
	all, root := source{}, filepath.Join("..", "..")
	require.NoError(t, filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		kit := strings.HasSuffix(filepath.Dir(path), "test")
		if err == nil && filepath.Ext(path) == ".go" && !strings.HasSuffix(path, "_test.go") && !kit {
			all[filepath.ToSlash(filetest.Must(filepath.Rel(root, path))(t))] = filetest.Read(t, path)
		}
		return err
	}))
	return all
}

// marked is what gives an error its reason: a function of internal/retry, a verdict, or an order's answer.
var marked = regexp.MustCompile(
	`(?:\b(?:retry\.)?(?:Permanent|Unreadable|Conflicting|Transient|Down|Outage|Missing|Busy|` +
		`Early|BadRequest)\(|\bReason: +|, (?:missing|illegal), )"([a-z0-9_]+)"`)

func (s source) reasons() map[string]bool {
	found := map[string]bool{}
	for _, text := range s {
		for _, reason := range marked.FindAllStringSubmatch(text, -1) {
			found[reason[1]] = true
		}
	}
	return found
}

var ofResults = regexp.MustCompile(`^(The results (?:of|that) |\w+ is the result of )`)

// constants are those of a type of a package, or its results, each with its comment.
func (s source) constants(t *testing.T, folder, of string) (found []string) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(s)) {
		if path.Dir(name) != folder {
			continue
		}
		file := filetest.Must(parser.ParseFile(token.NewFileSet(), name, s[name], parser.ParseComments))(t)
		for _, declared := range file.Decls {
			group, ok := declared.(*ast.GenDecl)
			if !ok || group.Tok != token.CONST {
				continue
			}
			for _, spec := range group.Specs {
				value := spec.(*ast.ValueSpec)
				kind, _ := value.Type.(*ast.Ident)
				text := &ast.BasicLit{}
				if len(value.Values) > 0 {
					text, _ = value.Values[0].(*ast.BasicLit)
				}
				if text == nil || text.Kind != token.STRING ||
					(of == "" && !ofResults.MatchString(group.Doc.Text())) ||
					(of != "" && (kind == nil || kind.Name != of)) {
					continue
				}
				said := cmp.Or(value.Doc.Text(), value.Comment.Text())
				if !group.Lparen.IsValid() {
					said = ofResults.ReplaceAllString(group.Doc.Text(), "")
				}
				said = strings.TrimSuffix(strings.Join(strings.Fields(said), " "), ".")
				require.NotEmpty(t, said, "%s.%s says nothing of itself", folder, value.Names[0].Name)
				said = strings.TrimPrefix(said, value.Names[0].Name+": ")
				found = append(found, fmt.Sprintf("`%s`: %s", strings.Trim(text.Value, `"`), said))
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
		"Results", "What a record, a log line and `billhook events show` say of an event that needs nothing " +
			"more. An order's\n" +
			"event that comes late has a code of [the table of orders](../why/orders.md).",
		[]struct{ what, folder, of string }{
			{"a message that is not handled", "pipeline/push", ""},
			{"points", "apps/billing", ""},
			{"a payment, a refund", "apps/payments", ""},
			{"usage", "apps/usage", ""},
			{"the journal", "apps/journal", ""},
			{"notifications", "apps/notifications", ""},
			{"a third party's endpoint", "apps/endpoints", ""},
			{"a batch", "pipeline/delivery", ""},
		},
	},
	{
		"States", "An event that waits and has no record yet is `WAITING`. The states of an order are in " +
			"[orders](../why/orders.md).",
		[]struct{ what, folder, of string }{
			{"a delivery (outcome)", "retry", "Outcome"},
			{"an event", "dedupe", "Status"},
			{"a queue", "inspect/queues", "QueueState"},
			{"a dead letter", "pipeline/deadletter", "State"},
			{"an operation", "inspect/bulk", "Progress"},
			{"a refund", "apps/payments", "State"},
			{"a month", "apps/journal", "State"},
			{"an endpoint", "apps/endpoints", "State"},
		},
	},
}

// Whoever marks an error with a new reason says here what it means, whose fault it is, and what to do.
func TestEveryReasonHasAnEntryOnThePageOfReasons(t *testing.T) {
	t.Parallel()
	s := readSource(t)
	names := map[string][]string{}
	for reason := range s.reasons() {
		name := causeOf(reason).name
		require.NotEmpty(t, name, "say in table what the reason %s means", reason)
		_, known := EntryOf(reason)
		require.True(t, known, "a page shows %s without a link to its entry", reason)
		if strings.HasSuffix(reason, "_") {
			reason += "<status>"
		}
		names[name] = append(names[name], "`"+reason+"`")
	}
	var page strings.Builder
	page.WriteString("# Reasons, results and states\n\nMade of the code by `go test " +
		"./internal/inspect/deadletters -run Reasons -update`.\n\n" +
		"## Reasons\n\nWhy an attempt failed, or why a message waits: the reason of dead letters, records, log " +
		"lines and metrics. A failure that\n" +
		"another attempt may help is tried again first, by the queue's `retry_policy`; what to do is about the " +
		"dead letter that is left.\n" +
		"[Dead letters](../runbooks/dead-letters.md) has the commands. What a service answers a sender with is " +
		"in [answers](answers.md).\n" +
		"Who is at fault can mend it; reasons that ask for the same share a row.\n\n" +
		"| reason, and what happened | at fault | what to do |\n| --- | --- | --- |\n")
	said := strings.NewReplacer("%s", "the called service", "%c", "that status")
	together := map[cause][]string{} // those that ask for the same
	all := causes()
	slices.SortFunc(all, func(a, b cause) int { return cmp.Compare(a.name, b.name) })
	for _, c := range all {
		reasons := cmp.Or(strings.Join(slices.Sorted(slices.Values(names[c.name])), ", "), "`"+c.name+"`")
		to := cause{fault: c.fault, do: c.do}
		together[to] = append(together[to], reasons+": "+said.Replace(c.what))
	}
	for _, to := range slices.SortedFunc(maps.Keys(together), func(a, b cause) int {
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
