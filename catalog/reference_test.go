package catalog_test

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"billhook/internal/contract"

	"github.com/stretchr/testify/require"
)

// reference is what docs/reference/catalog.md shows: for each file its maps, by the struct that they become.
var reference = []struct {
	title   string
	structs []string
}{
	{"queues.yaml: a queue", []string{"Queue"}},
	{"queues.yaml: `retry_policy`", []string{"rawPolicy"}},
	{"queues.yaml: an entry of `handlers`", []string{"Handler"}},
	{"queues.yaml: `post` of a handler", []string{"Post"}},
	{"queues.yaml: `dead_letter`", []string{"DeadLetter"}},
	{"queues.yaml: `batch`, `rate` and `max_backlog`", []string{"Batch", "Rate", "MaxBacklog"}},
	{"topics.yaml: a topic", []string{"Topic"}},
	{"sources.yaml: a source", []string{"Source"}},
	{"targets.yaml: a target", []string{"Target"}},
	{"targets.yaml: `timeouts` and `breaker` of a target", []string{"Timeouts", "Breaker"}},
	{"targets.yaml: `endpoints`", []string{"Endpoints"}},
	{"products.yaml: a product", []string{"Product"}},
	{"journal.yaml: an account, a rule and its lines", []string{"Account", "Rule", "RuleLine"}},
	{"usage.yaml: a meter", []string{"Meter"}},
}

func TestTheReferenceOfTheCatalogHasTheKeysOfItsStructs(t *testing.T) {
	t.Parallel()
	structs := map[string]*ast.StructType{}
	sources, err := filepath.Glob("*.go")
	require.NoError(t, err)
	for _, source := range sources {
		file, err := parser.ParseFile(token.NewFileSet(), source, nil, parser.ParseComments)
		require.NoError(t, err)
		ast.Inspect(file, func(n ast.Node) bool {
			if spec, ok := n.(*ast.TypeSpec); ok {
				if of, ok := spec.Type.(*ast.StructType); ok {
					structs[spec.Name.Name] = of
				}
			}
			return true
		})
	}
	var page strings.Builder
	page.WriteString("# Keys of the catalog\n\nMade of the structs of `catalog/` by `go test ./catalog -run Reference -update`. A duration is a string such as `\"60s\"`. What a queue does not say is that of `defaults` in `catalog/queues.yaml`.\n")
	for _, section := range reference {
		fmt.Fprintf(&page, "\n## %s\n\n| key | value | meaning |\n| --- | --- | --- |\n", section.title)
		for _, name := range section.structs {
			require.Contains(t, structs, name)
			for _, field := range structs[name].Fields.List {
				tag, _ := strconv.Unquote(cmp.Or(field.Tag, &ast.BasicLit{Value: `""`}).Value)
				key, _, _ := strings.Cut(reflect.StructTag(tag).Get("json"), ",")
				if field.Names[0].Name == "AckDeadline" {
					key = "ack_deadline_seconds" // a number, as Pub/Sub has it
				}
				if key == "" || key == "-" {
					continue
				}
				said := strings.Join(strings.Fields(cmp.Or(field.Doc.Text(), field.Comment.Text())), " ")
				require.NotEmpty(t, said, "%s.%s says nothing of itself", name, key)
				if rest, ok := strings.CutPrefix(said, field.Names[0].Name+" "); ok {
					said = "`" + key + "` " + rest
				}
				fmt.Fprintf(&page, "| `%s` | %s | %s |\n", key, strings.NewReplacer("time.Duration", "duration", "routing.", "", "retry.Policy", "retry_policy").Replace(types.ExprString(field.Type)), strings.ReplaceAll(said, "|", `\|`))
			}
		}
	}
	isPage(t, "catalog.md", page.String())
}

// isPage holds a page of docs/reference to what it is made of.
func isPage(t *testing.T, name, page string) {
	t.Helper()
	file := filepath.Join("..", "docs", "reference", name)
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(page), 0o644))
	}
	written, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, page, string(written))
}

func TestTheReferenceOfContractsHasEachDeclaredMember(t *testing.T) {
	t.Parallel()
	var page strings.Builder
	page.WriteString("# Contracts\n\nMade of `catalog/messages.yaml` by `go test ./catalog -run Reference -update`. A member that is not listed does not pass; `!` is required. The JSON Schemas are in `internal/contract/schema/`.\n")
	var list func(members []contract.Member, path string)
	list = func(members []contract.Member, path string) {
		for _, m := range members {
			shape, name := m.Shape, path+m.Name
			switch {
			case m.List != nil:
				shape, name = strings.TrimSpace("list "+m.Shape), name+"[]"
			case m.Object != nil:
				shape = "object"
			}
			if m.Required {
				shape += "!"
			}
			fmt.Fprintf(&page, "| `%s` | %s |\n", name, shape)
			list(append(m.List, m.Object...), name+".") // one of the two
		}
	}
	for _, c := range from(t, "").Contracts.All() {
		if len(c.Members()) == 0 {
			continue
		}
		fmt.Fprintf(&page, "\n## `%s`: `%s`, version %d\n\n| member | shape |\n| --- | --- |\n", c.Format(), c.Type(), c.Version())
		list(c.Members(), "")
	}
	isPage(t, "contracts.md", page.String())
}
