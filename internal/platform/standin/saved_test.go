package standin_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
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
	for _, killed := range []bool{false, true} {
		path := filepath.Join(t.TempDir(), "broker.json")
		// process runs a simulator on the file; the clock of each begins at the same time.
		process := func(want standin.Loaded, status int, acked string, does func(t *testing.T, s *bench)) {
			synctest.Test(t, func(t *testing.T) {
				s := newBench(t, func(r received) int {
					if r.text() == acked {
						return http.StatusNoContent
					}
					return status
				}, waiting())
				loaded, err := s.Load(path)
				require.NoError(t, err)
				require.Equal(t, want, loaded)
				does(t, s)
				if killed {
					text, err := os.ReadFile(path)
					require.NoError(t, err)
					cut := string(text) + `{"subscription":"orders-push","got":{"ID":"9`
					require.NoError(t, os.WriteFile(path, []byte(cut), 0o600), "the kill cuts a line off")
					return
				}
				require.ErrorContains(t, s.Save(path), "not closed")
				require.NoError(t, s.Close())
				require.NoError(t, s.Save(path))
				info, err := os.Stat(path)
				require.NoError(t, err)
				require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
			})
		}
		attempts, kept := map[string]int{}, []standin.Message(nil)
		process(standin.Loaded{}, http.StatusInternalServerError, "t01", func(t *testing.T, s *bench) {
			t.Helper()
			require.NoError(t, s.Pause(t.Context(), paused, time.Time{}))
			for i := range 12 {
				s.publish(fmt.Sprint("k", i%2), fmt.Sprintf("t%02d", i))
			}
			for topic, text := range map[string]string{"loose": "loose", "dead": "held", "paused": "kept"} {
				s.publishTo(topic, "", text)
			}
			s.advance(10 * time.Second)
			for _, push := range s.worker.pushes() {
				attempts[push.text()]++
			}
			kept = s.Held("hold")
		})
		// What was acknowledged is not delivered again.
		process(standin.Loaded{Waiting: 13}, http.StatusNoContent, "", func(t *testing.T, s *bench) {
			t.Helper()
			s.publish("k0", "t99")
			s.advance(time.Hour)
			require.Equal(t, kept, s.Held("hold"))
			got, ids := map[string][]string{}, map[string]bool{kept[0].ID: true}
			for _, push := range s.worker.pushes() {
				got[push.Message.OrderingKey] = append(got[push.Message.OrderingKey], push.text())
				require.False(t, ids[push.Message.MessageID], "an id of its own")
				ids[push.Message.MessageID] = true
				if !killed {
					require.Equal(t, attempts[push.text()]+1, push.DeliveryAttempt, "it is counted on")
				}
			}
			require.Equal(t, map[string][]string{
				"k0": {"t00", "t02", "t04", "t06", "t08", "t10", "t99"}, "k1": {"t03", "t05", "t07", "t09", "t11"}, "": {"loose"},
			}, got, "each once, in order per key, what is new behind, and nothing of the queue that is paused")
			require.NoError(t, s.Resume(t.Context(), paused))
			synctest.Wait()
			require.Equal(t, "kept", s.worker.texts()[13])
		})
		process(standin.Loaded{}, http.StatusNoContent, "", func(t *testing.T, s *bench) {
			t.Helper()
			stands, err := s.Standing(t.Context(), paused)
			require.NoError(t, err)
			require.Equal(t, pause.Pushing, stands)
		})
	}
}

func TestAFileThatCannotBeReadIsAnErrorAndOfWhatIsGoneIsTold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "broker.json")
		s := newBench(t, always(http.StatusNoContent), plain())
		require.NoError(t, os.WriteFile(path, []byte(`{"subscription":"hold","got":{"ID":"1"}}`+"\n"), 0o600))
		loaded, err := s.Load(path)
		require.NoError(t, err)
		require.Equal(t, standin.Loaded{Gone: 1}, loaded, "what a subscription held that is no more")
		require.NoError(t, os.WriteFile(path, []byte("{\n"), 0o600))
		_, err = s.Load(path)
		require.Error(t, err)
	})
}

// A push that is under way when its queue is paused ends as ever: refused, it waits with the others.
func TestAPausedQueueIsNotAttemptedHoweverLongAndGoesOnInOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var s *bench
		pausing, began := true, time.Now().UTC()
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
			require.Equal(t, time.Now(), at)
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
		require.Equal(t, backlog.Held{Messages: 3, Oldest: began}, holds())
		pausing = false
		require.NoError(t, s.Resume(t.Context(), paused))
		require.NoError(t, s.Idle(t.Context()))
		require.Equal(t, []string{"a", "a", "b", "c"}, s.worker.texts())
		require.Equal(t, backlog.Held{}, holds())

		require.Error(t, s.Pause(t.Context(), missing, time.Time{}))
		require.Error(t, s.Resume(t.Context(), missing))
		require.Equal(t, pause.Missing, stands(missing))
	})
}
