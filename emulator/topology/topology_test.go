package topology_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	gcppubsub "cloud.google.com/go/pubsub/v2"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/emulator/emulatortest"
	"billhook/internal/platform/gcp/pubsub"
)

func TestMain(m *testing.M) { os.Exit(emulatortest.Main(m)) }

// topologyOf lists the topology of a project without the project's name.
func topologyOf(t *testing.T, addr, project string) []string {
	t.Helper()
	client, err := gcppubsub.NewClient(t.Context(), project, pubsub.EmulatorOptions(addr)...)
	require.NoError(t, err)
	defer func() { require.NoError(t, client.Close()) }()
	// protobuf randomizes the spaces of single-line text, so they are normalized.
	text := func(m interface{ String() string }) string {
		return strings.Join(strings.Fields(strings.ReplaceAll(m.String(), "projects/"+project+"/", "")), " ")
	}
	found := []string{}
	for topic, err := range client.TopicAdminClient.ListTopics(t.Context(), &pubsubpb.ListTopicsRequest{Project: "projects/" + project}).All() {
		require.NoError(t, err)
		found = append(found, "topic "+text(topic))
	}
	for subscription, err := range client.SubscriptionAdminClient.ListSubscriptions(t.Context(), &pubsubpb.ListSubscriptionsRequest{Project: "projects/" + project}).All() {
		require.NoError(t, err)
		found = append(found, "subscription "+text(subscription))
	}
	return found
}

func TestTerraformMakesOnTheEmulatorWhatProvisionMakes(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ dir, terraformed, provisioned string }{
		"the shipped catalog": {"", "made-by-terraform", "made-by-provision"},
		// Ordered and not, with and without dead letters, all of them enabled.
		"one of all kinds": {filepath.Join("..", "..", "catalog", "testdata", "crooked"), "kinds-by-terraform", "kinds-by-provision"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			queues := emulatortest.Terraform(t, test.terraformed, test.dir)
			addr := emulatortest.PubSub(t)
			c, err := catalog.Load(test.dir)
			require.NoError(t, err)
			const worker = "http://127.0.0.1:9"
			_, err = pubsub.Provision(t.Context(), c, pubsub.Target{Names: pubsub.Names{ProjectID: test.provisioned}, PushBaseURL: worker, Emulator: true}, pubsub.EmulatorOptions(addr)...)
			require.NoError(t, err)

			require.ErrorContains(t, queues.Apply(t.Context(), addr, worker+"/push"), "without a path")
			require.NoError(t, queues.Apply(t.Context(), addr, worker))
			made := topologyOf(t, addr, test.terraformed)
			require.NotEmpty(t, made)
			require.ElementsMatch(t, topologyOf(t, addr, test.provisioned), made)

			require.NoError(t, queues.Run(t.Context(), addr, worker, "plan", "-detailed-exitcode"), "the plan is empty")
			require.NoError(t, queues.Run(t.Context(), addr, worker, "destroy", "-auto-approve"))
			require.Empty(t, topologyOf(t, addr, test.terraformed))
		})
	}
}
