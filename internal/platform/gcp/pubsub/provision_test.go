package pubsub_test

import (
	"context"
	"maps"
	"path"
	"strings"
	"testing"
	"time"

	pb "cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"billhook/catalog/catalogtest"
	"billhook/emulator/cloudtest"
	"billhook/internal/filetest"
	"billhook/internal/pipeline/pause"
	"billhook/internal/platform/gcp/pubsub"
)

// keepDeadLetters requires that subscriptions keep dead letters for a time, and messages for the catalog's.
func (p *project) keepDeadLetters(want time.Duration) {
	p.t.Helper()
	require.Equal(p.t, 24*time.Hour, p.read(ordersPush).MessageRetentionDuration.AsDuration())
	for _, id := range []string{"orders-test-dlq-hold", "orders-test-dlq-push"} {
		require.Equal(p.t, want, p.read(id).MessageRetentionDuration.AsDuration(), id)
	}
}

// The messages of a disabled queue stay, and are delivered when it is enabled again.
func TestOnTheEmulatorProvisionRepairsUpdatesAndSwitchesOff(t *testing.T) {
	t.Parallel()
	p := emulated(t)
	const updated = "updated subscription " + ordersPush
	p.keepDeadLetters(7 * 24 * time.Hour) // the emulator's limit
	before := p.read(ordersPush)
	_, err := p.admin.SubscriptionAdminClient.UpdateSubscription(t.Context(), &pb.UpdateSubscriptionRequest{
		Subscription: &pb.Subscription{
			Name: before.Name, AckDeadlineSeconds: 13, MessageRetentionDuration: durationpb.New(time.Hour),
			RetryPolicy: &pb.RetryPolicy{
				MinimumBackoff: durationpb.New(time.Second), MaximumBackoff: durationpb.New(2 * time.Second),
			},
		},
		UpdateMask: &fieldmaskpb.FieldMask{
			Paths: []string{"ack_deadline_seconds", "message_retention_duration", "retry_policy"},
		},
	})
	require.NoError(t, err)
	require.Equal(t, []string{updated}, p.provision())
	after := p.read(ordersPush)
	require.True(t, proto.Equal(before, after), "it is repaired: %v", after)

	p.target.PushBaseURL = "http://127.0.0.1:2"
	require.Contains(t, p.provision(), updated)
	after = p.read(ordersPush)
	require.Equal(t, "http://127.0.0.1:2/push/orders-test", after.PushConfig.PushEndpoint)
	require.True(t, after.EnableMessageOrdering)
	require.Nil(t, after.DeadLetterPolicy, "the policy would end the emulator's pushes")

	for _, step := range []struct {
		on  bool
		did string
	}{{false, pubsub.SwitchedOff}, {false, pubsub.Kept}, {true, pubsub.Updated}} {
		p.catalog.Queues[0].Enabled = step.on
		want := []string{step.did + " subscription " + ordersPush, step.did + " subscription orders-test-dlq-push"}
		require.Equal(t, want, p.provision(), "kept is reported by each run, because nobody handles the messages")
		found, _ := p.examine()
		require.Empty(t, found)
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
	push, clicks := p.read(ordersPush), p.read(clicksPush).PushConfig
	require.Equal(t, "https://orders.example/push/orders-test", push.PushConfig.PushEndpoint)
	require.Equal(t, "orders@example.com", push.PushConfig.GetOidcToken().GetServiceAccountEmail())
	require.Equal(t, "https://orders.example/push/dead-letters/orders-test",
		p.read("orders-test-dlq-push").PushConfig.PushEndpoint)
	require.Equal(t, "https://worker.example/push/clicks-test", clicks.PushEndpoint)
	require.Equal(t, "aud", clicks.GetOidcToken().GetAudience())
	require.Equal(t, "push@example.com", clicks.GetOidcToken().GetServiceAccountEmail())
	require.Equal(t, p.topic("orders-test-dlq"), push.DeadLetterPolicy.GetDeadLetterTopic())
	require.EqualValues(t, 100, push.DeadLetterPolicy.GetMaxDeliveryAttempts(), "far above the worker's five")
	require.Equal(t, 600*time.Second, push.RetryPolicy.GetMaximumBackoff().AsDuration(), "Pub/Sub's maximum")
	require.Nil(t, p.read("orders-test-dlq-hold").ExpirationPolicy.GetTtl(), "it never expires")
	p.keepDeadLetters(14 * 24 * time.Hour)

	p.target.PushAudience = "other"
	require.Equal(t, []string{
		"updated subscription orders-test-push", "updated subscription orders-test-dlq-push",
		"updated subscription clicks-test-push",
	}, p.provision(), "the audience is a part of the token")
	require.Equal(t, "other", p.read(clicksPush).PushConfig.GetOidcToken().GetAudience())
	p.set(ordersPush, cloudtest.Document{"enableMessageOrdering": false})
	_, err := pubsub.Provision(t.Context(), p.catalog, p.target, p.options...)
	require.ErrorContains(t, err, "cannot be changed")
}

func TestProvisionLabelsSubscriptionsWithTheCatalogAndKeepsOtherLabels(t *testing.T) {
	t.Parallel()
	p := empty(t)
	p.catalog = catalogtest.Shipped()
	const id = "paynow-events-push"
	want := map[string]string{"billhook-catalog": p.catalog.Hash()}
	p.provision()
	require.Equal(t, want, p.read(id).Labels)
	p.set(id, cloudtest.Document{"labels": cloudtest.Document{"billhook-catalog": "00000000", "team": "shop"}})
	want["team"] = "shop"
	p.provision()
	require.Equal(t, want, p.read(id).Labels)
	_, found := p.examine()
	for _, queue := range p.catalog.Queues {
		said, ok := found.Catalogs[queue.ID]
		require.Equal(t, queue.Enabled, ok && said == p.catalog.Hash(), queue.ID)
	}
	p.set(id, cloudtest.Document{"labels": nil})
	_, found = p.examine()
	require.NotContains(t, found.Catalogs, "paynow-events")
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
			p.refuse["out-test"], p.refuse[ordersPush] = status.Error(code, "no"), status.Error(code, "no")
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
	unnamed, of := len(p.subscriptions()), map[string]pubsub.Target{"": p.target}
	for name, worker := range map[string]string{"shop": "https://one.example", "store": "https://two.example"} {
		p.target.Installation, p.target.PushBaseURL, p.target.Pools = name, worker, nil
		of[name] = p.target
		p.granted(name + "-")
		for _, made := range p.provision() {
			require.Regexp(t, "^created (topic|subscription) "+name+"-", made)
		}
	}
	require.Len(t, p.subscriptions(), 3*unnamed)
	for _, id := range p.subscriptions() {
		s := p.read(id)
		topic, dead := path.Base(s.Topic), s.GetDeadLetterPolicy().GetDeadLetterTopic()
		for _, prefix := range []string{"shop-", "store-"} {
			own := strings.HasPrefix(id, prefix)
			require.Equal(t, own, strings.HasPrefix(topic, prefix), "%s reads %s", id, topic)
			require.True(t, dead == "" || own == strings.HasPrefix(path.Base(dead), prefix),
				"%s dead-letters to %s", id, dead)
		}
		require.NotContains(t, s.GetPushConfig().GetPushEndpoint(), "shop",
			"the worker knows only the catalog's ids")
	}
	difference{Drop: []string{"subscriptions/shop-orders-test-push", "topics/shop-orders-test"}}.make(p)
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

func TestAQueueIsPausedMarkedAndResumed(t *testing.T) {
	t.Parallel()
	type row struct {
		open  func(*testing.T) *project
		marks func(*pb.Subscription) map[string]string
	}
	filetest.Each(t, map[string]row{
		"on the emulator, which keeps no labels": {emulated, func(s *pb.Subscription) map[string]string {
			return s.PushConfig.Attributes
		}},
		"on Google Cloud": {func(t *testing.T) *project {
			c := applied(t)
			c.set(ordersPush, cloudtest.Document{"labels": cloudtest.Document{"app": "billhook"}})
			return &c.project
		}, (*pb.Subscription).GetLabels},
	}, func(t *testing.T, test row) {
		p := test.open(t)
		s, q, before := p.openSwitch(), p.catalog.Queues[0], p.read(ordersPush)
		stands := func(want pause.Standing) {
			t.Helper()
			require.Equal(t, want, filetest.Must(s.Standing(t.Context(), q))(t))
		}
		marks := map[string]string{pubsub.PausedLabel: "20261122t114455z"}
		maps.Copy(marks, before.Labels)
		stands(pause.Pushing)
		for range 2 { // a second pause changes nothing
			require.NoError(t, s.Pause(t.Context(), q, pausedAt))
			stands(pause.Paused)
			paused := p.read(ordersPush)
			require.Equal(t, marks, test.marks(paused))
			paused.PushConfig.Attributes = nil
			require.True(t, proto.Equal(&pb.PushConfig{}, paused.PushConfig), "no endpoint and no token")
		}
		require.Equal(t, []string{"paused subscription orders-test-push"}, p.provision(), "it stays paused")
		stands(pause.Paused)
		require.NotEmpty(t, p.read("orders-test-dlq-push").PushConfig.PushEndpoint, "dead letters are pushed")
		for range 2 {
			require.NoError(t, s.Resume(t.Context(), q))
			stands(pause.Pushing)
		}
		require.True(t, proto.Equal(before, p.read(ordersPush)), "%v", p.read(ordersPush))
	})
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
	p.Remove("pubsub/" + p.subscription(ordersPush))
	require.ErrorContains(t, s.Pause(t.Context(), q, pausedAt), "there is no subscription")
	require.Equal(t, pause.Missing, filetest.Must(s.Standing(t.Context(), q))(t))
	p.target = pubsub.Target{Names: p.target.Names}
	require.ErrorContains(t, p.openSwitch().Resume(t.Context(), q), "PUSH_BASE_URL")
	p.target.PushBaseURL = "https://worker.example/path"
	_, err = pubsub.NewSwitch(t.Context(), p.target, p.options...)
	require.ErrorContains(t, err, "without a path")
}
