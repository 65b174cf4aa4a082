package pubsub_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"cloud.google.com/go/iam/apiv1/iampb"
	client "cloud.google.com/go/pubsub/v2"
	pb "cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"cloud.google.com/go/pubsub/v2/pstest"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"billhook/catalog"
	"billhook/catalog/catalogtest"
	"billhook/emulator/emulatortest"
	"billhook/internal/contract/routing"
	"billhook/internal/filetest"
	"billhook/internal/platform/gcp/pubsub"
	"billhook/internal/retry"
)

func TestMain(m *testing.M) {
	code := emulatortest.Main(m)
	// The client library's statistics run as long as the process.
	statistics := goleak.IgnoreTopFunction("go.opencensus.io/stats/view.(*worker).start")
	if err := goleak.Find(statistics); err != nil && code == 0 {
		_, _ = fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func queueOf(t *testing.T, c *catalog.Catalog, id string) catalog.Queue {
	t.Helper()
	q, ok := c.Queue(id)
	require.True(t, ok, id)
	return q
}

type emulated struct {
	*client.Client
	project string
	options []option.ClientOption
	target  pubsub.Target
}

func provisioned(t *testing.T) emulated {
	t.Helper()
	e := emulated{project: "p-" + uuid.NewString(), options: pubsub.EmulatorOptions(emulatortest.PubSub(t))}
	// Nobody listens there, so pushed messages wait.
	names := pubsub.Names{ProjectID: e.project}
	e.target = pubsub.Target{Names: names, PushBaseURL: "http://127.0.0.1:1", Emulator: true}
	_, err := pubsub.Provision(t.Context(), catalogtest.Shipped(), e.target, e.options...)
	require.NoError(t, err)
	e.Client = filetest.Must(client.NewClient(t.Context(), e.project, e.options...))(t)
	t.Cleanup(func() { _ = e.Close() })
	return e
}

func (e emulated) topic(id string) string { return "projects/" + e.project + "/topics/" + id }
func (e emulated) subscription(id string) string {
	return "projects/" + e.project + "/subscriptions/" + id
}

func (e emulated) read(t *testing.T, id string) *pb.Subscription {
	t.Helper()
	have, err := e.SubscriptionAdminClient.GetSubscription(t.Context(),
		&pb.GetSubscriptionRequest{Subscription: e.subscription(id)})
	require.NoError(t, err)
	return have
}

func (e emulated) pull(t *testing.T, id string, n int) (all []*pb.PubsubMessage) {
	t.Helper()
	for len(all) < n {
		answer, err := e.SubscriptionAdminClient.Pull(t.Context(),
			&pb.PullRequest{Subscription: e.subscription(id), MaxMessages: 100})
		require.NoError(t, err)
		var ids []string
		for _, m := range answer.ReceivedMessages {
			all, ids = append(all, m.Message), append(ids, m.AckId)
		}
		require.NoError(t, e.SubscriptionAdminClient.Acknowledge(t.Context(),
			&pb.AcknowledgeRequest{Subscription: e.subscription(id), AckIds: ids}))
	}
	return all
}

func inMemory(t *testing.T) (*pstest.Server, []option.ClientOption) {
	t.Helper()
	server := pstest.NewServer()
	t.Cleanup(func() { _ = server.Close() })
	_, err := server.GServer.CreateTopic(t.Context(), &pb.Topic{Name: "projects/p/topics/t"})
	require.NoError(t, err)
	return server, pubsub.EmulatorOptions(server.Addr)
}

type call struct {
	method          string
	request, answer any
	invoke          func() error
}

func intercepted(options []option.ClientOption, through func(call) error) []option.ClientOption {
	return append(slices.Clone(options), option.WithGRPCDialOption(grpc.WithUnaryInterceptor(
		func(ctx context.Context, method string, request, answer any, cc *grpc.ClientConn, next grpc.UnaryInvoker,
			o ...grpc.CallOption,
		) error {
			return through(
				call{method, request, answer, func() error { return next(ctx, method, request, answer, cc, o...) }})
		})))
}

const (
	pubsubAgent = "serviceAccount:service-123456789@gcp-sa-pubsub.iam.gserviceaccount.com"

	topics        = "projects/p/topics/"
	subscriptions = "projects/p/subscriptions/"
	ordersPush    = subscriptions + "orders-test-push"
	ordersHold    = subscriptions + "orders-test-dlq-hold"
	ordersFeed    = subscriptions + "orders-test-dlq-push"
	clicksPush    = subscriptions + "clicks-test-push"
	ordersTopic   = topics + "orders-test"
	ordersDLQ     = topics + "orders-test-dlq"
	outTopic      = topics + "out-test"

	getTopic        = "/google.pubsub.v1.Publisher/GetTopic"
	getSubscription = "/google.pubsub.v1.Subscriber/GetSubscription"
	updates         = "/google.pubsub.v1.Subscriber/UpdateSubscription"
	getPolicy       = "/google.iam.v1.IAMPolicy/GetIamPolicy"
)

func ordersCatalog() *catalog.Catalog {
	return &catalog.Catalog{
		TasksPool: "clicks", Sources: map[string]catalog.Source{catalog.Producers: {}},
		OutboundTopics: []catalog.Topic{{ID: "out-test"}},
		Queues: []catalog.Queue{
			{
				ID: "orders-test", Enabled: true, Pool: "orders", OrderingKey: []string{"order"}, MaxAttempts: 5,
				AckDeadline:    time.Minute,
				HandlerTimeout: 20 * time.Second,
				Handlers: map[string]catalog.Handler{
					"order.paid": {Timeout: 30 * time.Second, Emits: []string{"out-test"}},
				},
				MessageRetention: 24 * time.Hour, Backoff: retry.Policy{Base: time.Second, Max: time.Hour},
				DeadLetter: catalog.DeadLetter{Topic: "orders-test-dlq", Retention: 14 * 24 * time.Hour},
			},
			{
				ID: "clicks-test", Enabled: true, Pool: "clicks", Bindings: []routing.Pattern{"click.#"}, MaxAttempts: 1,
				AckDeadline: time.Minute, MessageRetention: time.Hour, DeadLetter: catalog.DeadLetter{Drop: true},
			},
			{ID: "later-test", DeadLetter: catalog.DeadLetter{Topic: "later-test-dlq", Retention: time.Hour}},
			{ID: "never-test", DeadLetter: catalog.DeadLetter{Drop: true}},
		},
	}
}

// The in-memory server knows no policies and refuses more than seven days.
type project struct {
	t       *testing.T
	options []option.ClientOption
	catalog *catalog.Catalog
	target  pubsub.Target
	look    pubsub.Look

	mu            sync.Mutex
	topics        map[string]bool
	subscriptions map[string]*pb.Subscription
	policies      map[string]*iampb.Policy
	// refuse are the errors of methods, and of making resources, by their names.
	refuse map[string]error
	// labels are those of topics. elsewhere are the subscriptions of a topic in other projects.
	labels    map[string]map[string]string
	elsewhere map[string][]string
}

func empty(t *testing.T) *project {
	t.Helper()
	p := &project{
		t: t, catalog: ordersCatalog(), topics: map[string]bool{},
		subscriptions: map[string]*pb.Subscription{}, refuse: map[string]error{},
		labels: map[string]map[string]string{}, elsewhere: map[string][]string{},
		policies: map[string]*iampb.Policy{},
		target: pubsub.Target{
			Names: pubsub.Names{ProjectID: "p"}, PushBaseURL: "https://worker.example", PushAudience: "aud",
			PushServiceAccount: "push@example.com",
			Pools: map[string]pubsub.Pool{
				"orders": {URL: "https://orders.example", ServiceAccount: "orders@example.com"},
			},
		},
		look: pubsub.Look{Label: "shop", Known: []string{"warehouse"}, Accounts: map[string]string{
			"webhook": "webhook@example.com", "worker-orders": "orders@example.com",
			"worker-clicks": "clicks@example.com",
		}},
	}
	for resource, members := range map[string][]string{
		ordersTopic: {"webhook", "clicks"}, topics + "clicks-test": {"webhook", "clicks"},
		outTopic: {"orders", "clicks"}, ordersDLQ: {pubsubAgent, "orders"},
	} {
		for _, member := range members {
			p.grant(resource, "roles/pubsub.publisher", member)
		}
	}
	p.grant(ordersPush, "roles/pubsub.subscriber", pubsubAgent)
	_, options := inMemory(t)
	p.options = intercepted(options, p.answer)
	return p
}

func applied(t *testing.T) *project {
	t.Helper()
	p := empty(t)
	p.provision()
	return p
}

// grant gives a role to a member, or to the account of this name.
func (p *project) grant(resource, role, member string) {
	if !strings.HasPrefix(member, "serviceAccount:") {
		member = "serviceAccount:" + member + "@example.com"
	}
	if p.policies[resource] == nil {
		p.policies[resource] = &iampb.Policy{}
	}
	p.policies[resource].Bindings = append(p.policies[resource].Bindings,
		&iampb.Binding{Role: role, Members: []string{member}})
}

// actionsOf are the actions on resources, without the unchanged ones.
func actionsOf(t *testing.T, changes []pubsub.Change) (done []string) {
	t.Helper()
	for _, change := range changes {
		require.Equal(t, change.Action == pubsub.Failed, change.Error != "", change)
		if change.Action != pubsub.Unchanged {
			done = append(done, change.Action+" "+change.Kind+" "+change.ID)
		}
	}
	return done
}

func (p *project) provision() (done []string) {
	p.t.Helper()
	changes := filetest.Must(pubsub.Provision(p.t.Context(), p.catalog, p.target, p.options...))(p.t)
	return actionsOf(p.t, changes)
}

func (p *project) examine() ([]string, pubsub.Examination) {
	p.t.Helper()
	found := filetest.Must(pubsub.Examine(p.t.Context(), p.catalog, p.target, p.look, p.options...))(p.t)
	return codesOf(p.t, found.Findings), found
}

func (p *project) answer(c call) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.refuse[c.method]; err != nil {
		return err
	}
	if made, ok := c.request.(interface{ GetName() string }); ok && p.refuse[made.GetName()] != nil {
		return p.refuse[made.GetName()]
	}
	missing := status.Error(codes.NotFound, "no")
	switch r := c.request.(type) {
	case *pb.Topic:
		if p.topics[r.Name] {
			return status.Error(codes.AlreadyExists, "there")
		}
		p.topics[r.Name] = true
		return nil
	case *pb.Subscription:
		p.subscriptions[r.Name] = proto.CloneOf(r)
		return nil
	case *pb.GetTopicRequest:
		if !p.topics[r.Topic] {
			return missing
		}
		return nil
	case *pb.GetSubscriptionRequest:
		if strings.Contains(r.Subscription, "/-") {
			return status.Error(codes.InvalidArgument, "no name")
		}
		have, ok := p.subscriptions[r.Subscription]
		if !ok {
			return missing
		}
		proto.Merge(c.answer.(*pb.Subscription), have)
		return nil
	case *pb.UpdateSubscriptionRequest:
		have, ok := p.subscriptions[r.Subscription.Name]
		if !ok {
			return missing
		}
		for _, path := range r.UpdateMask.Paths {
			field := have.ProtoReflect().Descriptor().Fields().ByName(protoreflect.Name(path))
			have.ProtoReflect().Set(field, proto.CloneOf(r.Subscription).ProtoReflect().Get(field))
		}
		return nil
	case *pb.ListTopicsRequest:
		answer := c.answer.(*pb.ListTopicsResponse)
		for _, name := range slices.Sorted(maps.Keys(p.topics)) {
			answer.Topics = append(answer.Topics, &pb.Topic{Name: name, Labels: p.labels[name]})
		}
		return nil
	case *pb.ListSubscriptionsRequest:
		answer := c.answer.(*pb.ListSubscriptionsResponse)
		for _, name := range slices.Sorted(maps.Keys(p.subscriptions)) {
			have := proto.CloneOf(p.subscriptions[name])
			have.Name = name
			answer.Subscriptions = append(answer.Subscriptions, have)
		}
		return nil
	case *pb.ListTopicSubscriptionsRequest:
		if !p.topics[r.Topic] {
			return missing
		}
		c.answer.(*pb.ListTopicSubscriptionsResponse).Subscriptions = p.elsewhere[r.Topic]
		return nil
	case *iampb.GetIamPolicyRequest:
		if strings.Contains(r.Resource, "/topics/") && !p.topics[r.Resource] {
			return missing
		}
		proto.Merge(c.answer.(*iampb.Policy), p.policies[r.Resource])
		return nil
	}
	return status.Error(codes.Unimplemented, c.method)
}
