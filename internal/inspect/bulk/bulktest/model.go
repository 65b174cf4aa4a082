// Package bulktest checks operations on dead letters against a model, on any store: whatever people, runners
// and crashes do concurrently, an operation replays each item at most once, loses no message, keeps the order
// of each ordering key, and changes nothing after it is over. Two identities begin and approve what takes two
// people. A corrected item stays corrected.
package bulktest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"billhook/catalog"
	"billhook/internal/contract"
	"billhook/internal/filetest"
	"billhook/internal/inspect/bulk"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/pipeline/lane"
	"billhook/internal/platform/audit"
	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
)

// Many stores open dead letters of a queue, one second apart beginning at from. change may modify each of
// them.
func Many(
	t *testing.T, db store.Store, q catalog.Queue, from time.Time, items int,
	change func(n int, i *deadletter.Item),
) {
	t.Helper()
	var writes []store.Write
	for n := range items {
		item := deadletter.Item{ID: fmt.Sprintf("%05d", n), Queue: q.ID, State: deadletter.Open}
		item.Reason, item.EventType, item.EventID = "unknown_product", "order.paid", fmt.Sprint("e", n)
		item.OrderingKey, item.Kept = fmt.Sprint("u", n%7), from.Add(time.Duration(n)*time.Second)
		item.Expires = item.Kept.Add(q.DeadLetter.Retention)
		if change != nil {
			change(n, &item)
		}
		writes = append(writes, store.Create(item.Key(), store.Encode(&item)))
	}
	for some := range slices.Chunk(writes, store.MaxWrites) {
		storetest.Put(t, db, some...)
	}
}

// Run runs the model. All histories share the store that open returns, and each has items of its own.
func Run(t *testing.T, open func(testing.TB) store.Store) {
	t.Helper()
	db, histories := open(t), 0
	rapid.Check(t, func(t *rapid.T) {
		histories++
		w := &world{
			faults: &storetest.Faults{Store: db}, now: start, replays: map[string]map[string]int{},
			over: map[string]bulk.Operation{}, pending: map[string]contract.Message{}, corrected: map[string]bool{},
			by: map[string]string{},
			queue: catalog.Queue{
				ID: fmt.Sprintf("q%d-%d", time.Now().UnixNano(), histories), OrderingKey: []string{"uid"}, FourEyes: true,
				DeadLetter: catalog.DeadLetter{Retention: 24 * time.Hour},
			},
		}
		var order []int
		for w.deaths = range rapid.IntRange(1, 25).Draw(t, "items") {
			order = append(order, w.deaths)
		}
		for _, n := range rapid.Permutation(order).Draw(t, "they die in this order") {
			w.bury(t, n, nil)
		}
		t.Repeat(map[string]func(*rapid.T){
			"begin": w.begin, "approve": w.approve, "reject": w.reject, "cancel": w.cancel,
			"run": w.run, "run, with another person between": w.disturbed, "crash": w.crash,
			"a replay ends": w.ends, "a replay dies": w.dies, "an item is corrected": w.correct,
			"a dead letter comes again":    w.again,
			"another event dies":           func(t *rapid.T) { w.deaths++; w.bury(t, w.deaths, nil) },
			"the broker fails or recovers": func(*rapid.T) { w.down = !w.down }, "time passes": func(*rapid.T) {
				w.now = w.now.Add(time.Minute)
			},
			"": w.check,
		})
	})
}

var start = time.Date(2026, 3, 2, 10, 0, 0, 0, time.UTC)

var people = []string{"ada", "bob", "cyd"}

// world is a queue with dead letters, and what the model knows of its operations.
type world struct {
	faults *storetest.Faults
	queue  catalog.Queue
	now    time.Time
	names  int
	deaths int // the number of the last event that has died
	// operations are all that have begun; over has those that were seen to be over, as they were then.
	operations []string
	over       map[string]bulk.Operation
	// replays counts, per operation and item, the messages that were put on the queue.
	replays map[string]map[string]int
	// pending has the messages of replays that have not ended, by item.
	pending map[string]contract.Message
	// corrected has the items that a correction has closed.
	corrected map[string]bool
	// by has the operation of each replay; published is what the broker has accepted, unless it is down.
	by        map[string]string
	published []contract.Message
	down      bool
}

// Publish implements contract.Publisher.
func (w *world) Publish(_ context.Context, _ string, m contract.Message) (string, error) {
	if w.down {
		return "", errors.New("no answer")
	}
	w.published = append(w.published, m)
	return "1", nil
}

// replay names a replay of an item.
func replay(m contract.Message) string {
	return m.Attributes[deadletter.AttrReplayOf] + " " + m.Attributes[deadletter.AttrReplayCount]
}

func (w *world) operator(wait func(context.Context, time.Duration) error) *bulk.Operator {
	if wait == nil {
		wait = func(context.Context, time.Duration) error { return nil }
	}
	now := func() time.Time { return w.now }
	relay := &lane.Relay{Of: lane.Outbox, Store: w.faults.Store, Publisher: w, Now: now}
	return &bulk.Operator{
		Store: w.faults, Catalog: &catalog.Catalog{Queues: []catalog.Queue{w.queue}}, Now: now,
		NewID: func() string { w.names++; return fmt.Sprintf("%s-%d", w.queue.ID, w.names) },
		Wait: func(ctx context.Context, d time.Duration) error {
			w.now = w.now.Add(max(d, 0)) // a lane orders its messages by the times of their commits
			return wait(ctx, d)
		},
		Relay: func(ctx context.Context, lane string) error {
			_, err := relay.Lane(ctx, lane)
			return err
		},
	}
}

// bury stores the first dead letter of an item, or the one of its replay.
func (w *world) bury(t *rapid.T, n int, again map[string]string) {
	attributes := map[string]string{
		"event_id": fmt.Sprint("e", n), "ordering_key": fmt.Sprint("k", n%3),
		"dead_letter_reason": "unknown_product",
		"source_message_id":  fmt.Sprint(n), "first_published_at": start.Add(time.Duration(n) * time.Second).
					Format(time.RFC3339),
	}
	for _, name := range []string{deadletter.AttrReplayOf, deadletter.AttrReplayCount} {
		if again != nil {
			attributes[name] = again[name]
		}
	}
	require.NoError(t, filetest.ErrorOf(deadletter.Keep(context.Background(), w.faults, w.queue,
		contract.Message{Data: []byte(`{}`), Attributes: attributes}, fmt.Sprint(n), w.now)))
}

func (w *world) begin(t *rapid.T) {
	w.queue.FourEyes = rapid.Bool().Draw(t, "four eyes")
	operator, f := w.operator(nil), bulk.Filter{Queue: w.queue.ID}
	items, want := w.items(t), 0
	if rapid.Bool().Draw(t, "some") {
		f.Items = []string{"0000-of-nothing"}
		for _, id := range byEvent(items) {
			if rapid.Bool().Draw(t, "this one") {
				f.Items = append(f.Items, id)
			}
		}
	}
	for id, item := range items {
		if item.State == deadletter.Open && (f.Items == nil || slices.Contains(f.Items, id)) {
			want++
		}
	}
	total := filetest.Must(operator.Total(context.Background(), f))(t)
	require.Equal(t, want, total)
	by := w.author(t)
	op, err := operator.Begin(context.Background(), bulk.Operation{
		Kind: rapid.SampledFrom([]deadletter.Kind{
			deadletter.Replay, deadletter.Replay, deadletter.Replay, deadletter.Discard, deadletter.Complete,
		}).Draw(t, "kind"),
		Filter: f, Why: "mended", Rate: 10, Force: true,
	}, by, total)
	if w.queue.FourEyes && by.Proof != audit.Identity {
		require.ErrorIs(t, err, audit.ErrNoIdentity)
		return
	}
	if total == 0 {
		require.ErrorIs(t, err, bulk.ErrRefused)
		return
	}
	require.NoError(t, err)
	w.operations = append(w.operations, op.ID)
	w.replays[op.ID] = map[string]int{}
}

func (w *world) person(t *rapid.T) string { return rapid.SampledFrom(people).Draw(t, "person") }

// author is a person with an identity, or one who holds the token.
func (w *world) author(t *rapid.T) audit.Author {
	return audit.Author{
		Proof: rapid.SampledFrom([]audit.Proof{audit.Identity, audit.Identity, audit.SharedToken}).Draw(t, "proof"),
		Name:  w.person(t),
	}
}

func byName(who, why string) audit.Change {
	return audit.Change{Who: audit.Author{Proof: audit.Identity, Name: who}, Why: why}
}

func (w *world) pick(t *rapid.T) bulk.Operation {
	if len(w.operations) == 0 {
		t.Skip("nothing has begun")
	}
	op := filetest.Must(w.operator(nil).Operation(context.Background(), rapid.SampledFrom(w.operations).Draw(t,
		"operation")))(t)
	return op
}

func (w *world) approve(t *rapid.T) {
	op, by, operator := w.pick(t), w.author(t), w.operator(nil)
	total := filetest.Must(operator.Total(context.Background(), op.Matching()))(t)
	seen := rapid.IntRange(0, 1).Draw(t, "others than were seen")
	after, err := operator.Approve(context.Background(), op.ID,
		audit.Change{Who: by, Why: "checked"}, total+seen)
	switch {
	case op.Progress != bulk.Waiting:
		require.ErrorIs(t, err, bulk.ErrRefused)
	case by.Proof != audit.Identity:
		require.ErrorIs(t, err, audit.ErrNoIdentity)
	case by.Name == op.Who:
		require.ErrorIs(t, err, audit.ErrSamePerson)
	case seen > 0:
		require.ErrorIs(t, err, bulk.ErrChanged)
	case total == 0:
		require.ErrorIs(t, err, bulk.ErrRefused)
	default:
		require.NoError(t, err)
		require.Equal(t, []any{bulk.Running, by.Name}, []any{after.Progress, after.ApprovedBy})
	}
}

func (w *world) reject(t *rapid.T) {
	op, who := w.pick(t), w.person(t)
	after, err := w.operator(nil).End(context.Background(), op.ID, bulk.Rejected, byName(who, "ask first"))
	switch {
	case op.Progress == bulk.Rejected:
		require.NoError(t, err)
		require.Equal(t, op.EndedBy, after.EndedBy)
	case op.Progress != bulk.Waiting || who == op.Who:
		require.ErrorIs(t, err, bulk.ErrRefused)
	default:
		require.NoError(t, err)
		require.Equal(t, []any{bulk.Rejected, who, int64(0)}, []any{after.Progress, after.EndedBy, after.Done})
	}
}

func (w *world) cancel(t *rapid.T) {
	op, who := w.pick(t), w.person(t)
	after, err := w.operator(nil).End(context.Background(), op.ID, bulk.Cancelled, byName(who, "the wrong one"))
	switch op.Progress {
	case bulk.Finished, bulk.Rejected:
		require.ErrorIs(t, err, bulk.ErrRefused)
	case bulk.Cancelled:
		require.NoError(t, err)
		require.Equal(t, op.EndedBy, after.EndedBy)
	default:
		require.NoError(t, err)
		require.Equal(t, []any{bulk.Cancelled, who, op.Done}, []any{after.Progress, after.EndedBy, after.Done})
	}
}

// runs continues an operation, and records which items it has replayed.
func (w *world) runs(t *rapid.T, op bulk.Operation, operator *bulk.Operator) (bulk.Operation, error) {
	before := w.items(t)
	after, err := operator.Run(context.Background(), op.ID)
	for id, item := range w.items(t) {
		if item.State == deadletter.Replayed && item.ReplayCount > before[id].ReplayCount {
			require.Equal(t, op.ID, item.Operation)
			require.Equal(t, before[id].ReplayCount+1, item.ReplayCount)
			w.replays[op.ID][id]++
			item.ReplayCount--
			w.pending[id] = item.Replay(w.queue)
			w.by[replay(w.pending[id])] = op.ID
		}
		if item.Operation != before[id].Operation {
			require.Equal(t, op.ID, item.Operation)
			require.Equal(t, []string{op.ID, op.Who}, []string{item.History[0].Operation, item.History[0].Who})
		}
	}
	return after, err
}

func (w *world) run(t *rapid.T) {
	op := w.pick(t)
	after, err := w.runs(t, op, w.operator(nil))
	switch {
	case op.Progress == bulk.Waiting:
		require.ErrorIs(t, err, bulk.ErrRefused)
	case op.Runner != "" && w.now.Before(op.RunnerUntil):
		require.ErrorIs(t, err, store.ErrBusy, "one that was killed has it for a while")
	default:
		require.NoError(t, err)
		require.True(t, after.Progress.Over())
	}
}
