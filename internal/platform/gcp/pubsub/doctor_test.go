package pubsub_test

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"cloud.google.com/go/iam/apiv1/iampb"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/stretchr/testify/require"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"

	"billhook/catalog"
	"billhook/internal/contract/routing"
	"billhook/internal/platform/gcp/finding"
	"billhook/internal/platform/gcp/pubsub"
	"billhook/internal/retry"
)

const pubsubAgent = "serviceAccount:service-123456789@gcp-sa-pubsub.iam.gserviceaccount.com"

// project is a Google Cloud project as its admin API shows it: the in-memory server
// knows no policies and refuses more than seven days.
type project struct {
	mu            sync.Mutex
	topics        map[string]bool
	subscriptions map[string]*pubsubpb.Subscription
	policies      map[string]*iampb.Policy
	refuse        map[string]error
	// labels are those of topics. elsewhere are the subscriptions of a topic in other projects.
	labels    map[string]map[string]string
	elsewhere map[string][]string
}

func (p *project) options(t *testing.T) []option.ClientOption {
	t.Helper()
	_, options := inMemory(t)
	return append(options, option.WithGRPCDialOption(grpc.WithUnaryInterceptor(
		func(_ context.Context, method string, request, answer any, _ *grpc.ClientConn, _ grpc.UnaryInvoker, _ ...grpc.CallOption) error {
			p.mu.Lock()
			defer p.mu.Unlock()
			if err := p.refuse[method]; err != nil {
				return err
			}
			switch r := request.(type) {
			case *pubsubpb.Topic:
				p.topics[r.Name] = true
				return nil
			case *pubsubpb.Subscription:
				p.subscriptions[r.Name] = proto.Clone(r).(*pubsubpb.Subscription)
				return nil
			case *pubsubpb.GetTopicRequest:
				if !p.topics[r.Topic] {
					return status.Error(codes.NotFound, "no")
				}
				return nil
			case *pubsubpb.GetSubscriptionRequest:
				if strings.Contains(r.Subscription, "/-") {
					return status.Error(codes.InvalidArgument, "no name")
				}
				have, ok := p.subscriptions[r.Subscription]
				if !ok {
					return status.Error(codes.NotFound, "no")
				}
				proto.Merge(answer.(*pubsubpb.Subscription), have)
				return nil
			case *pubsubpb.UpdateSubscriptionRequest:
				have, ok := p.subscriptions[r.Subscription.Name]
				if !ok {
					return status.Error(codes.NotFound, "no")
				}
				for _, path := range r.UpdateMask.Paths {
					field := have.ProtoReflect().Descriptor().Fields().ByName(protoreflect.Name(path))
					have.ProtoReflect().Set(field, proto.CloneOf(r.Subscription).ProtoReflect().Get(field))
				}
				return nil
			case *pubsubpb.ListTopicsRequest:
				for _, name := range slices.Sorted(maps.Keys(p.topics)) {
					answer.(*pubsubpb.ListTopicsResponse).Topics = append(answer.(*pubsubpb.ListTopicsResponse).Topics, &pubsubpb.Topic{Name: name, Labels: p.labels[name]})
				}
				return nil
			case *pubsubpb.ListSubscriptionsRequest:
				for _, name := range slices.Sorted(maps.Keys(p.subscriptions)) {
					have := proto.CloneOf(p.subscriptions[name])
					have.Name = name
					answer.(*pubsubpb.ListSubscriptionsResponse).Subscriptions = append(answer.(*pubsubpb.ListSubscriptionsResponse).Subscriptions, have)
				}
				return nil
			case *pubsubpb.ListTopicSubscriptionsRequest:
				if !p.topics[r.Topic] {
					return status.Error(codes.NotFound, "no")
				}
				answer.(*pubsubpb.ListTopicSubscriptionsResponse).Subscriptions = p.elsewhere[r.Topic]
				return nil
			case *iampb.GetIamPolicyRequest:
				if strings.Contains(r.Resource, "/topics/") && !p.topics[r.Resource] {
					return status.Error(codes.NotFound, "no")
				}
				proto.Merge(answer.(*iampb.Policy), p.policies[r.Resource])
				return nil
			}
			return status.Error(codes.Unimplemented, method)
		})))
}

const (
	ordersPush = "projects/p/subscriptions/orders-test-push"
	ordersHold = "projects/p/subscriptions/orders-test-dlq-hold"
	ordersFeed = "projects/p/subscriptions/orders-test-dlq-push"
	ordersDLQ  = "projects/p/topics/orders-test-dlq"
)

func granting(role string, members ...string) *iampb.Policy {
	return &iampb.Policy{Bindings: []*iampb.Binding{{Role: role, Members: members}}}
}

func ordersCatalog() *catalog.Catalog {
	return &catalog.Catalog{
		OutboundTopics: []catalog.Topic{{ID: "out-test"}},
		Queues: []catalog.Queue{
			{
				ID: "orders-test", Enabled: true, Pool: "orders", OrderingKey: []string{"order"}, MaxAttempts: 5,
				AckDeadline: time.Minute, HandlerTimeout: 20 * time.Second, Handlers: map[string]catalog.Handler{"order.paid": {Timeout: 30 * time.Second}},
				MessageRetention: 24 * time.Hour, Backoff: retry.Policy{Base: time.Second, Max: time.Hour},
				DeadLetter: catalog.DeadLetter{Topic: "orders-test-dlq", Retention: 14 * 24 * time.Hour},
			},
			{ID: "clicks-test", Enabled: true, Bindings: []routing.Pattern{"click.#"}, MaxAttempts: 1, AckDeadline: time.Minute, MessageRetention: time.Hour, DeadLetter: catalog.DeadLetter{Drop: true}},
			{ID: "later-test", DeadLetter: catalog.DeadLetter{Topic: "later-test-dlq", Retention: time.Hour}},
			{ID: "never-test", DeadLetter: catalog.DeadLetter{Drop: true}},
		},
	}
}

// applied is a project with the catalog in it, and the target it was made for.
func applied(t *testing.T) (*project, pubsub.Target, []option.ClientOption) {
	t.Helper()
	p := &project{
		topics: map[string]bool{}, subscriptions: map[string]*pubsubpb.Subscription{}, refuse: map[string]error{},
		labels: map[string]map[string]string{}, elsewhere: map[string][]string{},
		policies: map[string]*iampb.Policy{
			ordersDLQ: granting("roles/pubsub.publisher", pubsubAgent), ordersPush: granting("roles/pubsub.subscriber", pubsubAgent),
		},
	}
	target := pubsub.Target{
		ProjectID: "p", PushBaseURL: "https://worker.example", Pools: map[string]pubsub.Pool{"orders": {URL: "https://orders.example", ServiceAccount: "orders@example.com"}},
		PushAudience: "aud", PushServiceAccount: "push@example.com",
	}
	options := p.options(t)
	_, err := pubsub.Provision(t.Context(), ordersCatalog(), target, options...)
	require.NoError(t, err)
	require.Equal(t, "https://orders.example/push/orders-test", p.subscriptions[ordersPush].PushConfig.PushEndpoint, "a pool's own worker")
	require.Equal(t, "orders@example.com", p.subscriptions[ordersPush].PushConfig.GetOidcToken().ServiceAccountEmail)
	return p, target, options
}

func TestEachDifferenceIsFoundAndSaysWhatItDoes(t *testing.T) {
	t.Parallel()
	push := func(p *project) *pubsubpb.Subscription { return p.subscriptions[ordersPush] }
	for name, test := range map[string]struct {
		change func(p *project)
		want   []string // kind, id, code
	}{
		"nothing, where everything is as it should be": {change: func(*project) {}},
		"an outbound topic is missing":                 {func(p *project) { delete(p.topics, "projects/p/topics/out-test") }, []string{"topic out-test topic_missing"}},
		"the topic is missing":                         {func(p *project) { delete(p.topics, "projects/p/topics/orders-test") }, []string{"topic orders-test topic_missing"}},
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
		"a queue that is off is pushed all the same": {
			func(p *project) {
				p.subscriptions["projects/p/subscriptions/later-test-push"] = &pubsubpb.Subscription{PushConfig: &pubsubpb.PushConfig{PushEndpoint: "https://worker.example/push/later-test"}}
			},
			[]string{"subscription later-test-push left_over"},
		},
		"a queue that is off has a topic that nobody reads": {
			func(p *project) { p.topics["projects/p/topics/never-test"] = true }, []string{"topic never-test messages_unkept"},
		},
		"a queue that is off has a topic and nothing but dead letters": {
			func(p *project) {
				p.topics["projects/p/topics/later-test"] = true
				p.subscriptions["projects/p/subscriptions/later-test-dlq-push"] = &pubsubpb.Subscription{}
			},
			[]string{"topic later-test messages_unkept"},
		},
		"nothing, where one that was switched off keeps what it has": {change: func(p *project) {
			p.topics["projects/p/topics/later-test"] = true
			p.subscriptions["projects/p/subscriptions/later-test-push"] = &pubsubpb.Subscription{}
		}},
		"another topic": {func(p *project) { push(p).Topic = "projects/p/topics/x" }, []string{"subscription orders-test-push wrong_topic"}},
		"detached":      {func(p *project) { push(p).Detached = true }, []string{"subscription orders-test-push detached"}},
		"expiring": {
			func(p *project) {
				p.subscriptions[ordersHold].ExpirationPolicy.Ttl = durationpb.New(31 * 24 * time.Hour)
			},
			[]string{"subscription orders-test-dlq-hold expiring"},
		},
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
		"ordering off": {func(p *project) { push(p).EnableMessageOrdering = false }, []string{"subscription orders-test-push ordering_off"}},
		"ordering on": {
			func(p *project) {
				p.subscriptions["projects/p/subscriptions/clicks-test-push"].EnableMessageOrdering = true
			},
			[]string{"subscription clicks-test-push ordering_on"},
		},
		"another filter": {
			func(p *project) { p.subscriptions["projects/p/subscriptions/clicks-test-push"].Filter = "" },
			[]string{"subscription clicks-test-push wrong_filter"},
		},
		"an ack deadline as short as a handler's": {func(p *project) { push(p).AckDeadlineSeconds = 30 }, []string{"subscription orders-test-push ack_deadline_below_handler"}},
		"another ack deadline":                    {func(p *project) { push(p).AckDeadlineSeconds = 31 }, []string{"subscription orders-test-push wrong_ack_deadline"}},
		"no waits":                                {func(p *project) { push(p).RetryPolicy = nil }, []string{"subscription orders-test-push wrong_retry_policy"}},
		"other waits": {
			func(p *project) { push(p).RetryPolicy.MaximumBackoff = durationpb.New(time.Minute) },
			[]string{"subscription orders-test-push wrong_retry_policy"},
		},
		"kept for a shorter time": {
			func(p *project) { p.subscriptions[ordersHold].MessageRetentionDuration = durationpb.New(time.Hour) },
			[]string{"subscription orders-test-dlq-hold short_retention"},
		},
		"kept for longer, which harms nobody":        {change: func(p *project) { push(p).MessageRetentionDuration = durationpb.New(48 * time.Hour) }},
		"no dead-letter policy":                      {func(p *project) { push(p).DeadLetterPolicy = nil }, []string{"subscription orders-test-push dead_letter_policy_missing"}},
		"another limit":                              {func(p *project) { push(p).DeadLetterPolicy.MaxDeliveryAttempts = 5 }, []string{"subscription orders-test-push wrong_dead_letter_policy"}},
		"no grant on the dead-letter topic":          {func(p *project) { delete(p.policies, ordersDLQ) }, []string{"topic orders-test-dlq publisher_grant_missing"}},
		"no grant on the subscription":               {func(p *project) { delete(p.policies, ordersPush) }, []string{"subscription orders-test-push subscriber_grant_missing"}},
		"the grant is somebody else's":               {func(p *project) { p.policies[ordersDLQ].Bindings[0].Members = []string{"user:ada@example.com"} }, []string{"topic orders-test-dlq publisher_grant_missing"}},
		"the grant is of a role that does not do it": {func(p *project) { p.policies[ordersDLQ].Bindings[0].Role = "roles/pubsub.viewer" }, []string{"topic orders-test-dlq publisher_grant_missing"}},
		"the grant has a condition": {
			func(p *project) {
				require.NoError(t, protojson.Unmarshal([]byte(`{"bindings":[{"role":"roles/pubsub.subscriber","members":["`+pubsubAgent+`"],"condition":{"expression":"false"}}]}`), p.policies[ordersPush]))
			},
			[]string{"subscription orders-test-push subscriber_grant_missing"},
		},
		"a larger role will do": {change: func(p *project) { p.policies[ordersPush].Bindings[0].Role = "roles/pubsub.editor" }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, target, options := applied(t)
			test.change(p)
			found, err := pubsub.Examine(t.Context(), ordersCatalog(), target, pubsub.Look{}, options...)
			require.NoError(t, err)
			require.Empty(t, found.Unread)
			require.Equal(t, test.want, told(t, found.Findings))
		})
	}
}

func TestWhatCannotBeReadIsNoFinding(t *testing.T) {
	t.Parallel()
	for _, method := range []string{
		"/google.pubsub.v1.Publisher/GetTopic", "/google.pubsub.v1.Subscriber/GetSubscription", "/google.iam.v1.IAMPolicy/GetIamPolicy",
	} {
		t.Run(method, func(t *testing.T) {
			t.Parallel()
			p, target, options := applied(t)
			p.refuse[method] = status.Error(codes.InvalidArgument, "no")
			found, err := pubsub.Examine(t.Context(), ordersCatalog(), target, pubsub.Look{}, options...)
			require.Error(t, err)
			require.Empty(t, found.Findings)
		})
	}
}

func TestOnTheEmulatorWhatIsGoneIsFound(t *testing.T) {
	t.Parallel()
	name, options, target := provisioned(t)
	c, admin := shipped(t), administrator(t, name, options)
	require.NoError(t, admin.SubscriptionAdminClient.DeleteSubscription(t.Context(), &pubsubpb.DeleteSubscriptionRequest{
		Subscription: "projects/" + name + "/subscriptions/paynow-events-push",
	}))
	target.PushBaseURL = "http://127.0.0.1:2"
	examined, err := pubsub.Examine(t.Context(), c, target, pubsub.Look{}, options...)
	require.NoError(t, err)
	found := map[string]finding.Code{}
	for _, f := range examined.Findings {
		found[f.ID] = f.Code
	}
	want := map[string]finding.Code{}
	for _, q := range c.Queues {
		if q.Enabled {
			want[q.PushSubscription()] = pubsub.WrongEndpoint
		}
		if q.Enabled && !q.DeadLetter.Drop {
			want[q.DeadLetterPush()] = pubsub.WrongEndpoint
		}
	}
	want["paynow-events-push"] = pubsub.SubscriptionMissing
	require.Equal(t, want, found)
}
