package main

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/pipeline/pause"
)

func TestAQueueIsPausedAndResumedFromATerminal(t *testing.T) {
	t.Parallel()
	play(t, asAda, startStack(t, func(*catalog.Catalog) {}).WorkerURL, []step{
		{line: "queues pause notifications-send", fails: "--why"},
		{line: "queues pause nothing --why w", fails: "queue_unknown"},
		{line: "queues pause notifications.send --why mended --yes", want: "notifications-send is paused since …token:ada: mended. Its subscription pushes nothing.\n" +
			"A message older than 1d is dropped unhandled.\nWhat is published waits in Pub/Sub…From …paused_queues"},
		{line: "queues ls --wide", want: " paused …\nnotifications-send: paused since "},
		{line: "pauses ls", want: "notifications-send token:ada mended"},
		{line: "queues pause notifications-send --why another --json --yes", want: `"why": "mended"…"changed": false`},
		{line: "queues resume notifications-send --dry-run", want: "is paused since"},
		{line: "queues resume notifications-send --why well --yes", want: "notifications-send is not paused. Its subscription pushes."},
		{line: "queues history notifications.send", want: "resume token:ada well…\n…pause token:ada mended…\n"},
	})
}

// A worker that may not change subscriptions records the pause. The command says that this is not all.
func TestAPauseThatIsOnPaperAloneFails(t *testing.T) {
	t.Parallel()
	server := listen(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(pause.State{
			Queue: "orders", Pause: &pause.Pause{Queue: "orders", Who: "ada", Why: "w\x1b[2J", At: time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC)}, Subscription: pause.Pushing,
		})
	}))
	out, err := say(t, nil, "queues", "pause", "orders", "--why", "w", "--yes", "--server", server)
	require.ErrorContains(t, err, "the subscription of orders is pushing, and should be paused")
	require.Contains(t, out, "run billhook admin switch orders, with your own credentials")
	require.NotContains(t, out, "\x1b")
}
