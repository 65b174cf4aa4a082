package operations_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/console"
	"billhook/internal/dedupe"
	"billhook/internal/filetest"
	"billhook/internal/inspect/bulk"
	"billhook/internal/inspect/events"
	"billhook/internal/inspect/queues"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/pipeline/pause"
	"billhook/internal/pipeline/rates"
	"billhook/internal/platform/audit"
	"billhook/internal/platform/backlog"
	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
	"billhook/internal/retry"
)

func of(n int64) queues.Count { return queues.Count{Count: n} }

var filled = queues.Waiting{
	Unacknowledged: new(int64(12)), OldestUnackedSeconds: new(console.Seconds(90)),
	Delayed: of(4), Outbox: of(3), InReplay: of(1), ForApproval: of(1),
}

func (r *rig) counted(t *testing.T, when time.Time, held map[string]backlog.Held) {
	t.Helper()
	require.NoError(t, backlog.Write(t.Context(), r.store, when, held))
}

// fill puts messages of the queue orders into every place where they can wait, and counts the last hour.
func (r *rig) fill(t *testing.T) {
	t.Helper()
	r.counted(t, at, map[string]backlog.Held{
		"orders": {Messages: 12, Oldest: at.Add(-90 * time.Second)}, "refunds": {},
	})
	r.put(t, "orders", "k1", "e1", at.Add(time.Hour), false)
	r.put(t, "orders", "", "e2", at.Add(time.Hour), false)
	r.put(t, "orders", "k2", "e3", time.Time{}, false)
	r.put(t, "orders", "k2", "e4", time.Time{}, false)
	r.emitted(t, "orders", "e5", "e6", "e7")
	replayed := dead("orders", "d1", "r", time.Hour)
	replayed.State = deadletter.Replayed
	r.commit(t, inStore(replayed), inStore(dead("orders", "d2", "r", time.Hour)))
	for id, progress := range map[string]bulk.Progress{"o1": bulk.Waiting, "o2": bulk.Finished} {
		r.commit(t, store.Create(store.Key{Collection: audit.Collection, ID: id}, map[string]any{
			"kind": "replay", "queue": "orders", "progress": string(progress), "rate": int64(50), "created_at": at,
		}))
	}
	breakers := []rates.Breaker{{Target: "ledger", State: "open", Since: at.Add(-time.Minute)}}
	recorder := rates.NewRecorder(rates.Config{
		Store: r.store, Now: func() time.Time { return at }, Self: rates.Service{Instance: "i1", Name: "worker"},
		Breakers: func() []rates.Breaker { return breakers },
	})
	for range 4 {
		recorder.Arrived("orders")
	}
	for _, outcome := range []retry.Outcome{
		retry.Processed, retry.Processed, retry.Duplicate, retry.Retry, retry.DeadLettered,
	} {
		recorder.Ended("orders", outcome, 1)
	}
	recorder.Answered("ledger", 503, "callee_failed_503", 20*time.Millisecond)
	require.NoError(t, recorder.Flush(t.Context()))
}

func (r *rig) queues(t *testing.T) queues.Queues {
	t.Helper()
	return look[queues.Queues](t, r, "queues")
}

func TestQueuesShowTheirStateAndTheirWaitingMessages(t *testing.T) {
	t.Parallel()
	r := open(t)
	r.fill(t)
	r.commit(t, own(created("orders", "e1", dedupe.Completed, 0)),
		own(created("refunds", "e4", dedupe.Processing, 0)), inStore(dead("refunds", "d4", "r", 4*time.Hour)))
	all := r.queues(t)
	orders, refunds := all.Items[0], all.Items[1]
	require.Equal(t, filled, orders.Waiting)
	require.Equal(t, queues.Waiting{Unacknowledged: new(int64(0))}, refunds.Waiting, "0 is a known count")
	found := look[queues.QueueDetail](t, r, "queues/orders").Events
	states := queues.Events{
		dedupe.Processing: {}, dedupe.Failed: {}, dedupe.DeadLettered: {}, dedupe.Completed: of(1),
	}
	require.Equal(t, states, found)
	counts := rates.Counts{In: 4, Processed: 2, Other: 1, Dead: 1, Failed: 1}
	require.Equal(t, queues.Rate{Counts: counts, Out: 4, FailurePercent: 50}, orders.LastHour)
	require.Equal(t, &queues.Backlog{Messages: 12, CountedAt: at}, orders.Backlog)
	require.True(t, orders.DeadLetters.Alert, "above none")
	require.False(t, refunds.DeadLetters.Alert, "its age is within the bound")
	r.commit(t, inStore(dead("refunds", "d5", "r", 4*time.Hour+time.Second)))
	late := r.queues(t).Items[1].DeadLetters
	require.Equal(t, []any{console.Seconds(14401), true}, []any{late.OldestSeconds, late.Alert})
	r.counted(t, at.Add(-backlog.GoodFor-time.Second), map[string]backlog.Held{"orders": {Messages: 7}})
	require.Nil(t, r.queues(t).Items[0].Backlog, "an old count is ignored")
	r.over(many{r.store})
	found = look[queues.QueueDetail](t, r, "queues/orders").Events
	require.Equal(t, queues.Count{Count: 10_000, More: true}, found[dedupe.Completed], "a count has a bound")
}

func TestQueueShowsItsWorstStateAndItsCause(t *testing.T) {
	t.Parallel()
	paused := func(stands pause.Standing) *queues.QueuePaused {
		return &queues.QueuePaused{Pause: pause.Pause{Who: "ada", Why: "mended", At: at}, Subscription: stands}
	}
	const since, failing = "2026-03-02T10:15:00Z", "10 % of the attempts failed in the last hour"
	tenth, open := queues.Rate{FailurePercent: 10}, rates.Breaker{Target: "t", State: "half_open", Since: at}
	letters := queues.Depth{Count: of(1), OldestAt: at, OldestAlertSeconds: 4 * 3600, Alert: true}
	on := func(q queues.Queue) queues.Queue { q.Enabled = true; return q }
	for want, q := range map[string]queues.Queue{
		"off ": {},
		"ok ":  on(queues.Queue{}),
		"paused paused since " + since + " by ada: mended": on(queues.Queue{Paused: paused(pause.Paused)}),
		"pause_failed its subscription pushes; paused since " + since + " by ada: mended": on(
			queues.Queue{Paused: paused(pause.Pushing)}),
		"backlog 9 messages are in the broker; alert over 8": on(
			queues.Queue{Backlog: &queues.Backlog{Messages: 9, AlertAbove: 8}}),
		"failing " + failing: on(queues.Queue{LastHour: tenth}),
		"breaker_open the breaker of target t is half-open in instance i since " + since: on(
			queues.Queue{Breakers: []rates.OpenBreaker{{Instance: "i", Breaker: open}}}),
		"alert dead letters: 1, the oldest since " + since + "; alert over 0 or 4h; " + failing: on(
			queues.Queue{DeadLetters: letters, LastHour: tenth}),
		"off it does not run and keeps its subscription, in which nothing waits": {
			Kept: &queues.Kept{}, Waiting: queues.Waiting{Unacknowledged: new(int64(0))},
		},
		"off_waiting it does not run and keeps what waits for it: 3 in the broker, which deletes the oldest at " +
			since + "; it is handled once the queue runs again": {
			Kept: &queues.Kept{DeletedAt: at}, Waiting: queues.Waiting{Unacknowledged: new(int64(3))},
		},
	} {
		var cause string
		q.State, cause = q.Stands()
		require.Equal(t, want, string(q.State)+" "+cause)
		fine := q.State == queues.IsPaused || q.State == queues.Working || q.State == queues.Off
		require.Equal(t, !fine, q.Alerts())
	}
}

// many is a store that answers every count with its limit.
type many struct{ store.Store }

func (s many) Query(ctx context.Context, q store.Query) (store.Page, error) {
	if q.Count {
		return store.Page{Count: int64(q.Limit)}, nil
	}
	return s.Store.Query(ctx, q)
}

func TestQueueShowsItsBlockedKeysAndTheirCause(t *testing.T) {
	t.Parallel()
	r := open(t)
	r.fill(t)
	r.commit(t, own(created("orders", "e9", "FAILED", 0)), own(created("refunds", "e8", "COMPLETED", 0)))
	got := look[queues.QueueDetail](t, r, "queues/q:orders")
	require.Equal(t, []any{"orders", filled, int64(4), "e9"},
		[]any{got.ID, got.Waiting, got.LastHour.In, got.Outcomes[0].EventID})
	keys := map[string]queues.BlockedKey{}
	for _, key := range got.Keys {
		keys[key.Behind] = key
	}
	require.Len(t, keys, 2)
	require.Equal(t, []any{events.PlaceDelayed, of(2)}, []any{keys["e3"].Place, keys["e3"].Messages})
	require.Equal(t, []any{events.PlaceDelayed, at.Add(time.Hour)}, []any{keys["e1"].Place, keys["e1"].Until})
	require.False(t, got.KeysMore)
	targets := filetest.Map(got.Targets, func(of queues.TargetState) string { return of.Name })
	require.Equal(t, []string{"a", "b", "c", "d", "ledger"}, targets, "in the same order at each refresh")
	require.Equal(t, "ledger", got.Breakers[0].Target)
	for i := range 12 {
		r.put(t, "orders", fmt.Sprint("more-", i), fmt.Sprint("more-", i), at.Add(time.Hour), false)
	}
	r.get(t, "queues/orders", &got)
	require.Len(t, got.Keys, 10)
	require.True(t, got.KeysMore)
}

func TestRatesAreOfTheRequestedHoursOrDays(t *testing.T) {
	t.Parallel()
	r := open(t)
	r.fill(t)
	for query, want := range map[string]struct {
		unit            string
		queues, buckets int
	}{
		"": {"hour", 2, 24}, "?hours=2&queue=q:orders": {"hour", 1, 2}, "?days=30": {"day", 2, 30},
		"?hours=192": {"hour", 2, 192}, "?days=90&queue=orders": {"day", 1, 90},
	} {
		got := look[queues.Rates](t, r, "rates"+query)
		require.Equal(t, []any{want.unit, want.queues}, []any{got.Unit, len(got.Items)}, query)
		require.Len(t, got.Items[0].Buckets, want.buckets, query)
		require.EqualValues(t, 4, got.Items[0].Buckets[want.buckets-1].In, query)
	}
}

type broker struct {
	held map[string]backlog.Held
	err  error
}

func (b broker) Backlogs(context.Context) (map[string]backlog.Held, time.Time, error) {
	return b.held, at, b.err
}

func TestBrokerIsReadWherePossible(t *testing.T) {
	t.Parallel()
	r := open(t)
	r.counted(t, at, map[string]backlog.Held{"orders": {Messages: 12}})
	for subscription, want := range map[string]queues.Waiting{
		"orders-push": {Unacknowledged: new(int64(3)), OldestUnackedSeconds: new(console.Seconds(60))},
		"other-push":  {},
	} {
		held := map[string]backlog.Held{subscription: {Messages: 3, Oldest: at.Add(-time.Minute)}}
		r.over(r.store, func(reads *events.Reads) { reads.Broker = broker{held: held} })
		require.Equal(t, want, r.queues(t).Items[0].Waiting, subscription)
	}
	r.over(r.store, func(reads *events.Reads) { reads.Broker = broker{err: errors.New("down")} })
	r.refuses(t, http.MethodGet, "/v1/ops/queues", "", http.StatusServiceUnavailable, "store_unavailable")
}

func TestWaitingMessagesAreCountedOfOneQueueOrOfAll(t *testing.T) {
	t.Parallel()
	r := open(t)
	r.fill(t)
	r.emitted(t, "refunds", "e9")
	all := filled
	all.Outbox = of(4)
	broker := []queues.InBroker{{Queue: "orders", Messages: 12, OldestSeconds: 90}}
	for query, want := range map[string]queues.Elsewhere{
		"?queue=q:orders": {Waiting: filled, InBroker: broker, Unknown: []string{}},
		"?queue=refunds": {
			Waiting: queues.Waiting{Unacknowledged: new(int64(0)), Outbox: of(1)}, InBroker: []queues.InBroker{},
			Unknown: []string{},
		},
		"": {Waiting: all, InBroker: broker, Unknown: []string{}},
	} {
		require.Equal(t, want, look[queues.Elsewhere](t, r, "waiting"+query), query)
	}
	fresh := open(t)
	counter := &storetest.Counter{Store: fresh.store}
	fresh.over(counter)
	got := look[queues.Elsewhere](t, fresh, "waiting")
	none := queues.Elsewhere{InBroker: []queues.InBroker{}, Unknown: []string{"orders"}}
	require.Equal(t, none, got, "an unknown count is not 0")
	require.EqualValues(t, 5, counter.Queries.Load()+counter.Gets.Load())
}

// A disabled queue keeps its subscription, with its messages until they are deleted.
func TestDisabledQueueShowsUntilWhenItsMessagesAreKept(t *testing.T) {
	t.Parallel()
	r, week := open(t), 7*24*time.Hour
	r.counted(t, at, map[string]backlog.Held{
		"runs": {Messages: 5, Oldest: at.Add(-time.Hour)}, "kept": {Messages: 3, Oldest: at.Add(-2 * time.Hour)},
		"empty": {}, "ageless": {Messages: 2},
	})
	c := &catalog.Catalog{}
	for _, id := range []string{"runs", "kept", "empty", "ageless", "removed"} {
		c.Queues = append(c.Queues, catalog.Queue{ID: id, Enabled: id == "runs", MessageRetention: week})
	}
	r.over(r.store, func(reads *events.Reads) { reads.Catalog = c })
	kept, got := &queues.Kept{RetentionSeconds: 7 * 86400}, r.queues(t)
	oldest := &queues.Kept{RetentionSeconds: 7 * 86400, DeletedAt: at.Add(-2 * time.Hour).Add(week)}
	for i, want := range []*queues.Kept{nil, oldest, kept, kept, nil} {
		require.Equal(t, want, got.Items[i].Kept, got.Items[i].ID)
	}
}

func TestOutboxShowsTheLongestWaitingMessages(t *testing.T) {
	t.Parallel()
	r := open(t)
	r.commit(t, waitingLane("l1", time.Minute), waitingLane("l2", time.Hour), waitingLane("l3", time.Second))
	lanes := look[queues.Lanes](t, r, "outbox?limit=2")
	require.Equal(t, []any{"l2", console.Seconds(3600), "l1", true},
		[]any{lanes.Items[0].ID, lanes.Items[0].WaitsSeconds, lanes.Items[1].ID, lanes.More})
	require.Equal(t, queues.Outbox{Lanes: of(3), OldestAt: at.Add(-time.Hour), OldestSeconds: 3600},
		r.queues(t).Outbox)
}
