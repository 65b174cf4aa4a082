package lifecycle_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/emulator/cloudtest"
	"billhook/internal/platform/gcp/pubsub"
)

func TestWhatIsOptionalComesAndGoesWithoutTouchingTheRest(t *testing.T) {
	t.Parallel()
	i := installed(t)
	before := i.cloud.Snapshot()
	ingress := func() any { return i.service("billhook-webhook")["ingress"] }

	i.with(variables{
		"front": variables{"domains": []string{"hooks.example.com"}, "direct": true}, "backups": variables{"daily_days": 7, "weekly_weeks": 14},
		"budget":        variables{"billing_account": "012345-6789AB-CDEF01", "amount": 200},
		"logs":          variables{"retention_days": 90, "instead_of_default": true, "exclude": variables{"tasks": `jsonPayload.message="task"`}},
		"secret_access": variables{"readers": []string{"you@example.com"}},
	})
	require.Empty(t, failures(i.apply()))
	i.settled()
	require.Equal(t, "INGRESS_TRAFFIC_ALL", ingress(), "the senders still come to the old address")

	i.with(variables{"front": variables{"domains": []string{"hooks.example.com", "hooks.example.org"}}})
	require.Empty(t, failures(i.apply()))
	i.settled()
	require.Equal(t, "INGRESS_TRAFFIC_INTERNAL_LOAD_BALANCER", ingress())

	i.with(variables{"front": nil, "backups": nil, "budget": nil, "logs": nil, "secret_access": nil})
	require.Empty(t, failures(i.apply()))
	i.settled()
	after := i.cloud.Keys("")
	i.cloud.Restore(before)
	require.Equal(t, i.cloud.Keys(""), after)
}

// A change of what can never be changed is refused before the indexes go with the old database.
func TestADatabaseIsNotMovedAndKeepsItsIndexes(t *testing.T) {
	t.Parallel()
	i := installed(t)
	before := i.cloud.Keys("firestore/")
	require.Contains(t, i.with(variables{"firestore": variables{"location": "nam5"}}).refused(), "already exists")
	require.Equal(t, before, i.cloud.Keys("firestore/"))
	i.with(variables{"firestore": variables{"location": "eur3"}}).apply()
	i.settled()
}

// A plan puts every queue's endpoint back where nothing says that its queue is paused. So it is refused
// where something does, and where the variable says so of a queue that is not.
func TestAPauseIsNeitherUndoneNorMadeInSilence(t *testing.T) {
	t.Parallel()
	i := installed(t)
	events, _ := paynow(t, shipped(t))
	one, none := variables{"paused_queues": []string{events.ID}}, variables{"paused_queues": nil}
	key := "pubsub/projects/" + cloudtest.Project + "/subscriptions/" + events.PushSubscription()
	require.Contains(t, i.with(one).refused(), "is not paused", "nobody has paused it")

	running, paused := i.cloud.Get(key), i.cloud.Get(key)
	labels, _ := paused["labels"].(cloudtest.Document)
	require.NotEmpty(t, labels)
	labels[pubsub.PausedLabel], paused["pushConfig"] = "20261122t114455z", cloudtest.Document{}
	i.cloud.Put(key, paused)
	said := i.with(none).refused()
	require.Contains(t, said, "Queue "+events.ID+" is paused")
	require.Contains(t, said, "paused_queues")
	i.with(one).apply()
	i.settled()
	require.Empty(t, i.endpoint(events.PushSubscription()))

	i.cloud.Put(key, running)
	require.Contains(t, i.refused(), "is not paused", "it was resumed, and must be taken out")
	i.with(none).apply()
	i.settled()
}
