package catalog_test

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
)

// posting is the small catalog whose reminders are posted to a target, with old replaced in
// the file of targets and in that of queues, where it stands.
func posting(t *testing.T, old, replacement string) string {
	t.Helper()
	dir := edited(t, "queues.yaml", "handlers:\n      reminder: { name: letters.send }",
		"enabled: true\n    batch: { size: 5, wait: \"0.02s\" }\n    handlers:\n      reminder: { post: { target: post-office, path: /v1/letters, reconcile: \"/v1/letters/{id}\" } }")
	queues, targets := text(t, dir, "queues.yaml"), text(t, filepath.Join("testdata", "crooked"), "targets.yaml")
	if old != "" {
		require.Contains(t, queues+targets, old)
	}
	return like(t, dir, map[string]string{
		"queues.yaml": strings.Replace(queues, old, replacement, 1), "targets.yaml": strings.Replace(targets, old, replacement, 1),
	})
}

func TestAQueueThatPostsIsCatalogLinesAlone(t *testing.T) {
	t.Parallel()
	c, err := catalog.Load(posting(t, "", ""))
	require.NoError(t, err)
	target := catalog.Target{
		Name: "post-office", Description: "Carries letters to those who forgot.", URLVariable: "POST_OFFICE_URL", SecretVariable: "POST_OFFICE_SECRET",
		Scheme: catalog.SchemeStandard, Timeouts: catalog.Timeouts{Connect: 500 * time.Millisecond, Total: 9 * time.Second},
		Concurrency: 4, RatePerSecond: 2.5, Burst: 5, Breaker: catalog.Breaker{Failures: 3, Rest: time.Minute},
	}
	for pool, want := range map[string][]catalog.Target{"": {target}, "letters": {target}, "seats": nil} {
		require.Equal(t, want, c.TargetsOf(pool), "a pool knows the targets that it posts to")
	}
	reminders, _ := c.Queue("reminders")
	require.Equal(t, catalog.Batch{Size: 5, Wait: 20 * time.Millisecond}, reminders.Batch)
	require.Equal(t, catalog.Post{Target: "post-office", Path: "/v1/letters", Reconcile: "/v1/letters/{id}"}, reminders.Handlers["reminder"].Post)
	require.Equal(t, "post:post-office/v1/letters", reminders.Handlers["reminder"].Name, "no handler of Go can be called so")
}

func TestWhatHoldsForEveryEndpointStandsInTheCatalog(t *testing.T) {
	t.Parallel()
	c, err := catalog.Load(posting(t, "", ""))
	require.NoError(t, err)
	require.Equal(t, catalog.Endpoints{
		Timeouts: catalog.Timeouts{Connect: 250 * time.Millisecond, Total: 10500 * time.Millisecond}, Concurrency: 3, RatePerSecond: 0.5, Burst: 7,
		Breaker: catalog.Breaker{Failures: 2, Rest: 1500 * time.Millisecond}, Remembered: 9, DisableAfter: time.Hour, OldSecretFor: 90500 * time.Millisecond,
	}, c.Endpoints)
	require.Equal(t, catalog.SchemeStandard, c.Endpoints.Target().Scheme)
	require.False(t, c.Endpoints.Target().Internal)
	require.Equal(t, c.Endpoints.Breaker, c.Endpoints.Target().Breaker)
	none, err := catalog.Load(small)
	require.NoError(t, err)
	require.Zero(t, none.Endpoints)
	shipped, err := catalog.Load("")
	require.NoError(t, err)
	require.Equal(t, []string{"endpoint-events"}, shipped.EmitsOf("webhooks.deliver"))
	require.Equal(t, []string{"orders-process"}, shipped.EmitsOf("points.credit"), "that queue runs")
	require.Equal(t, []string{"fis-domain-events"}, shipped.EmitsOf("journal.post"))
}

func TestAPoolNeedsTheTargetsThatItsEnabledQueuesPostToOrCall(t *testing.T) {
	t.Parallel()
	for sentence, test := range map[string]struct {
		old, replacement, pool string
		want                   []string
	}{
		"of a queue that posts":            {"", "", "letters", []string{"post-office"}},
		"of a queue that is not enabled":   {"enabled: true\n    batch", "batch", "", nil},
		"of a handler that says its calls": {"reminder: { post", "seat.taken: { name: letters.send, calls: [unheard] }\n      reminder: { post", "letters", []string{"post-office", "unheard"}},
	} {
		c, err := catalog.Load(posting(t, test.old, test.replacement))
		require.NoError(t, err, sentence)
		var names []string
		for _, target := range c.TargetsOf(test.pool) {
			names = append(names, target.Name)
		}
		require.Equal(t, test.want, names, sentence)
	}
}

func TestAHandlersNewsGoToTheQueueThatItEmitsTo(t *testing.T) {
	t.Parallel()
	c, err := catalog.Load("")
	require.NoError(t, err)
	told, ok := c.EmitsTo("subscriptions.record")
	require.True(t, ok)
	require.Equal(t, "pay-subscription-update", told.ID)
	_, ok = c.EmitsTo("points.reverse")
	require.False(t, ok, "it emits nothing")
	_, ok = c.EmitsTo("journal.post")
	require.False(t, ok, "it tells a topic, and no queue")
}

func TestEachMistakeOfATargetNamesFileTargetAndKey(t *testing.T) {
	t.Parallel()
	const target, handler = "targets.yaml: target post-office: ", "queues.yaml: queue reminders: handlers.reminder."
	for sentence, test := range map[string]struct{ old, replacement, want string }{
		"an unknown key":                   {"concurrency: 4", "workers: 4", target + "workers: unknown key"},
		"a number for a timeout":           {`connect: "0.5s"`, `connect: 0.5`, target + `timeouts.connect: must be a duration in seconds, in quotes, such as "600s"`},
		"a name in capitals":               {"  unheard:", "  Unheard:", "targets.yaml: target Unheard: name: must be at most 40 of a-z, 0-9 and -, begin with a letter, and not end with -"},
		"no description":                   {"    description: Nobody posts to it.\n", "", "targets.yaml: target unheard: description: is missing"},
		"a variable that is no URL":        {"POST_OFFICE_URL", "POST_OFFICE", target + "url_variable: must be an environment variable that ends with _URL, and none of the programs' own"},
		"the alarm's URL":                  {"POST_OFFICE_URL", "ALARM_URL", target + "url_variable: must be an environment variable that ends with _URL, and none of the programs' own"},
		"the operators' token":             {"POST_OFFICE_SECRET", "OPS_TOKEN", target + "secret_variable: must be an environment variable that ends with _SECRET"},
		"PayNow's scheme, which is theirs": {"scheme: standard", "scheme: paynow", target + "scheme: must be generic or standard"},
		"a connection longer than all":     {`connect: "0.5s"`, `connect: "21s"`, target + "timeouts.connect: must be above 0 and at most timeouts.total, 9s"},
		"no time at all":                   {`timeouts: { connect: "0.5s", total: "9s" }`, `internal: false`, target + "timeouts.connect: must be above 0 and at most timeouts.total, 0s"},
		"a total of ten minutes":           {`timeouts: { connect: "1s", total: "1s" }`, `timeouts: { connect: "1s", total: "600s" }`, "targets.yaml: target unheard: timeouts.total: must be below 600s, the longest ack deadline"},
		"a negative concurrency":           {"concurrency: 4", "concurrency: -1", target + "concurrency: must be 0, which is no limit, to 1000"},
		"a burst without a rate":           {"    rate_per_second: 2.5\n", "", target + "burst: must be 1 to 1000000 where rate_per_second is above 0, and only there"},
		"a negative rate":                  {"2.5", "-2.5", target + "burst: must be 1 to 1000000 where rate_per_second is above 0, and only there\n" + target + "rate_per_second: must be 0, which is no limit, to 1000000"},
		"a breaker that never rests":       {`, rest: "60s"`, "", target + "breaker.rest: must be above 0s and at most 86400s where failures is above 0, and only there"},
		"a breaker of a thousand and one":  {"failures: 3", "failures: 1001", target + "breaker.failures: must be 0, which is any number, to 1000"},

		"an unknown key of the endpoints": {"remembered: 9", "remembers: 9", "targets.yaml: endpoints: remembered: must be 1 to 1000000\ntargets.yaml: endpoints: remembers: unknown key"},
		"no endpoint remembered":          {"remembered: 9", "remembered: 0", "targets.yaml: endpoints: remembered: must be 1 to 1000000"},
		"endpoints given up in a minute":  {`disable_after: "3600s"`, `disable_after: "60s"`, "targets.yaml: endpoints: disable_after: must be 3600s to 7776000s"},
		"endpoints never given up":        {`disable_after: "3600s"`, `disable_after: "7776001s"`, "targets.yaml: endpoints: disable_after: must be 3600s to 7776000s"},
		"an old secret that ends at once": {`old_secret_for: "90.5s"`, `old_secret_for: "0s"`, "targets.yaml: endpoints: old_secret_for: must be 60s to 2592000s"},
		"endpoints called without an end": {`total: "10.5s"`, `total: "600s"`, "targets.yaml: endpoints: timeouts.total: must be below 600s, the longest ack deadline"},
		"endpoints with half a limit":     {"  burst: 7\n", "", "targets.yaml: endpoints: burst: must be 1 to 1000000 where rate_per_second is above 0, and only there"},
		"endpoints that are a list":       {"endpoints:\n  timeouts", "endpoints:\n  - timeouts", ""},

		"a target that there is not":       {"target: post-office", "target: post-box", handler + "post.target: no target has the name post-box"},
		"a name beside it":                 {"reminder: { post:", "reminder: { name: letters.send, post:", handler + "post: stands in the place of name, not beside it"},
		"an unknown key of a post":         {"post: { target", "post: { method: PUT, target", handler + "post.method: unknown key"},
		"a post that emits":                {"reminder: { post", "reminder: { emits: [seat-news], post", handler + "emits: a post emits nothing"},
		"a call of nobody":                 {"reminder: { post", "seat.taken: { name: letters.send, calls: [post-box] }\n      reminder: { post", "queues.yaml: queue reminders: handlers.seat.taken.calls: no target has the name post-box"},
		"a call of one twice":              {"reminder: { post", "seat.taken: { name: letters.send, calls: [unheard, unheard] }\n      reminder: { post", "queues.yaml: queue reminders: handlers.seat.taken.calls: lists unheard twice"},
		"a post that calls":                {"reminder: { post", "reminder: { calls: [unheard], post", handler + "calls: a post calls its target alone"},
		"the secret of a source":           {"secret_variable: UNHEARD_SECRET", "secret_variable: WEBHOOK_SIGNING_SECRET", "targets.yaml: target unheard: secret_variable: must not begin with WEBHOOK_: who receives could sign as a sender"},
		"neither":                          {`post: { target: post-office, path: /v1/letters, reconcile: "/v1/letters/{id}" }`, "", handler + "name: must be at most 64 of a-z, 0-9 and _ . -, and begin with a letter"},
		"no path":                          {"path: /v1/letters, ", "", handler + "post.path: must be / and a segment of letters, digits and _ . -, up to nine times"},
		"a path from nowhere":              {"path: /v1/letters", "path: v1/letters", handler + "post.path: must be / and a segment of letters, digits and _ . -, up to nine times"},
		"a path that leaves":               {"path: /v1/letters", "path: v1/../admin", handler + "post.path: must be / and a segment of letters, digits and _ . -, up to nine times"},
		"a question without an id":         {"/v1/letters/{id}", "/v1/letters", handler + "post.reconcile: must be a path like that, with {id} for one segment that is not its first"},
		"a question of half a segment":     {"/v1/letters/{id}", "/v1/letters/{id}x", handler + "post.reconcile: must be a path like that, with {id} for one segment that is not its first"},
		"a question of two ids":            {"/v1/letters/{id}", "/v1/{id}/{id}", handler + "post.reconcile: must be a path like that, with {id} for one segment that is not its first"},
		"two questions about one path":     {"reminder: {", "another: { post: { target: post-office, path: /v1/letters } }\n      reminder: {", ""},
		"a form that there is not":         {`reconcile: "/v1/letters/{id}"`, "form: csv", handler + "post.form: must be bulk or ndjson, or left out"},
		"a form of a batch without one":    {`batch: { size: 5, wait: "0.02s" }` + "\n    handlers:\n      reminder: { post: { target: post-office, path: /v1/letters, reconcile: \"/v1/letters/{id}\"", "handlers:\n      reminder: { post: { target: post-office, path: /v1/letters, form: ndjson", handler + "post.form: is that of a batch, and the queue has none"},
		"a bulk of no document":            {`reconcile: "/v1/letters/{id}"`, "form: bulk", handler + "post.form: a bulk names documents by the ordering key, and the queue has none"},
		"a question about a batch":         {`reconcile: "/v1/letters/{id}"`, `reconcile: "/v1/letters/{id}", form: ndjson`, handler + "post.reconcile: a batch is not asked about: the target applies the same line once"},
		"a batch of one":                   {"size: 5", "size: 1", "queues.yaml: queue reminders: batch.size: must be 2 to concurrency: what is not handled at once cannot be gathered"},
		"a batch that cannot be gathered":  {"size: 5", "size: 11", "queues.yaml: queue reminders: batch.size: must be 2 to concurrency: what is not handled at once cannot be gathered"},
		"a batch without a wait":           {`, wait: "0.02s"`, "", "queues.yaml: queue reminders: batch.wait: must be above 0s, at most 1s, and below the shortest timeout"},
		"a batch that waits for two":       {`"0.02s"`, `"2s"`, "queues.yaml: queue reminders: batch.wait: must be above 0s, at most 1s, and below the shortest timeout"},
		"a batch longer than its handlers": {`reminder: {`, `reminder: { timeout: "0.02s",`, ""},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			_, err := catalog.Load(posting(t, test.old, test.replacement))
			switch sentence {
			case "endpoints that are a list":
				require.Error(t, err)
			case "two questions about one path":
				require.ErrorContains(t, err, ".post.reconcile: must be the same in every entry that posts to this path, and so must the form")
			case "a batch longer than its handlers":
				require.ErrorContains(t, err, "batch.wait: must be above 0s, at most 1s, and below the shortest timeout")
			default:
				requireMistakes(t, err, test.want)
			}
		})
	}
}
