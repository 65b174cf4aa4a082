package catalog_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
)

func TestAQueueThatPostsIsCatalogLinesAlone(t *testing.T) {
	t.Parallel()
	c, err := catalog.Load(posting(t))
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
	c, err := catalog.Load(posting(t))
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
		"of a queue that posts":            {"reminders", "reminders", "letters", []string{"post-office"}},
		"of a queue that is not enabled":   {"enabled: true\n    batch", "batch", "", nil},
		"of a handler that says its calls": {"reminder: { post", "seat.taken: { name: letters.send, calls: [unheard] }\n      reminder: { post", "letters", []string{"post-office", "unheard"}},
	} {
		c, err := catalog.Load(edited(t, posting(t), "queues.yaml", test.old, test.replacement))
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
