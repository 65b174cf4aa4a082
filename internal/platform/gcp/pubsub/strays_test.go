package pubsub_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"

	"cloud.google.com/go/iam/apiv1/iampb"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"

	"billhook/catalog"
	"billhook/internal/platform/gcp/finding"
	"billhook/internal/platform/gcp/pubsub"
)

const ordersTopic, clicksTopic, outTopic = "projects/p/topics/orders-test", "projects/p/topics/clicks-test", "projects/p/topics/out-test"

// grantedCatalog has a door for producers, and a pool of its own for the tasks.
func grantedCatalog() *catalog.Catalog {
	c := ordersCatalog()
	c.TasksPool, c.Queues[1].Pool = "clicks", "clicks"
	c.Sources = map[string]catalog.Source{catalog.Producers: {}}
	handlers := c.Queues[0].Handlers
	for eventType, h := range handlers {
		h.Emits = []string{"out-test"}
		handlers[eventType] = h
	}
	return c
}

// granted is a project with all grants that grantedCatalog needs, and what the examination knows of its services.
func granted(t *testing.T) (*project, pubsub.Target, pubsub.Look, func() pubsub.Examination) {
	t.Helper()
	p, target, options := applied(t)
	look := &pubsub.Look{Label: "shop", Accounts: map[string]string{"webhook": "door@example.com", "worker-orders": "orders@example.com", "worker-clicks": "clicks@example.com"}}
	for topic, accounts := range map[string][]string{
		ordersTopic: {"door", "clicks"}, clicksTopic: {"door", "clicks"}, outTopic: {"orders", "clicks"}, ordersDLQ: {"orders"},
	} {
		for _, account := range accounts {
			policy := p.policies[topic]
			if policy == nil {
				policy = &iampb.Policy{}
				p.policies[topic] = policy
			}
			policy.Bindings = append(policy.Bindings, &iampb.Binding{Role: "roles/pubsub.publisher", Members: []string{"serviceAccount:" + account + "@example.com"}})
		}
	}
	return p, target, *look, func() pubsub.Examination {
		found, err := pubsub.Examine(t.Context(), grantedCatalog(), target, *look, options...)
		require.NoError(t, err)
		return found
	}
}

// told are findings as kind, id and code.
func told(t *testing.T, findings []finding.Finding) (told []string) {
	t.Helper()
	for _, f := range findings {
		require.NotEmpty(t, f.Effect, f.Code)
		require.NotEmpty(t, f.Do, f.Code)
		require.True(t, f.Have == "" || f.Have != f.Want, "%s: %s", f.Code, f.Have)
		told = append(told, f.Kind+" "+f.ID+" "+f.Code.String())
	}
	return told
}

func TestEachPublisherWithoutItsGrantIsFound(t *testing.T) {
	t.Parallel()
	without := func(topic, account string) func(*project) {
		return func(p *project) {
			p.policies[topic].Bindings = slices.DeleteFunc(p.policies[topic].Bindings, func(b *iampb.Binding) bool {
				return slices.Contains(b.Members, "serviceAccount:"+account+"@example.com")
			})
		}
	}
	for name, test := range map[string]struct {
		change func(*project)
		want   []string
	}{
		"nobody, where all are there":                    {change: func(*project) {}},
		"the door, on a queue's topic":                   {without(ordersTopic, "door"), []string{"topic orders-test door_grant_missing"}},
		"the tasks' worker, on another pool's queue":     {without(ordersTopic, "clicks"), []string{"topic orders-test worker_grant_missing"}},
		"a worker, on a topic that its handler emits to": {without(outTopic, "orders"), []string{"topic out-test worker_grant_missing"}},
		"a worker, on its queue's dead letters":          {without(ordersDLQ, "orders"), []string{"topic orders-test-dlq dead_letter_grant_missing"}},
		"a grant under a condition": {
			func(p *project) {
				require.NoError(t, protojson.Unmarshal([]byte(`{"bindings":[{"role":"roles/pubsub.publisher","members":["serviceAccount:orders@example.com","serviceAccount:clicks@example.com"],"condition":{"expression":"false"}}]}`), p.policies[outTopic]))
			},
			[]string{"topic out-test worker_grant_missing", "topic out-test worker_grant_missing"},
		},
		"a larger role will do": {change: func(p *project) { p.policies[outTopic].Bindings[0].Role = "roles/pubsub.admin" }},
		"not on a topic that is missing": {
			func(p *project) { delete(p.topics, outTopic) }, []string{"topic out-test topic_missing"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, _, _, examine := granted(t)
			test.change(p)
			found := examine()
			require.Equal(t, test.want, told(t, found.Findings))
			require.Empty(t, found.Unread)
		})
	}
}

func TestAGrantOnTheProjectIsOneOnItsTopics(t *testing.T) {
	t.Parallel()
	p, target, look, _ := granted(t)
	delete(p.policies, outTopic)
	delete(p.policies, ordersPush)
	var asked atomic.Int64 // several queues ask at once
	look.Inherits = func(_ context.Context, roles []string, is func(string) bool) bool {
		asked.Add(1)
		return slices.Contains(roles, "roles/editor") && (is("serviceAccount:orders@example.com") || is(pubsubAgent))
	}
	found, err := pubsub.Examine(t.Context(), grantedCatalog(), target, look, p.options(t)...)
	require.NoError(t, err)
	require.Equal(t, []string{"topic out-test worker_grant_missing"}, told(t, found.Findings), "that of the tasks' worker")
	require.Contains(t, found.Findings[0].Want, "clicks@example.com")
	require.EqualValues(t, 3, asked.Load(), "once for each that its resource does not have")
}

func TestWhatTheDoctorMayNotLookAtIsNamedOneByOne(t *testing.T) {
	t.Parallel()
	denied := status.Error(codes.PermissionDenied, "no")
	unread := func(permission string, what ...string) (all []finding.Unread) {
		for _, one := range what {
			all = append(all, finding.Unread{What: one, Permission: permission, Why: "PermissionDenied"})
		}
		return all
	}
	for method, want := range map[string][]finding.Unread{
		getPolicy: append(unread("pubsub.topics.getIamPolicy", "the grants on topic out-test", "the grants on topic orders-test", "the grants on topic orders-test-dlq", "the grants on topic orders-test-dlq"),
			append(unread("pubsub.subscriptions.getIamPolicy", "the grants on subscription orders-test-push"), unread("pubsub.topics.getIamPolicy", "the grants on topic clicks-test")...)...),
		getTopic:                                 unread("pubsub.topics.get", "topic out-test", "topic orders-test", "topic orders-test-dlq", "topic clicks-test", "topic later-test", "topic never-test"),
		"/google.pubsub.v1.Publisher/ListTopics": unread("pubsub.topics.list", "topics that the catalog does not have"),
		"/google.pubsub.v1.Subscriber/ListSubscriptions": unread("pubsub.subscriptions.list", "subscriptions that the catalog does not have"),
		"/google.pubsub.v1.Publisher/ListTopicSubscriptions": unread("pubsub.topics.get",
			"the subscriptions of topic clicks-test", "the subscriptions of topic orders-test", "the subscriptions of topic orders-test-dlq"),
	} {
		t.Run(method, func(t *testing.T) {
			t.Parallel()
			p, _, _, examine := granted(t)
			p.refuse[method] = denied
			found := examine()
			require.Empty(t, found.Findings)
			require.Equal(t, want, found.Unread)
		})
	}
	p, target, look, _ := granted(t)
	delete(look.Accounts, "worker-orders")
	found, err := pubsub.Examine(t.Context(), grantedCatalog(), target, look, p.options(t)...)
	require.NoError(t, err)
	require.Empty(t, found.Findings)
	require.Equal(t, []finding.Unread{
		{What: "the grant of worker-orders on topic out-test", Why: "the service's account is not known"},
		{What: "the grant of worker-orders on topic orders-test-dlq", Why: "the service's account is not known"},
	}, found.Unread)
}

func TestWhatTheCatalogDoesNotHaveIsFound(t *testing.T) {
	t.Parallel()
	add := func(name string, s *pubsubpb.Subscription) func(*project) {
		return func(p *project) {
			s.Name = "projects/p/subscriptions/" + name
			p.subscriptions[s.Name] = s
		}
	}
	pushing := func(to string) *pubsubpb.PushConfig { return &pubsubpb.PushConfig{PushEndpoint: to} }
	for name, test := range map[string]struct {
		change func(*project)
		want   []string
	}{
		"a subscription of somebody's on a queue's topic": {
			add("copies", &pubsubpb.Subscription{Topic: ordersTopic}), []string{"subscription copies foreign_subscription"},
		},
		"on dead letters": {add("copies", &pubsubpb.Subscription{Topic: ordersDLQ}), []string{"subscription copies foreign_subscription"}},
		"on the topic of a queue that is off": {
			func(p *project) {
				add("later-test-push", &pubsubpb.Subscription{})(p)
				p.topics["projects/p/topics/later-test"] = true
				add("copies", &pubsubpb.Subscription{Topic: "projects/p/topics/later-test"})(p)
			},
			[]string{"subscription copies foreign_subscription"},
		},
		"one that is known":                             {change: add("warehouse", &pubsubpb.Subscription{Topic: ordersTopic})},
		"one on an outbound topic, which is for others": {change: add("copies", &pubsubpb.Subscription{Topic: outTopic})},
		"somebody's on a topic of their own":            {change: add("copies", &pubsubpb.Subscription{Topic: "projects/p/topics/theirs", PushConfig: pushing("https://worker.example.org/push/x")})},
		"one that pushes to a worker of ours": {
			add("old-push", &pubsubpb.Subscription{Topic: "_deleted-topic_", PushConfig: pushing("https://orders.example/push/old")}), []string{"subscription old-push stray_subscription"},
		},
		"one that Terraform made": {
			add("old-push", &pubsubpb.Subscription{Topic: ordersTopic, Labels: map[string]string{"app": "shop"}}), []string{"subscription old-push stray_subscription"},
		},
		"one of another installation": {change: add("old-push", &pubsubpb.Subscription{Topic: "projects/p/topics/old", Labels: map[string]string{"app": "other"}})},
		"one of another project": {
			func(p *project) { p.elsewhere[ordersTopic] = []string{"projects/q/subscriptions/copies", ordersPush} },
			[]string{"subscription copies foreign_subscription"},
		},
		"a topic that Terraform made": {
			func(p *project) {
				p.topics["projects/p/topics/old"] = true
				p.labels["projects/p/topics/old"] = map[string]string{"app": "shop"}
			},
			[]string{"topic old stray_topic"},
		},
		"a topic of somebody's": {change: func(p *project) { p.topics["projects/p/topics/old"] = true }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, target, look, _ := granted(t)
			test.change(p)
			look.Known = []string{"warehouse"}
			found, err := pubsub.Examine(t.Context(), grantedCatalog(), target, look, p.options(t)...)
			require.NoError(t, err)
			require.Equal(t, test.want, told(t, found.Findings))
			require.Empty(t, found.Unread)
		})
	}
}

func TestOnTheEmulatorWhatTheCatalogDoesNotHaveIsFound(t *testing.T) {
	t.Parallel()
	name, options, target := provisioned(t)
	c, admin := shipped(t), administrator(t, name, options)
	q, ok := c.HandledBy("points.credit")
	require.True(t, ok)
	for id, endpoint := range map[string]string{"copies": "", "renamed-push": target.PushBaseURL + "/push/renamed"} {
		topic := "projects/" + name + "/topics/" + q.Topic()
		if endpoint != "" {
			topic = "projects/" + name + "/topics/renamed"
			_, err := admin.TopicAdminClient.CreateTopic(t.Context(), &pubsubpb.Topic{Name: topic})
			require.NoError(t, err)
		}
		_, err := admin.SubscriptionAdminClient.CreateSubscription(t.Context(), &pubsubpb.Subscription{
			Name: "projects/" + name + "/subscriptions/" + id, Topic: topic, PushConfig: &pubsubpb.PushConfig{PushEndpoint: endpoint},
		})
		require.NoError(t, err)
	}
	found, err := pubsub.Examine(t.Context(), c, target, pubsub.Look{}, options...)
	require.NoError(t, err)
	require.ElementsMatch(t, []string{"subscription copies foreign_subscription", "subscription renamed-push stray_subscription"}, told(t, found.Findings))
	for _, f := range found.Findings {
		if f.ID == "copies" {
			require.Equal(t, q.ID, f.Queue)
			require.Equal(t, "of topic "+q.Topic()+", without an endpoint", f.Have)
		}
	}
}
