package catalog_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

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

func TestADeploymentRunsTheQueuesThatItNamesAlone(t *testing.T) {
	t.Parallel()
	shipped := from(t, "")
	before := running(shipped)
	for sentence, test := range map[string]struct {
		names, want, variables, sources []string
	}{
		"PayNow alone takes two queues of one pool, and no gateway": {
			[]string{"paynow-events", "pay-subscription-update"}, []string{"paynow-events", "pay-subscription-update"},
			[]string{"SUBSCRIPTION_SERVICE_URL"}, []string{"generic", "paynow"},
		},
		"an alias is a name too, and spaces are none": {
			[]string{" q:sub:plan_change", "q:sub:usage_sync "}, []string{"sub-plan-change", "sub-usage-sync"},
			[]string{"PLATFORM_URL"}, []string{"generic"},
		},
		"usage is counted where nobody is warned": {
			[]string{"events-high"}, []string{"events-high"}, []string{"GATEWAY_URL", "PLATFORM_URL"}, []string{"generic"},
		},
		"one queue is enough; the producers keep their door": {
			[]string{"pay-subscription-update"}, []string{"pay-subscription-update"}, []string{"SUBSCRIPTION_SERVICE_URL"}, []string{"generic"},
		},
	} {
		only, err := shipped.Only(test.names)
		require.NoError(t, err, sentence)
		require.Equal(t, test.want, running(only), sentence)
		var variables []string
		for _, target := range only.TargetsOf("") {
			variables = append(variables, target.URLVariable)
		}
		require.Equal(t, test.variables, variables, sentence)
		require.Empty(t, only.OutboundTopics, sentence)
		require.Equal(t, test.sources, slices.Sorted(maps.Keys(only.Sources)), sentence)
	}
	told := mustOnly(t, shipped, "events-low")
	require.Len(t, told.OutboundTopics, 1, "others are told by a queue that runs")
	all := mustOnly(t, shipped)
	require.Same(t, shipped, all, "without names every enabled queue runs")
	require.Equal(t, before, running(shipped), "a narrowed catalog leaves the whole one as it was")
	require.NotEmpty(t, shipped.Sources[catalog.Producers].Events)
}

func TestADeploymentThatLacksWhatItNeedsIsRefusedWithTheReason(t *testing.T) {
	t.Parallel()
	shipped := from(t, "")
	for sentence, test := range map[string]struct {
		names []string
		want  string
	}{
		"a queue that there is not":  {[]string{"paynow-event"}, "QUEUES: no queue has the id or alias paynow-event"},
		"a queue that is not on":     {[]string{"events-low"}, "QUEUES: queue events-low is not enabled in the catalog"},
		"a queue twice":              {[]string{"sub-plan-change", "q:sub:plan_change"}, "QUEUES: queue sub-plan-change is named twice"},
		"nothing between two commas": {[]string{"sub-plan-change", " "}, "QUEUES: an entry is empty"},
		"a queue that emits to one that does not run": {
			[]string{"paynow-events"}, "QUEUES: queue paynow-events emits to queue pay-subscription-update, which does not run here: name it too",
		},
		"a queue that tells a topic that nobody takes from": {
			[]string{"orders-process"}, "QUEUES: queue orders-process emits to topic notifications, and no queue that takes messages of it runs here: name one too",
		},
		"several mistakes": {
			[]string{"paynow-events", "nobody"},
			"QUEUES: no queue has the id or alias nobody\nQUEUES: queue paynow-events emits to queue pay-subscription-update, which does not run here: name it too",
		},
	} {
		off := *shipped
		off.Queues = slices.Clone(shipped.Queues)
		off.Queues[slices.IndexFunc(off.Queues, func(q catalog.Queue) bool { return q.ID == "events-low" })].Enabled = false
		_, err := off.Only(test.names)
		require.EqualError(t, err, test.want, sentence)
	}
}

// PayNow's payments confirm the shop's orders where these run, and usage warns where the platform is
// told. Neither needs the other queue.
func TestAHandlerEmitsToAQueueThatNeedNotRunOnlyWhereItDoes(t *testing.T) {
	t.Parallel()
	shipped := from(t, "")
	payNow := []string{"paynow-events", "pay-subscription-update"}
	alone := mustOnly(t, shipped, payNow...)
	require.Empty(t, alone.EmitsOf("points.credit"))
	with := mustOnly(t, shipped, append(payNow, "orders-process", "notifications-fanout", "notifications-send")...)
	require.Equal(t, []string{"orders-process"}, with.EmitsOf("points.credit"))
	require.Equal(t, []string{"orders-process"}, shipped.EmitsOf("points.credit"), "a narrowed catalog leaves the whole one as it was")
	again := mustOnly(t, with, payNow...)
	require.Empty(t, again.EmitsOf("points.credit"))

	counted := mustOnly(t, shipped, "events-high")
	require.Empty(t, counted.EmitsOf("usage.track"))
	warned := mustOnly(t, shipped, "events-high", "events-normal")
	require.Equal(t, []string{"events-normal"}, warned.EmitsOf("usage.track"))
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

func TestAHandlerWaitsNoLongerThanAnythingIsDelayed(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{"": 0, "0s": 0, "900s": 15 * time.Minute, "2592000s": 30 * 24 * time.Hour} {
		replacement := "timeout: \"5s\""
		if text != "" {
			replacement += "\n        waits_for: \"" + text + "\""
		}
		c := from(t, edited(t, small, "queues.yaml", "timeout: \"5s\"", replacement))
		q, ok := c.Queue("bookings")
		require.True(t, ok)
		require.Equal(t, want, q.Handlers["seat.freed"].WaitsFor, text)
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

func TestTheTasksAreOfAPoolThatRunsAndIsNamedWhereSeveralDo(t *testing.T) {
	t.Parallel()
	shipped := from(t, "")
	one := from(t, small)   // it names no pool
	two := from(t, crooked) // it names none, and two pools run
	for sentence, test := range map[string]struct {
		of     *catalog.Catalog
		queues []string
		named  string
		// first is the pool before anybody has decided, and want the one that is decided, unless that is wrong.
		first, want, wrong string
	}{
		"the catalog names it":                          {of: shipped, first: "payments", want: "payments"},
		"a queue of the catalog's pool runs":            {of: shipped, queues: []string{"search-index", "pay-subscription-update"}, first: "payments", want: "payments"},
		"the deployment names another":                  {of: shipped, named: "bulk", first: "payments", want: "bulk"},
		"one pool runs alone, and is not the catalog's": {of: shipped, queues: []string{"sub-usage-sync"}, first: "bulk", want: "bulk"},
		"one pool runs alone, and nobody names any":     {of: one, first: "seats", want: "seats"},
		"several run, and the catalog's does not, so the first is by name": {
			of: shipped, queues: []string{"sub-usage-sync", "search-index", "analytics-track"}, first: "analytics",
			wrong: "TASKS_POOL: no queue of pool payments, the catalog's for the tasks, runs here: name one of analytics, bulk, search",
		},
		"the same, and the deployment names one": {of: shipped, queues: []string{"search-index", "sub-usage-sync"}, named: "search", first: "bulk", want: "search"},
		"several run, and nobody names any": {
			of: two, first: "letters", wrong: "TASKS_POOL: the catalog's tasks_pool names none for the tasks: name one of letters, seats",
		},
		"the deployment names one that does not run": {
			of: shipped, queues: []string{"pay-subscription-update"}, named: "bulk", first: "payments",
			wrong: "TASKS_POOL: no queue that runs here is in pool bulk; the pools are payments",
		},
		"the deployment names one that there is not": {
			of: shipped, named: "nowhere", first: "payments", wrong: "TASKS_POOL: no queue that runs here is in pool nowhere; the pools are analytics, ",
		},
	} {
		only, err := test.of.Only(test.queues)
		require.NoError(t, err, sentence)
		require.Equal(t, test.first, only.TasksPool, sentence)
		decided, err := only.ForTasks(test.named)
		if test.wrong != "" {
			require.ErrorContains(t, err, test.wrong, sentence)
			continue
		}
		require.NoError(t, err, sentence)
		require.Equal(t, test.want, decided.TasksPool, sentence)
		again, err := decided.With(nil)
		require.NoError(t, err, sentence)
		require.Equal(t, test.want, again.TasksPool, "%s, also with other files", sentence)
	}
	require.True(t, slices.ContainsFunc(shipped.Queues, func(q catalog.Queue) bool {
		return q.Enabled && q.Pool == shipped.TasksPool && q.MinInstances > 0
	}), "alarms meet no cold start")
}
