package catalog_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
)

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
	c := from(t, "")
	told, ok := c.EmitsTo("subscriptions.record")
	require.True(t, ok)
	require.Equal(t, "pay-subscription-update", told.ID)
	_, ok = c.EmitsTo("points.reverse")
	require.False(t, ok, "it emits nothing")
	_, ok = c.EmitsTo("journal.post")
	require.False(t, ok, "it tells a topic, and no queue")
}

func TestEveryEndpointIsATargetOfOthersWithTheCatalogsNumbers(t *testing.T) {
	t.Parallel()
	c := from(t, crooked)
	target := c.Endpoints.Target()
	require.Equal(t, catalog.SchemeStandard, target.Scheme)
	require.False(t, target.Internal)
	require.Equal(t, c.Endpoints.Breaker, target.Breaker)
	shipped := from(t, "")
	require.Equal(t, []string{"endpoint-events"}, shipped.EmitsOf("webhooks.deliver"))
	require.Equal(t, []string{"fis-domain-events"}, shipped.EmitsOf("journal.post"))
}
