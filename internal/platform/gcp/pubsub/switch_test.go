package pubsub_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"

	"billhook/catalog"
	"billhook/internal/pipeline/pause"
	"billhook/internal/platform/gcp/pubsub"
)

var pausedAt = time.Date(2026, 11, 22, 11, 44, 55, 0, time.UTC)

func (p *project) openSwitch() *pubsub.Switch {
	p.t.Helper()
	s, err := pubsub.NewSwitch(p.t.Context(), p.target, p.options...)
	require.NoError(p.t, err)
	p.t.Cleanup(func() { require.NoError(p.t, s.Close()) })
	return s
}

// stands requires how a queue's subscription stands.
func stands(t *testing.T, s *pubsub.Switch, q catalog.Queue, want pause.Standing) {
	t.Helper()
	have, err := s.Standing(t.Context(), q)
	require.NoError(t, err)
	require.Equal(t, want, have)
}

func TestOnTheEmulatorAQueueIsPausedMarkedAndResumedAsItWas(t *testing.T) {
	t.Parallel()
	e, c := provisioned(t), shipped(t)
	q := queueOf(t, c, "paynow-events")
	s, err := pubsub.NewSwitch(t.Context(), e.target, e.options...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	before := e.read(t, q.PushSubscription())
	stands(t, s, q, pause.Pushing)
	for range 2 { // again without harm
		require.NoError(t, s.Pause(t.Context(), q, pausedAt))
		stands(t, s, q, pause.Paused)
		config := e.read(t, q.PushSubscription()).PushConfig
		require.Equal(t, "20261122t114455z", config.Attributes[pubsub.PausedLabel], "it keeps no labels")
		require.Empty(t, config.PushEndpoint)
	}
	require.Equal(t, []string{"paused subscription paynow-events-push"}, e.provision(t, c), "provision leaves it")
	stands(t, s, q, pause.Paused)
	for range 2 {
		require.NoError(t, s.Resume(t.Context(), q))
		stands(t, s, q, pause.Pushing)
	}
	after := e.read(t, q.PushSubscription())
	require.True(t, proto.Equal(before, after), "%v", after)
}

func TestOnGoogleCloudAQueueIsPausedByOneRequestWithALabel(t *testing.T) {
	t.Parallel()
	p := applied(t)
	s, q := p.openSwitch(), p.catalog.Queues[0]
	p.subscriptions[ordersPush].Labels = map[string]string{"app": "billhook"}
	before := proto.CloneOf(p.subscriptions[ordersPush])
	require.NoError(t, s.Pause(t.Context(), q, pausedAt))
	paused := p.subscriptions[ordersPush]
	require.Equal(t, map[string]string{"app": "billhook", pubsub.PausedLabel: "20261122t114455z"}, paused.Labels)
	require.True(t, proto.Equal(&pubsubpb.PushConfig{}, paused.PushConfig))
	done, err := p.provision()
	require.NoError(t, err)
	require.Equal(t, []string{"paused subscription orders-test-push"}, done)
	require.Empty(t, p.subscriptions[ordersPush].PushConfig.GetPushEndpoint())
	require.NotEmpty(t, p.subscriptions[ordersFeed].PushConfig.GetPushEndpoint(), "dead letters go on into the store")

	require.NoError(t, s.Resume(t.Context(), q))
	require.True(t, proto.Equal(before, p.subscriptions[ordersPush]), "%v", p.subscriptions[ordersPush])
}

func TestWhatTheSwitchMayNotDoSaysGooglesCodeAndNothingElse(t *testing.T) {
	t.Parallel()
	p := applied(t)
	s, q := p.openSwitch(), p.catalog.Queues[0]
	denied := status.Error(codes.PermissionDenied, "secret@example.com may not")
	p.refuse[updates] = denied
	require.EqualError(t, s.Pause(t.Context(), q, pausedAt), "pubsub: change subscription orders-test-push: PermissionDenied")
	p.refuse[getSubscription] = denied
	_, err := s.Standing(t.Context(), q)
	require.EqualError(t, err, "pubsub: read subscription orders-test-push: PermissionDenied")
	require.EqualError(t, s.Resume(t.Context(), q), "pubsub: read subscription orders-test-push: PermissionDenied")
	clear(p.refuse)
	delete(p.subscriptions, ordersPush)
	require.ErrorContains(t, s.Pause(t.Context(), q, pausedAt), "there is no subscription")
	stands(t, s, q, pause.Missing)
	p.target = pubsub.Target{Names: pubsub.Names{ProjectID: "p"}}
	require.ErrorContains(t, p.openSwitch().Resume(t.Context(), q), "PUSH_BASE_URL")
	p.target.PushBaseURL = "https://worker.example/path"
	_, err = pubsub.NewSwitch(t.Context(), p.target, p.options...)
	require.ErrorContains(t, err, "without a path")
}
