package operations_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/internal/compose/operations"
	"billhook/internal/console"
	"billhook/internal/pipeline/events"
	"billhook/internal/platform/store/storetest"
)

// expectNothing are the changes of what people see before, which hold whatever somebody else has done meanwhile.
var expectNothing = map[string]string{
	"stock add":         "adds to what there is",
	"journal revert":    "an entry never changes, and has one reversal",
	"queues pause":      "says how the queue shall stand, and mends what was left half done",
	"queues resume":     "says how the queue shall stand, and mends what was left half done",
	"operations cancel": "is what both want, and ends what is over as it ended",
	"operations reject": "is refused where the operation does not wait any more",
}

func TestEveryChangeOfARecordIsRefusedWhereSomebodyElseHasChangedItMeanwhile(t *testing.T) {
	t.Parallel()
	known := operations.All(operations.Apps{Reads: events.Reads{Catalog: declared}})
	for _, o := range known.Operations {
		if o.Needs < console.Reason || o.Before == "" || expectNothing[o.Name] != "" {
			continue
		}
		i := slices.IndexFunc(o.Fields, func(f console.Field) bool { return f.Expects != "" })
		require.GreaterOrEqual(t, i, 0, "%s takes no expect: say why in expectNothing, or embed console.Edit", o.Name)
		if o.Fields[i].Expects != "version" {
			continue // an operation on dead letters expects their number: its package shows it
		}
		t.Run(o.Name, func(t *testing.T) {
			t.Parallel()
			r := shelf(t)
			if before := strings.SplitN(first[o.Path], " ", 3); len(before) == 3 {
				r.does(t, before[0], before[1], before[2], nil)
			}
			if o.Verb() == "enable" {
				r.does(t, http.MethodPost, "/v1/ops/endpoints/orders/disable", `{"why":"before"}`, nil)
			}
			at := func(pattern string) string {
				return parameter.ReplaceAllString(strings.Replace(pattern, "{period}", "2026-02", 1), "orders")
			}
			before, _ := known.Find(o.Before)
			_, after, seen := strings.Cut(r.send(t, http.MethodGet, at(before.Pattern), "").Body.String(), `"version":"`)
			version, _, _ := strings.Cut(after, `"`)
			if !seen {
				version = "0" // there is nothing
			}
			body := bodies[o.Path]
			if body == "" {
				body = `{"why":"w"}`
			}
			expecting := func(version string) string {
				return fmt.Sprintf(`%s,"expect":%q}`, strings.TrimSuffix(body, "}"), version)
			}
			counter := &storetest.Counter{Store: r.store}
			r.over(counter)
			r.refuses(t, o.Method, at(o.Pattern), expecting(version+"1"), http.StatusConflict, "changed")
			r.refuses(t, o.Method, at(o.Pattern), expecting("yesterday"), http.StatusBadRequest, "body_malformed")
			require.Zero(t, counter.Commits.Load(), "a refused change writes nothing")
			r.does(t, o.Method, at(o.Pattern), expecting(version), nil)
		})
	}
}
