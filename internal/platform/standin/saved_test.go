package standin_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/pipeline/pause"
	"billhook/internal/platform/backlog"
	"billhook/internal/platform/standin"
)

// A queue's subscription is <id>-push.
var (
	paused  = catalog.Queue{ID: "paused"}
	missing = catalog.Queue{ID: "missing"}
)

// waiting configures subscriptions whose messages wait in every possible way.
func waiting() standin.SimulatorConfig {
	sub := func(topic string) standin.Subscription {
		return standin.Subscription{
			ID: topic + "-push", Topic: topic, Path: "/push", Ordered: true, AckDeadline: time.Minute,
			MinimumBackoff: time.Second, MaximumBackoff: time.Minute, DeadLetterTopic: "dead", MaxDeliveryAttempts: 20,
		}
	}
	return standin.SimulatorConfig{Subscriptions: []standin.Subscription{sub("orders"), sub("loose"), sub("paused"), {ID: "hold", Topic: "dead"}}}
}

// TestWhatWaitsOutlivesTheProcessHoweverItEnds leaves a simulator whose messages wait, and delivers them by the next one.
func TestWhatWaitsOutlivesTheProcessHoweverItEnds(t *testing.T) {
	t.Parallel()
	for _, end := range []string{"it is closed", "it is killed"} {
		t.Run(end, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "broker.json")
			open := func(status int, done ...string) (*bench, standin.Loaded) {
				s := newBench(t, func(r received) int {
					if len(done) > 0 && r.text() == done[0] {
						return http.StatusNoContent
					}
					return status
				}, waiting())
				loaded, err := s.Load(path)
				require.NoError(t, err)
				return s, loaded
			}
			leave := func(s *bench) {
				if end != "it is closed" {
					return
				}
				require.ErrorContains(t, s.Save(path), "not closed")
				require.NoError(t, s.Close())
				require.NoError(t, s.Save(path))
				info, err := os.Stat(path)
				require.NoError(t, err)
				require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
			}
			first, loaded := open(http.StatusInternalServerError, "t01")
			require.Zero(t, loaded, "there is nothing yet")
			require.NoError(t, first.Pause(t.Context(), paused, time.Time{}))
			for i := range 12 {
				first.publish(fmt.Sprint("k", i%2), fmt.Sprintf("t%02d", i))
			}
			for topic, text := range map[string]string{"loose": "loose", "dead": "held", "paused": "kept"} {
				first.publishTo(topic, "", text)
			}
			first.advance(10 * time.Second)
			leave(first)
			if end == "it is killed" {
				text, err := os.ReadFile(path)
				require.NoError(t, err)
				cut := string(text) + `{"subscription":"orders-push","got":{"ID":"9`
				require.NoError(t, os.WriteFile(path, []byte(cut), 0o600), "the kill cuts a line off")
			}
			attempts := map[string]int{}
			for _, push := range first.worker.pushes() {
				attempts[push.text()]++
			}

			second, loaded := open(http.StatusNoContent) // its clock was set back
			require.Equal(t, standin.Loaded{Waiting: 13}, loaded, "what was acknowledged is not delivered again")
			second.publish("k0", "t99")
			second.advance(time.Hour)
			held := second.Held("hold")
			require.Equal(t, first.Held("hold"), held)
			got, ids := map[string][]string{}, map[string]bool{held[0].ID: true}
			for _, push := range second.worker.pushes() {
				got[push.Message.OrderingKey] = append(got[push.Message.OrderingKey], push.text())
				require.False(t, ids[push.Message.MessageID], "an id of its own")
				ids[push.Message.MessageID] = true
				if end == "it is closed" {
					require.Equal(t, attempts[push.text()]+1, push.DeliveryAttempt, "it is counted on")
				}
			}
			require.Equal(t, map[string][]string{
				"k0": {"t00", "t02", "t04", "t06", "t08", "t10", "t99"}, "k1": {"t03", "t05", "t07", "t09", "t11"}, "": {"loose"},
			}, got, "each once, in order per key, what is new behind, and nothing of the queue that is paused")
			require.NoError(t, second.Resume(t.Context(), paused))
			require.NoError(t, second.Idle(t.Context()))
			require.Equal(t, "kept", second.worker.texts()[13])
			leave(second)

			third, loaded := open(http.StatusNoContent)
			require.Zero(t, loaded)
			stands, err := third.Standing(t.Context(), paused)
			require.NoError(t, err)
			require.Equal(t, pause.Pushing, stands)
		})
	}
}

func TestAFileThatCannotBeReadIsAnErrorAndOfWhatIsGoneIsTold(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "broker.json")
	s := newBench(t, always(http.StatusNoContent), plain())
	require.NoError(t, os.WriteFile(path, []byte(`{"subscription":"hold","got":{"ID":"1"}}`+"\n"), 0o600))
	loaded, err := s.Load(path)
	require.NoError(t, err)
	require.Equal(t, standin.Loaded{Gone: 1}, loaded, "what a subscription held that is no more")
	require.NoError(t, os.WriteFile(path, []byte("{\n"), 0o600))
	_, err = s.Load(path)
	require.Error(t, err)
}

// A push that is under way when its queue is paused ends as ever: refused, it waits with the others.
func TestAPausedQueueIsNotAttemptedHoweverLongAndGoesOnInOrder(t *testing.T) {
	t.Parallel()
	var s *bench
	pausing := true
	s = newBench(t, func(received) int {
		if !pausing {
			return http.StatusNoContent
		}
		if err := s.Pause(t.Context(), paused, time.Time{}); err != nil {
			t.Error(err)
		}
		return http.StatusInternalServerError
	}, waiting())
	holds := func() backlog.Held {
		all, at, err := s.Backlogs(t.Context())
		require.NoError(t, err)
		require.Equal(t, s.clock.Now(), at)
		require.Contains(t, all, "hold", "a subscription that holds nothing is known to hold nothing")
		return all[paused.PushSubscription()]
	}
	stands := func(q catalog.Queue) pause.Standing {
		have, err := s.Standing(t.Context(), q)
		require.NoError(t, err)
		return have
	}
	require.Equal(t, pause.Pushing, stands(paused))
	s.publishTo("paused", "k", "a")
	s.publishTo("paused", "k", "b")
	s.advance(100 * time.Minute)
	s.publishTo("paused", "k", "c")
	require.Equal(t, pause.Paused, stands(paused))
	require.Equal(t, []string{"a"}, s.worker.texts())
	require.Equal(t, backlog.Held{Messages: 3, Oldest: start}, holds())
	pausing = false
	require.NoError(t, s.Resume(t.Context(), paused))
	require.NoError(t, s.Idle(t.Context()))
	require.Equal(t, []string{"a", "a", "b", "c"}, s.worker.texts())
	require.Equal(t, backlog.Held{}, holds())

	require.Error(t, s.Pause(t.Context(), missing, time.Time{}))
	require.Error(t, s.Resume(t.Context(), missing))
	require.Equal(t, pause.Missing, stands(missing))
}
