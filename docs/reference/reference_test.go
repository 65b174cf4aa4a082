package reference_test

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/docs/reference"
	"billhook/internal/compose/operations"
	"billhook/internal/compose/operations/operationstest"
	"billhook/internal/console"
	"billhook/internal/filetest"
	"billhook/internal/inspect/deadletters"
)

// shown are the sections of results and states: of what they are, and where they are declared.
var shown = []struct {
	title, intro string
	rows         []struct{ what, folder, of string }
}{
	{
		"Results", "What a record, a log line and `billhook events show` say of an event that needs nothing " +
			"more, or of an order or an endpoint that ended.",
		[]struct{ what, folder, of string }{
			{"a message that is not handled", "pipeline/push", ""},
			{"points", "apps/billing", ""},
			{"a payment, a refund", "apps/payments", ""},
			{"usage", "apps/usage", ""},
			{"the journal", "apps/journal", ""},
			{"notifications", "apps/notifications", ""},
			{"a third party's endpoint", "apps/endpoints", ""},
			{"a batch", "pipeline/delivery", ""},
			{"an order", "apps/orders", ""},
		},
	},
	{
		"States", "What pages and commands show of how things are.",
		[]struct{ what, folder, of string }{
			{"a delivery (outcome)", "retry", "Outcome"},
			{"an event", "dedupe", "Status"},
			{"an event without a record", "inspect/events", "Status"},
			{"a queue", "inspect/queues", "QueueState"},
			{"a dead letter", "pipeline/deadletter", "State"},
			{"an operation", "inspect/bulk", "Progress"},
			{"a refund", "apps/payments", "State"},
			{"a month", "apps/journal", "State"},
			{"an endpoint", "apps/endpoints", "State"},
			{"an order", "apps/orders", "State"},
			{"a product", "apps/products", "State"},
			{"a trial (outcome)", "pipeline/dryrun", "Outcome"},
			{"a message that an event emitted", "inspect/events", "EmissionState"},
			{"the place that an event waits in", "inspect/events", "Where"},
			{"the subscription of a paused queue", "pipeline/pause", "Standing"},
			{"a catalog that is compared", "compose/system", "Agreement"},
			{"what a person does with a dead letter", "pipeline/deadletter", "Kind"},
			{"an entry of the books", "apps/ledger", "Kind"},
		},
	},
}

// Whoever marks an error with a new reason says here what it means, whose fault it is, and what to do.
func TestEveryReasonHasAnEntryOnThePageOfReasons(t *testing.T) {
	t.Parallel()
	s := readSource(t)
	names := map[string][]string{}
	for reason := range s.reasons() {
		name := deadletters.CauseOf(reason).Name
		require.NotEmpty(t, name, "say in causes.go what the reason %s means", reason)
		if strings.HasSuffix(reason, "_") {
			reason += "<status>"
		}
		names[name] = append(names[name], "`"+reason+"`")
	}
	var page strings.Builder
	page.WriteString("# Reasons, results and states\n\nMade of the code by `go test " +
		"./docs/reference -update`.\n\n" +
		"## Reasons\nWhy an attempt failed, or why a message waits: the reason of dead letters, records, log " +
		"lines and metrics. A failure that\n" +
		"another attempt may help is tried again first, by the queue's `retry_policy`; what to do is about the " +
		"dead letter that is left.\n" +
		"[Dead letters](../runbooks/dead-letters.md) has the commands, [answers](answers.md) what a service " +
		"answers a sender with.\n\n" +
		"| reason, and what happened | at fault | what to do |\n| --- | --- | --- |\n")
	said := strings.NewReplacer("%s", "the called service", "%c", "that status")
	together := map[deadletters.Cause][]string{} // those that ask for the same
	all := deadletters.Causes()
	slices.SortFunc(all, func(a, b deadletters.Cause) int { return cmp.Compare(a.Name, b.Name) })
	for _, c := range all {
		reasons := cmp.Or(strings.Join(slices.Sorted(slices.Values(names[c.Name])), ", "), "`"+c.Name+"`")
		to := deadletters.Cause{Fault: c.Fault, Do: c.Do}
		together[to] = append(together[to], reasons+": "+said.Replace(c.What))
	}
	for _, to := range slices.SortedFunc(maps.Keys(together), func(a, b deadletters.Cause) int {
		return cmp.Or(cmp.Compare(a.Fault, b.Fault), cmp.Compare(together[a][0], together[b][0]))
	}) {
		fmt.Fprintf(&page, "| %s | %s | %s |\n", strings.Join(together[to], "<br>"), to.Fault, to.Do)
	}
	for _, section := range shown {
		fmt.Fprintf(&page, "\n## %s\n%s\n\n| of | what it is |\n| --- | --- |\n", section.title, section.intro)
		for _, row := range section.rows {
			fmt.Fprintf(&page, "| %s | %s |\n", row.what, strings.Join(s.constants(t, row.folder, row.of), "<br>"))
		}
	}
	fmt.Fprintf(&page, "| a finding of the doctor | %s |\n", strings.Join(s.findings(), "<br>"))
	page.WriteString("\n## Errors\nThe `code` of the problem documents that the API at `/v1/ops` and the " +
		"pages answer with; `type` is\n" +
		"the address of its page.\n\n| status | code, and what it says |\n| --- | --- |\n")
	refusals := s.refusals()
	for _, status := range slices.Sorted(maps.Keys(refusals)) {
		var codes []string
		for _, code := range slices.Sorted(maps.Keys(refusals[status])) {
			codes = append(codes, fmt.Sprintf("`%s`: %s", code, strings.Join(refusals[status][code], " Or: ")))
		}
		fmt.Fprintf(&page, "| %d | %s |\n", status, strings.Join(codes, "<br>"))
	}
	filetest.Recorded(t, page.String(), "reasons.md")
}

// names are the types of words that are no codes: ids, names of others, and nouns.
var names = []string{
	"billhook/internal/apps/ledger.Account", "billhook/catalog.Scheme", "billhook/internal/inspect/search.Kind",
}

func TestEveryStateThatAPageOrACommandShowsHasAnEntry(t *testing.T) {
	t.Parallel()
	explained := slices.Clone(names)
	for _, section := range shown {
		for _, row := range section.rows {
			explained = append(explained, "billhook/internal/"+row.folder+"."+row.of)
		}
	}
	seen := 0
	var walk func(operation string, columns []console.Column, of reflect.Value)
	walk = func(operation string, columns []console.Column, of reflect.Value) {
		for _, c := range columns {
			v := c.Value(of.Interface())
			if c.Inside != nil {
				walk(operation, c.Inside, v.Index(0))
			} else if c.Code && v.Type() != reflect.TypeFor[string]() {
				seen++
				kind := v.Type().PkgPath() + "." + v.Type().Name()
				require.Contains(t, explained, kind, "%s shows %s: name its type above", operation, c.Label)
			}
		}
	}
	for _, o := range operations.All(operations.Apps{}).Operations {
		answer := reflect.ValueOf(o.Answer()).Elem()
		operationstest.Fill(answer, "x")
		if o.List {
			answer = answer.FieldByName("Items").Index(0)
		}
		walk(o.Name, o.Columns, answer)
	}
	require.Greater(t, seen, 20)
}

func TestACodeHasTheEntriesOfItsPage(t *testing.T) {
	t.Parallel()
	for code, want := range map[string][]reference.Entry{
		"callee_failed_503": {{
			Of: "a reason", What: "the called service answered 503", Fault: "the called service",
			Do: "Replay it when the service is well.",
		}},
		"PROCESSING":        {{Of: "an event", What: "a worker has it"}},
		"shelf_invalid":     {{Of: "an answer with status 400", What: "The parameter …"}},
		"callee_failed_<b>": nil,
		"nothing_known":     nil,
		"callee_failed_":    nil,
		"signature_mismatch": {{
			Of: "an answer with status 401", What: "The signature or its timestamp is not accepted.",
		}},
	} {
		require.Equal(t, want, reference.Entries(code), code)
	}
}
