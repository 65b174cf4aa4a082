package worker_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/internal/compose/worker"
	"billhook/internal/contract"
	"billhook/internal/pipeline/lane"
	"billhook/internal/platform/standin/clocktest"
	"billhook/internal/platform/store"
)

// keep puts a message aside that is due at the given time.
func keep(t *testing.T, db store.Store, event string, due, now time.Time) {
	t.Helper()
	kept, err := lane.Open(t.Context(), db, lane.Name{Queue: "q", Message: event})
	require.NoError(t, err)
	_, writes, err := kept.Put(lane.Waiting{
		Topic: "q", Message: contract.Message{Data: []byte(`{}`), Attributes: map[string]string{"event_id": event}}, Due: due, EventID: event,
	}, now)
	require.NoError(t, err)
	_, err = db.Commit(t.Context(), writes)
	require.NoError(t, err)
}

// pass lets time go by, and the clock's alarms ring.
func pass(clock *clocktest.Clock, d time.Duration) {
	for rang := true; rang; {
		var moved time.Duration
		moved, rang = clock.Next(d)
		d -= moved
	}
}

func TestAWorkersOwnAlarmReleasesWhatIsKeptOnTimeWithoutTheScheduler(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 3, 2, 10, 15, 0, 0, time.UTC)
	clock := clocktest.New(start)
	broker := &shelf{}
	var log strings.Builder
	c := config(t, func(c *worker.Config) {
		c.Publisher, c.Now, c.AfterFunc = broker, clock.Now, clock.AfterFunc
		c.Log = slog.New(slog.NewJSONHandler(&log, nil))
	})
	w, err := worker.New(c)
	require.NoError(t, err)
	waits := []time.Duration{100 * time.Millisecond, time.Second, 3001 * time.Millisecond, 60 * time.Second, 755 * time.Second}
	for i, wait := range waits {
		keep(t, c.Store, fmt.Sprint("e", i), start.Add(wait), start)
		require.NoError(t, w.Alarm.At(t.Context(), start.Add(wait)))
	}
	for i, wait := range waits {
		pass(clock, start.Add(wait).Sub(clock.Now())-time.Millisecond)
		require.Len(t, broker.taken, i, "not before it is due")
		pass(clock, 251*time.Millisecond)
		require.Len(t, broker.taken, i+1, "a quarter of a second after it is due at most")
		require.Equal(t, fmt.Sprint("e", i), broker.taken[i].Attributes["event_id"])
	}
	require.Equal(t, len(waits), strings.Count(log.String(), `"task":"release-delayed"`), "a run for each, and no more")

	keep(t, c.Store, "late", clock.Now().Add(time.Minute), clock.Now())
	require.NoError(t, w.Alarm.At(t.Context(), clock.Now().Add(time.Minute)))
	w.Drain()
	pass(clock, time.Hour)
	require.Len(t, broker.taken, len(waits), "a worker that drains begins nothing")
}

type recorder []time.Time

func (r *recorder) At(_ context.Context, at time.Time) error {
	*r = append(*r, at)
	return nil
}

func TestAWorkerUsesTheAlarmThatItIsGiven(t *testing.T) {
	t.Parallel()
	clock := clocktest.New(time.Date(2026, 3, 2, 10, 15, 0, 0, time.UTC))
	given := &recorder{}
	w, err := worker.New(config(t, func(c *worker.Config) { c.Alarm, c.AfterFunc = given, clock.AfterFunc }))
	require.NoError(t, err)
	require.NoError(t, w.Alarm.At(t.Context(), clock.Now()))
	require.Equal(t, &recorder{clock.Now()}, given)
	require.Zero(t, clock.Pending())
	w.Drain()

	w, err = worker.New(config(t, nil))
	require.NoError(t, err)
	require.NoError(t, w.Alarm.At(t.Context(), clock.Now()))
	w.Drain()
}

// shelf remembers what was published.
type shelf struct{ taken []contract.Message }

func (s *shelf) Publish(_ context.Context, _ string, m contract.Message) (string, error) {
	s.taken = append(s.taken, m)
	return "1", nil
}
