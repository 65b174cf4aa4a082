package pubsub_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	client "cloud.google.com/go/pubsub/v2"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"cloud.google.com/go/pubsub/v2/pstest"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sync/errgroup"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"billhook/catalog"
	"billhook/emulator/emulatortest"
	"billhook/internal/contract"
	"billhook/internal/platform/gcp/pubsub"
	"billhook/internal/retry"
)

func TestMain(m *testing.M) {
	code := emulatortest.Main(m)
	// The client library's statistics run as long as the process.
	if err := goleak.Find(goleak.IgnoreTopFunction("go.opencensus.io/stats/view.(*worker).start")); err != nil && code == 0 {
		_, _ = fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// shipped is the catalog that is built in; the test may change it.
func shipped(t *testing.T) *catalog.Catalog {
	t.Helper()
	c, err := catalog.Load("")
	require.NoError(t, err)
	return c
}

// administrator is a client of the emulator's project.
func administrator(t *testing.T, project string, options []option.ClientOption) *client.Client {
	t.Helper()
	c, err := client.NewClient(t.Context(), project, options...)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// provisioned returns a project of its own on the emulator with the catalog in it.
func provisioned(t *testing.T) (project string, options []option.ClientOption, target pubsub.Target) {
	t.Helper()
	options = pubsub.EmulatorOptions(emulatortest.PubSub(t))
	project = "p-" + uuid.NewString()
	// Nobody listens there; what is pushed waits.
	target = pubsub.Target{ProjectID: project, PushBaseURL: "http://127.0.0.1:1", Emulator: true}
	_, err := pubsub.Provision(t.Context(), shipped(t), target, options...)
	require.NoError(t, err)
	return project, options, target
}

// tap makes a subscription on the topic, and returns what takes n messages from it.
func tap(t *testing.T, project, topic string, options []option.ClientOption) func(n int) []*pubsubpb.PubsubMessage {
	t.Helper()
	c := administrator(t, project, options)
	name := fmt.Sprintf("projects/%s/subscriptions/tap-%s", project, topic)
	_, err := c.SubscriptionAdminClient.CreateSubscription(t.Context(), &pubsubpb.Subscription{
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

func TestAPublishWhoseCallerGivesUpLeavesItsKeyUsable(t *testing.T) {
	t.Parallel()
	_, options := inMemory(t)
	release, arrived := make(chan struct{}), make(chan struct{})
	var held atomic.Bool
	publisher := opened(t, intercepted(options, func(_ context.Context, invoke func() error) error {
		if held.CompareAndSwap(false, true) {
			close(arrived)
			<-release
			return status.Error(codes.PermissionDenied, "no")
		}
		return invoke()
	}))
	message := contract.Message{Data: []byte("x"), OrderingKey: "u1"}
	ctx, giveUp := context.WithCancel(t.Context())
	go func() { <-arrived; giveUp() }()
	_, err := publisher.Publish(ctx, "t", message)
	require.ErrorIs(t, err, context.Canceled)
	close(release)
	require.Eventually(t, func() bool {
		_, err := publisher.Publish(t.Context(), "t", message)
		return err == nil
	}, 20*time.Second, 10*time.Millisecond)
}

// inMemory returns the client library's in-memory server with a topic t on it.
func inMemory(t *testing.T) (*pstest.Server, []option.ClientOption) {
	t.Helper()
	server := pstest.NewServer()
	t.Cleanup(func() { _ = server.Close() })
	_, err := server.GServer.CreateTopic(t.Context(), &pubsubpb.Topic{Name: "projects/p/topics/t"})
	require.NoError(t, err)
	return server, pubsub.EmulatorOptions(server.Addr)
}

// intercepted makes every Publish call of the client go through call.
func intercepted(options []option.ClientOption, call func(ctx context.Context, invoke func() error) error) []option.ClientOption {
	return append(slices.Clone(options), option.WithGRPCDialOption(grpc.WithUnaryInterceptor(
		func(ctx context.Context, method string, request, answer any, cc *grpc.ClientConn, next grpc.UnaryInvoker, o ...grpc.CallOption) error {
			invoke := func() error { return next(ctx, method, request, answer, cc, o...) }
			if method != "/google.pubsub.v1.Publisher/Publish" {
				return invoke()
			}
			return call(ctx, invoke)
		})))
}

// answered lets take answer a client's requests before the server does.
func answered(options []option.ClientOption, take func(request any) (taken bool, err error)) []option.ClientOption {
	return append(slices.Clone(options), option.WithGRPCDialOption(grpc.WithUnaryInterceptor(
		func(ctx context.Context, method string, request, answer any, cc *grpc.ClientConn, next grpc.UnaryInvoker, o ...grpc.CallOption) error {
			if taken, err := take(request); taken {
				return err
			}
			return next(ctx, method, request, answer, cc, o...)
		})))
}

func opened(t *testing.T, options []option.ClientOption) *pubsub.Publisher {
	t.Helper()
	publisher, err := pubsub.NewPublisher(t.Context(), pubsub.Names{ProjectID: "p"}, options...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, publisher.Close()) })
	return publisher
}

func TestTheInMemoryServerTakesAMessageAsItIs(t *testing.T) {
	t.Parallel()
	server, options := inMemory(t)
	id, err := opened(t, options).Publish(t.Context(), "t", contract.Message{
		Data: []byte(`{"a":1}`), Attributes: map[string]string{"event_id": "e1"}, OrderingKey: "u1",
	})
	require.NoError(t, err)
	got := server.Message(id)
	require.JSONEq(t, `{"a":1}`, string(got.Data))
	require.Equal(t, map[string]string{"event_id": "e1"}, got.Attributes)
	require.Equal(t, "u1", got.OrderingKey)
}

func TestOnTheEmulatorConcurrentPublishersOfManyKeysKeepTheOrderOfEach(t *testing.T) {
	t.Parallel()
	project, options, _ := provisioned(t)
	received := tap(t, project, "paynow-events", options)
	publisher, err := pubsub.NewPublisher(t.Context(), pubsub.Names{ProjectID: project}, options...)
	require.NoError(t, err)
	defer func() { require.NoError(t, publisher.Close()) }()
	const keys, each = 8, 20
	group, ctx := errgroup.WithContext(t.Context())
	for k := range keys {
		group.Go(func() error {
			for i := range each {
				message := contract.Message{Data: fmt.Append(nil, i), Attributes: map[string]string{"event_id": fmt.Sprint("e", i)}, OrderingKey: fmt.Sprint("u", k)}
				if _, err := publisher.Publish(ctx, "paynow-events", message); err != nil {
					return err
				}
			}
			return nil
		})
	}
	require.NoError(t, group.Wait())
	next := map[string]int{}
	for _, m := range received(keys * each) {
		require.Equal(t, fmt.Sprint(next[m.OrderingKey]), string(m.Data), m.OrderingKey)
		require.Equal(t, map[string]string{"event_id": "e" + string(m.Data)}, m.Attributes)
		next[m.OrderingKey]++
	}
}

func TestConcurrentFailuresOfOneKeyLeaveItUsableAndDoNotNameIt(t *testing.T) {
	t.Parallel()
	_, options := inMemory(t)
	var mended atomic.Bool
	release := make(chan struct{})
	publisher := opened(t, intercepted(options, func(_ context.Context, invoke func() error) error {
		if mended.Load() {
			return invoke()
		}
		<-release
		return status.Error(codes.PermissionDenied, "no")
	}))
	message := contract.Message{Data: []byte("x"), OrderingKey: "uid-of-somebody"}
	errs := make(chan error, 50)
	starting := make(chan struct{})
	for range cap(errs) {
		go func() {
			starting <- struct{}{}
			_, err := publisher.Publish(t.Context(), "t", message)
			errs <- err
		}()
	}
	for range cap(errs) {
		<-starting
	}
	close(release) // one is in flight, the others wait behind it
	for range cap(errs) {
		err := <-errs
		require.Error(t, err)
		require.NotErrorIs(t, err, contract.ErrLimit, "trying again may help")
		require.NotContains(t, err.Error(), message.OrderingKey)
	}
	mended.Store(true)
	_, err := publisher.Publish(t.Context(), "t", message)
	require.NoError(t, err)
}

func TestWhatCanNeverBePublishedIsMarked(t *testing.T) {
	t.Parallel()
	_, options := inMemory(t)
	for name, test := range map[string]struct {
		message contract.Message
		answer  error
	}{
		"data over the limit":                     {message: contract.Message{Data: make([]byte, contract.MaxMessageBytes+1)}},
		"data at the limit and attributes on top": {message: contract.Message{Data: make([]byte, contract.MaxMessageBytes), Attributes: map[string]string{"a": "b"}}},
		"at the limit, and the request around it": {message: contract.Message{Data: make([]byte, contract.MaxMessageBytes)}},
		"refused as invalid by the broker":        {message: contract.Message{Data: []byte("x")}, answer: status.Error(codes.InvalidArgument, "quotes a value")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			publisher := opened(t, intercepted(options, func(_ context.Context, invoke func() error) error {
				if test.answer != nil {
					return test.answer
				}
				return invoke()
			}))
			_, err := publisher.Publish(t.Context(), "t", test.message)
			require.ErrorIs(t, err, contract.ErrLimit)
			require.NotContains(t, err.Error(), "quotes a value")
		})
	}
}

func TestAMissingTopicMayAppearLater(t *testing.T) {
	t.Parallel()
	_, options := inMemory(t)
	_, err := opened(t, options).Publish(t.Context(), "absent", contract.Message{Data: []byte("x"), OrderingKey: "u1"})
	require.Equal(t, codes.NotFound, status.Code(err))
	require.NotErrorIs(t, err, contract.ErrLimit)
}

func TestACallerWhoseTimeIsUpSendsNothing(t *testing.T) {
	t.Parallel()
	server, options := inMemory(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := opened(t, options).Publish(ctx, "t", contract.Message{Data: []byte("x"), OrderingKey: "u1"})
	require.ErrorIs(t, err, context.Canceled)
	require.Empty(t, server.Messages())
}

func TestAClosedPublisherRefusesAndMayBeClosedAgain(t *testing.T) {
	t.Parallel()
	_, options := inMemory(t)
	publisher := opened(t, options)
	require.NoError(t, publisher.Close())
	require.NoError(t, publisher.Close())
	_, err := publisher.Publish(t.Context(), "t", contract.Message{Data: []byte("x")})
	require.ErrorContains(t, err, "the publisher is closed")
}

func TestCloseWaitsForWhatItsCallerNoLongerWaitsFor(t *testing.T) {
	t.Parallel()
	server, options := inMemory(t)
	arrived, release := make(chan struct{}), make(chan struct{})
	publisher := opened(t, intercepted(options, func(_ context.Context, invoke func() error) error {
		close(arrived)
		<-release
		return invoke()
	}))
	ctx, giveUp := context.WithCancel(t.Context())
	go func() { <-arrived; giveUp() }()
	_, err := publisher.Publish(ctx, "t", contract.Message{Data: []byte("x"), OrderingKey: "u1"})
	require.ErrorIs(t, err, context.Canceled)
	closed := make(chan error)
	go func() { closed <- publisher.Close() }()
	close(release)
	require.NoError(t, <-closed)
	require.Len(t, server.Messages(), 1)
}

func TestProvisionMendsWhatSomebodyChangedAndPointsPushesAnew(t *testing.T) {
	t.Parallel()
	project, options, target := provisioned(t)
	admin := administrator(t, project, options)
	name := "projects/" + project + "/subscriptions/paynow-events-push"
	read := func() *pubsubpb.Subscription {
		have, err := admin.SubscriptionAdminClient.GetSubscription(t.Context(), &pubsubpb.GetSubscriptionRequest{Subscription: name})
		require.NoError(t, err)
		return have
	}
	before := read()
	_, err := admin.SubscriptionAdminClient.UpdateSubscription(t.Context(), &pubsubpb.UpdateSubscriptionRequest{
		Subscription: &pubsubpb.Subscription{
			Name: name, AckDeadlineSeconds: 13, MessageRetentionDuration: durationpb.New(time.Hour),
			RetryPolicy: &pubsubpb.RetryPolicy{MinimumBackoff: durationpb.New(time.Second), MaximumBackoff: durationpb.New(2 * time.Second)},
		},
		UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"ack_deadline_seconds", "message_retention_duration", "retry_policy"}},
	})
	require.NoError(t, err)
	changes, err := pubsub.Provision(t.Context(), shipped(t), target, options...)
	require.NoError(t, err)
	for _, change := range changes {
		want := pubsub.Unchanged
		if change.ID == "paynow-events-push" {
			want = pubsub.Updated
		}
		require.Equal(t, want, change.Action, change.ID)
	}
	after := read()
	require.True(t, proto.Equal(before, after), "as it was: %v", after)

	target.PushBaseURL = "http://127.0.0.1:2"
	changes, err = pubsub.Provision(t.Context(), shipped(t), target, options...)
	require.NoError(t, err)
	require.Contains(t, changes, pubsub.Change{Kind: "subscription", ID: "paynow-events-push", Action: pubsub.Updated})
	got := read()
	require.Equal(t, "http://127.0.0.1:2/push/paynow-events", got.PushConfig.PushEndpoint)
	require.True(t, got.EnableMessageOrdering)
	require.Nil(t, got.DeadLetterPolicy, "the emulator's pushes would die of it")
}

func TestProvisionGivesEachQueueItsResources(t *testing.T) {
	t.Parallel()
	queue := catalog.Queue{
		ID: "orders-test", Enabled: true, OrderingKey: []string{"order"}, MaxAttempts: 5, AckDeadline: time.Minute,
		MessageRetention: 24 * time.Hour,
		DeadLetter:       catalog.DeadLetter{Topic: "orders-test-dlq", Retention: 14 * 24 * time.Hour},
	}
	for name, test := range map[string]struct {
		change func(q *catalog.Queue)
		want   []string
	}{
		"an enabled queue": {
			change: func(*catalog.Queue) {},
			want: []string{
				"topic out-test", "topic orders-test", "topic orders-test-dlq",
				"subscription orders-test-dlq-hold", "subscription orders-test-push", "subscription orders-test-dlq-push",
			},
		},
		"a queue that is not enabled has nothing": {
			change: func(q *catalog.Queue) { q.Enabled = false },
			want:   []string{"topic out-test"},
		},
		"a queue whose dead letters are dropped has none": {
			change: func(q *catalog.Queue) { q.DeadLetter = catalog.DeadLetter{Drop: true} },
			want:   []string{"topic out-test", "topic orders-test", "subscription orders-test-push"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := queue
			test.change(&q)
			target := pubsub.Target{ProjectID: "p-" + uuid.NewString(), PushBaseURL: "http://127.0.0.1:1", Emulator: true}
			c := &catalog.Catalog{Queues: []catalog.Queue{q}, OutboundTopics: []catalog.Topic{{ID: "out-test"}}}
			changes, err := pubsub.Provision(t.Context(), c, target, pubsub.EmulatorOptions(emulatortest.PubSub(t))...)
			require.NoError(t, err)
			var got []string
			for _, change := range changes {
				require.Equal(t, pubsub.Created, change.Action)
				got = append(got, change.Kind+" "+change.ID)
			}
			require.Equal(t, test.want, got)
		})
	}
}

// What waits in a queue that is switched off stays, and is delivered when it is on again.
func TestAQueueThatIsSwitchedOffIsPaused(t *testing.T) {
	t.Parallel()
	_, options, target := provisioned(t)
	c := shipped(t)
	at := slices.IndexFunc(c.Queues, func(q catalog.Queue) bool { return q.ID == "pay-subscription-update" })
	switched := func(on bool) (changes []string) {
		c.Queues[at].Enabled = on
		all, err := pubsub.Provision(t.Context(), c, target, options...)
		require.NoError(t, err)
		for _, change := range all {
			if change.Action != pubsub.Unchanged {
				changes = append(changes, change.Action+" "+change.ID)
			}
		}
		found, err := pubsub.Examine(t.Context(), c, target, pubsub.Look{}, options...)
		require.NoError(t, err)
		require.Empty(t, found.Findings)
		require.Empty(t, found.Unread)
		return changes
	}
	both := func(did string) []string {
		return []string{did + " pay-subscription-update-push", did + " pay-subscription-update-dlq-push"}
	}
	require.Equal(t, both(pubsub.SwitchedOff), switched(false))
	require.Equal(t, both(pubsub.Kept), switched(false), "it is told each time: nobody looks after what waits there")
	require.Equal(t, both(pubsub.Updated), switched(true))
}

// A publish that is not confirmed names its cause: each cause is mended by other people.
func TestAnErrorOfPublishNamesItsCause(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		topic  string
		answer error
		want   error
		cause  string
	}{
		"the topic is missing":        {"absent", nil, contract.ErrTopicMissing, "topic_missing"},
		"the grant is missing":        {"t", status.Error(codes.PermissionDenied, "no"), contract.ErrPublishDenied, "grant_missing"},
		"nobody knows who it is":      {"t", status.Error(codes.Unauthenticated, "no"), contract.ErrPublishDenied, "grant_missing"},
		"something nobody thought of": {"t", status.Error(codes.FailedPrecondition, "no"), nil, "unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, options := inMemory(t)
			publisher := opened(t, intercepted(options, func(_ context.Context, invoke func() error) error {
				if test.answer != nil {
					return test.answer
				}
				return invoke()
			}))
			_, err := publisher.Publish(t.Context(), test.topic, contract.Message{Data: []byte("x"), OrderingKey: "u1"})
			require.Error(t, err)
			if test.want != nil {
				require.ErrorIs(t, err, test.want)
			}
			require.Equal(t, test.cause, contract.PublishCause(err))
		})
	}
}

// The library tries for as long as it may where the broker is away: its caller's time is up
// before that here, and there is no word of the broker's in the error.
func TestABrokerThatIsAwayIsTheCauseHoweverTheWaitEnds(t *testing.T) {
	t.Parallel()
	_, options := inMemory(t)
	tried := make(chan struct{}, 100)
	publisher := opened(t, intercepted(options, func(context.Context, func() error) error {
		tried <- struct{}{}
		return status.Error(codes.Unavailable, "no")
	}))
	ctx, giveUp := context.WithDeadlineCause(t.Context(), time.Now().Add(200*time.Millisecond), nil)
	defer giveUp()
	_, err := publisher.Publish(ctx, "t", contract.Message{Data: []byte("x")})
	require.Equal(t, "broker_unavailable", contract.PublishCause(err))
	require.NotEmpty(t, tried)
	_, err = publisher.Publish(t.Context(), "t", contract.Message{Data: []byte("x")}) // until the library gives up
	require.Equal(t, "broker_unavailable", contract.PublishCause(err))
}

func TestAPublishThatFindsNoRoomSaysSo(t *testing.T) {
	t.Parallel()
	_, options := inMemory(t)
	release := make(chan struct{})
	publisher := opened(t, intercepted(options, func(_ context.Context, invoke func() error) error {
		<-release
		return invoke()
	}))
	// As much as may wait for the broker, in a few large messages.
	large := contract.Message{Data: make([]byte, 8<<20)}
	errs := make(chan error, 8)
	for range cap(errs) {
		go func() {
			_, err := publisher.Publish(t.Context(), "t", large)
			errs <- err
		}()
	}
	require.Eventually(t, func() bool {
		ctx, giveUp := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer giveUp()
		_, err := publisher.Publish(ctx, "t", large)
		return contract.PublishCause(err) == "flow_control"
	}, 20*time.Second, time.Millisecond)
	close(release)
	for range cap(errs) {
		if err := <-errs; err != nil {
			t.Log(err) // it came too late for the library
		}
	}
}

func TestProvisionAsksGoogleCloudForWhatTheEmulatorGetsWrong(t *testing.T) {
	t.Parallel()
	_, options := inMemory(t)
	// Only recorded: the in-memory server, too, refuses more than seven days.
	created := map[string]*pubsubpb.Subscription{}
	options = answered(options, func(request any) (bool, error) {
		want, ok := request.(*pubsubpb.Subscription)
		if ok {
			created[want.Name] = want
		}
		return ok, nil
	})
	c := &catalog.Catalog{Queues: []catalog.Queue{{
		ID: "orders-test", Enabled: true, OrderingKey: []string{"order"}, MaxAttempts: 5, AckDeadline: time.Minute,
		MessageRetention: 24 * time.Hour, Backoff: retry.Policy{Base: time.Second, Max: time.Hour},
		DeadLetter: catalog.DeadLetter{Topic: "orders-test-dlq", Retention: 14 * 24 * time.Hour},
	}}}
	target := pubsub.Target{ProjectID: "p", PushBaseURL: "https://worker.example", PushAudience: "aud", PushServiceAccount: "push@example.com"}
	_, err := pubsub.Provision(t.Context(), c, target, options...)
	require.NoError(t, err)
	push := created["projects/p/subscriptions/orders-test-push"]
	require.Equal(t, "https://worker.example/push/orders-test", push.PushConfig.PushEndpoint)
	require.Equal(t, "aud", push.PushConfig.GetOidcToken().GetAudience())
	require.Equal(t, "push@example.com", push.PushConfig.GetOidcToken().GetServiceAccountEmail())
	require.Equal(t, "projects/p/topics/orders-test-dlq", push.DeadLetterPolicy.GetDeadLetterTopic())
	require.EqualValues(t, 100, push.DeadLetterPolicy.GetMaxDeliveryAttempts(), "headroom over the five that the worker enforces")
	require.Equal(t, 600*time.Second, push.RetryPolicy.GetMaximumBackoff().AsDuration(), "all that Pub/Sub allows")
	hold := created["projects/p/subscriptions/orders-test-dlq-hold"]
	require.Equal(t, 14*24*time.Hour, hold.MessageRetentionDuration.AsDuration())
	require.Nil(t, hold.ExpirationPolicy.GetTtl(), "it never expires")
}

// Whoever provisions learns all that is missing from one run. Where nobody answers, each request
// would take a minute.
func TestProvisionGoesOnAfterAFailureAndTellsWhatBecameOfEach(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		code codes.Code
		want []string
	}{
		"two that are refused": {codes.PermissionDenied, []string{
			"failed topic a-news", "created topic b-news", "created topic orders-test", "created topic orders-test-dlq",
			"created subscription orders-test-dlq-hold", "failed subscription orders-test-push", "created subscription orders-test-dlq-push",
		}},
		"nobody answers": {codes.Unavailable, []string{
			"failed topic a-news", "not tried topic b-news", "not tried topic orders-test", "not tried topic orders-test-dlq",
			"not tried subscription orders-test-dlq-hold", "not tried subscription orders-test-push", "not tried subscription orders-test-dlq-push",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, options := inMemory(t)
			asked := 0
			options = answered(options, func(request any) (bool, error) {
				topic, isTopic := request.(*pubsubpb.Topic)
				subscription, isSubscription := request.(*pubsubpb.Subscription)
				if (isTopic && topic.Name == "projects/p/topics/a-news") || (isSubscription && subscription.Name == "projects/p/subscriptions/orders-test-push") {
					asked++
					return true, status.Error(test.code, "no")
				}
				return false, nil
			})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if test.code == codes.Unavailable { // the client library asks again for a minute
				var stop context.CancelFunc
				ctx, stop = context.WithTimeout(ctx, 100*time.Millisecond)
				defer stop()
			}
			c := &catalog.Catalog{
				Queues: []catalog.Queue{{
					ID: "orders-test", Enabled: true, MaxAttempts: 5, AckDeadline: time.Minute, MessageRetention: 24 * time.Hour,
					Backoff:    retry.Policy{Base: time.Second, Max: time.Hour},
					DeadLetter: catalog.DeadLetter{Topic: "orders-test-dlq", Retention: 24 * time.Hour},
				}},
				OutboundTopics: []catalog.Topic{{ID: "a-news"}, {ID: "b-news"}},
			}
			changes, err := pubsub.Provision(ctx, c, pubsub.Target{ProjectID: "p", PushBaseURL: "https://worker.example"}, options...)
			require.ErrorContains(t, err, "create topic a-news: ")
			var got []string
			for _, change := range changes {
				got = append(got, change.Action+" "+change.Kind+" "+change.ID)
				require.Equal(t, change.Action == pubsub.Failed, change.Error != "", change)
			}
			require.Equal(t, test.want, got)
			require.Positive(t, asked)
		})
	}
}

func TestProvisionRefusesATargetWhosePushesCouldNeverArrive(t *testing.T) {
	t.Parallel()
	for name, target := range map[string]pubsub.Target{
		"no address":                         {},
		"no scheme":                          {PushBaseURL: "worker.example"},
		"a trailing slash":                   {PushBaseURL: "https://worker.example/"},
		"a path":                             {PushBaseURL: "https://worker.example/x"},
		"a service account without audience": {PushBaseURL: "https://worker.example", PushServiceAccount: "push@example.com"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			target.ProjectID = "p"
			changes, err := pubsub.Provision(t.Context(), &catalog.Catalog{}, target, pubsub.EmulatorOptions("127.0.0.1:1")...)
			require.Error(t, err)
			require.Empty(t, changes)
		})
	}
}
