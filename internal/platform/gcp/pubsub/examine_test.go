package pubsub_test

import (
	"maps"
	"testing"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"billhook/internal/platform/gcp/pubsub"
)

const (
	getTopic        = "/google.pubsub.v1.Publisher/GetTopic"
	getSubscription = "/google.pubsub.v1.Subscriber/GetSubscription"
	getPolicy       = "/google.iam.v1.IAMPolicy/GetIamPolicy"
)

func TestProvisionSaysOfWhichCatalogASubscriptionIsAndLeavesTheLabelsOfOthers(t *testing.T) {
	t.Parallel()
	p, target, options := applied(t)
	c := shipped(t)
	q, ok := c.HandledBy("points.credit")
	require.True(t, ok)
	name := "projects/p/subscriptions/" + q.PushSubscription()
	_, err := pubsub.Provision(t.Context(), c, target, options...)
	require.NoError(t, err)
	require.Equal(t, map[string]string{"billhook-catalog": c.Hash()}, p.subscriptions[name].Labels)
	p.subscriptions[name].Labels = map[string]string{"billhook-catalog": "00000000", "team": "shop"}
	_, err = pubsub.Provision(t.Context(), c, target, options...)
	require.NoError(t, err)
	require.Equal(t, map[string]string{"billhook-catalog": c.Hash(), "team": "shop"}, p.subscriptions[name].Labels)

	found, err := switched(t, target, options).Examine(t.Context(), c, nil)
	require.NoError(t, err)
	require.Equal(t, c.Hash(), found.Catalogs[q.ID])
	for _, q := range c.Queues {
		_, said := found.Catalogs[q.ID]
		require.Equal(t, q.Enabled, said, q.ID)
	}
	delete(p.subscriptions[name].Labels, "billhook-catalog")
	found, err = switched(t, target, options).Examine(t.Context(), c, nil)
	require.NoError(t, err)
	require.NotContains(t, found.Catalogs, q.ID)
}

func TestTheWorkerExaminesWhatItMayLookAt(t *testing.T) {
	t.Parallel()
	denied := status.Error(codes.PermissionDenied, "no")
	for name, test := range map[string]struct {
		target func(*pubsub.Target)
		change func(p *project)
		want   []string
		unread int
	}{
		"all of it": {change: func(p *project) { p.subscriptions[ordersPush].Filter = "x" }, want: []string{"wrong_filter"}},
		"without the address of its workers": {
			target: func(target *pubsub.Target) { *target = pubsub.Target{ProjectID: "p"} }, change: func(*project) {},
		},
		"another path, without their address": {
			target: func(target *pubsub.Target) { *target = pubsub.Target{ProjectID: "p"} },
			change: func(p *project) {
				p.subscriptions[ordersPush].PushConfig.PushEndpoint = "https://orders.example/push/x"
			},
			want: []string{"wrong_endpoint"},
		},
		"nobody pushes, without their address": {
			target: func(target *pubsub.Target) { *target = pubsub.Target{ProjectID: "p"} },
			change: func(p *project) { p.subscriptions[ordersPush].PushConfig = &pubsubpb.PushConfig{} },
			want:   []string{"not_pushed"},
		},
		"no topic": {change: func(p *project) { p.refuse[getTopic] = denied }, unread: 6},
		"no grant": {change: func(p *project) { p.refuse[getPolicy] = denied }, unread: 2},
		"no subscription": {
			change: func(p *project) { maps.Copy(p.refuse, map[string]error{getSubscription: denied}) }, unread: 7,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, target, options := applied(t)
			if test.target != nil {
				test.target(&target)
			}
			test.change(p)
			found, err := switched(t, target, options).Examine(t.Context(), ordersCatalog(), nil)
			require.NoError(t, err)
			var codes []string
			for _, f := range found.Findings {
				codes = append(codes, f.Code.String())
			}
			require.Equal(t, test.want, codes)
			require.Len(t, found.Unread, test.unread)
		})
	}
}

func TestAnExaminationThatIsNotAnsweredIsAnError(t *testing.T) {
	t.Parallel()
	p, target, options := applied(t)
	p.refuse[getSubscription] = status.Error(codes.Internal, "no")
	_, err := switched(t, target, options).Examine(t.Context(), ordersCatalog(), nil)
	require.ErrorContains(t, err, "queue orders-test: read")
}
