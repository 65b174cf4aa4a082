package pubsub_test

import (
	"context"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/iam/apiv1/iampb"
	client "cloud.google.com/go/pubsub/v2"
	pb "cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"billhook/catalog"
	"billhook/emulator/cloudtest"
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

// project has the resources of a catalog.
type project struct {
	t       *testing.T
	options []option.ClientOption
	admin   *client.Client
	catalog *catalog.Catalog
	target  pubsub.Target
	look    pubsub.Look
}

func opening(t *testing.T, options []option.ClientOption, target pubsub.Target) project {
	t.Helper()
	admin := filetest.Must(client.NewClient(t.Context(), target.ProjectID, options...))(t)
	t.Cleanup(func() { _ = admin.Close() })
	return project{t: t, options: options, admin: admin, catalog: ordersCatalog(), target: target}
}

// emulated is a project on Google's emulator. Nobody listens at its address, so pushed messages wait.
func emulated(t *testing.T) *project {
	t.Helper()
	p := opening(t, pubsub.EmulatorOptions(emulatortest.PubSub(t)), pubsub.Target{
		Names: pubsub.Names{ProjectID: "p-" + uuid.NewString()}, PushBaseURL: "http://127.0.0.1:1", Emulator: true,
	})
	p.provision()
	return &p
}

func (p *project) topic(id string) string { return "projects/" + p.target.ProjectID + "/topics/" + id }

func (p *project) subscription(id string) string {
	return "projects/" + p.target.ProjectID + "/subscriptions/" + id
}

func (p *project) read(id string) *pb.Subscription {
	p.t.Helper()
	request := &pb.GetSubscriptionRequest{Subscription: p.subscription(id)}
	return filetest.Must(p.admin.SubscriptionAdminClient.GetSubscription(p.t.Context(), request))(p.t)
}

func (p *project) provision() []string {
	p.t.Helper()
	changes := filetest.Must(pubsub.Provision(p.t.Context(), p.catalog, p.target, p.options...))(p.t)
	return actionsOf(p.t, changes)
}

func (p *project) examine() ([]string, pubsub.Examination) {
	p.t.Helper()
	found := filetest.Must(pubsub.Examine(p.t.Context(), p.catalog, p.target, p.look, p.options...))(p.t)
	return codesOf(p.t, found.Findings), found
}

func (p *project) openSwitch() *pubsub.Switch {
	p.t.Helper()
	s := filetest.Must(pubsub.NewSwitch(p.t.Context(), p.target, p.options...))(p.t)
	p.t.Cleanup(func() { require.NoError(p.t, s.Close()) })
	return s
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
	pubsubAgent = "serviceAccount:" + cloudtest.PubSubAgent

	ordersPush = "orders-test-push"
	clicksPush = "clicks-test-push"

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

// cloud is a project in an imitation of Google Cloud, with the grants that the catalog needs.
type cloud struct {
	*cloudtest.Cloud
	project
	// refuse are the errors of methods, and of making resources, by their names.
	refuse map[string]error
	// elsewhere are the subscriptions of topic orders-test in other projects.
	elsewhere []string
}

func empty(t *testing.T) *cloud {
	t.Helper()
	c := &cloud{Cloud: cloudtest.Start(), refuse: map[string]error{}}
	t.Cleanup(c.Close)
	c.project = opening(t, intercepted(c.Broker(), c.answer), pubsub.Target{
		Names: pubsub.Names{ProjectID: cloudtest.Project}, PushBaseURL: "https://worker.example",
		PushAudience: "aud", PushServiceAccount: "push@example.com",
		Pools: map[string]pubsub.Pool{
			"orders": {URL: "https://orders.example", ServiceAccount: "orders@example.com"},
		},
	})
	c.look = pubsub.Look{Label: "shop", Known: []string{"warehouse"}, Accounts: map[string]string{
		"webhook": "webhook@example.com", "worker-orders": "orders@example.com",
		"worker-clicks": "clicks@example.com",
	}}
	for _, name := range []string{"push", "orders"} {
		c.Put("iam/projects/"+cloudtest.Project+"/serviceAccounts/"+name+"@example.com", cloudtest.Document{})
	}
	c.granted("")
	for topic, members := range map[string][]string{
		"orders-test": {"webhook", "clicks"}, "clicks-test": {"webhook", "clicks"},
		"out-test": {"orders", "clicks"}, "orders-test-dlq": {"orders"},
	} {
		for _, name := range members {
			c.Grant("pubsub/"+c.topic(topic), "roles/pubsub.publisher", memberOf(name))
		}
	}
	return c
}

func memberOf(name string) string { return "serviceAccount:" + name + "@example.com" }

// granted gives Pub/Sub's agent what it needs for the dead letters of an installation.
func (c *cloud) granted(prefix string) {
	c.Grant("pubsub/"+c.topic(prefix+"orders-test-dlq"), "roles/pubsub.publisher", pubsubAgent)
	c.Grant("pubsub/"+c.subscription(prefix+ordersPush), "roles/pubsub.subscriber", pubsubAgent)
}

func applied(t *testing.T) *cloud {
	t.Helper()
	c := empty(t)
	c.provision()
	return c
}

// set changes members of a subscription, and makes it if there is none. A nil removes a member.
func (c *cloud) set(id string, change cloudtest.Document) {
	key := "pubsub/" + c.subscription(id)
	changed := merged(c.Get(key), change)
	changed["name"] = c.subscription(id)
	c.Put(key, changed)
}

func merged(into, change cloudtest.Document) cloudtest.Document {
	if into == nil {
		into = cloudtest.Document{}
	}
	for name, value := range change {
		if inner, ok := value.(cloudtest.Document); ok {
			value = merged(cloudtest.At[cloudtest.Document](into, name), inner)
		}
		if into[name] = value; value == nil {
			delete(into, name)
		}
	}
	return into
}

func (c *cloud) subscriptions() []string {
	return filetest.Map(c.Keys("pubsub/"+c.subscription("")), path.Base)
}

func (c *cloud) answer(called call) error {
	if err := c.refuse[called.method]; err != nil {
		return err
	}
	of := ""
	switch r := called.request.(type) {
	case interface{ GetName() string }:
		if err := c.refuse[path.Base(r.GetName())]; err != nil {
			return err
		}
	case *pb.ListTopicSubscriptionsRequest:
		of = r.Topic
	case *iampb.GetIamPolicyRequest:
		of = r.Resource
	case *pb.GetSubscriptionRequest:
		if strings.Contains(r.Subscription, "/-") {
			return status.Error(codes.InvalidArgument, "no name")
		}
	}
	if strings.Contains(of, "/topics/") && c.Get("pubsub/"+of) == nil {
		return status.Error(codes.NotFound, "no")
	}
	err := called.invoke()
	if listed, ok := called.answer.(*pb.ListTopicSubscriptionsResponse); ok && of == c.topic("orders-test") {
		listed.Subscriptions = append(listed.Subscriptions, c.elsewhere...)
	}
	return err
}
