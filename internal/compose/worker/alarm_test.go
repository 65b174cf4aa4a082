package worker_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/internal/compose/worker"
	"billhook/internal/contract"
	"billhook/internal/pipeline/lane"
	"billhook/internal/platform/standin/clocktest"
	"billhook/internal/platform/store"
)

// pass lets time go by, and the clock's alarms ring.
func pass(clock *clocktest.Clock, d time.Duration) {
	for rang := true; rang; {
		var moved time.Duration
		moved, rang = clock.Next(d)
		d -= moved
	}
}

type recorder []time.Time

func (r *recorder) At(_ context.Context, at time.Time) error {
	*r = append(*r, at)
	return nil
}

// TestAlarmOfAWorkerReleasesWhatIsKeptWithoutTheScheduler: a quarter of a second after it is due at most. A worker that
// drains begins nothing, and one that is given an alarm has none of its own.
func TestAlarmOfAWorkerReleasesWhatIsKeptWithoutTheScheduler(t *testing.T) {
	t.Parallel()
	clock, broker := clocktest.New(morning), &shelves{}
	var db store.Store
	w := open(t, func(c *worker.Config) {
		c.Publisher, c.Now, c.AfterFunc, db = broker, clock.Now, clock.AfterFunc, c.Store
	})
	for i, wait := range []time.Duration{100 * time.Millisecond, 3001 * time.Millisecond, 755 * time.Second, 0} {
		due := clock.Now().Add(wait)
		kept, err := lane.Open(t.Context(), db, lane.Name{Queue: "q", Message: string(rune('a' + i))})
		require.NoError(t, err)
		_, writes, err := kept.Put(lane.Waiting{Topic: "q", Message: contract.Message{Data: []byte("{}")}, Due: due, EventID: "e"}, clock.Now())
		require.NoError(t, err)
		_, err = db.Commit(t.Context(), writes)
		require.NoError(t, err)
		require.NoError(t, w.Alarm.At(t.Context(), due))
		if wait == 0 {
			w.Drain()
		}
		pass(clock, max(0, wait-time.Millisecond))
		require.Empty(t, broker.all(), "not before it is due")
		pass(clock, 251*time.Millisecond)
		require.Equal(t, wait > 0, len(broker.all()) == 1, wait)
	}
	given, other := &recorder{}, clocktest.New(morning)
	w = open(t, func(c *worker.Config) { c.Alarm, c.AfterFunc = given, other.AfterFunc })
	require.NoError(t, w.Alarm.At(t.Context(), morning))
	require.Equal(t, &recorder{morning}, given)
	require.Zero(t, other.Pending())
}
