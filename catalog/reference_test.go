package catalog_test

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/contract"
	"billhook/internal/filetest"
)

// reference is what docs/reference/catalog.md shows: for each file its maps, under the path of each, by the
// struct that they become.
var reference = []struct{ file, path, of string }{
	{"queues.yaml", "", "Queue"},
	{"queues.yaml", "retry_policy.", "Policy"},
	{"queues.yaml", "handlers.<event type>.", "Handler"},
	{"queues.yaml", "handlers.<event type>.post.", "Post"},
	{"queues.yaml", "dead_letter.", "DeadLetter"},
	{"queues.yaml", "batch.", "Batch"},
	{"queues.yaml", "rate.", "Rate"},
	{"queues.yaml", "max_backlog.", "MaxBacklog"},
	{"topics.yaml", "", "Topic"},
	{"sources.yaml", "", "Source"},
	{"providers/<name>.yaml", "", "Provider"},
	{"providers/<name>.yaml", "signature.", "Scheme"},
	{"providers/<name>.yaml", "api.", "API"},
	{"providers/<name>.yaml", "events.<type>.", "ProviderEvent"},
	{"providers/<name>.yaml", "events.<type>.ignore[].", "Condition"},
	{"targets.yaml", "targets.<name>.", "Target"},
	{"targets.yaml", "targets.<name>.timeouts.", "Timeouts"},
	{"targets.yaml", "targets.<name>.breaker.", "Breaker"},
	{"targets.yaml", "endpoints.", "Endpoints"},
	{"products.yaml", "<product>.", "Product"},
	{"journal.yaml", "accounts.<name>.", "Account"},
	{"journal.yaml", "rules.<event type>.", "Rule"},
	{"journal.yaml", "rules.<event type>.lines[].", "RuleLine"},
	{"usage.yaml", "meters.<name>.", "Meter"},
}

// parts are those of a queue's keys, by the first key of each.
var parts = map[string]string{
	"id": "what it is", "topic": "what it takes", "priority": "who handles it", "max_attempts": "attempts",
	"message_ttl": "how long things are kept",
	"concurrency": "how much at once", "backlog_alert_above": "alerts", "dead_letter": "what cannot be handled",
	"batch": "batches, and limits",
}

func TestTheReferenceOfTheCatalogHasTheKeysOfItsStructs(t *testing.T) {
	t.Parallel()
	structs := map[string]*ast.StructType{}
	sources := filetest.Must(filepath.Glob("*.go"))(t)
	for _, source := range append(sources, "../internal/platform/signature/scheme.go",
		"../internal/retry/policy.go") {
		file := filetest.Must(parser.ParseFile(token.NewFileSet(), source, nil, parser.ParseComments))(t)
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
	page.WriteString("# Keys of the catalog\n\nMade of the structs of `catalog/` by `go test ./catalog -run " +
		"Reference -update`. " +
		"A duration is a string such as `\"60s\"`.\nWhat a queue does not say is that of `defaults` in " +
		"`catalog/queues.yaml`. " +
		"`billhook admin catalog check` finds every mistake.\n")
	names := strings.NewReplacer("time.Duration", "duration", "routing.", "", "retry.Policy", "retry_policy",
		"signature.Scheme", "signature")
	for i, section := range reference {
		require.Contains(t, structs, section.of)
		var keys []string
		for _, field := range structs[section.of].Fields.List {
			key := keyOf(field)
			if key == "" {
				continue
			}
			said := strings.Join(strings.Fields(cmp.Or(field.Doc.Text(), field.Comment.Text())), " ")
			require.NotEmpty(t, said, "%s.%s says nothing of itself", section.of, key)
			said = strings.TrimPrefix(said, field.Names[0].Name+" ")
			said = strings.TrimSuffix(strings.TrimPrefix(strings.TrimPrefix(said, "is "), "are "), ".")
			keys = append(keys, fmt.Sprintf("`%s` (%s): %s", key, names.Replace(types.ExprString(field.Type)),
				strings.ReplaceAll(said, "|", `\|`)))
		}
		switch where := cmp.Or(strings.TrimSuffix(section.path, "."), section.file); {
		case i == 0:
			page.WriteString("\n## queues.yaml\n| of a queue | keys |\n| --- | ---")
			for _, key := range keys {
				if part := parts[strings.Split(key, "`")[1]]; part != "" {
					page.WriteString(" |\n| " + part + " | " + key)
				} else {
					page.WriteString("<br>" + key)
				}
			}
			page.WriteString(" |\n")
		case section.file != reference[i-1].file && reference[i-1].file == reference[0].file:
			page.WriteString("\n## The other files\n| file, map | keys |\n| --- | --- |\n")
			fallthrough
		default:
			if section.file != where && section.file != reference[0].file {
				where = section.file + "`, `" + where
			}
			fmt.Fprintf(&page, "| `%s` | %s |\n", where, strings.Join(keys, "<br>"))
		}
	}
	isPage(t, "catalog.md", page.String())
}

// keyOf is the key that a field of a struct is read from; empty: it is read from none.
func keyOf(field *ast.Field) string {
	if field.Names[0].Name == "AckDeadline" {
		return "ack_deadline_seconds" // a number, as Pub/Sub has it
	}
	tag, _ := strconv.Unquote(cmp.Or(field.Tag, &ast.BasicLit{Value: `""`}).Value)
	key, _, _ := strings.Cut(reflect.StructTag(tag).Get("json"), ",")
	return strings.TrimPrefix(key, "-")
}

func isPage(t *testing.T, name, page string) {
	t.Helper()
	filetest.Recorded(t, page, "..", "docs", "reference", name)
}

func TestTheReferenceOfContractsHasEachDeclaredMember(t *testing.T) {
	t.Parallel()
	var page strings.Builder
	page.WriteString(
		"# Contracts\n\nMade of `catalog/messages.yaml` by `go test ./catalog -run Reference -update`. " +
			"A member that is not listed does not pass;\n`!` is required. The JSON Schemas are in " +
			"`internal/contract/schema/`; " +
			"`payment.v1` stands there alone.\n`*` stands for one word of an event type, `#` for any number.\n" +
			"\n| format | event type | version | members of the data |\n| --- | --- | --- | --- |\n")
	var list func(members []contract.Member) string
	list = func(members []contract.Member) string {
		all := make([]string, len(members))
		for i, m := range members {
			name, shape := m.Name, m.Shape
			if m.List != nil {
				name += "[]"
			}
			if all[i] = strings.TrimSpace("`" + name + "` " + shape); m.Required {
				all[i] += "!"
			}
			if within := slices.Concat(m.List, m.Object); len(within) > 0 { // one of the two
				all[i] += " (" + list(within) + ")"
			}
		}
		return strings.Join(all, ", ")
	}
	for _, c := range from(t, "").Contracts.All() {
		if len(c.Members) > 0 {
			fmt.Fprintf(&page, "| `%s` | `%s` | %d | %s |\n", c.Format, c.Type, c.Version, list(c.Members))
		}
	}
	isPage(t, "contracts.md", page.String())
}

// A queue's name that is typed a second time is a name that a change of the catalog
// does not reach. Code reads the catalog; tests and docs may show names.
func TestNoQueueIsNamedOutsideTheCatalog(t *testing.T) {
	t.Parallel()
	names, read := namesOf(from(t, "")), regexp.MustCompile(`\.(go|ya?ml|tf|tfvars|hcl)$|(^|/)Makefile$`)
	elsewhere := regexp.MustCompile(`^(catalog|docs|terraform/examples)/|(^|/)testdata/|_test\.go$`)
	texts := filetest.Tree(t, "..", func(path string) bool {
		return read.MatchString(path) && !elsewhere.MatchString(path)
	})
	require.Empty(t, strayNames(texts, names), "names of queues belong to catalog/queues.yaml alone")
	require.ElementsMatch(t, []string{
		"Makefile:2: q:sub:plan_change", "a/main.go:3: search-index", "main.tf:1: search-index-dlq-hold",
	}, strayNames(map[string]string{
		"a/main.go":  "package a\n\nconst queue = \"search-index\"\n",
		"a/other.go": "var research-index, search-index2", "Makefile": "run:\n\tsend q:sub:plan_change\n",
		"main.tf": "name = \"search-index-dlq-hold\"",
	}, names))
}

// namesOf lists every name of a catalog, derived ones included, the longest first.
func namesOf(c *catalog.Catalog) []string {
	var names []string
	for _, q := range c.Queues {
		names = append(names, q.ID, q.PushSubscription())
		if q.Alias != "" {
			names = append(names, q.Alias)
		}
		if !q.DeadLetter.Drop {
			names = append(names, q.DeadLetter.Topic, q.DeadLetterHold(), q.DeadLetterPush())
		}
	}
	for _, topic := range c.OutboundTopics {
		if names = append(names, topic.ID); topic.Alias != "" {
			names = append(names, topic.Alias)
		}
	}
	slices.SortFunc(names, func(a, b string) int { return len(b) - len(a) })
	return names
}

// strayNames are the lines of texts that have a name.
func strayNames(texts map[string]string, names []string) (found []string) {
	one := strings.Join(filetest.Map(names, regexp.QuoteMeta), "|")
	word := regexp.MustCompile(`(?:^|[^A-Za-z0-9_-])(` + one + `)(?:$|[^A-Za-z0-9_-])`)
	for path, text := range texts {
		if !slices.ContainsFunc(names, func(name string) bool { return strings.Contains(text, name) }) {
			continue // the expression is slow
		}
		for i, line := range strings.Split(text, "\n") {
			if match := word.FindStringSubmatch(line); match != nil {
				found = append(found, fmt.Sprintf("%s:%d: %s", path, i+1, match[1]))
			}
		}
	}
	return found
}
