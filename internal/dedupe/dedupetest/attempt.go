package dedupetest

import (
	"context"
	"slices"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"billhook/internal/dedupe"
	"billhook/internal/filetest"
	"billhook/internal/pipeline/handler"
	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
	"billhook/internal/retry"
)

// Effect runs a Tx handler as the worker does: it commits the effect with the event's record, and
// calls the handler again after a conflict. With look it reads the record first.
func Effect(
	ctx context.Context, run *dedupe.Run, event handler.Event, look bool, h handler.Tx,
) (dedupe.Seen, error) {
	if look {
		if seen, err := run.Look(ctx); err != nil || seen != dedupe.Fresh {
			return seen, err
		}
	}
	for {
		event.Attempt, event.Try = run.Attempt(), run.Try
		effect, err := h(ctx, event)
		if err != nil {
			return dedupe.Fresh, err
		}
		if seen, err := run.Conclude(ctx, dedupe.Ending{Status: dedupe.Completed, Effect: effect}); err != nil ||
			seen != dedupe.Fresh {
			return seen, err
		}
	}
}

// deadLetters are the dead letters of an attempt's event.
type deadLetters struct {
	*attempt
}

func (l deadLetters) Own() string { return l.dead }

func (l deadLetters) Replaceable(dedupe.Record) bool { return l.event.accept }

func (l deadLetters) Close(ids []string) []store.Write {
	var writes []store.Write
	for _, id := range ids {
		writes = append(writes, store.Increment(deadKey(id), map[string]int64{"closed": 1}, nil))
	}
	return writes
}

func deadKey(id string) store.Key { return store.Key{Collection: "dead", ID: id} }

// reject makes an effect fail permanently.
func (w *world) reject(t *rapid.T) {
	e := w.pick(t)
	a := w.begin(t, e)
	if !w.looks(t, e, a) {
		return
	}
	w.takes(e, a)
	w.deadLetters(t, a)
}

// deadLetters ends an attempt that may handle its event with a dead letter.
func (w *world) deadLetters(t *rapid.T, a *attempt) {
	seen := filetest.Must(a.run.Conclude(context.Background(),
		dedupe.Ending{Status: dedupe.DeadLettered, Reason: "refused"}))(t)
	require.Equal(t, dedupe.Gone, seen)
	a.event.ends(a, dedupe.DeadLettered)
	w.logs(a, retry.DeadLettered, "refused")
}

// broken delivers a message that has the event's id and breaks the contract.
func (w *world) broken(t *rapid.T) {
	e := w.pick(t)
	a := w.begin(t, e)
	f := w.draw(t)
	err := a.run.Broken(context.Background(), "contract_broken")
	w.next = none
	first := e.status == "" || !w.now.Before(e.expires)
	remembers := first || e.status == dedupe.DeadLettered && len(e.open) < most &&
		!slices.Contains(e.open, a.dead)
	require.Equal(t, remembers && (f == refuse || f == lose), err != nil)
	switch {
	case !remembers || f == refuse:
	case first:
		w.expire(e)
		e.status, e.owner, e.expires = dedupe.DeadLettered, 0, w.now.Add(remember)
		e.open, e.dead = []string{a.dead}, a.dead
	default:
		e.open = append(e.open, a.dead)
	}
}

// conflict dead-letters a payload under the id of another payload, with a record of its own.
func (w *world) conflict(t *rapid.T) {
	e := w.pick(t)
	a := w.begin(t, e)
	if want, _ := w.expects(e, a); want != dedupe.Differs || w.looks(t, e, a) {
		return
	}
	run, want := a.run, dedupe.Fresh
	run.Conflict()
	if w.now.Before(e.conflicts[a.payload]) {
		want = dedupe.Gone
	}
	seen := filetest.Must(run.Look(context.Background()))(t)
	require.Equal(t, want, seen)
	if seen == dedupe.Gone {
		return
	}
	seen = filetest.Must(run.Conclude(context.Background(),
		dedupe.Ending{Status: dedupe.DeadLettered, Reason: "payload_conflict"}))(t)
	require.Equal(t, dedupe.Gone, seen)
	e.conflicts[a.payload] = w.now.Add(remember)
	key := dedupe.Key("q", dedupe.DefaultTenant, e.id, hash(a.payload))
	record := filetest.Must(dedupe.FromDocument(storetest.Get(t, w.store, key)))(t)
	require.Equal(t, []string{hash(a.payload), hash(e.payload)},
		[]string{record.PayloadHash, record.ConflictsWith})
}

// most bounds the dead letters of a record, and the corrections of its payload.
const most = 20
