package e2e_test

import (
	"context"
	"errors"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	client "cloud.google.com/go/pubsub/v2"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"google.golang.org/api/iterator"

	"billhook/catalog"
	"billhook/e2e"
	"billhook/emulator/emulatortest"
	"billhook/internal/apps/ledger"
	"billhook/internal/contract"
	"billhook/internal/platform/gcp/pubsub"
)

// installed is one of several installations in a project, with the command line of its operator.
type installed struct {
	*stack
	billhook func(ctx context.Context, arguments ...string) (string, error)
	// with runs a command with other variables.
	with func(ctx context.Context, variables []string, arguments ...string) (string, error)
}

// install starts an installation in a project, provisioned by the command.
func install(t *testing.T, project, name string, queues []string) installed {
	t.Helper()
	binary, err := program()
	require.NoError(t, err)
	environment := []string{
		"GOOGLE_CLOUD_PROJECT=" + project, "INSTALLATION=" + name, "PUBSUB_EMULATOR_HOST=" + emulatortest.PubSub(t), "QUEUES=" + strings.Join(queues, ","),
		"OPS_OPERATOR=ada", "WEBHOOK_SIGNING_SECRET=" + e2e.Secret, "HOME=" + t.TempDir(),
	}
	with := func(ctx context.Context, variables []string, arguments ...string) (string, error) {
		command := exec.CommandContext(ctx, binary, arguments...)
		command.Env = append(slices.Clone(environment), variables...) // no other variable
		said, err := command.CombinedOutput()
		return string(said), err
	}
	billhook := func(ctx context.Context, arguments ...string) (string, error) { return with(ctx, nil, arguments...) }
	s := startReal(t, site{Project: project, Installation: name, Queues: queues, Provision: func(ctx context.Context, _, workerURL string) error {
		environment = append(environment, "PUSH_BASE_URL="+workerURL, "BILLHOOK_SERVER="+workerURL)
		said, err := billhook(ctx, "provision")
		if err != nil {
			return errors.New(said)
		}
		return nil
	}})
	return installed{s, billhook, with}
}

func (i installed) says(t *testing.T, arguments ...string) string {
	t.Helper()
	said, err := i.billhook(t.Context(), arguments...)
	require.NoError(t, err, said)
	return said
}

// taps are this test's own subscriptions on the topics of an installation.
func taps(installation string, queues []string) string {
	var all []string
	for _, queue := range queues {
		id := "e2e-tap-" + strings.TrimPrefix(installation+"-"+queue, "-")
		all = append(all, id, id+"-dlq")
	}
	return strings.Join(all, ",")
}

// TestInstallationsOfOneProjectDoNotSeeEachOther runs three on one broker, each on a database of its own:
// one without a name, and two of which one's name begins with the other's. Each is sent another order under
// the same event, which one installation would refuse as another payload under a used id.
func TestInstallationsOfOneProjectDoNotSeeEachOther(t *testing.T) {
	t.Parallel()
	onlyInFull(t)
	project := "several-" + uuid.NewString()
	names, queues := []string{"", "shop", "shopping"}, []string{e2e.Queue, "pay-subscription-update"}
	var all []installed
	for _, name := range names {
		all = append(all, install(t, project, name, queues))
	}
	topics, err := topicsAt(t.Context(), project, emulatortest.PubSub(t))
	require.NoError(t, err)
	var want []string
	for _, name := range names {
		for _, queue := range queues {
			id := strings.TrimPrefix(name+"-"+queue, "-")
			want = append(want, id, id+"-dlq")
		}
	}
	slices.Sort(want)
	require.Equal(t, want, topics)

	one := all[0].newOrder()
	for n, i := range all {
		o := one
		o.Lines = []e2e.Line{{Product: points, Quantity: int64(n + 1), Price: 1000}}
		require.Contains(t, i.accepted(t, o.JSON()).Body, `"queue":"`+e2e.Queue+`"`, "senders know the catalog's ids alone")
	}
	for n, i := range all {
		i.until(t, one.EventID, "processed")
		require.Equal(t, int64(1000*(n+1)), i.balance(t, ledger.UserPoints(one.UID)), "of installation %q", names[n])
		require.Len(t, i.published(t), 1, "on the topics of installation %q", names[n])
	}

	// The runbooks' commands change their own installation.
	shop, others := all[1], []installed{all[0], all[2]}
	require.Contains(t, shop.says(t, "queues", "pause", e2e.Queue, "--why", "the points are being mended"), "It pushes nothing.")
	two := shop.newOrder()
	two.EventID, two.OrderID = two.EventID+"9", two.OrderID+"9"
	for _, i := range all {
		i.accepted(t, two.JSON())
	}
	for _, i := range others {
		i.until(t, two.EventID, "processed")
		require.NotContains(t, i.says(t, "queues"), "is paused")
	}
	require.Empty(t, shop.log.Deliveries(two.EventID))
	require.Contains(t, shop.says(t, "queues", "resume", e2e.Queue, "--why", "mended"), "It pushes.")
	shop.until(t, two.EventID, "processed")

	for n, i := range all {
		require.Contains(t, i.says(t, "doctor", "--canary", "--webhook", i.webhookURL, "--known", taps(names[n], queues)), "its copy is off hold", "of installation %q", names[n])
	}

	publisher, err := pubsub.NewPublisher(t.Context(), pubsub.Names{ProjectID: project, Installation: "store"}, pubsub.EmulatorOptions(emulatortest.PubSub(t))...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, publisher.Close()) })
	_, err = publisher.Publish(t.Context(), e2e.Queue, contract.Message{Data: []byte("{}")})
	require.ErrorIs(t, err, contract.ErrTopicMissing, "an installation that nobody has made has no topic")
	for _, i := range all {
		answer := i.signed(t, "/queues/shop-"+e2e.Queue+"/messages", `{"subscription_id":"s"}`)
		require.Equal(t, http.StatusNotFound, answer.Status, "a producer names a queue of the catalog")
	}
}

// TestAQueueThatIsSwitchedOffKeepsWhatWaitsUntilItRunsAgain switches a queue off, and publishes on its
// topic meanwhile. The worker would handle them: it is their subscription that does not push.
func TestAQueueThatIsSwitchedOffKeepsWhatWaitsUntilItRunsAgain(t *testing.T) {
	t.Parallel()
	onlyInFull(t)
	story := queueStories[slices.IndexFunc(queueStories, func(s queueStory) bool { return !s.gateway })]
	runs := []string{e2e.Queue, "pay-subscription-update"}
	i := install(t, "off-"+uuid.NewString(), "shop", append(slices.Clone(runs), story.queue))
	c, err := catalog.Load("")
	require.NoError(t, err)
	q, _ := c.Queue(story.queue)
	var sent []queueEvent
	send := func() {
		for range 3 {
			e := i.newQueueEvent()
			i.put(t, q, story, e)
			sent = append(sent, e)
		}
	}
	send()
	for _, e := range sent {
		i.until(t, e.id, "processed")
	}

	without := installed{i.stack, func(ctx context.Context, arguments ...string) (string, error) {
		return i.with(ctx, []string{"QUEUES=" + strings.Join(runs, ",")}, arguments...)
	}, i.with}
	require.Regexp(t, `switched off +subscription +shop-`+q.PushSubscription(), without.says(t, "provision"))
	waiting := len(sent)
	send()
	require.Regexp(t, `kept +subscription +shop-`+q.PushSubscription(), without.says(t, "provision"))
	require.Contains(t, without.says(t, "doctor", "--known", taps("shop", append(slices.Clone(runs), q.ID))), "Not running here: ")
	e2e.Wait(t.Context(), 2*time.Second) // a push would have come
	for _, e := range sent[waiting:] {
		require.Empty(t, i.log.Deliveries(e.id))
	}
	require.Regexp(t, `updated +subscription +shop-`+q.PushSubscription(), i.says(t, "provision"))
	for _, e := range sent[waiting:] {
		i.until(t, e.id, "processed")
	}
}

// topicsAt are the ids of the topics of a project on the emulator, sorted.
func topicsAt(ctx context.Context, project, broker string) ([]string, error) {
	admin, err := client.NewClient(ctx, project, pubsub.EmulatorOptions(broker)...)
	if err != nil {
		return nil, err
	}
	defer func() { _ = admin.Close() }()
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	var ids []string
	all := admin.TopicAdminClient.ListTopics(ctx, &pubsubpb.ListTopicsRequest{Project: "projects/" + project})
	for {
		topic, err := all.Next()
		if errors.Is(err, iterator.Done) {
			slices.Sort(ids)
			return ids, nil
		}
		if err != nil {
			return nil, err
		}
		ids = append(ids, topic.Name[strings.LastIndex(topic.Name, "/")+1:])
	}
}
