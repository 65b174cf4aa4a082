package operations_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/catalog/catalogtest"
	"billhook/internal/compose/system"
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
	"billhook/internal/platform/env"
	"billhook/internal/platform/finding"
	"billhook/internal/platform/serve"
	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
	"billhook/internal/retry"
)

func of(n int64) queues.Count { return queues.Count{Count: n} }

func number(n int64) *int64 { return &n }

func seconds(n console.Seconds) *console.Seconds { return &n }

var filled = queues.Waiting{
	Unacknowledged: number(12), OldestUnackedSeconds: seconds(90), Delayed: of(4), Outbox: of(3),
	InReplay: of(1), ForApproval: of(1),
}

// fill puts something into every place in which something of the queue orders can wait, and counts what a
// worker has done in the last hour.
func (r *rig) fill(t *testing.T) {
	t.Helper()
	require.NoError(t, backlog.Write(t.Context(), r.store, at,
		map[string]backlog.Held{"orders": {Messages: 12, Oldest: at.Add(-90 * time.Second)}, "refunds": {}}))
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
	recorder := rates.NewRecorder(rates.Config{
		Store: r.store, Now: func() time.Time { return at }, Self: rates.Service{Instance: "i1", Name: "worker"},
		Breakers: func() []rates.Breaker {
			return []rates.Breaker{{Target: "ledger", State: "open", Since: at.Add(-time.Minute)}}
		},
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

func TestQueuesSayHowTheyStandAndWhatWaitsWhere(t *testing.T) {
	t.Parallel()
	r := open(t)
	r.fill(t)
	r.commit(t, own(created("orders", "e1", dedupe.Completed, 0)),
		own(created("refunds", "e4", dedupe.Processing, 0)), inStore(dead("refunds", "d4", "r", 4*time.Hour)))
	all := r.queues(t)
	orders, refunds := all.Items[0], all.Items[1]
	require.Equal(t, filled, orders.Waiting)
	require.Equal(t, queues.Waiting{Unacknowledged: number(0)}, refunds.Waiting,
		"nothing waits in the broker, and that is known")
	found := look[queues.QueueDetail](t, r, "queues/orders").Events
	require.Equal(t, queues.Events{
		dedupe.Processing: {}, dedupe.Completed: of(1), dedupe.Failed: {}, dedupe.DeadLettered: {},
	}, found)
	require.Equal(t, queues.Rate{
		Counts: rates.Counts{In: 4, Processed: 2, Other: 1, Dead: 1, Failed: 1}, Out: 4, FailurePercent: 50,
	}, orders.LastHour)
	require.Equal(t, &queues.Backlog{Messages: 12, CountedAt: at}, orders.Backlog)
	require.Equal(t, []any{true, false}, []any{orders.DeadLetters.Alert, refunds.DeadLetters.Alert},
		"above none, and not longer than it may wait")
	r.commit(t, inStore(dead("refunds", "d5", "r", 4*time.Hour+time.Second)))
	require.Equal(t, []any{console.Seconds(14401), true},
		[]any{r.queues(t).Items[1].DeadLetters.OldestSeconds, r.queues(t).Items[1].DeadLetters.Alert})
	require.NoError(t, backlog.Write(t.Context(), r.store, at.Add(-backlog.GoodFor-time.Second),
		map[string]backlog.Held{"orders": {Messages: 7}}))
	require.Nil(t, r.queues(t).Items[0].Backlog, "an old count is none")
	r.over(many{r.store})
	found = look[queues.QueueDetail](t, r, "queues/orders").Events
	require.Equal(t, queues.Count{Count: 10_000, More: true}, found[dedupe.Completed], "a count ends somewhere")
}

func TestAQueueSaysTheWorstOfItselfAndWhy(t *testing.T) {
	t.Parallel()
	paused := func(stands pause.Standing) *queues.QueuePaused {
		return &queues.QueuePaused{Pause: pause.Pause{Who: "ada", Why: "mended", At: at}, Subscription: stands}
	}
	for want, q := range map[string]queues.Queue{
		"off ": {},
		"ok ":  {Enabled: true},
		"paused paused since 2026-03-02T10:15:00Z by ada: mended": {
			Enabled: true, Paused: paused(pause.Paused),
		},
		"pause_failed its subscription pushes; paused since 2026-03-02T10:15:00Z by ada: mended": {
			Enabled: true, Paused: paused(pause.Pushing),
		},
		"backlog 9 messages are in the broker; alert over 8": {
			Enabled: true, Backlog: &queues.Backlog{Messages: 9, AlertAbove: 8},
		},
		"failing 10 % of the attempts failed in the last hour": {
			Enabled: true, LastHour: queues.Rate{FailurePercent: 10},
		},
		"breaker_open the breaker of target t is half-open in instance i since 2026-03-02T10:15:00Z": {
			Enabled: true, Breakers: []rates.OpenBreaker{
				{Instance: "i", Breaker: rates.Breaker{Target: "t", State: "half_open", Since: at}},
			},
		},
		"alert dead letters: 1, the oldest since 2026-03-02T10:15:00Z; alert over 0 or 4h; 10 % of the attempts " +
			"failed in the last hour": {
			Enabled: true, DeadLetters: queues.Depth{
				Count: of(1), OldestAt: at, OldestAlertSeconds: 4 * 3600, Alert: true,
			}, LastHour: queues.Rate{FailurePercent: 10},
		},
		"off it does not run and keeps its subscription, in which nothing waits": {
			Kept: &queues.Kept{}, Waiting: queues.Waiting{Unacknowledged: number(0)},
		},
		"off_waiting it does not run and keeps what waits for it: 3 in the broker, which deletes the oldest at " +
			"2026-03-02T10:15:00Z; it is handled once the queue runs again": {
			Kept: &queues.Kept{DeletedAt: at}, Waiting: queues.Waiting{Unacknowledged: number(3)},
		},
	} {
		var cause string
		q.State, cause = q.Stands()
		require.Equal(t, want, string(q.State)+" "+cause)
		require.Equal(t, !slices.Contains([]queues.QueueState{queues.IsPaused, queues.Working, queues.Off},
			q.State), q.Alerts())
	}
}

// many answers every count with as much as it was asked to count.
type many struct{ store.Store }

func (s many) Query(ctx context.Context, q store.Query) (store.Page, error) {
	if q.Count {
		return store.Page{Count: int64(q.Limit)}, nil
	}
	return s.Store.Query(ctx, q)
}

func TestAQueueSaysWhichKeysWaitAndBehindWhat(t *testing.T) {
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
	require.Equal(t, []string{"a", "b", "c", "d", "ledger"}, targets,
		"a page that is refreshed shows them in the same place")
	require.Equal(t, "ledger", got.Breakers[0].Target)
	for i := range 12 {
		r.put(t, "orders", fmt.Sprint("more-", i), fmt.Sprint("more-", i), at.Add(time.Hour), false)
	}
	r.get(t, "queues/orders", &got)
	require.Len(t, got.Keys, 10)
	require.True(t, got.KeysMore)
}

func TestRatesAreOfTheHoursOrDaysThatAreAskedFor(t *testing.T) {
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
		require.Equal(t, []any{want.unit, want.queues, want.buckets, int64(4)},
			[]any{got.Unit, len(got.Items), len(got.Items[0].Buckets), got.Items[0].Buckets[want.buckets-1].In}, query)
	}
}

type broker struct {
	held map[string]backlog.Held
	err  error
}

func (b broker) Backlogs(context.Context) (map[string]backlog.Held, time.Time, error) {
	return b.held, at, b.err
}

func TestTheBrokerIsAskedWhereItCanBe(t *testing.T) {
	t.Parallel()
	r := open(t)
	require.NoError(t, backlog.Write(t.Context(), r.store, at,
		map[string]backlog.Held{"orders": {Messages: 12}}))
	for name, test := range map[string]struct {
		broker broker
		want   queues.Waiting
	}{
		"it answers": {
			broker{held: map[string]backlog.Held{"orders-push": {Messages: 3, Oldest: at.Add(-time.Minute)}}},
			queues.Waiting{Unacknowledged: number(3), OldestUnackedSeconds: seconds(60)},
		},
		"it does not know the subscription": {
			broker{held: map[string]backlog.Held{"other-push": {Messages: 3}}}, queues.Waiting{},
		},
	} {
		r.over(r.store, func(reads *events.Reads) { reads.Broker = test.broker })
		require.Equal(t, test.want, r.queues(t).Items[0].Waiting, name)
	}
	r.over(r.store, func(reads *events.Reads) { reads.Broker = broker{err: errors.New("down")} })
	r.refuses(t, http.MethodGet, "/v1/ops/queues", "", http.StatusServiceUnavailable, "store_unavailable")
}

func TestWhatWaitsIsAskedOfOneQueueOrOfAll(t *testing.T) {
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
			Waiting: queues.Waiting{Unacknowledged: number(0), Outbox: of(1)}, InBroker: []queues.InBroker{},
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
	require.Equal(t, queues.Elsewhere{InBroker: []queues.InBroker{}, Unknown: []string{"orders"}}, got,
		"what nobody has counted is not 0")
	require.EqualValues(t, 5, counter.Queries.Load()+counter.Gets.Load())
}

// A queue that was switched off keeps its subscription. Whoever looks sees what waits there, and until when.
func TestAQueueThatDoesNotRunSaysWhatBecomesOfItsMessages(t *testing.T) {
	t.Parallel()
	r, week := open(t), 7*24*time.Hour
	require.NoError(t, backlog.Write(t.Context(), r.store, at, map[string]backlog.Held{
		"runs": {Messages: 5, Oldest: at.Add(-time.Hour)}, "kept": {Messages: 3, Oldest: at.Add(-2 * time.Hour)},
		"empty": {}, "ageless": {Messages: 2},
	}))
	r.over(r.store, func(reads *events.Reads) {
		reads.Catalog = &catalog.Catalog{Queues: []catalog.Queue{
			{ID: "runs", Enabled: true, MessageRetention: week},
			{ID: "kept", MessageRetention: week},
			{ID: "empty", MessageRetention: week},
			{ID: "ageless", MessageRetention: week},
			{ID: "gone", MessageRetention: week},
		}}
	})
	kept := &queues.Kept{RetentionSeconds: 7 * 86400}
	got := r.queues(t)
	for i, want := range []*queues.Kept{
		nil,
		{RetentionSeconds: kept.RetentionSeconds, DeletedAt: at.Add(-2 * time.Hour).Add(week)},
		kept, kept, nil,
	} {
		require.Equal(t, want, got.Items[i].Kept, got.Items[i].ID)
	}
}

func TestTheOutboxShowsWhatWaitsLongest(t *testing.T) {
	t.Parallel()
	r := open(t)
	r.commit(t, waitingLane("l1", time.Minute), waitingLane("l2", time.Hour), waitingLane("l3", time.Second))
	lanes := look[queues.Lanes](t, r, "outbox?limit=2")
	require.Equal(t, []any{"l2", console.Seconds(3600), "l1", true},
		[]any{lanes.Items[0].ID, lanes.Items[0].WaitsSeconds, lanes.Items[1].ID, lanes.More})
	require.Equal(t, queues.Outbox{Lanes: of(3), OldestAt: at.Add(-time.Hour), OldestSeconds: 3600},
		r.queues(t).Outbox)
}

// doctor finds what it is told to find.
type doctor struct {
	found  system.Examination
	err    error
	paused map[string]pause.Pause
	// within is how long it may take.
	within time.Duration
}

func (d *doctor) Examine(ctx context.Context, paused map[string]pause.Pause) (system.Examination, error) {
	d.paused = paused
	if deadline, bounded := ctx.Deadline(); bounded {
		d.within = time.Until(deadline)
	}
	return d.found, d.err
}

// standing is the API with a doctor, on the shipped catalog.
func (r *rig) standing(t *testing.T, d system.Doctor) *catalog.Catalog {
	t.Helper()
	c := catalogtest.Shipped()
	r.deployment = &system.Deployment{
		Self: system.Self{Build: serve.Build{Version: "v1.4.0"}, Instance: "one", StartedAt: at}, Doctor: d,
		Settings: []env.Setting{{Name: "OPS_TOKEN", About: "the tokens", Value: "[redacted]"}},
	}
	r.over(r.store, func(reads *events.Reads) { reads.Catalog = c })
	return c
}

func TestEachServiceIsComparedWithWhatIsDeployed(t *testing.T) {
	t.Parallel()
	type row struct {
		deployed []string
		want     map[string]system.Agreement // by instance; the webhook service is empty
		own      system.Agreement
	}
	filetest.Each(t, map[string]row{
		"where the queues say it": {
			[]string{"HASH", "HASH"},
			map[string]system.Agreement{"new": system.Same, "old": system.Differs, "": system.Same},
			system.Same,
		},
		"where they say another": {
			[]string{"00000000"}, map[string]system.Agreement{
				"new": system.Differs, "old": system.Same, "": system.Differs,
			}, system.Differs,
		},
		"where they do not agree": {
			[]string{"00000000", "HASH"}, map[string]system.Agreement{
				"new": system.Differs, "old": system.Differs, "": system.Differs,
			}, system.Differs,
		},
		"where nobody says it": {
			nil,
			map[string]system.Agreement{"new": system.Same, "old": system.Differs, "": system.Same},
			system.NotKnown,
		},
	}, func(t *testing.T, test row) {
		r, d := open(t), &doctor{found: system.Examination{Catalogs: map[string]string{}}}
		c := r.standing(t, d.Examine)
		for i, hash := range test.deployed {
			d.found.Catalogs[fmt.Sprint(i)] = map[string]string{"HASH": c.Hash(), "00000000": hash}[hash]
		}
		for instance, of := range map[string]struct {
			hash, webhook string
			ago           time.Duration
		}{"new": {c.Hash(), "v1.4.0:" + c.Hash(), time.Minute}, "old": {"00000000", "", 2 * time.Minute}} {
			recorder := rates.NewRecorder(rates.Config{
				Store: r.store, Now: func() time.Time { return at.Add(-of.ago) }, Breakers: func() []rates.Breaker {
					return nil
				},
				Self: rates.Service{
					Name: "worker", Instance: instance, Version: "v1.4.0", Catalog: of.hash, StartedAt: at.Add(-time.Hour),
				},
			})
			recorder.Release(of.webhook)
			recorder.Arrived("orders")
			require.NoError(t, recorder.Flush(t.Context()))
		}
		got := look[system.Status](t, r, "status")
		require.Equal(t, []any{c.Hash(), test.own, "v1.4.0", "[redacted]"},
			[]any{got.Catalog, got.Agreement, got.Build.Version, got.Configuration[0].Value})
		require.Len(t, got.Services, 3)
		require.EqualValues(t, 60, got.Services[0].SeenSeconds, "the newest first")
		for _, one := range got.Services {
			require.Equal(t, test.want[one.Instance], one.Agreement, one.Instance)
		}
	})
}

func TestTheDoctorIsAskedWithThePausesAndWhatItCannotReadIsSaid(t *testing.T) {
	t.Parallel()
	r, d := open(t), &doctor{found: system.Examination{Unread: 3, Findings: []finding.Finding{
		finding.New("topic_missing", "It is refused.", "Make it.").Of("topic", "q", "", ""),
	}}}
	r.standing(t, d.Examine)
	r.commit(t, paused("orders"))
	got := look[system.Status](t, r, "status").Doctor
	require.Equal(t, []any{d.found.Findings, 3, at}, []any{got.Findings, got.Unread, got.ExaminedAt})
	require.Contains(t, d.paused, "orders")
	require.Positive(t, d.within)
	require.LessOrEqual(t, d.within, 3*time.Second, "a page has 4")
	for problem, d := range map[string]system.Doctor{
		"Unavailable":        (&doctor{err: errors.New("read projects/p/topics/q: Unavailable")}).Examine,
		"nothing to compare": nil,
	} {
		r.standing(t, d)
		got := look[system.Status](t, r, "status")
		require.Contains(t, got.Doctor.Problem, problem)
		require.Zero(t, got.Doctor.ExaminedAt)
		require.Equal(t, system.NotKnown, got.Agreement)
		require.NotEmpty(t, got.Configuration)
	}
}
