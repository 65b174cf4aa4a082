package pubsub_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"cloud.google.com/go/iam/apiv1/iampb"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/type/expr"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"billhook/internal/pipeline/pause"
	"billhook/internal/platform/finding"
	"billhook/internal/platform/gcp/pubsub"
)

// told are findings as kind, id and code.
func told(t *testing.T, findings []finding.Finding) (told []string) {
	t.Helper()
	for _, f := range findings {
		require.NotEmpty(t, f.Effect, f.Code)
		require.NotEmpty(t, f.Do, f.Code)
		require.True(t, f.Have == "" || f.Have != f.Want, "%s: %s", f.Code, f.Have)
		told = append(told, f.Kind+" "+f.ID+" "+f.Code)
	}
	return told
}

func TestEachDifferenceIsFoundAndSaysWhatItDoes(t *testing.T) {
	t.Parallel()
	push := func(p *project) *pubsubpb.Subscription { return p.subscriptions[ordersPush] }
	without := func(topic, account string) func(*project) {
		return func(p *project) {
			p.policies[topic].Bindings = slices.DeleteFunc(p.policies[topic].Bindings, func(b *iampb.Binding) bool {
				return slices.Contains(b.Members, "serviceAccount:"+account+"@example.com")
			})
		}
	}
	add := func(id, topic, endpoint, label string) func(*project) {
		return func(p *project) {
			s := &pubsubpb.Subscription{Topic: topic, PushConfig: &pubsubpb.PushConfig{PushEndpoint: endpoint}}
			if label != "" {
				s.Labels = map[string]string{"app": label}
			}
			p.subscriptions[subscriptions+id] = s
		}
	}
	never := &expr.Expr{Expression: "false"}
	for name, test := range map[string]struct {
		change func(p *project)
		want   []string // kind, id, code
	}{
		"nothing, where everything is as it should be": {change: func(*project) {}},
		"an outbound topic is missing":                 {func(p *project) { delete(p.topics, outTopic) }, []string{"topic out-test topic_missing"}},
		"the topic is missing":                         {func(p *project) { delete(p.topics, ordersTopic) }, []string{"topic orders-test topic_missing"}},
		"the dead-letter topic is missing":             {func(p *project) { delete(p.topics, ordersDLQ) }, []string{"topic orders-test-dlq topic_missing"}},
		"the push subscription is missing":             {func(p *project) { delete(p.subscriptions, ordersPush) }, []string{"subscription orders-test-push subscription_missing"}},
		"nothing holds the dead letters":               {func(p *project) { delete(p.subscriptions, ordersHold) }, []string{"subscription orders-test-dlq-hold hold_subscription_missing"}},
		"nothing feeds the store":                      {func(p *project) { delete(p.subscriptions, ordersFeed) }, []string{"subscription orders-test-dlq-push dead_letter_push_missing"}},
		"the dead-letter topic has no subscription": {
			func(p *project) { delete(p.subscriptions, ordersHold); delete(p.subscriptions, ordersFeed) },
			[]string{
				"topic orders-test-dlq dead_letters_unkept", "subscription orders-test-dlq-hold hold_subscription_missing",
				"subscription orders-test-dlq-push dead_letter_push_missing",
			},
		},

		"a queue that is off is pushed all the same":        {add("later-test-push", "", "https://worker.example/push/later-test", ""), []string{"subscription later-test-push left_over"}},
		"a queue that is off has a topic that nobody reads": {func(p *project) { p.topics[topics+"never-test"] = true }, []string{"topic never-test messages_unkept"}},
		"a queue that is off has a topic and nothing but dead letters": {
			func(p *project) {
				p.topics[topics+"later-test"] = true
				add("later-test-dlq-push", "", "", "")(p)
			},
			[]string{"topic later-test messages_unkept"},
		},
		"nothing, where one that was switched off keeps what it has": {change: func(p *project) {
			p.topics[topics+"later-test"] = true
			add("later-test-push", "", "", "")(p)
		}},

		"another topic":       {func(p *project) { push(p).Topic = "projects/p/topics/x" }, []string{"subscription orders-test-push wrong_topic"}},
		"detached":            {func(p *project) { push(p).Detached = true }, []string{"subscription orders-test-push detached"}},
		"expiring":            {func(p *project) { p.subscriptions[ordersHold].ExpirationPolicy.Ttl = durationpb.New(time.Hour) }, []string{"subscription orders-test-dlq-hold expiring"}},
		"pulled":              {func(p *project) { push(p).PushConfig = nil }, []string{"subscription orders-test-push not_pushed"}},
		"held letters pushed": {func(p *project) { p.subscriptions[ordersHold].PushConfig = push(p).PushConfig }, []string{"subscription orders-test-dlq-hold pushed"}},
		"another worker": {
			func(p *project) { push(p).PushConfig.PushEndpoint = "https://worker.example/push/orders-test" },
			[]string{"subscription orders-test-push wrong_endpoint"},
		},
		"without the envelope": {
			func(p *project) {
				push(p).PushConfig.Wrapper = &pubsubpb.PushConfig_NoWrapper_{NoWrapper: &pubsubpb.PushConfig_NoWrapper{}}
			},
			[]string{"subscription orders-test-push unwrapped"},
		},
		"another audience": {func(p *project) { push(p).PushConfig.GetOidcToken().Audience = "x" }, []string{"subscription orders-test-push wrong_audience"}},
		"another account": {
			func(p *project) { push(p).PushConfig.GetOidcToken().ServiceAccountEmail = "x@example.com" },
			[]string{"subscription orders-test-push wrong_service_account"},
		},
		"no token": {
			func(p *project) { p.subscriptions[ordersFeed].PushConfig.AuthenticationMethod = nil },
			[]string{"subscription orders-test-dlq-push wrong_service_account", "subscription orders-test-dlq-push wrong_audience"},
		},
		"ordering off":   {func(p *project) { push(p).EnableMessageOrdering = false }, []string{"subscription orders-test-push ordering_off"}},
		"ordering on":    {func(p *project) { p.subscriptions[clicksPush].EnableMessageOrdering = true }, []string{"subscription clicks-test-push ordering_on"}},
		"another filter": {func(p *project) { p.subscriptions[clicksPush].Filter = "" }, []string{"subscription clicks-test-push wrong_filter"}},
		"an ack deadline as short as a handler's": {func(p *project) { push(p).AckDeadlineSeconds = 30 }, []string{"subscription orders-test-push ack_deadline_below_handler"}},
		"another ack deadline":                    {func(p *project) { push(p).AckDeadlineSeconds = 31 }, []string{"subscription orders-test-push wrong_ack_deadline"}},
		"no waits":                                {func(p *project) { push(p).RetryPolicy = nil }, []string{"subscription orders-test-push wrong_retry_policy"}},
		"other waits":                             {func(p *project) { push(p).RetryPolicy.MaximumBackoff = durationpb.New(time.Minute) }, []string{"subscription orders-test-push wrong_retry_policy"}},
		"kept for a shorter time": {
			func(p *project) { p.subscriptions[ordersHold].MessageRetentionDuration = durationpb.New(time.Hour) },
			[]string{"subscription orders-test-dlq-hold short_retention"},
		},
		"kept for longer, which harms nobody": {change: func(p *project) { push(p).MessageRetentionDuration = durationpb.New(48 * time.Hour) }},
		"no dead-letter policy":               {func(p *project) { push(p).DeadLetterPolicy = nil }, []string{"subscription orders-test-push dead_letter_policy_missing"}},
		"another limit":                       {func(p *project) { push(p).DeadLetterPolicy.MaxDeliveryAttempts = 5 }, []string{"subscription orders-test-push wrong_dead_letter_policy"}},

		"no grant on the dead-letter topic": {
			func(p *project) { delete(p.policies, ordersDLQ) },
			[]string{"topic orders-test-dlq dead_letter_grant_missing", "topic orders-test-dlq publisher_grant_missing"},
		},
		"no grant on the subscription":               {func(p *project) { delete(p.policies, ordersPush) }, []string{"subscription orders-test-push subscriber_grant_missing"}},
		"the grant is somebody else's":               {func(p *project) { p.policies[ordersDLQ].Bindings[0].Members = []string{"user:ada@example.com"} }, []string{"topic orders-test-dlq publisher_grant_missing"}},
		"the grant is of a role that does not do it": {func(p *project) { p.policies[ordersDLQ].Bindings[0].Role = "roles/pubsub.viewer" }, []string{"topic orders-test-dlq publisher_grant_missing"}},
		"the agent's grant has a condition":          {func(p *project) { p.policies[ordersPush].Bindings[0].Condition = never }, []string{"subscription orders-test-push subscriber_grant_missing"}},
		"a larger role will do for the agent":        {change: func(p *project) { p.policies[ordersPush].Bindings[0].Role = "roles/pubsub.editor" }},
		"the webhook service, on a queue's topic":    {without(ordersTopic, "door"), []string{"topic orders-test door_grant_missing"}},
		"the tasks' worker, on another pool's queue": {without(ordersTopic, "clicks"), []string{"topic orders-test worker_grant_missing"}},
		"a worker, on a topic its handler emits to":  {without(outTopic, "orders"), []string{"topic out-test worker_grant_missing"}},
		"a worker, on its queue's dead letters":      {without(ordersDLQ, "orders"), []string{"topic orders-test-dlq dead_letter_grant_missing"}},
		"a publisher's grant has a condition":        {func(p *project) { p.policies[outTopic].Bindings[1].Condition = never }, []string{"topic out-test worker_grant_missing"}},
		"a larger role will do for a publisher":      {change: func(p *project) { p.policies[outTopic].Bindings[0].Role = "roles/pubsub.admin" }},

		"somebody's subscription on a queue's topic": {add("copies", ordersTopic, "", ""), []string{"subscription copies foreign_subscription"}},
		"on dead letters":   {add("copies", ordersDLQ, "", ""), []string{"subscription copies foreign_subscription"}},
		"one that is known": {change: add("warehouse", ordersTopic, "", "")},
		"one on an outbound topic, which is for others": {change: add("copies", outTopic, "", "")},
		"somebody's on a topic of their own":            {change: add("copies", topics+"theirs", "https://worker.example.org/push/x", "")},
		"one that pushes to a worker of ours":           {add("old-push", "_deleted-topic_", "https://orders.example/push/old", ""), []string{"subscription old-push stray_subscription"}},
		"one that Terraform made":                       {add("old-push", ordersTopic, "", "shop"), []string{"subscription old-push stray_subscription"}},
		"one of another installation":                   {change: add("old-push", topics+"old", "", "other")},
		"one of another project": {
			func(p *project) { p.elsewhere[ordersTopic] = []string{"projects/q/subscriptions/copies", ordersPush} },
			[]string{"subscription copies foreign_subscription"},
		},
		"on the topic of a queue that is off": {
			func(p *project) {
				p.topics[topics+"later-test"] = true
				add("later-test-push", "", "", "")(p)
				add("copies", topics+"later-test", "", "")(p)
			},
			[]string{"subscription copies foreign_subscription"},
		},
		"a topic that Terraform made": {
			func(p *project) {
				p.topics[topics+"old"], p.labels[topics+"old"] = true, map[string]string{"app": "shop"}
			},
			[]string{"topic old stray_topic"},
		},
		"a topic of somebody's": {change: func(p *project) { p.topics[topics+"old"] = true }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := applied(t)
			test.change(p)
			got, found := p.examine()
			require.Equal(t, test.want, got)
			require.Empty(t, found.Unread)
		})
	}
}

func TestAPauseThatHoldsIsToldFromOneThatDoesNot(t *testing.T) {
	t.Parallel()
	record := map[string]pause.Pause{"orders-test": {Queue: "orders-test", Who: "ada", Why: "w", At: pausedAt}}
	none, unknown := map[string]pause.Pause{}, map[string]pause.Pause(nil)
	for name, test := range map[string]struct {
		endpoint, mark bool // what the subscription has
		recorded       map[string]pause.Pause
		want           string
	}{
		"paused and recorded":                               {false, true, record, ""},
		"paused, and nobody can be asked":                   {false, true, unknown, "pause_unread"},
		"paused, and nobody is recorded":                    {false, true, none, "pause_unrecorded"},
		"given its endpoint by somebody else":               {true, true, record, "pause_undone"},
		"given its endpoint, and nobody can be asked":       {true, true, unknown, "pause_undone"},
		"paused on paper alone":                             {true, false, record, "pause_undone"},
		"paused without a mark":                             {false, false, record, "pause_unmarked"},
		"without an endpoint, of which nobody knows":        {false, false, none, "not_pushed"},
		"without an endpoint, of which nobody can be asked": {false, false, unknown, "not_pushed"},
		"resumed by hand, with its mark left":               {true, true, none, "pause_mark_left"},
		"never paused":                                      {true, false, none, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := applied(t)
			if !test.endpoint {
				p.subscriptions[ordersPush].PushConfig = &pubsubpb.PushConfig{}
			}
			if test.mark {
				p.subscriptions[ordersPush].Labels = map[string]string{pubsub.PausedLabel: "20261122t114455z"}
			}
			p.look.Paused = test.recorded
			var want []string
			if test.want != "" {
				want = []string{"subscription orders-test-push " + test.want}
			}
			got, _ := p.examine()
			require.Equal(t, want, got)
		})
	}
}

func TestAGrantOnTheProjectIsOneOnItsTopics(t *testing.T) {
	t.Parallel()
	p := applied(t)
	delete(p.policies, outTopic)
	delete(p.policies, ordersPush)
	var asked atomic.Int64 // several queues ask at once
	p.look.Inherits = func(_ context.Context, roles []string, is func(string) bool) bool {
		asked.Add(1)
		return slices.Contains(roles, "roles/editor") && (is("serviceAccount:orders@example.com") || is(pubsubAgent))
	}
	got, found := p.examine()
	require.Equal(t, []string{"topic out-test worker_grant_missing"}, got, "that of the tasks' worker")
	require.Contains(t, found.Findings[0].Want, "clicks@example.com")
	require.EqualValues(t, 3, asked.Load(), "once for each that its resource does not have")
}

func TestWhatTheAccountMayNotLookAtIsNamedOneByOneAndNothingElseIsExcused(t *testing.T) {
	t.Parallel()
	unread := func(permission string, what ...string) (all []finding.Unread) {
		for _, one := range what {
			all = append(all, finding.Unread{What: one, Permission: permission, Why: "PermissionDenied"})
		}
		return all
	}
	grants := func(on ...string) (all []finding.Unread) {
		for _, one := range on {
			all = append(all, unread("pubsub.topics.getIamPolicy", "the grants on topic "+one)...)
		}
		return all
	}
	for method, want := range map[string][]finding.Unread{
		getPolicy: slices.Concat(grants("out-test", "orders-test", "orders-test-dlq", "orders-test-dlq"),
			unread("pubsub.subscriptions.getIamPolicy", "the grants on subscription orders-test-push"), grants("clicks-test")),
		getTopic: unread("pubsub.topics.get", "topic out-test", "topic orders-test", "topic orders-test-dlq", "topic clicks-test", "topic later-test", "topic never-test"),
		getSubscription: unread("pubsub.subscriptions.get", "subscription orders-test-dlq-hold", "subscription orders-test-push", "subscription orders-test-dlq-push",
			"subscription clicks-test-push", "subscription later-test-push", "subscription later-test-dlq-push", "subscription never-test-push"),
		"/google.pubsub.v1.Publisher/ListTopics":         unread("pubsub.topics.list", "topics that the catalog does not have"),
		"/google.pubsub.v1.Subscriber/ListSubscriptions": unread("pubsub.subscriptions.list", "subscriptions that the catalog does not have"),
		"/google.pubsub.v1.Publisher/ListTopicSubscriptions": unread("pubsub.topics.get",
			"the subscriptions of topic clicks-test", "the subscriptions of topic orders-test", "the subscriptions of topic orders-test-dlq"),
	} {
		t.Run(method, func(t *testing.T) {
			t.Parallel()
			p := applied(t)
			p.refuse[method] = status.Error(codes.PermissionDenied, "no")
			got, found := p.examine()
			require.Empty(t, got)
			require.Equal(t, want, found.Unread)
			p.refuse[method] = status.Error(codes.InvalidArgument, "no")
			found, err := pubsub.Examine(t.Context(), p.catalog, p.target, p.look, p.options...)
			require.Error(t, err)
			require.Empty(t, found.Findings, "what cannot be read is no finding")
		})
	}
	p := applied(t)
	delete(p.look.Accounts, "worker-orders")
	got, found := p.examine()
	require.Empty(t, got)
	require.Equal(t, []finding.Unread{
		{What: "the grant of worker-orders on topic out-test", Why: "the service's account is not known"},
		{What: "the grant of worker-orders on topic orders-test-dlq", Why: "the service's account is not known"},
	}, found.Unread)
}

// The worker looks over the connection of its switch. It may not know the addresses of all workers.
func TestTheWorkerExaminesWhatItKnows(t *testing.T) {
	t.Parallel()
	pointed := func(to string) func(*project) {
		return func(p *project) { p.subscriptions[ordersPush].PushConfig.PushEndpoint = to }
	}
	for name, test := range map[string]struct {
		change func(p *project)
		want   []string
	}{
		"nothing wrong":             {change: func(*project) {}},
		"a difference":              {func(p *project) { p.subscriptions[ordersPush].Filter = "x" }, []string{"subscription orders-test-push wrong_filter"}},
		"another path":              {pointed("https://orders.example/push/x"), []string{"subscription orders-test-push wrong_endpoint"}},
		"nobody pushes":             {pointed(""), []string{"subscription orders-test-push not_pushed"}},
		"another address, unknowns": {change: pointed("https://else.example/push/orders-test")},
	} {
		p := applied(t)
		test.change(p)
		p.target = pubsub.Target{Names: pubsub.Names{ProjectID: "p"}}
		found, err := p.openSwitch().Examine(t.Context(), p.catalog, nil)
		require.NoError(t, err, name)
		require.Equal(t, test.want, told(t, found.Findings), name)
		p.refuse[getSubscription] = status.Error(codes.Internal, "no")
		_, err = p.openSwitch().Examine(t.Context(), p.catalog, nil)
		require.ErrorContains(t, err, "queue orders-test: read", name)
	}
}

func TestOnTheEmulatorWhatIsGoneIsFoundAndWhatTheCatalogDoesNotHave(t *testing.T) {
	t.Parallel()
	e, c := provisioned(t), shipped(t)
	require.NoError(t, e.SubscriptionAdminClient.DeleteSubscription(t.Context(), &pubsubpb.DeleteSubscriptionRequest{
		Subscription: e.subscription("paynow-events-push"),
	}))
	_, err := e.TopicAdminClient.CreateTopic(t.Context(), &pubsubpb.Topic{Name: e.topic("renamed")})
	require.NoError(t, err)
	for id, s := range map[string]*pubsubpb.Subscription{
		"copies":       {Topic: e.topic("paynow-events")},
		"renamed-push": {Topic: e.topic("renamed"), PushConfig: &pubsubpb.PushConfig{PushEndpoint: "http://127.0.0.1:2/push/renamed"}},
	} {
		s.Name = e.subscription(id)
		_, err := e.SubscriptionAdminClient.CreateSubscription(t.Context(), s)
		require.NoError(t, err)
	}
	e.target.PushBaseURL = "http://127.0.0.1:2"
	found, err := pubsub.Examine(t.Context(), c, e.target, pubsub.Look{}, e.options...)
	require.NoError(t, err)
	want := []string{
		"subscription paynow-events-push subscription_missing", "subscription copies foreign_subscription", "subscription renamed-push stray_subscription",
	}
	for _, q := range c.Queues {
		if q.Enabled && q.ID != "paynow-events" {
			want = append(want, "subscription "+q.PushSubscription()+" wrong_endpoint")
		}
		if q.Enabled && !q.DeadLetter.Drop {
			want = append(want, "subscription "+q.DeadLetterPush()+" wrong_endpoint")
		}
	}
	require.ElementsMatch(t, want, told(t, found.Findings))
	copies := found.Findings[slices.IndexFunc(found.Findings, func(f finding.Finding) bool { return f.ID == "copies" })]
	require.Equal(t, []string{"paynow-events", "of topic paynow-events, without an endpoint"}, []string{copies.Queue, copies.Have})
}
