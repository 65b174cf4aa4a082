package pubsub_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	pb "cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/stretchr/testify/require"
	"google.golang.org/api/option"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"billhook/catalog"
	"billhook/catalog/catalogtest"
	"billhook/internal/filetest"
	"billhook/internal/pipeline/pause"
	"billhook/internal/platform/gcp/pubsub"
)

func (e emulated) provision(t *testing.T, c *catalog.Catalog) (done []string) {
	t.Helper()
	changes := filetest.Must(pubsub.Provision(t.Context(), c, e.target, e.options...))(t)
	return actionsOf(t, changes)
}

// The messages of a disabled queue stay, and are delivered when it is enabled again.
func TestOnTheEmulatorProvisionRepairsUpdatesAndSwitchesOff(t *testing.T) {
	t.Parallel()
	e, c := provisioned(t), catalogtest.Shipped()
	const id = "paynow-events-push"
	before := e.read(t, id)
	_, err := e.SubscriptionAdminClient.UpdateSubscription(t.Context(), &pb.UpdateSubscriptionRequest{
		Subscription: &pb.Subscription{
			Name: e.subscription(id), AckDeadlineSeconds: 13, MessageRetentionDuration: durationpb.New(time.Hour),
			RetryPolicy: &pb.RetryPolicy{
				MinimumBackoff: durationpb.New(time.Second), MaximumBackoff: durationpb.New(2 * time.Second),
			},
		},
		UpdateMask: &fieldmaskpb.FieldMask{
			Paths: []string{"ack_deadline_seconds", "message_retention_duration", "retry_policy"},
		},
	})
	require.NoError(t, err)
	require.Equal(t, []string{"updated subscription " + id}, e.provision(t, c))
	after := e.read(t, id)
	require.True(t, proto.Equal(before, after), "it is repaired: %v", after)

	e.target.PushBaseURL = "http://127.0.0.1:2"
	require.Contains(t, e.provision(t, c), "updated subscription "+id)
	after = e.read(t, id)
	require.Equal(t, "http://127.0.0.1:2/push/paynow-events", after.PushConfig.PushEndpoint)
	require.True(t, after.EnableMessageOrdering)
	require.Nil(t, after.DeadLetterPolicy, "the policy would end the emulator's pushes")

	at := slices.IndexFunc(c.Queues, func(q catalog.Queue) bool { return q.ID == "paynow-events" })
	for _, step := range []struct {
		on  bool
		did string
	}{{false, pubsub.SwitchedOff}, {false, pubsub.Kept}, {true, pubsub.Updated}} {
		c.Queues[at].Enabled = step.on
		want := []string{
			step.did + " subscription " + id, step.did + " subscription " + c.Queues[at].DeadLetterPush(),
		}
		require.Equal(t, want, e.provision(t, c),
			"kept is reported by each run, because nobody handles the messages")
		found := filetest.Must(pubsub.Examine(t.Context(), c, e.target, pubsub.Look{}, e.options...))(t)
		require.Empty(t, found.Findings)
	}
}

func TestProvisionMakesTheCatalogsResourcesOnGoogleCloud(t *testing.T) {
	t.Parallel()
	p := empty(t)
	require.Equal(t, []string{
		"created topic out-test", "created topic orders-test", "created topic orders-test-dlq",
		"created subscription orders-test-dlq-hold",
		"created subscription orders-test-push", "created subscription orders-test-dlq-push",
		"created topic clicks-test", "created subscription clicks-test-push",
	}, p.provision(), "a queue that is not enabled has nothing")
	require.Empty(t, p.provision())
	push, feed, hold := p.subscriptions[ordersPush], p.subscriptions[ordersFeed], p.subscriptions[ordersHold]
	require.Equal(t, "https://orders.example/push/orders-test", push.PushConfig.PushEndpoint)
	require.Equal(t, "orders@example.com", push.PushConfig.GetOidcToken().GetServiceAccountEmail())
	require.Equal(t, "https://orders.example/push/dead-letters/orders-test", feed.PushConfig.PushEndpoint)
	clicks := p.subscriptions[clicksPush].PushConfig
	require.Equal(t, "https://worker.example/push/clicks-test", clicks.PushEndpoint)
	require.Equal(t, "aud", clicks.GetOidcToken().GetAudience())
	require.Equal(t, "push@example.com", clicks.GetOidcToken().GetServiceAccountEmail())
	require.Equal(t, ordersDLQ, push.DeadLetterPolicy.GetDeadLetterTopic())
	require.EqualValues(t, 100, push.DeadLetterPolicy.GetMaxDeliveryAttempts(), "far above the worker's five")
	require.Equal(t, 600*time.Second, push.RetryPolicy.GetMaximumBackoff().AsDuration(), "Pub/Sub's maximum")
	require.Nil(t, hold.ExpirationPolicy.GetTtl(), "the hold subscription never expires")

	p.target.PushAudience = "other"
	require.Equal(t, []string{
		"updated subscription orders-test-push", "updated subscription orders-test-dlq-push",
		"updated subscription clicks-test-push",
	}, p.provision(), "the audience is a part of the token")
	require.Equal(t, "other", p.subscriptions[clicksPush].PushConfig.GetOidcToken().GetAudience())
	p.subscriptions[ordersPush].EnableMessageOrdering = false
	_, err := pubsub.Provision(t.Context(), p.catalog, p.target, p.options...)
	require.ErrorContains(t, err, "cannot be changed")
}

// Pub/Sub keeps a message for at most 31 days, as in the catalog, and Google's emulator for 7.
func TestRetentionIsTheCatalogsWithinTheEmulatorsLimit(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	retentions := map[bool][2]time.Duration{false: {31 * day, 14 * day}, true: {7 * day, 7 * day}}
	for emulator, want := range retentions {
		p := empty(t)
		p.catalog, p.target.Emulator = catalogtest.Shipped(), emulator
		p.provision()
		require.NotEmpty(t, p.subscriptions)
		for name, s := range p.subscriptions {
			keeps := want[0]
			if strings.Contains(name, "-dlq-") {
				keeps = want[1]
			}
			require.Equal(t, keeps, s.MessageRetentionDuration.AsDuration(), name)
		}
	}
}

func TestProvisionLabelsSubscriptionsWithTheCatalogAndKeepsOtherLabels(t *testing.T) {
	t.Parallel()
	p := empty(t)
	p.catalog = catalogtest.Shipped()
	q, hash := queueOf(t, p.catalog, "paynow-events"), p.catalog.Hash()
	name := subscriptions + q.PushSubscription()
	for _, labels := range []map[string]string{nil, {"billhook-catalog": "00000000", "team": "shop"}} {
		want := map[string]string{"billhook-catalog": hash}
		if labels != nil {
			p.subscriptions[name].Labels, want["team"] = labels, "shop"
		}
		p.provision()
		require.Equal(t, want, p.subscriptions[name].Labels)
	}
	for _, queue := range p.catalog.Queues {
		_, found := p.examine()
		said, ok := found.Catalogs[queue.ID]
		require.Equal(t, queue.Enabled, ok && said == hash, queue.ID)
	}
	delete(p.subscriptions[name].Labels, "billhook-catalog")
	_, found := p.examine()
	require.NotContains(t, found.Catalogs, q.ID)
}

// One run reports all that is missing. Without any answer each request would take a minute.
func TestProvisionGoesOnAfterAFailureAndReportsEachResource(t *testing.T) {
	t.Parallel()
	for code, want := range map[codes.Code][]string{
		codes.PermissionDenied: {
			"failed topic out-test", "created topic orders-test", "created topic orders-test-dlq",
			"created subscription orders-test-dlq-hold",
			"failed subscription orders-test-push", "created subscription orders-test-dlq-push",
			"created topic clicks-test", "created subscription clicks-test-push",
		},
		codes.Unavailable: {
			"failed topic out-test", "not tried topic orders-test", "not tried topic orders-test-dlq",
			"not tried subscription orders-test-dlq-hold",
			"not tried subscription orders-test-push", "not tried subscription orders-test-dlq-push",
			"not tried topic clicks-test", "not tried subscription clicks-test-push",
			"not tried subscription later-test-push", "not tried subscription later-test-dlq-push",
			"not tried subscription never-test-push",
		},
	} {
		t.Run(code.String(), func(t *testing.T) {
			t.Parallel()
			p := empty(t)
			p.refuse[outTopic], p.refuse[ordersPush] = status.Error(code, "no"), status.Error(code, "no")
			ctx := t.Context()
			if code == codes.Unavailable { // the client library repeats the request for a minute
				var stop context.CancelFunc
				ctx, stop = context.WithTimeout(ctx, 100*time.Millisecond)
				defer stop()
			}
			changes, err := pubsub.Provision(ctx, p.catalog, p.target, p.options...)
			require.ErrorContains(t, err, "create topic out-test: ")
			require.Equal(t, want, actionsOf(t, changes))
		})
	}
}

func TestInvalidTargetIsRefused(t *testing.T) {
	t.Parallel()
	const worker = "https://worker.example"
	nowhere := pubsub.EmulatorOptions("127.0.0.1:1")
	named := func(installation string) pubsub.Target {
		return pubsub.Target{PushBaseURL: worker, Names: pubsub.Names{Installation: installation}}
	}
	for name, target := range map[string]pubsub.Target{
		"no address":                         {},
		"no scheme":                          {PushBaseURL: "worker.example"},
		"a trailing slash":                   {PushBaseURL: worker + "/"},
		"a path":                             {PushBaseURL: worker + "/x"},
		"a service account without audience": {PushBaseURL: worker, PushServiceAccount: "push@example.com"},
		"a short name":                       named("ab"),
		"a long name":                        named("abcdefghijklm"),
		"a name that begins with a digit":    named("2shop"),
		"a name with a capital":              named("Shop"),
		"a name that ends with a hyphen":     named("shop-"),
		"a name with a slash":                named("sh/p"),
		"a name that Google keeps":           named("googleshop"),
	} {
		target.ProjectID = "p"
		changes, err := pubsub.Provision(t.Context(), ordersCatalog(), target, nowhere...)
		require.Error(t, err, name)
		require.Empty(t, changes, name)
		if target.Installation != "" {
			require.ErrorContains(t, err, "INSTALLATION: ", name)
		}
	}
	for _, name := range []string{"", "shop", "shop-2", "abcdefghijkl"} {
		require.NoError(t, pubsub.Names{ProjectID: "p", Installation: name}.Check(), name)
	}
}

// One of the three installations has no name. Findings have the ids at Pub/Sub.
func TestInstallationsOfOneProjectHaveTheirOwnTopicsAndSubscriptions(t *testing.T) {
	t.Parallel()
	p := applied(t)
	p.look = pubsub.Look{}
	unnamed, of := len(p.subscriptions), map[string]pubsub.Target{"": p.target}
	for name, worker := range map[string]string{"shop": "https://one.example", "store": "https://two.example"} {
		p.target.Installation, p.target.PushBaseURL, p.target.Pools = name, worker, nil
		of[name] = p.target
		p.grant(topics+name+"-orders-test-dlq", "roles/pubsub.publisher", pubsubAgent)
		p.grant(subscriptions+name+"-orders-test-push", "roles/pubsub.subscriber", pubsubAgent)
		for _, made := range p.provision() {
			require.Regexp(t, "^created (topic|subscription) "+name+"-", made)
		}
	}
	require.Len(t, p.subscriptions, 3*unnamed)
	for name, s := range p.subscriptions {
		_, id, _ := strings.Cut(name, "/subscriptions/")
		_, topic, _ := strings.Cut(s.Topic, "/topics/")
		_, dead, _ := strings.Cut(s.GetDeadLetterPolicy().GetDeadLetterTopic(), "/topics/")
		for _, prefix := range []string{"shop-", "store-"} {
			own := strings.HasPrefix(id, prefix)
			require.Equal(t, own, strings.HasPrefix(topic, prefix), "%s reads %s", id, topic)
			require.True(t, dead == "" || own == strings.HasPrefix(dead, prefix), "%s dead-letters to %s", id, dead)
		}
		require.NotContains(t, s.GetPushConfig().GetPushEndpoint(), "shop",
			"the worker knows only the catalog's ids")
	}
	delete(p.subscriptions, subscriptions+"shop-orders-test-push")
	delete(p.topics, topics+"shop-orders-test")
	for name, want := range map[string][]string{
		"": nil, "store": nil, "shop": {
			"topic shop-orders-test topic_missing", "subscription shop-orders-test-push subscription_missing",
		},
	} {
		p.target = of[name]
		got, _ := p.examine()
		require.ElementsMatch(t, want, got, "of installation %q", name)
	}
}

var pausedAt = time.Date(2026, 11, 22, 11, 44, 55, 0, time.UTC)

func openSwitch(t *testing.T, target pubsub.Target, options []option.ClientOption) *pubsub.Switch {
	t.Helper()
	s := filetest.Must(pubsub.NewSwitch(t.Context(), target, options...))(t)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

func (p *project) openSwitch() *pubsub.Switch { return openSwitch(p.t, p.target, p.options) }

func stands(t *testing.T, s *pubsub.Switch, q catalog.Queue, want pause.Standing) {
	t.Helper()
	require.Equal(t, want, filetest.Must(s.Standing(t.Context(), q))(t))
}

func TestOnTheEmulatorAQueueIsPausedMarkedAndResumed(t *testing.T) {
	t.Parallel()
	e, c := provisioned(t), catalogtest.Shipped()
	q := queueOf(t, c, "paynow-events")
	s := openSwitch(t, e.target, e.options)
	before := e.read(t, q.PushSubscription())
	stands(t, s, q, pause.Pushing)
	for range 2 { // a second pause changes nothing
		require.NoError(t, s.Pause(t.Context(), q, pausedAt))
		stands(t, s, q, pause.Paused)
		config := e.read(t, q.PushSubscription()).PushConfig
		require.Equal(t, "20261122t114455z", config.Attributes[pubsub.PausedLabel],
			"the emulator keeps attributes, and no labels")
		require.Empty(t, config.PushEndpoint)
	}
	require.Equal(t, []string{"paused subscription paynow-events-push"}, e.provision(t, c), "it stays paused")
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
	require.True(t, proto.Equal(&pb.PushConfig{}, paused.PushConfig))
	require.Equal(t, []string{"paused subscription orders-test-push"}, p.provision())
	require.Empty(t, p.subscriptions[ordersPush].PushConfig.GetPushEndpoint())
	require.NotEmpty(t, p.subscriptions[ordersFeed].PushConfig.GetPushEndpoint(), "dead letters are pushed")

	require.NoError(t, s.Resume(t.Context(), q))
	require.True(t, proto.Equal(before, p.subscriptions[ordersPush]), "%v", p.subscriptions[ordersPush])
}

func TestErrorOfTheSwitchHasOnlyGooglesCode(t *testing.T) {
	t.Parallel()
	p := applied(t)
	s, q := p.openSwitch(), p.catalog.Queues[0]
	denied := status.Error(codes.PermissionDenied, "secret@example.com may not")
	p.refuse[updates] = denied
	const unread = "pubsub: read subscription orders-test-push: PermissionDenied"
	err := s.Pause(t.Context(), q, pausedAt)
	require.EqualError(t, err, "pubsub: change subscription orders-test-push: PermissionDenied")
	p.refuse[getSubscription] = denied
	_, err = s.Standing(t.Context(), q)
	require.EqualError(t, err, unread)
	require.EqualError(t, s.Resume(t.Context(), q), unread)
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
