package pubsub_test

import (
	"cmp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"cloud.google.com/go/iam/apiv1/iampb"
	pb "cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/type/expr"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"billhook/internal/filetest"
	"billhook/internal/pipeline/pause"
	"billhook/internal/platform/finding"
	"billhook/internal/platform/gcp/pubsub"
)

func codesOf(t *testing.T, findings []finding.Finding) (codes []string) {
	t.Helper()
	for _, f := range findings {
		require.NotEmpty(t, f.Effect, f.Code)
		require.NotEmpty(t, f.Do, f.Code)
		require.True(t, f.Have == "" || f.Have != f.Want, "%s: %s", f.Code, f.Have)
		codes = append(codes, f.Kind+" "+f.ID+" "+f.Code)
	}
	return codes
}

// difference is a row of testdata/differences.yaml, which says what each member is.
type difference struct {
	What                string
	Drop, Elsewhere     []string
	Set, Clear, Without map[string]string
	Topics              map[string]string
	Grants              map[string]struct {
		At                      int
		Member, Role, Condition string
	}
	Want []string
}

func (d difference) make(p *project) {
	for _, name := range d.Drop {
		if of, policy := strings.CutSuffix("projects/p/"+name, " policy"); policy {
			delete(p.policies, of)
			continue
		}
		delete(p.topics, "projects/p/"+name)
		delete(p.subscriptions, "projects/p/"+name)
	}
	for id, text := range d.Set {
		var change pb.Subscription
		require.NoError(p.t, protojson.Unmarshal([]byte(text), &change))
		if p.subscriptions[subscriptions+id] == nil {
			p.subscriptions[subscriptions+id] = &pb.Subscription{}
		}
		proto.Merge(p.subscriptions[subscriptions+id], &change)
	}
	for id, path := range d.Clear {
		in := p.subscriptions[subscriptions+id].ProtoReflect()
		parent, field, nested := strings.Cut(path, ".")
		if nested {
			in = in.Get(in.Descriptor().Fields().ByName(protoreflect.Name(parent))).Message()
		} else {
			field = parent
		}
		in.Clear(in.Descriptor().Fields().ByName(protoreflect.Name(field)))
	}
	for id, label := range d.Topics {
		p.topics[topics+id] = true
		if label != "" {
			p.labels[topics+id] = map[string]string{"app": label}
		}
	}
	for of, grant := range d.Grants {
		binding := p.policies["projects/p/"+of].Bindings[grant.At]
		binding.Role = cmp.Or(grant.Role, binding.Role)
		if grant.Member != "" {
			binding.Members = []string{grant.Member}
		}
		if grant.Condition != "" {
			binding.Condition = &expr.Expr{Expression: grant.Condition}
		}
	}
	for of, account := range d.Without {
		policy := p.policies["projects/p/"+of]
		policy.Bindings = slices.DeleteFunc(policy.Bindings, func(b *iampb.Binding) bool {
			return slices.Contains(b.Members, "serviceAccount:"+account+"@example.com")
		})
	}
	p.elsewhere[ordersTopic] = d.Elsewhere
}

func TestEachDifferenceIsFound(t *testing.T) {
	t.Parallel()
	for _, d := range filetest.YAML[[]difference](t, "testdata", "differences.yaml") {
		t.Run(d.What, func(t *testing.T) {
			t.Parallel()
			p := applied(t)
			d.make(p)
			got, found := p.examine()
			require.Equal(t, d.Want, got)
			require.Empty(t, found.Unread)
		})
	}
}

func TestPauseIsComparedWithItsRecord(t *testing.T) {
	t.Parallel()
	record := map[string]pause.Pause{"orders-test": {Queue: "orders-test", Who: "ada", Why: "w", At: pausedAt}}
	none, unknown := map[string]pause.Pause{}, map[string]pause.Pause(nil)
	type attempt struct {
		endpoint, mark bool // what the subscription has
		recorded       map[string]pause.Pause
		want           string
	}
	filetest.Each(t, map[string]attempt{
		"paused and recorded":                      {false, true, record, ""},
		"paused, and the records are unknown":      {false, true, unknown, "pause_unread"},
		"paused without a record":                  {false, true, none, "pause_unrecorded"},
		"pushed in spite of mark and record":       {true, true, record, "pause_undone"},
		"pushed in spite of its mark":              {true, true, unknown, "pause_undone"},
		"pushed in spite of its record":            {true, false, record, "pause_undone"},
		"paused without a mark":                    {false, false, record, "pause_unmarked"},
		"without an endpoint, mark and record":     {false, false, none, "not_pushed"},
		"without an endpoint, the records unknown": {false, false, unknown, "not_pushed"},
		"resumed by hand, with its mark left":      {true, true, none, "pause_mark_left"},
		"never paused":                             {true, false, none, ""},
	}, func(t *testing.T, test attempt) {
		p := applied(t)
		if !test.endpoint {
			p.subscriptions[ordersPush].PushConfig = &pb.PushConfig{}
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

func TestGrantOnTheProjectCountsForItsTopics(t *testing.T) {
	t.Parallel()
	p := applied(t)
	delete(p.policies, outTopic)
	delete(p.policies, ordersPush)
	var reads atomic.Int64 // several queues read at once
	p.look.Inherits = func(roles []string, is func(string) bool) bool {
		reads.Add(1)
		granted := is("serviceAccount:orders@example.com") || is(pubsubAgent)
		return granted && slices.Contains(roles, "roles/editor")
	}
	got, found := p.examine()
	require.Equal(t, []string{"topic out-test worker_grant_missing"}, got, "the tasks' worker publishes there")
	require.Contains(t, found.Findings[0].Want, "clicks@example.com")
	require.EqualValues(t, 3, reads.Load(), "once for each grant that its resource lacks")
}

func TestUnreadableResourcesAreNamedAndOtherErrorsReturned(t *testing.T) {
	t.Parallel()
	unread := func(permission string, what ...string) []finding.Unread {
		return filetest.Map(what, func(one string) finding.Unread {
			return finding.Unread{What: one, Permission: permission, Why: "PermissionDenied"}
		})
	}
	grants := func(on ...string) (all []finding.Unread) {
		for _, one := range on {
			all = append(all, unread("pubsub.topics.getIamPolicy", "the grants on topic "+one)...)
		}
		return all
	}
	const publisher = "/google.pubsub.v1.Publisher/"
	for method, want := range map[string][]finding.Unread{
		getPolicy: slices.Concat(grants("out-test", "orders-test", "orders-test-dlq", "orders-test-dlq"),
			unread("pubsub.subscriptions.getIamPolicy", "the grants on subscription orders-test-push"),
			grants("clicks-test")),
		getTopic: unread("pubsub.topics.get", "topic out-test", "topic orders-test", "topic orders-test-dlq",
			"topic clicks-test", "topic later-test", "topic never-test"),
		getSubscription: unread("pubsub.subscriptions.get", "subscription orders-test-dlq-hold",
			"subscription orders-test-push", "subscription orders-test-dlq-push",
			"subscription clicks-test-push", "subscription later-test-push", "subscription later-test-dlq-push",
			"subscription never-test-push"),
		publisher + "ListTopics": unread("pubsub.topics.list", "topics that the catalog does not have"),
		"/google.pubsub.v1.Subscriber/ListSubscriptions": unread("pubsub.subscriptions.list",
			"subscriptions that the catalog does not have"),
		publisher + "ListTopicSubscriptions": unread("pubsub.topics.get", "the subscriptions of topic clicks-test",
			"the subscriptions of topic orders-test", "the subscriptions of topic orders-test-dlq"),
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
			require.Empty(t, found.Findings, "an unreadable resource is no finding")
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

// The worker may not know the addresses of all workers.
func TestWorkerExaminesWithoutTheWorkersAddresses(t *testing.T) {
	t.Parallel()
	pointed := func(to string) func(*project) {
		return func(p *project) { p.subscriptions[ordersPush].PushConfig.PushEndpoint = to }
	}
	for name, test := range map[string]struct {
		change func(p *project)
		want   []string
	}{
		"nothing wrong": {change: func(*project) {}},
		"a difference": {
			func(p *project) { p.subscriptions[ordersPush].Filter = "x" },
			[]string{"subscription orders-test-push wrong_filter"},
		},
		"another path": {
			pointed("https://orders.example/push/x"), []string{"subscription orders-test-push wrong_endpoint"},
		},
		"without an endpoint":       {pointed(""), []string{"subscription orders-test-push not_pushed"}},
		"another address, unknowns": {change: pointed("https://else.example/push/orders-test")},
	} {
		p := applied(t)
		test.change(p)
		p.target = pubsub.Target{Names: pubsub.Names{ProjectID: "p"}}
		found, err := p.openSwitch().Examine(t.Context(), p.catalog, nil)
		require.NoError(t, err, name)
		require.Equal(t, test.want, codesOf(t, found.Findings), name)
		p.refuse[getSubscription] = status.Error(codes.Internal, "no")
		_, err = p.openSwitch().Examine(t.Context(), p.catalog, nil)
		require.ErrorContains(t, err, "queue orders-test: read", name)
	}
}
