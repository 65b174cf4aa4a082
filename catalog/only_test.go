package catalog_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"billhook/catalog"
)

// running lists the ids of the queues that run, in the order of the file.
func running(c *catalog.Catalog) (ids []string) {
	for _, q := range c.Queues {
		if q.Enabled {
			ids = append(ids, q.ID)
		}
	}
	return ids
}

// deployment is a row of testdata/deployments.yaml, which says what each member is.
type deployment struct {
	What, Of, Refused, Named, First, Pool, Wrong string
	Queues, Runs, Variables, Sources             []string
	Topics                                       int
	Emits                                        map[string][]string
}

// narrowed is the catalog that the deployment runs.
func (d deployment) narrowed(t *testing.T) *catalog.Catalog {
	t.Helper()
	folder := map[string]string{"small": small, "crooked": crooked}[d.Of]
	if d.Refused == "" {
		return mustOnly(t, from(t, folder), d.Queues...)
	}
	off := from(t, folder)
	off.Queues[slices.IndexFunc(off.Queues, func(q catalog.Queue) bool { return q.ID == "events-low" })].Enabled = false
	_, err := off.Only(d.Queues)
	require.EqualError(t, err, d.Refused, d.What)
	return nil
}

func TestADeploymentRunsTheQueuesThatItNamesOrIsRefusedWithTheReason(t *testing.T) {
	t.Parallel()
	for _, d := range yamlOf[[]deployment](t, "deployments.yaml") {
		only := d.narrowed(t)
		if only == nil {
			continue
		}
		for handler, to := range d.Emits {
			require.ElementsMatch(t, to, only.EmitsOf(handler), d.What)
		}
		if d.Runs != nil {
			require.Equal(t, d.Runs, running(only), d.What)
			var variables []string
			for _, target := range only.TargetsOf("") {
				variables = append(variables, target.URLVariable)
			}
			require.Equal(t, d.Variables, variables, d.What)
			require.Equal(t, d.Sources, slices.Sorted(maps.Keys(only.Sources)), d.What)
		}
		if d.First == "" {
			require.True(t, d.Runs == nil || len(only.OutboundTopics) == 0, d.What)
			require.True(t, d.Topics == 0 || len(only.OutboundTopics) == d.Topics, d.What)
			continue
		}
		require.Equal(t, d.First, only.TasksPool, d.What)
		decided, err := only.ForTasks(d.Named)
		if d.Wrong != "" {
			require.ErrorContains(t, err, d.Wrong, d.What)
			continue
		}
		require.NoError(t, err, d.What)
		require.Equal(t, d.Pool, decided.TasksPool, d.What)
		again, err := decided.With(nil)
		require.NoError(t, err, d.What)
		require.Equal(t, d.Pool, again.TasksPool, "%s, also with other files", d.What)
	}
	shipped := from(t, "")
	before := running(shipped)
	payNow := mustOnly(t, mustOnly(t, shipped, "paynow-events", "pay-subscription-update", "orders-process", "notifications-fanout", "notifications-send"),
		"paynow-events", "pay-subscription-update")
	require.Empty(t, payNow.EmitsOf("points.credit"), "a narrowed catalog is narrowed again")
	require.Same(t, shipped, mustOnly(t, shipped), "without names every enabled queue runs")
	require.Equal(t, before, running(shipped), "a narrowed catalog leaves the whole one as it was")
	require.Equal(t, []string{"orders-process"}, shipped.EmitsOf("points.credit"))
	require.NotEmpty(t, shipped.Sources[catalog.Producers].Events)
	require.True(t, slices.ContainsFunc(shipped.Queues, func(q catalog.Queue) bool {
		return q.Enabled && q.Pool == shipped.TasksPool && q.MinInstances > 0
	}), "alarms meet no cold start")
}

func TestAQueueThatIsNotEnabledIsNotEmittedTo(t *testing.T) {
	t.Parallel()
	for list, want := range map[string][]string{
		"[reminders]": {"seat-news"}, "[bookings]": {"seat-news", "bookings"}, "[reminders, bookings]": {"seat-news", "bookings"}, "[]": {"seat-news"},
	} {
		c := from(t, edited(t, small, "queues.yaml", "emits: [seat-news]", "emits: [seat-news]\n        emits_if_run: "+list))
		require.Equal(t, want, c.EmitsOf("seats.free"), list)
	}
}

// Whatever is named: what runs was named and enabled, what is routed or emitted to runs, and
// no target is needed that the whole catalog does not need.
func TestANarrowedCatalogNeedsNothingThatDoesNotRun(t *testing.T) {
	t.Parallel()
	shipped := from(t, "")
	var names []string
	for _, q := range shipped.Queues {
		names = append(names, q.ID)
	}
	rapid.Check(t, func(t *rapid.T) {
		chosen := rapid.SliceOfDistinct(rapid.SampledFrom(names), func(s string) string { return s }).Draw(t, "names")
		only, err := shipped.Only(chosen)
		if err != nil {
			for line := range strings.SplitSeq(err.Error(), "\n") {
				require.Contains(t, line, "QUEUES: ")
			}
			return
		}
		if len(chosen) > 0 {
			require.ElementsMatch(t, chosen, running(only))
		}
		for _, s := range only.Sources {
			for _, id := range s.Events {
				require.Contains(t, running(only), id)
			}
		}
		for _, target := range only.TargetsOf("") {
			require.Contains(t, shipped.TargetsOf(""), target)
		}
		for _, q := range only.Queues {
			for _, h := range q.Handlers {
				for _, id := range h.Emits {
					to, isQueue := only.Queue(id)
					require.True(t, !q.Enabled || !isQueue || to.Enabled, "%s emits to %s", q.ID, id)
				}
			}
		}
	})
}
