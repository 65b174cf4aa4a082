package ops_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/console/ops"
	"billhook/internal/contract"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/pipeline/lane"
	"billhook/internal/platform/audit"
	"billhook/internal/platform/backlog"
	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
)

// put puts a message of the queue into its delayed lane.
func (r *rig) put(t *testing.T, queue, key, event string, due time.Time) {
	t.Helper()
	l, err := lane.Open(t.Context(), r.store, lane.Name{Queue: queue, Tenant: "default", OrderingKey: key, Message: event})
	require.NoError(t, err)
	_, writes, err := l.Put(lane.Waiting{Topic: queue, Message: contract.Message{Data: []byte(`{}`)}, Tenant: "default", EventID: event, Due: due}, at)
	require.NoError(t, err)
	r.commit(t, writes...)
}

// emitted puts messages of an event into the outbox.
func (r *rig) emitted(t *testing.T, queue string, events ...string) {
	t.Helper()
	batch := lane.NewBatch(at)
	for _, event := range events {
		batch.Add("topic", event, contract.Message{Data: []byte(`{}`)}, lane.Source{Queue: queue, Tenant: "default", EventID: event})
	}
	r.commit(t, batch.Writes()...)
}

func operation(id, queue string, progress deadletter.Progress) store.Write {
	return store.Create(store.Key{Collection: audit.Collection, ID: id}, map[string]any{
		"kind": "replay", "queue": queue, "progress": string(progress), "rate": int64(50), "created_at": at,
	})
}

// fill puts something into every place in which something of the queue orders can wait.
func (r *rig) fill(t *testing.T) {
	t.Helper()
	require.NoError(t, backlog.Write(t.Context(), r.store, at, map[string]backlog.Held{"orders": {Messages: 12, Oldest: at.Add(-90 * time.Second)}, "refunds": {}}))
	r.put(t, "orders", "k1", "e1", at.Add(time.Hour))
	r.put(t, "orders", "", "e2", at.Add(time.Hour))
	r.put(t, "orders", "k2", "e3", time.Time{})
	r.put(t, "orders", "k2", "e4", time.Time{})
	r.emitted(t, "orders", "e5", "e6", "e7")
	r.commit(t, letter("d1", "orders", "replayed", time.Hour), letter("d2", "orders", "open", time.Hour),
		operation("o1", "orders", deadletter.Waiting), operation("o2", "orders", deadletter.Finished))
}

func of(n int64) ops.Count { return ops.Count{Count: n} }

func number(n int64) *int64 { return &n }

var filled = ops.Waiting{
	Unacknowledged: number(12), OldestUnackedSeconds: number(90), Delayed: of(4), Outbox: of(3), InReplay: of(1), ForApproval: of(1),
}

func TestQueuesCountWhatWaitsInEveryPlace(t *testing.T) {
	t.Parallel()
	r := open(t)
	r.fill(t)
	var got ops.Queues
	r.ask(t, "/v1/ops/queues", nil, &got)
	require.Equal(t, filled, got.Items[0].Waiting)
	require.Equal(t, ops.Waiting{Unacknowledged: number(0)}, got.Items[1].Waiting, "nothing waits in the broker, and that is known")
}

func TestTheBrokerIsAskedWhereItCanBe(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		broker ops.Broker
		want   ops.Waiting
		status int
	}{
		"it answers":                        {asked{held: map[string]backlog.Held{"orders-push": {Messages: 3, Oldest: at.Add(-time.Minute)}}}, ops.Waiting{Unacknowledged: number(3), OldestUnackedSeconds: number(60)}, http.StatusOK},
		"it does not know the subscription": {asked{held: map[string]backlog.Held{"other-push": {Messages: 3}}}, ops.Waiting{}, http.StatusOK},
		"it does not answer":                {asked{err: errors.New("down")}, ops.Waiting{}, http.StatusServiceUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := open(t)
			require.NoError(t, backlog.Write(t.Context(), r.store, at, map[string]backlog.Held{"orders": {Messages: 12}}))
			r.reads(ops.Reads{Store: r.store, Catalog: queues, Now: func() time.Time { return at }, Broker: test.broker})
			var got ops.Queues
			answer := r.ask(t, "/v1/ops/queues", nil, nil)
			require.Equal(t, test.status, answer.Code)
			if test.status == http.StatusOK {
				r.ask(t, "/v1/ops/queues", nil, &got)
				require.Equal(t, test.want, got.Items[0].Waiting)
			}
		})
	}
}

// asked is a broker that can be asked.
type asked struct {
	held map[string]backlog.Held
	err  error
}

func (a asked) Backlogs(context.Context) (map[string]backlog.Held, time.Time, error) {
	return maps.Clone(a.held), at, a.err
}

// TestWhatWaitsIsCountedInABoundedNumberOfReads: however much of it there is.
func TestWhatWaitsIsCountedInABoundedNumberOfReads(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		messages int
		want     ops.Waiting
		reads    int64
	}{
		"nothing waits": {0, ops.Waiting{}, 4},
		"a few":         {2, ops.Waiting{Delayed: of(2)}, 4 + 1},
		"many":          {60, ops.Waiting{Delayed: of(60)}, 4 + 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := open(t)
			for message := range test.messages {
				r.put(t, "orders", fmt.Sprint("k", message%3), fmt.Sprint("e", message), time.Time{})
			}
			counter := &storetest.Counter{Store: r.store}
			one := catalog.Catalog{Queues: queues.Queues[:1]}
			reads := ops.Reads{Store: counter, Catalog: &one, Now: func() time.Time { return at }}
			got, err := reads.Queues(t.Context())
			require.NoError(t, err)
			require.Equal(t, test.want, got.Items[0].Waiting)
			const others = 4 + 1 + 1 + 1 + 1 // statuses, dead letters, the outbox's lanes, the pauses, the rates
			require.Equal(t, test.reads, counter.Queries.Load()-others)
			require.EqualValues(t, 2, counter.Gets.Load(), "the backlogs, and what the verification of the books has found")
		})
	}
}

// reads puts the API's reads alone on the rig.
func (r *rig) reads(reads ops.Reads) {
	r.router = chi.NewRouter()
	(&ops.API{Reads: reads, Operator: r.operator(), Access: r.access, Log: slog.New(slog.DiscardHandler)}).Routes(r.router)
}

func TestWhatWaitsIsAskedOfOneQueueOrOfAll(t *testing.T) {
	t.Parallel()
	r := open(t)
	r.fill(t)
	r.emitted(t, "refunds", "e9")
	for query, want := range map[string]ops.Elsewhere{
		"?queue=q:orders": {Waiting: filled, InBroker: []ops.InBroker{{Queue: "orders", Messages: 12, OldestSeconds: 90}}, Unknown: []string{}},
		"?queue=refunds":  {Waiting: ops.Waiting{Unacknowledged: number(0), Outbox: of(1)}, InBroker: []ops.InBroker{}, Unknown: []string{}},
		"": {Waiting: func() ops.Waiting {
			all := filled
			all.Outbox = of(4)
			return all
		}(), InBroker: []ops.InBroker{{Queue: "orders", Messages: 12, OldestSeconds: 90}}, Unknown: []string{}},
	} {
		var got ops.Elsewhere
		require.Equal(t, http.StatusOK, r.ask(t, "/v1/ops/waiting"+query, nil, &got).Code)
		require.Equal(t, want, got, query)
	}
	require.Equal(t, http.StatusBadRequest, r.ask(t, "/v1/ops/waiting?queue=nobody", nil, nil).Code)

	running := &catalog.Catalog{Queues: []catalog.Queue{{ID: "orders", Enabled: true}, {ID: "asleep"}}}
	fresh := open(t)
	counter := &storetest.Counter{Store: fresh.store}
	got, err := ops.Reads{Store: counter, Catalog: running, Now: func() time.Time { return at }}.Waits(t.Context(), "")
	require.NoError(t, err)
	require.Equal(t, ops.Elsewhere{InBroker: []ops.InBroker{}, Unknown: []string{"orders"}}, got, "what nobody has counted is not 0")
	require.EqualValues(t, 5, counter.Queries.Load()+counter.Gets.Load())
}

// A queue that was switched off keeps its subscription. Whoever looks sees what waits there, and until when.
func TestAQueueThatDoesNotRunSaysWhatBecomesOfItsMessages(t *testing.T) {
	t.Parallel()
	r := open(t)
	require.NoError(t, backlog.Write(t.Context(), r.store, at, map[string]backlog.Held{
		"runs": {Messages: 5, Oldest: at.Add(-time.Hour)}, "kept": {Messages: 3, Oldest: at.Add(-2 * time.Hour)}, "empty": {}, "ageless": {Messages: 2},
	}))
	week := 7 * 24 * time.Hour
	r.reads(ops.Reads{Store: r.store, Now: func() time.Time { return at }, Catalog: &catalog.Catalog{Queues: []catalog.Queue{
		{ID: "runs", Enabled: true, MessageRetention: week}, {ID: "kept", MessageRetention: week}, {ID: "empty", MessageRetention: week},
		{ID: "ageless", MessageRetention: week}, {ID: "gone", MessageRetention: week},
	}}})
	var got ops.Queues
	r.ask(t, "/v1/ops/queues", nil, &got)
	kept := &ops.Kept{RetentionSeconds: int64(week.Seconds())}
	for i, want := range []*ops.Kept{nil, {RetentionSeconds: kept.RetentionSeconds, DeletedAt: at.Add(-2 * time.Hour).Add(week)}, kept, kept, nil} {
		require.Equal(t, want, got.Items[i].Kept, got.Items[i].ID)
	}
	require.Equal(t, number(3), got.Items[1].Waiting.Unacknowledged)
}
