package main

import (
	"encoding/json"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"cloud.google.com/go/pubsub/v2/pstest"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/emulator/emulatortest"
	"billhook/internal/compose/devstack"
	"billhook/internal/pipeline/pause"
	"billhook/internal/platform/finding"
	"billhook/internal/platform/gcp/pubsub"
	"billhook/internal/platform/serve"
)

// startStack runs a whole Billhook on the stand-ins.
func startStack(t *testing.T, change func(*catalog.Catalog)) *devstack.Stack {
	t.Helper()
	c, err := catalog.Load("")
	require.NoError(t, err)
	change(c)
	stack, err := devstack.Start(t.Context(), devstack.Config{
		Catalog: c, ProjectID: "p", Secrets: secretsOf(c, func(string) string { return "" }),
		WebhookPort: "0", WorkerPort: "0", ServicePort: "0", StorePath: filepath.Join(t.TempDir(), "store.db"),
		OpsTokens: []string{opsToken}, Log: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, stack.Close()) })
	return stack
}

func TestTheCanaryGoesThroughAndLeavesNoDeadLetter(t *testing.T) {
	t.Parallel()
	stack := startStack(t, func(*catalog.Catalog) {})
	out, err := say(t, asAda, "admin", "doctor", "--canary-only", "--json", "--webhook", stack.WebhookURL, "--server", stack.WorkerURL)
	require.NoError(t, err, out)
	var found diagnosis
	require.NoError(t, json.Unmarshal([]byte(out), &found), "one document")
	require.True(t, found.Healthy)
	require.Contains(t, found.Canary, ", at attempt 1")
	play(t, asAda, stack.WorkerURL, []step{{line: "dlq ls paynow-events --state all", want: "No dead letter"}})
}

func TestACanaryThatIsLostIsAFindingThatSaysWhere(t *testing.T) {
	t.Parallel()
	stack := startStack(t, func(*catalog.Catalog) {})
	for name, test := range map[string]struct {
		environment map[string]string
		webhook     string
		server      string
		want        string
	}{
		"at the door, with another secret": {
			map[string]string{"OPS_TOKEN": opsToken, "WEBHOOK_SIGNING_SECRET": "another-secret-of-somebody-else"}, stack.WebhookURL, stack.WorkerURL,
			"is not accepted: the webhook service answers 401",
		},
		"at the door, where nobody listens": {nil, "http://127.0.0.1:1", stack.WorkerURL, "is not accepted: send: "},
		"at the worker, with another token": {
			map[string]string{"OPS_TOKEN": "another-token-of-somebody-else"}, stack.WebhookURL, stack.WorkerURL, "the worker has not handled it: ",
		},
		"at the worker, where nobody listens": {nil, stack.WebhookURL, "http://127.0.0.1:1", "the worker has not handled it: waited too long: "},
	} {
		out, err := say(t, test.environment, "admin", "doctor", "--canary-only", "--patience", "1s", "--webhook", test.webhook, "--server", test.server)
		require.Error(t, err, name)
		require.Regexp(t, "canary: canary_lost\n.*"+test.want, out)
	}
}

func TestTheDoctorRequiresItsVariables(t *testing.T) {
	t.Parallel()
	_, err := say(t, nil, "admin", "doctor")
	require.ErrorContains(t, err, "PUSH_BASE_URL")
	_, err = say(t, map[string]string{"PUSH_BASE_URL": "https://worker.example"}, "admin", "doctor")
	require.ErrorContains(t, err, "PUSH_SERVICE_ACCOUNT")
}

func TestTheDoctorFindsNothingAfterProvision(t *testing.T) {
	t.Parallel()
	environment := map[string]string{
		"PUBSUB_EMULATOR_HOST": emulatortest.PubSub(t), "GOOGLE_CLOUD_PROJECT": "p-" + uuid.NewString(), "PUSH_BASE_URL": "http://127.0.0.1:1",
		"BILLHOOK_SERVER": "http://127.0.0.1:1",
	}
	pools := []string{"--pool-urls", "payments=http://127.0.0.1:2"}
	out, err := say(t, environment, "admin", "doctor")
	require.Error(t, err, "there is nothing yet")
	require.Contains(t, out, "topic_missing")
	out, err = say(t, environment, append([]string{"admin", "provision"}, pools...)...)
	require.NoError(t, err, out)
	out, err = say(t, environment, append([]string{"admin", "doctor", "--json"}, pools...)...)
	require.NoError(t, err, out)
	var found diagnosis
	require.NoError(t, json.Unmarshal([]byte(out), &found))
	found.Off = nil // as the catalog has it
	require.NotEmpty(t, found.PausesUnread, "no worker runs here")
	require.NotEmpty(t, found.LeftOut, "an emulator has no services")
	found.PausesUnread, found.LeftOut = "", ""
	require.Equal(t, diagnosis{Healthy: true, Findings: []finding.Finding{}, Unread: []finding.Unread{}, Paused: []pause.Pause{}, Kept: []string{}}, found)
	out, err = say(t, environment, "admin", "doctor")
	require.Error(t, err, "without the pool's own worker")
	require.Contains(t, out, "wrong_endpoint\n    is: http://127.0.0.1:2/push/")
}

// What waits for a queue that was switched off is no finding: somebody has decided it. It is told.
func TestTheDoctorSaysWhatWaitsForAQueueThatIsOff(t *testing.T) {
	t.Parallel()
	c, err := catalog.Load("")
	require.NoError(t, err)
	credits, _ := c.HandledBy("points.credit")
	updates, _ := c.EmitsTo("subscriptions.record")
	runs, kept := []string{credits.ID, updates.ID}, ""
	for _, q := range c.Queues {
		if _, err := c.Only(append(slices.Clone(runs), q.ID)); err == nil && !q.DeadLetter.Drop {
			kept = q.ID
		}
	}
	require.NotEmpty(t, kept, "a queue that can run beside these, or not")
	environment := map[string]string{
		"PUBSUB_EMULATOR_HOST": emulatortest.PubSub(t), "GOOGLE_CLOUD_PROJECT": "p-" + uuid.NewString(), "PUSH_BASE_URL": "http://127.0.0.1:1",
		"QUEUES": strings.Join(append(slices.Clone(runs), kept), ","), "BILLHOOK_SERVER": "http://127.0.0.1:1",
	}
	out, err := say(t, environment, "admin", "provision")
	require.NoError(t, err, out)
	environment["QUEUES"] = strings.Join(runs, ",")
	out, err = say(t, environment, "admin", "provision")
	require.NoError(t, err, out)
	require.Contains(t, out, "nothing is deleted here")
	out, err = say(t, environment, "admin", "doctor")
	require.NoError(t, err, out)
	require.Contains(t, out, "which billhook queues ls counts: "+kept+".\n")
}

// One resource that cannot be made hides nothing of the others.
func TestProvisionTellsWhatBecameOfEachResource(t *testing.T) {
	t.Parallel()
	server := pstest.NewServer() // it cannot point a subscription elsewhere
	t.Cleanup(func() { _ = server.Close() })
	provision := func(worker string, args ...string) (string, error) {
		values := map[string]string{"PUBSUB_EMULATOR_HOST": server.Addr, "PUSH_BASE_URL": worker, "GOOGLE_CLOUD_PROJECT": "p", "QUEUES": "paynow-events,pay-subscription-update"}
		return say(t, values, append([]string{"admin", "provision"}, args...)...)
	}
	printed, err := provision("http://127.0.0.1:1")
	require.NoError(t, err)
	require.Contains(t, printed, "created")
	printed, err = provision("http://127.0.0.1:2", "--json")
	require.ErrorContains(t, err, "4 of ")
	require.Equal(t, 1, serve.ExitCode(err))
	var changes []pubsub.Change
	require.NoError(t, json.Unmarshal([]byte(printed), &changes))
	require.True(t, slices.ContainsFunc(changes, func(c pubsub.Change) bool { return c.Action == pubsub.Unchanged }))
	printed, err = provision("http://127.0.0.1:2")
	require.Error(t, err)
	require.Contains(t, printed, "WHY")
	require.Contains(t, printed, "paynow-events-push")
}
