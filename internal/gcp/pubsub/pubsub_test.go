package pubsub_test

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"time"

	client "cloud.google.com/go/pubsub/v2"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"billhook/catalog"
	"billhook/emulator/emulatortest"
	"billhook/internal/contract"
	"billhook/internal/gcp/pubsub"
)

func TestMain(m *testing.M) { os.Exit(emulatortest.Main(m)) }

// provisioned returns a project of its own on the emulator with the catalog in it.
func provisioned(t *testing.T) (project string, options []option.ClientOption, target pubsub.Target) {
	t.Helper()
	options = pubsub.EmulatorOptions(emulatortest.PubSub(t))
	project = "p-" + uuid.NewString()
	// Nobody listens there; what is pushed waits.
	target = pubsub.Target{ProjectID: project, PushBaseURL: "http://127.0.0.1:1", Emulator: true}
	c, err := catalog.Load("")
	require.NoError(t, err)
	_, err = pubsub.Provision(t.Context(), c, target, options...)
	require.NoError(t, err)
	return project, options, target
}

// pull takes n messages from a subscription made for the test on the topic.
func tap(t *testing.T, project, topic string, options []option.ClientOption) func(n int) []*pubsubpb.PubsubMessage {
	t.Helper()
	c, err := client.NewClient(t.Context(), project, options...)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	name := fmt.Sprintf("projects/%s/subscriptions/tap-%s", project, topic)
	_, err = c.SubscriptionAdminClient.CreateSubscription(t.Context(), &pubsubpb.Subscription{
		Name: name, Topic: fmt.Sprintf("projects/%s/topics/%s", project, topic), EnableMessageOrdering: true,
	})
	require.NoError(t, err)
	return func(n int) []*pubsubpb.PubsubMessage {
		var all []*pubsubpb.PubsubMessage
		for len(all) < n {
			answer, err := c.SubscriptionAdminClient.Pull(t.Context(), &pubsubpb.PullRequest{Subscription: name, MaxMessages: 100})
			require.NoError(t, err)
			var ids []string
			for _, m := range answer.ReceivedMessages {
				all, ids = append(all, m.Message), append(ids, m.AckId)
			}
			require.NoError(t, c.SubscriptionAdminClient.Acknowledge(t.Context(), &pubsubpb.AcknowledgeRequest{Subscription: name, AckIds: ids}))
		}
		return all
	}
}

func TestAPublishedMessageArrivesAsItWas(t *testing.T) {
	t.Parallel()
	project, options, _ := provisioned(t)
	received := tap(t, project, "paynow-events", options)
	publisher, err := pubsub.NewPublisher(t.Context(), project, options...)
	require.NoError(t, err)
	defer func() { require.NoError(t, publisher.Close()) }()
	id, err := publisher.Publish(t.Context(), "paynow-events", contract.Message{
		Data: []byte(`{"a":1}`), Attributes: map[string]string{"event_id": "e1"}, OrderingKey: "u1",
	})
	require.NoError(t, err)
	got := received(1)[0]
	require.Equal(t, id, got.MessageId)
	require.JSONEq(t, `{"a":1}`, string(got.Data))
	require.Equal(t, map[string]string{"event_id": "e1"}, got.Attributes)
	require.Equal(t, "u1", got.OrderingKey)
}

func TestMessagesOfOneKeyArriveInTheOrderTheyWerePublished(t *testing.T) {
	t.Parallel()
	project, options, _ := provisioned(t)
	received := tap(t, project, "paynow-events", options)
	publisher, err := pubsub.NewPublisher(t.Context(), project, options...)
	require.NoError(t, err)
	defer func() { require.NoError(t, publisher.Close()) }()
	const n = 50
	for i := range n {
		_, err := publisher.Publish(t.Context(), "paynow-events", contract.Message{Data: fmt.Append(nil, i), OrderingKey: "u1"})
		require.NoError(t, err)
	}
	for i, m := range received(n) {
		require.Equal(t, fmt.Sprint(i), string(m.Data))
	}
}

func TestAFailedOrderedPublishLeavesItsKeyUsable(t *testing.T) {
	t.Parallel()
	project, options, _ := provisioned(t)
	var failing atomic.Bool
	options = append(options, option.WithGRPCDialOption(grpc.WithUnaryInterceptor(
		func(ctx context.Context, method string, request, answer any, cc *grpc.ClientConn, call grpc.UnaryInvoker, o ...grpc.CallOption) error {
			if method == "/google.pubsub.v1.Publisher/Publish" && failing.Load() {
				return status.Error(codes.PermissionDenied, "no")
			}
			return call(ctx, method, request, answer, cc, o...)
		})))
	publisher, err := pubsub.NewPublisher(t.Context(), project, options...)
	require.NoError(t, err)
	defer func() { require.NoError(t, publisher.Close()) }()
	message := contract.Message{Data: []byte("x"), OrderingKey: "u1"}
	failing.Store(true)
	_, err = publisher.Publish(t.Context(), "paynow-events", message)
	require.Error(t, err)
	failing.Store(false)
	_, err = publisher.Publish(t.Context(), "paynow-events", message)
	require.NoError(t, err)
}

func TestAPublishWhoseCallerGivesUpLeavesItsKeyUsable(t *testing.T) {
	t.Parallel()
	project, options, _ := provisioned(t)
	release, arrived := make(chan struct{}), make(chan struct{})
	var held atomic.Bool
	options = append(options, option.WithGRPCDialOption(grpc.WithUnaryInterceptor(
		func(ctx context.Context, method string, request, answer any, cc *grpc.ClientConn, call grpc.UnaryInvoker, o ...grpc.CallOption) error {
			if method == "/google.pubsub.v1.Publisher/Publish" && held.CompareAndSwap(false, true) {
				close(arrived)
				<-release
				return status.Error(codes.PermissionDenied, "no")
			}
			return call(ctx, method, request, answer, cc, o...)
		})))
	publisher, err := pubsub.NewPublisher(t.Context(), project, options...)
	require.NoError(t, err)
	message := contract.Message{Data: []byte("x"), OrderingKey: "u1"}
	ctx, giveUp := context.WithCancel(t.Context())
	go func() { <-arrived; giveUp() }()
	_, err = publisher.Publish(ctx, "paynow-events", message)
	require.ErrorIs(t, err, context.Canceled)
	close(release)
	require.Eventually(t, func() bool {
		_, err := publisher.Publish(t.Context(), "paynow-events", message)
		return err == nil
	}, 20*time.Second, 10*time.Millisecond)
	require.NoError(t, publisher.Close())
}

func TestAMessageOverTheLimitsIsNotSent(t *testing.T) {
	t.Parallel()
	publisher, err := pubsub.NewPublisher(t.Context(), "p", pubsub.EmulatorOptions("127.0.0.1:1")...)
	require.NoError(t, err)
	defer func() { require.NoError(t, publisher.Close()) }()
	_, err = publisher.Publish(t.Context(), "paynow-events", contract.Message{Data: make([]byte, contract.MaxDataBytes+1)})
	require.ErrorIs(t, err, contract.ErrLimit)
}

func TestProvisionAgainChangesNothing(t *testing.T) {
	t.Parallel()
	_, options, target := provisioned(t)
	c, err := catalog.Load("")
	require.NoError(t, err)
	changes, err := pubsub.Provision(t.Context(), c, target, options...)
	require.NoError(t, err)
	require.NotEmpty(t, changes)
	for _, change := range changes {
		require.Equal(t, pubsub.Unchanged, change.Action, change.ID)
	}
}

func TestProvisionPointsAPushSubscriptionAnew(t *testing.T) {
	t.Parallel()
	project, options, target := provisioned(t)
	c, err := catalog.Load("")
	require.NoError(t, err)
	target.PushBaseURL = "http://127.0.0.1:2"
	changes, err := pubsub.Provision(t.Context(), c, target, options...)
	require.NoError(t, err)
	require.Contains(t, changes, pubsub.Change{Kind: "subscription", ID: "paynow-events-push", Action: pubsub.Updated})
	admin, err := client.NewClient(t.Context(), project, options...)
	require.NoError(t, err)
	defer func() { require.NoError(t, admin.Close()) }()
	got, err := admin.SubscriptionAdminClient.GetSubscription(t.Context(), &pubsubpb.GetSubscriptionRequest{
		Subscription: "projects/" + project + "/subscriptions/paynow-events-push",
	})
	require.NoError(t, err)
	require.Equal(t, "http://127.0.0.1:2/push/paynow-events", got.PushConfig.PushEndpoint)
	require.True(t, got.EnableMessageOrdering)
	require.Nil(t, got.DeadLetterPolicy, "the emulator's pushes would die of it")
}
