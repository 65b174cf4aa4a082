package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	gcppubsub "cloud.google.com/go/pubsub/v2"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/stretchr/testify/require"
	"google.golang.org/api/iterator"

	"billhook/catalog"
	"billhook/emulator/emulatortest"
	"billhook/internal/gcp/pubsub"
)

// withProvider returns a topology whose terraform is ready, or skips where terraform
// cannot have the provider.
func withProvider(t *testing.T, project, catalogDir string) terraformTopology {
	t.Helper()
	_, err := exec.LookPath("terraform")
	if err != nil && os.Getenv("REQUIRE_EMULATORS") == "" {
		t.Skip("left out: terraform is not installed")
	}
	require.NoError(t, err, "CI leaves nothing out that can be had")
	// A copy: terraform notes beside the configuration which provider it took.
	root := t.TempDir()
	require.NoError(t, os.CopyFS(filepath.Join(root, "catalog"), os.DirFS(filepath.Join("..", "..", "catalog"))))
	for _, folder := range []string{"emulator", filepath.Join("modules", "queue"), filepath.Join("modules", "catalog")} {
		files, err := filepath.Glob(filepath.Join("..", "..", "terraform", folder, "*.tf"))
		require.NoError(t, err)
		require.NotEmpty(t, files)
		require.NoError(t, os.MkdirAll(filepath.Join(root, "terraform", folder), 0o700))
		for _, file := range files {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(filepath.Join(root, "terraform", folder, filepath.Base(file)), text, 0o600))
		}
	}
	topology := terraformTopology{Root: filepath.Join(root, "terraform", "emulator"), Folder: t.TempDir(), ProjectID: project, CatalogDir: catalogDir}
	if err := topology.init(t.Context()); err != nil {
		if strings.Contains(err.Error(), "Failed to query available provider packages") {
			t.Skip("left out: the provider hashicorp/google cannot be had here")
		}
		require.NoError(t, err)
	}
	return topology
}

// topologyOf lists what a project has on the emulator, without the project's name.
func topologyOf(t *testing.T, addr, project string) []string {
	t.Helper()
	client, err := gcppubsub.NewClient(t.Context(), project, pubsub.EmulatorOptions(addr)...)
	require.NoError(t, err)
	defer func() { require.NoError(t, client.Close()) }()
	// Single-line text is spaced at random, on purpose; a comparison wants one form.
	text := func(m interface{ String() string }) string {
		return strings.Join(strings.Fields(strings.ReplaceAll(m.String(), "projects/"+project+"/", "")), " ")
	}
	found := []string{}
	for topics := client.TopicAdminClient.ListTopics(t.Context(), &pubsubpb.ListTopicsRequest{Project: "projects/" + project}); ; {
		topic, err := topics.Next()
		if errors.Is(err, iterator.Done) {
			break
		}
		require.NoError(t, err)
		found = append(found, "topic "+text(topic))
	}
	for subscriptions := client.SubscriptionAdminClient.ListSubscriptions(t.Context(), &pubsubpb.ListSubscriptionsRequest{Project: "projects/" + project}); ; {
		subscription, err := subscriptions.Next()
		if errors.Is(err, iterator.Done) {
			break
		}
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
			topology := withProvider(t, test.terraformed, test.dir)
			addr := emulatortest.PubSub(t)
			c, err := catalog.Load(test.dir)
			require.NoError(t, err)
			const worker = "http://127.0.0.1:9"
			_, err = pubsub.Provision(t.Context(), c, pubsub.Target{ProjectID: test.provisioned, PushBaseURL: worker, Emulator: true}, pubsub.EmulatorOptions(addr)...)
			require.NoError(t, err)

			require.NoError(t, topology.run(t.Context(), addr, worker, "apply", "-auto-approve"))
			made := topologyOf(t, addr, test.terraformed)
			require.NotEmpty(t, made)
			require.ElementsMatch(t, topologyOf(t, addr, test.provisioned), made)

			// -detailed-exitcode fails where a plan has changes.
			require.NoError(t, topology.run(t.Context(), addr, worker, "plan", "-detailed-exitcode"))
			require.NoError(t, topology.run(t.Context(), addr, worker, "destroy", "-auto-approve"))
			require.Empty(t, topologyOf(t, addr, test.terraformed))
		})
	}
}

func TestTerraformSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	topology := withProvider(t, "made-by-nobody", "")
	err := topology.run(t.Context(), "127.0.0.1:9", "http://127.0.0.1:9/push", "apply", "-auto-approve")
	require.ErrorContains(t, err, "without a path")
}
