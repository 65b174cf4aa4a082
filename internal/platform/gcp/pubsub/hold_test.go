package pubsub_test

import (
	"testing"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/stretchr/testify/require"

	"billhook/internal/contract"
	"billhook/internal/platform/gcp/pubsub"
)

func TestOneDeadLetterIsTakenOffHoldAndTheOthersStay(t *testing.T) {
	t.Parallel()
	project, options, _ := provisioned(t)
	q, ok := shipped(t).Queue("paynow-events")
	require.True(t, ok)
	publisher, err := pubsub.NewPublisher(t.Context(), pubsub.Names{ProjectID: project}, options...)
	require.NoError(t, err)
	defer func() { require.NoError(t, publisher.Close()) }()
	found, err := pubsub.Unhold(t.Context(), q, pubsub.Names{ProjectID: project}, "canary", options...)
	require.NoError(t, err)
	require.False(t, found, "there is nothing to take")
	_, err = pubsub.Unhold(t.Context(), q, pubsub.Names{ProjectID: "another-project"}, "canary", options...)
	require.Error(t, err, "there is no such subscription")
	for _, id := range []string{"e1", "canary", "e2"} {
		_, err := publisher.Publish(t.Context(), q.DeadLetter.Topic, contract.Message{Data: []byte("{}"), Attributes: map[string]string{"event_id": id}})
		require.NoError(t, err)
	}
	found, err = pubsub.Unhold(t.Context(), q, pubsub.Names{ProjectID: project}, "canary", options...)
	require.NoError(t, err)
	require.True(t, found)

	admin := administrator(t, project, options)
	left := map[string]bool{}
	for len(left) < 2 {
		answer, err := admin.SubscriptionAdminClient.Pull(t.Context(), &pubsubpb.PullRequest{
			Subscription: "projects/" + project + "/subscriptions/" + q.DeadLetterHold(), MaxMessages: 10,
		})
		require.NoError(t, err)
		for _, m := range answer.ReceivedMessages {
			left[m.Message.Attributes["event_id"]] = true
		}
	}
	require.Equal(t, map[string]bool{"e1": true, "e2": true}, left)
}
