package standin_test

import (
	"fmt"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/pipeline/pause"
	"billhook/internal/platform/standin"
)

// A queue's subscription is <id>-push.
var pausable = catalog.Queue{ID: "orders"}

func pausableConfig() standin.SimulatorConfig {
	return standin.SimulatorConfig{Topics: []string{"dead"}, Subscriptions: []standin.Subscription{{
		ID: pausable.PushSubscription(), Topic: "orders", Path: "/push", Ordered: true, AckDeadline: time.Minute,
		MinimumBackoff: time.Second, MaximumBackoff: time.Minute, DeadLetterTopic: "dead", MaxDeliveryAttempts: 5,
	}}}
}

func TestAPausedQueueIsNotAttemptedHoweverLongAndGoesOnInOrder(t *testing.T) {
	t.Parallel()
	s := newBench(t, always(http.StatusNoContent), pausableConfig())
	require.NoError(t, s.Pause(t.Context(), pausable, time.Time{}))
	stands, err := s.Standing(t.Context(), pausable)
	require.NoError(t, err)
	require.Equal(t, pause.Paused, stands)
	var want []string
	for i := range 20 {
		want = append(want, fmt.Sprintf("t%02d", i))
		s.publish("k", want[i])
	}
	for range 10 {
		s.advance(10 * time.Minute)
	}
	require.Empty(t, s.worker.pushes())
	stats := s.Stats()[pausable.PushSubscription()]
	require.Equal(t, []int{20, 0, 0, 0}, []int{stats.Backlog, stats.Acked, stats.Nacked, stats.DeadLettered})
	require.NoError(t, s.Resume(t.Context(), pausable))
	require.NoError(t, s.Idle(t.Context()))
	require.Equal(t, want, s.worker.texts(), "each once")
	for _, push := range s.worker.pushes() {
		require.Equal(t, 1, push.DeliveryAttempt)
	}
}

// A push that is under way when its queue is paused ends as ever: refused, it waits with the others.
func TestARefusedPushOfAPausedQueueWaitsWithTheOthers(t *testing.T) {
	t.Parallel()
	var s *bench
	first := true
	s = newBench(t, func(received) (int, error) {
		if !first {
			return http.StatusNoContent, nil
		}
		first = false
		return http.StatusInternalServerError, s.Pause(t.Context(), pausable, time.Time{})
	}, pausableConfig())
	s.publish("k", "a", "b")
	s.advance(time.Hour)
	require.Equal(t, []string{"a"}, s.worker.texts())
	require.NoError(t, s.Resume(t.Context(), pausable))
	require.NoError(t, s.Idle(t.Context()))
	require.Equal(t, []string{"a", "a", "b"}, s.worker.texts())
}

func TestAPauseOutlivesTheProcessHoweverItEnds(t *testing.T) {
	t.Parallel()
	for name, killed := range map[string]bool{"it is closed": false, "it is killed": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "broker.json")
			run := func(does func(s *bench)) {
				s := newBench(t, always(http.StatusNoContent), pausableConfig())
				_, err := s.Load(path)
				require.NoError(t, err)
				does(s)
				require.NoError(t, s.Close())
				if !killed {
					require.NoError(t, s.Save(path))
				}
			}
			run(func(s *bench) {
				require.NoError(t, s.Pause(t.Context(), pausable, time.Time{}))
				s.publish("k", "a")
			})
			run(func(s *bench) {
				s.advance(time.Hour)
				require.Empty(t, s.worker.pushes())
			})
			run(func(s *bench) {
				require.NoError(t, s.Resume(t.Context(), pausable))
				require.NoError(t, s.Idle(t.Context()))
				require.Equal(t, []string{"a"}, s.worker.texts())
			})
			run(func(s *bench) {
				stands, err := s.Standing(t.Context(), pausable)
				require.NoError(t, err)
				require.Equal(t, pause.Pushing, stands)
			})
		})
	}
}

func TestAQueueThatIsNotThereCannotBePaused(t *testing.T) {
	t.Parallel()
	s := newBench(t, always(http.StatusNoContent), pausableConfig())
	other := catalog.Queue{ID: "other"}
	require.Error(t, s.Pause(t.Context(), other, time.Time{}))
	require.Error(t, s.Resume(t.Context(), other))
	stands, err := s.Standing(t.Context(), other)
	require.NoError(t, err)
	require.Equal(t, pause.Missing, stands)
}
