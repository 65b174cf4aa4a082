package main

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2/pstest"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/catalog/catalogtest"
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
	c := catalogtest.Shipped()
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

// canaryThrough sends a canary through a stack, as somebody with an environment.
func canaryThrough(t *testing.T, environment map[string]string, webhook, worker string) (became string, err error) {
	t.Helper()
	p, err := newProgram(func(name string) string { return environment[name] }, io.Discard)
	require.NoError(t, err)
	p.env.Webhook, p.env.Server = webhook, worker
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	return p.canary(ctx, catalogtest.Shipped())
}

func TestTheCanaryGoesThroughAndLeavesNoDeadLetter(t *testing.T) {
	t.Parallel()
	stack := startStack(t, func(*catalog.Catalog) {})
	became, err := canaryThrough(t, asAda, stack.WebhookURL, stack.WorkerURL)
	require.NoError(t, err)
	require.Contains(t, became, ", at attempt 1")
	play(t, asAda, stack.WorkerURL, []step{{line: "dlq ls paynow-events --state all", want: "No dead letter"}})
}

func TestACanaryThatIsLostSaysWhere(t *testing.T) {
	t.Parallel()
	stack := startStack(t, func(*catalog.Catalog) {})
	const nobody = "http://127.0.0.1:1"
	for want, test := range map[string]struct {
		environment     map[string]string
		webhook, server string
	}{
		"is not accepted: the webhook service answers 401":               {map[string]string{"OPS_TOKEN": opsToken, "WEBHOOK_SIGNING_SECRET": "another-secret-of-somebody-else"}, stack.WebhookURL, stack.WorkerURL},
		"is not accepted: send: ":                                        {nil, nobody, stack.WorkerURL},
		"the worker has not handled it: ":                                {map[string]string{"OPS_TOKEN": "another-token-of-somebody-else"}, stack.WebhookURL, stack.WorkerURL},
		"the worker has not handled it: waited too long: ask the worker": {nil, stack.WebhookURL, nobody},
	} {
		_, err := canaryThrough(t, test.environment, test.webhook, test.server)
		require.ErrorContains(t, err, want)
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
	require.Equal(t, diagnosis{Healthy: true, Findings: []finding.Finding{}, Unread: []finding.Unread{}, Paused: []pause.Pause{}}, found)
	out, err = say(t, environment, "admin", "doctor")
	require.Error(t, err, "without the pool's own worker")
	require.Contains(t, out, "wrong_endpoint\n    is: http://127.0.0.1:2/push/")
}

func TestTheDoctorListsWhatDoesNotRun(t *testing.T) {
	t.Parallel()
	environment := map[string]string{
		"PUBSUB_EMULATOR_HOST": emulatortest.PubSub(t), "GOOGLE_CLOUD_PROJECT": "p-" + uuid.NewString(), "PUSH_BASE_URL": "http://127.0.0.1:1",
		"QUEUES": "paynow-events,pay-subscription-update", "BILLHOOK_SERVER": "http://127.0.0.1:1",
	}
	for _, command := range []string{"provision", "doctor"} {
		out, err := say(t, environment, "admin", command)
		require.NoError(t, err, out)
		require.Equal(t, command == "doctor", strings.Contains(out, "events-low"))
	}
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
