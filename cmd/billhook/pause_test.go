package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/console/ops"
	"billhook/internal/pipeline/pause"
)

func TestAQueueIsPausedAndResumedFromATerminal(t *testing.T) {
	t.Parallel()
	stack := startStack(t, func(*catalog.Catalog) {})
	billhook := func(args ...string) (string, error) {
		return say(t, map[string]string{"OPS_TOKEN": opsToken, "OPS_OPERATOR": "ada"}, append(args, "--server", stack.WorkerURL)...)
	}
	_, err := billhook("queues", "pause", "notifications-send")
	require.ErrorContains(t, err, "--why")
	_, err = billhook("queues", "pause", "nothing", "--why", "w")
	require.ErrorContains(t, err, "queue_unknown")

	out, err := billhook("queues", "pause", "notifications.send", "--why", "the sender is being mended")
	require.NoError(t, err, out)
	require.Contains(t, out, "notifications-send is paused since ")
	require.Contains(t, out, "token:ada: the sender is being mended")
	require.Contains(t, out, "It pushes nothing.")
	require.Contains(t, out, "kept for 31 days")
	require.Contains(t, out, "A message older than 24h is dropped")
	require.Contains(t, out, "paused_queues")

	out, err = billhook("queues")
	require.NoError(t, err)
	require.Contains(t, out, "notifications-send is paused since ")
	require.Regexp(t, `notifications-send .* paused`, out)
	out, err = billhook("queues", "pause", "notifications-send", "--why", "another", "--json")
	require.NoError(t, err)
	var stands ops.QueuePause
	require.NoError(t, json.Unmarshal([]byte(out), &stands))
	require.False(t, stands.Changed, "who paused it first is kept")
	require.Equal(t, "the sender is being mended", stands.Pause.Why)
	require.Equal(t, stands.Pause.At.Add(31*24*time.Hour), stands.KeptUntil)
	require.Equal(t, stands.Pause.At.Add(24*time.Hour), stands.DroppedFrom)

	out, err = billhook("queues", "resume", "notifications-send", "--dry-run")
	require.NoError(t, err)
	require.Contains(t, out, "is paused since", "nothing was done")
	out, err = billhook("queues", "resume", "notifications-send", "--why", "mended")
	require.NoError(t, err)
	require.Contains(t, out, "notifications-send is not paused. Its subscription: It pushes.")
	out, err = billhook("queues", "history", "notifications-send")
	require.NoError(t, err)
	require.Regexp(t, `(?s)resume .*mended.*pause .*the sender is being mended`, out)
}

// A worker that may not change subscriptions records the pause. The command says that this is not all.
func TestAPauseThatIsOnPaperAloneFails(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(ops.QueuePause{Outcome: pause.Outcome{
			Queue: "orders", Pause: &pause.Pause{Queue: "orders", Who: "ada", Why: "w\x1b[2J", At: time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC)}, Subscription: pause.Pushing,
		}})
	}))
	defer server.Close()
	out, err := say(t, nil, "queues", "pause", "orders", "--why", "w", "--server", server.URL)
	require.ErrorContains(t, err, "the subscription of orders is unknown, and should be paused")
	require.Contains(t, out, "set GOOGLE_CLOUD_PROJECT")
	require.NotContains(t, out, "\x1b")
}
