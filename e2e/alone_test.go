package e2e_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"os/exec"
	"path/filepath"
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
	"billhook/internal/console/ops"
	"billhook/internal/contract"
	"billhook/internal/platform/gcp/pubsub"
)

// TestWhoeverHasPayNowAloneRunsTwoQueues runs the binaries with QUEUES, and with the address of
// the subscription service alone: no gateway, no platform.
func TestWhoeverHasPayNowAloneRunsTwoQueues(t *testing.T) {
	t.Parallel()
	ownProcesses(t)
	program := filepath.Join(t.TempDir(), "billhook")
	said, err := exec.CommandContext(t.Context(), "go", "build", "-ldflags=-s -w", "-o", program, "billhook/cmd/billhook").CombinedOutput()
	require.NoError(t, err, string(said))
	project := "paynow-alone-" + uuid.NewString()
	run := []string{e2e.Queue, "pay-subscription-update"}
	var environment []string
	billhook := func(ctx context.Context, arguments ...string) (string, error) {
		command := exec.CommandContext(ctx, program, arguments...)
		command.Env = environment // no other variable
		said, err := command.CombinedOutput()
		return string(said), err
	}
	var topics []string
	s := startReal(t, e2e.Site{Project: project, Queues: run, Provision: func(ctx context.Context, broker, workerURL string) error {
		environment = []string{
			"GOOGLE_CLOUD_PROJECT=" + project, "PUBSUB_EMULATOR_HOST=" + broker, "PUSH_BASE_URL=" + workerURL, "QUEUES=" + strings.Join(run, ","),
		}
		said, err := billhook(ctx, "provision")
		if err != nil {
			return errors.New(said)
		}
		topics, err = topicsAt(ctx, project, broker)
		return err
	}})
	require.Equal(t, []string{"pay-subscription-update", "pay-subscription-update-dlq", e2e.Queue, e2e.Queue + "-dlq"}, topics)

	credit(t, s)
	renewal(t, s)

	c, err := catalog.Load("")
	require.NoError(t, err)
	var off []string
	for _, q := range c.Queues {
		if slices.Contains(run, q.ID) {
			continue
		}
		off = append(off, q.ID)
		answer := s.signed(t, "/queues/"+q.ID+"/messages", `{"subscription_id":"alone"}`)
		require.Equal(t, http.StatusNotFound, answer.Status, q.ID)
		require.Equal(t, "queue_unknown", answer.Code, q.ID)
		_, err := s.publish(t.Context(), q.Topic(), contract.Message{Data: []byte(`{}`), Attributes: map[string]string{"event_id": "e1"}})
		require.ErrorIs(t, err, contract.ErrTopicMissing, q.ID)
	}

	text, err := billhook(t.Context(), "doctor", "--known", taps("", run))
	require.NoError(t, err, text)
	require.Contains(t, text, "Not running here: "+strings.Join(off, ", ")+".\n")
	require.Contains(t, text, "The tasks are run by the worker of pool payments.\n")

	text, err = billhook(t.Context(), "queues", "--server", s.workerURL, "--json")
	require.NoError(t, err, text)
	var shown ops.Queues
	require.NoError(t, json.Unmarshal([]byte(text), &shown))
	for _, q := range shown.Items {
		require.Equal(t, slices.Contains(run, q.ID), q.Enabled, q.ID)
	}
	require.Len(t, shown.Items, len(c.Queues))
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
