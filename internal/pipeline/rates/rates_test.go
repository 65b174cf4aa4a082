package rates_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/internal/filetest"
	"billhook/internal/pipeline/rates"
	"billhook/internal/pipeline/rates/ratestest"
	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
	"billhook/internal/retry"
)

var noon = time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)

func TestDeliveriesAreCountedOnTheEmbeddedStore(t *testing.T) {
	t.Parallel()
	ratestest.Run(t, storetest.Open)
}

type clock struct{ now time.Time }

func (c *clock) Now() time.Time       { return c.now }
func (c *clock) pass(d time.Duration) { c.now = c.now.Add(d) }

func newRecorder(db store.GetCommitter, name string, at *clock, breakers ...rates.Breaker) *rates.Recorder {
	return rates.NewRecorder(rates.Config{
		Store: db, Now: at.Now, Self: rates.Service{Instance: name, Name: "worker", StartedAt: noon},
		Breakers: func() []rates.Breaker { return breakers },
	})
}

func TestLastHourIncludesAPartOfTheHourBefore(t *testing.T) {
	t.Parallel()
	db, at := storetest.Open(t), &clock{now: noon.Add(-10 * time.Minute)}
	r := newRecorder(db, "i1", at)
	for range 100 {
		r.Arrived("orders")
		r.Ended("orders", retry.Processed, 1)
	}
	r.Ended("orders", retry.Retry, 0) // a waiting message is no failure
	require.NoError(t, r.Flush(t.Context()))
	at.pass(25 * time.Minute) // a quarter past noon: three quarters of the hour before count
	r.Ended("orders", retry.Retry, 2)
	for range 4 {
		r.Ended("orders", retry.DeadLettered, 3)
	}
	require.NoError(t, r.Flush(t.Context()))
	now := filetest.Must(rates.Recent(t.Context(), db, at.Now()))(t)
	require.Equal(t, map[string]rates.Counts{"orders": {In: 75, Processed: 75, Dead: 4, Failed: 1}}, now.Queues)
	require.Equal(t, int64(6), now.Queues["orders"].FailurePercent())
}

func TestFailurePercentIsOfAttemptsAndNeverRoundedToZero(t *testing.T) {
	t.Parallel()
	for want, counts := range map[int64]rates.Counts{
		0: {In: 9, Other: 9}, 1: {Processed: 10_000, Failed: 1}, 50: {Processed: 1, Dead: 1, Other: 7},
		67: {Processed: 1, Failed: 2}, 100: {Dead: 3},
	} {
		require.Equal(t, want, counts.FailurePercent())
	}
	require.Equal(t, int64(6), rates.Counts{In: 9, Processed: 1, Other: 2, Dead: 3, Failed: 4}.Out())
}

func TestTargetsHaveTheirLastAnswersAndTheBreakersOfRunningInstances(t *testing.T) {
	t.Parallel()
	db, at := storetest.Open(t), &clock{now: noon}
	gone := newRecorder(db, "gone", at, rates.Breaker{Target: "ledger", State: "open", Since: noon})
	gone.Answered("ledger", 0, "callee_unreachable", time.Second)
	require.NoError(t, gone.Flush(t.Context()))
	at.pass(rates.GoodFor + time.Second)
	since := at.Now()
	here := newRecorder(db, "here", at, rates.Breaker{Target: "ledger", State: "half_open", Since: since})
	for i := range 7 {
		at.pass(time.Second)
		here.Answered("ledger", 500+i%2*3, "callee_failed", time.Duration(i)*time.Millisecond)
	}
	here.Answered("search", 200, "", time.Millisecond)
	here.Answered("search", 404, "", time.Millisecond)
	here.Answered("search", 404, "callee_refused_404", time.Millisecond)
	require.NoError(t, here.Flush(t.Context()))
	now := filetest.Must(rates.Recent(t.Context(), db, at.Now()))(t)
	ledger := now.Targets["ledger"]
	require.Equal(t, map[string]int64{"5xx": 7, "none": 1}, ledger.Answers)
	require.Len(t, ledger.Last, 5)
	require.Equal(t, rates.Answer{At: at.Now(), Status: 500, Code: "callee_failed", Milliseconds: 6},
		ledger.Last[0])
	require.Equal(t, []rates.OpenBreaker{
		{Instance: "here", Breaker: rates.Breaker{Target: "ledger", State: "half_open", Since: since}},
	}, ledger.Open)
	require.Equal(t, 1, ledger.Instances)
	require.Equal(t, map[string]int64{"2xx": 1, "not_known": 1, "4xx": 1}, now.Targets["search"].Answers)
	require.Empty(t, now.Targets["search"].Open)
	require.Equal(t, []string{"here", "gone"}, []string{now.Services[0].Instance, now.Services[1].Instance})
}

func TestInstanceWithoutCountsIsSeenOnceAMinute(t *testing.T) {
	t.Parallel()
	at := &clock{now: noon}
	db := &storetest.Counter{Store: storetest.Open(t)}
	r := newRecorder(db, "i1", at)
	for range 8 { // two minutes
		require.NoError(t, r.Flush(t.Context()))
		at.pass(rates.FlushEvery)
	}
	require.EqualValues(t, 2, db.Commits.Load())
	require.EqualValues(t, 4, db.Gets.Load())
	now := filetest.Must(rates.Recent(t.Context(), db, at.Now()))(t)
	require.Equal(t, noon.Add(time.Minute), now.Services[0].SeenAt)
	require.Empty(t, now.Queues)
}

func TestDocumentKeepsTheInstancesAndReleasesSeenLast(t *testing.T) {
	t.Parallel()
	db, at := storetest.Open(t), &clock{now: noon}
	for i := range 100 {
		at.pass(time.Second)
		r := newRecorder(db, fmt.Sprintf("i%02d", i), at)
		r.Release(fmt.Sprintf("v%02d", i))
		r.Release("not a name\n")
		require.NoError(t, r.Flush(t.Context()))
	}
	now := filetest.Must(rates.Recent(t.Context(), db, at.Now()))(t)
	require.LessOrEqual(t, len(now.Services), 20*rates.Shards)
	require.Equal(t, "i99", now.Services[0].Instance)
	require.LessOrEqual(t, len(now.Releases), 5*rates.Shards)
	require.Equal(t, "v99", now.Releases[0].Name)
}

func TestCountsOfAnOutageOfTheStoreGoToTheHourOfTheLastOne(t *testing.T) {
	t.Parallel()
	at := &clock{now: noon}
	db := &storetest.Faults{Store: storetest.Open(t)}
	r := newRecorder(db, "i1", at)
	db.Down(true)
	for range 3 {
		r.Arrived("orders")
		require.Error(t, r.Flush(t.Context()))
		at.pass(time.Hour)
	}
	require.Error(t, filetest.ErrorOf(rates.Recent(t.Context(), db, at.Now())))
	require.Error(t, filetest.ErrorOf(rates.Series(t.Context(), db, rates.Hour, 4, at.Now(), "orders")))
	(*rates.Recorder)(nil).Arrived("orders") // a nil recorder counts nothing
	db.Down(false)
	require.NoError(t, r.Flush(t.Context()))
	series := filetest.Must(rates.Series(t.Context(), db, rates.Hour, 4, at.Now(), "orders"))(t)
	require.Equal(t, []int64{0, 0, 3, 0},
		[]int64{series["orders"][0].In, series["orders"][1].In, series["orders"][2].In, series["orders"][3].In})
}

func TestCloseFlushesAndEndsTheTimer(t *testing.T) {
	t.Parallel()
	db, at := storetest.Open(t), &clock{now: noon}
	var timers []func()
	stopped := 0
	r := rates.NewRecorder(rates.Config{
		Store: db, Now: at.Now, Self: rates.Service{Instance: "i1"},
		AfterFunc: func(d time.Duration, f func()) func() {
			require.Equal(t, rates.FlushEvery, d)
			timers = append(timers, f)
			return func() { stopped++ }
		},
	})
	r.Start()
	r.Arrived("orders")
	timers[0]()
	require.Len(t, timers, 2, "the next one runs")
	now := filetest.Must(rates.Recent(t.Context(), db, at.Now()))(t)
	require.EqualValues(t, 1, now.Queues["orders"].In)
	r.Arrived("orders")
	r.Close(t.Context())
	require.Equal(t, 1, stopped)
	timers[1]() // it fired before it was stopped
	require.Len(t, timers, 2)
	now = filetest.Must(rates.Recent(t.Context(), db, at.Now()))(t)
	require.EqualValues(t, 2, now.Queues["orders"].In)
}

func TestUnreadableDocumentCountsNothing(t *testing.T) {
	t.Parallel()
	db, at := storetest.Open(t), &clock{now: noon}
	for shard := range rates.Shards {
		hour := store.Key{Collection: rates.Collection, ID: fmt.Sprintf("hour-2026030212-%d", shard)}
		storetest.Put(t, db, store.Create(hour, map[string]any{
			"queues": "x", "targets": map[string]any{"ledger": "y"}, "services": map[string]any{"i1": int64(1)},
		}))
	}
	r := newRecorder(db, "i1", at)
	r.Arrived("orders")
	require.NoError(t, r.Flush(t.Context()))
	now := filetest.Must(rates.Recent(t.Context(), db, at.Now()))(t)
	require.EqualValues(t, 1, now.Queues["orders"].In)
}
