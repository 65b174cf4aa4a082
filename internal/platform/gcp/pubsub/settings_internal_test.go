package pubsub

import (
	"testing"

	"cloud.google.com/go/pubsub/v2"
	"github.com/stretchr/testify/require"

	"billhook/internal/filetest"
)

// The library's defaults wait for a batch, try for a minute and buffer without bound:
// only its settings show that before production does.
func TestPublisherOfATopicNeitherWaitsForABatchNorBuffersWithoutBound(t *testing.T) {
	t.Parallel()
	p := filetest.Must(NewPublisher(t.Context(), Names{ProjectID: "p"}, EmulatorOptions("127.0.0.1:1")...))(t)
	to := filetest.Must(p.begin("orders"))(t)
	again := filetest.Must(p.begin("orders"))(t)
	require.Same(t, to, again, "one publisher a topic: the order of a key is the publisher's")
	require.True(t, to.EnableMessageOrdering)
	require.Equal(t, 1, to.PublishSettings.CountThreshold)
	require.Equal(t, publishTimeout, to.PublishSettings.Timeout)
	flow := to.PublishSettings.FlowControlSettings
	require.Equal(t, pubsub.FlowControlBlock, flow.LimitExceededBehavior)
	require.Positive(t, flow.MaxOutstandingMessages)
	require.Positive(t, flow.MaxOutstandingBytes)
	require.NoError(t, p.Close())
}
