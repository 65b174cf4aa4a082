package emulatortest_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	gcppubsub "cloud.google.com/go/pubsub/v2"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"cloud.google.com/go/pubsub/v2/pstest"
	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/emulator/emulatortest"
	"billhook/internal/filetest"
	"billhook/internal/platform/gcp/pubsub"
	"billhook/internal/platform/standin"
)

func TestMain(m *testing.M) { os.Exit(emulatortest.Main(m)) }

// topologyOf lists the topology of a project without the project's name.
func topologyOf(t *testing.T, addr, project string) []string {
	t.Helper()
	client := filetest.Must(gcppubsub.NewClient(t.Context(), project, pubsub.EmulatorOptions(addr)...))(t)
	defer func() { require.NoError(t, client.Close()) }()
	// protobuf randomizes the spaces of single-line text, so they are normalized.
	text := func(m interface{ String() string }) string {
		return strings.Join(strings.Fields(strings.ReplaceAll(m.String(), "projects/"+project+"/", "")), " ")
	}
	found := []string{}
	topics := &pubsubpb.ListTopicsRequest{Project: "projects/" + project}
	for topic, err := range client.TopicAdminClient.ListTopics(t.Context(), topics).All() {
		require.NoError(t, err)
		found = append(found, "topic "+text(topic))
	}
	all := &pubsubpb.ListSubscriptionsRequest{Project: topics.Project}
	for one, err := range client.SubscriptionAdminClient.ListSubscriptions(t.Context(), all).All() {
		require.NoError(t, err)
		found = append(found, "subscription "+text(one))
	}
	return found
}

var crooked = filepath.Join("..", "..", "catalog", "testdata", "crooked")

func TestTerraformAndProvisionCreateTheSameOnTheEmulator(t *testing.T) {
	t.Parallel()
	type row struct{ dir, terraformed, provisioned string }
	filetest.Each(t, map[string]row{
		"the shipped catalog": {"", "made-by-terraform", "made-by-provision"},
		// Enabled queues with and without ordering, with and without dead letters.
		"one of all kinds": {crooked, "kinds-by-terraform", "kinds-by-provision"},
	}, func(t *testing.T, test row) {
		needed := []string{"modules/queue/*.tf", "modules/catalog/*.tf"}
		module := emulatortest.Terraform(t, filepath.Join("..", ".."), "emulator", needed...)
		addr, c := emulatortest.PubSub(t), filetest.Must(catalog.Load(test.dir))(t)
		const worker = "http://127.0.0.1:9"
		names := pubsub.Names{ProjectID: test.provisioned}
		to := pubsub.Target{Names: names, PushBaseURL: worker, Emulator: true}
		require.NoError(t, filetest.ErrorOf(pubsub.Provision(t.Context(), c, to, pubsub.EmulatorOptions(addr)...)))

		said, err := module.Run(t.Context(), "init", "-input=false", "-no-color", "-reconfigure",
			"-backend-config=path="+filepath.Join(t.TempDir(), "terraform.tfstate"))
		if errors.Is(err, emulatortest.ErrNoProvider) {
			t.Skip(err)
		}
		require.NoError(t, err, said)
		run := func(workerURL string, arguments ...string) (string, error) {
			arguments = append(arguments, "-input=false", "-no-color", "-var=emulator_host="+addr,
				"-var=project_id="+test.terraformed, "-var=push_base_url="+workerURL)
			if test.dir != "" {
				arguments = append(arguments, "-var=catalog_dir="+filetest.Must(filepath.Abs(test.dir))(t))
			}
			return module.Run(t.Context(), arguments...)
		}
		said, err = run(worker+"/push", "apply", "-auto-approve")
		require.Error(t, err)
		require.Contains(t, said, "without a path")
		said, err = run(worker, "apply", "-auto-approve")
		require.NoError(t, err, said)
		made := topologyOf(t, addr, test.terraformed)
		require.NotEmpty(t, made)
		require.ElementsMatch(t, topologyOf(t, addr, test.provisioned), made)

		said, err = run(worker, "plan", "-detailed-exitcode")
		require.NoError(t, err, "the plan is empty: %s", said)
		said, err = run(worker, "destroy", "-auto-approve")
		require.NoError(t, err, said)
		require.Empty(t, topologyOf(t, addr, test.terraformed))
	})
}

// The catalog's own tests compare Terraform's topics and filters, byte by byte.
func TestProvisionCreatesOnceWhatDoctorAndSimulatorExpect(t *testing.T) {
	t.Parallel()
	type row struct {
		dir string
		all bool // every queue is enabled
	}
	filetest.Each(t, map[string]row{
		"the shipped catalog": {"", false}, "all that is shipped": {"", true},
		"one of all kinds": {crooked, false}, "one of all kinds, all enabled": {crooked, true},
	}, func(t *testing.T, test row) {
		c := filetest.Must(catalog.Load(test.dir))(t)
		for i := range c.Queues {
			c.Queues[i].Enabled = test.all || c.Queues[i].Enabled
		}
		options := pubsub.EmulatorOptions(inMemory(t).Addr)
		names := pubsub.Names{ProjectID: "p"}
		target := pubsub.Target{Names: names, PushBaseURL: "http://127.0.0.1:9", Emulator: true}
		changes := filetest.Must(pubsub.Provision(t.Context(), c, target, options...))(t)
		found := filetest.Must(pubsub.Examine(t.Context(), c, target, pubsub.Look{}, options...))(t)
		require.Empty(t, found.Findings)
		var made, want []string
		for _, change := range changes {
			require.Equal(t, pubsub.Created, change.Action, "%v is made once", change)
			if change.Kind == "subscription" {
				made = append(made, change.ID)
			}
		}
		off := func(q catalog.Queue) bool { return !q.Enabled }
		for _, s := range standin.Topology(slices.DeleteFunc(c.Queues, off)) {
			want = append(want, s.ID)
		}
		require.ElementsMatch(t, want, made)
	})
}

// inMemory starts the client library's server in memory.
func inMemory(t *testing.T) *pstest.Server {
	t.Helper()
	server := pstest.NewServer()
	t.Cleanup(func() { _ = server.Close() })
	return server
}

// The client library's in-memory server applies filters by their text.
func TestAFilterAndTheSimulatorMatchTheSameMessages(t *testing.T) {
	t.Parallel()
	server := inMemory(t)
	client := filetest.Must(gcppubsub.NewClient(t.Context(), "p", pubsub.EmulatorOptions(server.Addr)...))(t)
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	_, err := client.TopicAdminClient.CreateTopic(t.Context(), &pubsubpb.Topic{Name: "projects/p/topics/all"})
	require.NoError(t, err)

	messages := []map[string]string{
		nil, {"queue": "another"}, {"queue": "another", "routing_key": "order.created"}, {"routing_key": ""},
	}
	for _, key := range []string{
		"order.created", "order.shipped.late", "notification.email.sent", "notification.fax.sent", "a.b.c", "hall",
		"hall.opened", "hall.red.closed", "halls", "seats", "x.opened",
	} {
		messages = append(messages, map[string]string{"routing_key": key})
	}
	var bound []catalog.Queue
	for _, dir := range []string{"", crooked} {
		c := filetest.Must(catalog.Load(dir))(t)
		for _, q := range c.Queues {
			if len(q.Bindings) > 0 {
				bound, messages = append(bound, q), append(messages, map[string]string{"queue": q.ID})
				filtered := &pubsubpb.Subscription{
					Name: "projects/p/subscriptions/" + q.ID, Topic: "projects/p/topics/all",
					Filter: q.Filter().String(), AckDeadlineSeconds: 600,
				}
				_, err := client.SubscriptionAdminClient.CreateSubscription(t.Context(), filtered)
				require.NoError(t, err, "%s: %s", q.ID, q.Filter())
			}
		}
	}
	for i, attributes := range messages {
		server.Publish("projects/p/topics/all", fmt.Append(nil, i), attributes)
	}
	for _, q := range bound {
		var want, have []string
		for i, attributes := range messages {
			if q.Filter().Match(attributes) {
				want = append(want, fmt.Sprint(i))
			} else {
				require.False(t, q.Takes(attributes), "%s takes %v", q.ID, attributes)
			}
		}
		answer, err := client.SubscriptionAdminClient.Pull(t.Context(), &pubsubpb.PullRequest{
			Subscription: "projects/p/subscriptions/" + q.ID, MaxMessages: 1000,
			ReturnImmediately: true, //nolint:staticcheck // the server has all messages already
		})
		require.NoError(t, err)
		for _, m := range answer.ReceivedMessages {
			have = append(have, string(m.Message.Data))
		}
		require.ElementsMatch(t, want, have, "%s: %s", q.ID, q.Filter())
	}
}
