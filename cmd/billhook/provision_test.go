package main

import (
	"encoding/json"
	"slices"
	"testing"

	"cloud.google.com/go/pubsub/v2/pstest"
	"github.com/stretchr/testify/require"

	"billhook/internal/platform/gcp/pubsub"
	"billhook/internal/platform/serve"
)

// One resource that cannot be made hides nothing of the others.
func TestProvisionTellsWhatBecameOfEachResource(t *testing.T) {
	t.Parallel()
	server := pstest.NewServer() // it cannot point a subscription elsewhere
	t.Cleanup(func() { _ = server.Close() })
	provision := func(worker string, args ...string) (string, error) {
		values := map[string]string{"PUBSUB_EMULATOR_HOST": server.Addr, "PUSH_BASE_URL": worker, "GOOGLE_CLOUD_PROJECT": "p", "QUEUES": "paynow-events,pay-subscription-update"}
		return say(t, values, append([]string{"admin", "provision"}, args...)...)
	}
	printed, err := provision("http://127.0.0.1:1")
	require.NoError(t, err)
	require.Contains(t, printed, "created")
	printed, err = provision("http://127.0.0.1:2", "--json")
	require.ErrorContains(t, err, "4 of ")
	require.Equal(t, 1, serve.ExitCode(err))
	var changes []pubsub.Change
	require.NoError(t, json.Unmarshal([]byte(printed), &changes))
	require.True(t, slices.ContainsFunc(changes, func(c pubsub.Change) bool { return c.Action == pubsub.Unchanged }))
	printed, err = provision("http://127.0.0.1:2")
	require.Error(t, err)
	require.Contains(t, printed, "WHY")
	require.Contains(t, printed, "paynow-events-push")
}
