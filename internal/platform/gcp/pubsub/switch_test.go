package pubsub_test

import (
	"context"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/stretchr/testify/require"
	"google.golang.org/api/option"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"billhook/catalog"
	"billhook/internal/pipeline/pause"
	"billhook/internal/platform/gcp/pubsub"
)

var pausedAt = time.Date(2026, 11, 22, 11, 44, 55, 0, time.UTC)

func switched(t *testing.T, target pubsub.Target, options []option.ClientOption) *pubsub.Switch {
	t.Helper()
	s, err := pubsub.NewSwitch(t.Context(), target, options...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

func TestOnTheEmulatorAQueueIsPausedMarkedAndResumedAsItWas(t *testing.T) {
	t.Parallel()
	name, options, target := provisioned(t)
	c, admin := shipped(t), administrator(t, name, options)
	q, ok := c.Queue("paynow-events")
	require.True(t, ok)
	s := switched(t, target, options)
	look := func() *pubsubpb.Subscription {
		have, err := admin.SubscriptionAdminClient.GetSubscription(t.Context(), &pubsubpb.GetSubscriptionRequest{Subscription: "projects/" + name + "/subscriptions/" + q.PushSubscription()})
		require.NoError(t, err)
		return have
	}
	stands := func(want pause.Standing) {
		t.Helper()
		have, err := s.Standing(t.Context(), q)
		require.NoError(t, err)
		require.Equal(t, want, have)
	}
	before := look()
	stands(pause.Pushing)
	for range 2 { // again without harm
		require.NoError(t, s.Pause(t.Context(), q, pausedAt))
		stands(pause.Paused)
		require.Equal(t, "20261122t114455z", look().PushConfig.Attributes[pubsub.PausedLabel], "it keeps no labels")
		require.Empty(t, look().GetPushConfig().GetPushEndpoint())
	}
	requireProvisionLeaves(t, c, target, options, q)
	stands(pause.Paused)
	for range 2 {
		require.NoError(t, s.Resume(t.Context(), q))
		stands(pause.Pushing)
	}
	after := look()
	require.Equal(t, before.PushConfig.PushEndpoint, after.PushConfig.PushEndpoint)
	require.Empty(t, after.PushConfig.Attributes)
	require.Equal(t, before.MessageRetentionDuration.AsDuration(), after.MessageRetentionDuration.AsDuration())
	require.Equal(t, before.RetryPolicy.GetMaximumBackoff().AsDuration(), after.RetryPolicy.GetMaximumBackoff().AsDuration())
	require.Equal(t, before.EnableMessageOrdering, after.EnableMessageOrdering)
}

func requireProvisionLeaves(t *testing.T, c *catalog.Catalog, target pubsub.Target, options []option.ClientOption, q catalog.Queue) {
	t.Helper()
	changes, err := pubsub.Provision(context.WithoutCancel(t.Context()), c, target, options...)
	require.NoError(t, err)
	require.Contains(t, changes, pubsub.Change{Kind: "subscription", ID: q.PushSubscription(), Action: pubsub.LeftPaused})
	for _, change := range changes {
		require.True(t, change.Kind == "topic" || change.Action == pubsub.Unchanged || change.ID == q.PushSubscription(), "%v", change)
	}
}

func TestOnGoogleCloudAQueueIsPausedByOneRequestWithALabel(t *testing.T) {
	t.Parallel()
	p, target, options := applied(t)
	q, ok := ordersCatalog().Queue("orders-test")
	require.True(t, ok)
	s := switched(t, target, options)
	p.subscriptions[ordersPush].Labels = map[string]string{"app": "billhook"}
	before := proto.CloneOf(p.subscriptions[ordersPush])
	require.NoError(t, s.Pause(t.Context(), q, pausedAt))
	paused := p.subscriptions[ordersPush]
	require.Equal(t, map[string]string{"app": "billhook", pubsub.PausedLabel: "20261122t114455z"}, paused.Labels)
	require.True(t, proto.Equal(&pubsubpb.PushConfig{}, paused.PushConfig))
	requireProvisionLeaves(t, ordersCatalog(), target, options, q)
	require.Empty(t, p.subscriptions[ordersPush].PushConfig.GetPushEndpoint())
	require.NotEmpty(t, p.subscriptions[ordersFeed].PushConfig.GetPushEndpoint(), "dead letters go on into the store")

	require.NoError(t, s.Resume(t.Context(), q))
	require.True(t, proto.Equal(before, p.subscriptions[ordersPush]), "%v", p.subscriptions[ordersPush])
}

func TestWhatTheSwitchMayNotDoSaysGooglesCodeAndNothingElse(t *testing.T) {
	t.Parallel()
	p, target, options := applied(t)
	q, ok := ordersCatalog().Queue("orders-test")
	require.True(t, ok)
	s := switched(t, target, options)
	p.refuse["/google.pubsub.v1.Subscriber/UpdateSubscription"] = status.Error(codes.PermissionDenied, "secret@example.com may not")
	require.EqualError(t, s.Pause(t.Context(), q, pausedAt), "pubsub: change subscription orders-test-push: PermissionDenied")
	p.refuse["/google.pubsub.v1.Subscriber/GetSubscription"] = status.Error(codes.PermissionDenied, "secret@example.com may not")
	_, err := s.Standing(t.Context(), q)
	require.EqualError(t, err, "pubsub: read subscription orders-test-push: PermissionDenied")
	require.EqualError(t, s.Resume(t.Context(), q), "pubsub: read subscription orders-test-push: PermissionDenied")
	clear(p.refuse)
	delete(p.subscriptions, ordersPush)
	require.ErrorContains(t, s.Pause(t.Context(), q, pausedAt), "there is no subscription")
	have, err := s.Standing(t.Context(), q)
	require.NoError(t, err)
	require.Equal(t, pause.Missing, have)
	viewer := switched(t, pubsub.Target{ProjectID: "p"}, options)
	require.ErrorContains(t, viewer.Resume(t.Context(), q), "PUSH_BASE_URL")
	_, err = pubsub.NewSwitch(t.Context(), pubsub.Target{ProjectID: "p", PushBaseURL: "https://worker.example/path"}, options...)
	require.ErrorContains(t, err, "without a path")
}

func TestTheDoctorTellsAPauseThatHoldsFromOneThatDoesNot(t *testing.T) {
	t.Parallel()
	record := map[string]pause.Pause{"orders-test": {Queue: "orders-test", Who: "ada", Why: "w", At: pausedAt}}
	none, unknown := map[string]pause.Pause{}, map[string]pause.Pause(nil)
	for name, test := range map[string]struct {
		paused, endpoint, mark bool // whether it was paused, and what it has since
		recorded               map[string]pause.Pause
		want                   string
	}{
		"paused and recorded":                               {paused: true, mark: true, recorded: record},
		"paused, and nobody can be asked":                   {paused: true, mark: true, recorded: unknown, want: "pause_unread"},
		"paused, and nobody is recorded":                    {paused: true, mark: true, recorded: none, want: "pause_unrecorded"},
		"given its endpoint by somebody else":               {paused: true, mark: true, endpoint: true, recorded: record, want: "pause_undone"},
		"given its endpoint, and nobody can be asked":       {paused: true, mark: true, endpoint: true, recorded: unknown, want: "pause_undone"},
		"paused on paper alone":                             {endpoint: true, recorded: record, want: "pause_undone"},
		"paused without a mark":                             {paused: true, recorded: record, want: "pause_unmarked"},
		"without an endpoint, of which nobody knows":        {paused: true, recorded: none, want: "not_pushed"},
		"without an endpoint, of which nobody can be asked": {paused: true, recorded: unknown, want: "not_pushed"},
		"resumed by hand, with its mark left":               {paused: true, mark: true, endpoint: true, recorded: none, want: "pause_mark_left"},
		"never paused":                                      {endpoint: true, recorded: none},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, target, options := applied(t)
			q, ok := ordersCatalog().Queue("orders-test")
			require.True(t, ok)
			endpoint := p.subscriptions[ordersPush].PushConfig
			if test.paused {
				require.NoError(t, switched(t, target, options).Pause(t.Context(), q, pausedAt))
			}
			if test.endpoint {
				p.subscriptions[ordersPush].PushConfig = endpoint
			}
			if !test.mark {
				delete(p.subscriptions[ordersPush].Labels, pubsub.PausedLabel)
			}
			found, err := pubsub.Examine(t.Context(), ordersCatalog(), target, pubsub.Look{Paused: test.recorded}, options...)
			require.NoError(t, err)
			if test.want == "" {
				require.Empty(t, found.Findings)
				return
			}
			require.Len(t, found.Findings, 1)
			require.Equal(t, test.want, found.Findings[0].Code.String())
			require.Equal(t, "orders-test-push", found.Findings[0].ID)
			require.NotEqual(t, found.Findings[0].Want, found.Findings[0].Have)
		})
	}
}
