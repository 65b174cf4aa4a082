package lifecycle_test

import (
	"testing"

	"github.com/stretchr/testify/require"
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
	said, err := i.with(variables{"firestore": variables{"location": "nam5"}}).tryApply()
	require.Error(t, err)
	require.Contains(t, said, "already exists")
	require.Equal(t, before, i.cloud.Keys("firestore/"))
	i.with(variables{"firestore": variables{"location": "eur3"}}).apply()
	i.settled()
}
