package dedupetest

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"billhook/internal/contract"
	"billhook/internal/dedupe"
	"billhook/internal/filetest"
	"billhook/internal/pipeline/handler"
	"billhook/internal/platform/store"
	"billhook/internal/retry"
)

func (w *world) claim(t *rapid.T) { w.claimed(t, w.pick(t), rapid.Bool().Draw(t, "redelivered")) }

func (w *world) claimed(t *rapid.T, e *event, redelivered bool) {
	a := w.begin(t, e)
	f := w.draw(t)
	seen, err := a.run.Claim(context.Background(), lease, &contract.Message{Data: []byte(e.id)}, redelivered)
	w.next = none
	if f == refuse && err != nil {
		return // it had to read the record, and the store did not answer
	}
	require.NoError(t, err)
	if want, taken := w.expects(e, a); taken {
		require.Equal(t, want, seen)
		return
	}
	require.Equal(t, dedupe.Claimed, seen, "a claim whose answer was lost holds")
	w.expire(e)
	replay := e.status == dedupe.DeadLettered && e.payload == a.payload
	require.Equal(t, replay || e.status == dedupe.Failed || e.status == dedupe.Processing, a.run.Repeated)
	w.takes(e, a)
	e.status, e.owner, e.leaseUntil = dedupe.Processing, a.number, w.now.Add(lease)
	require.EqualValues(t, e.attempts, a.run.Attempt())
	w.under = append(w.under, a)
}

// take removes one of the running attempts.
func (w *world) take(t *rapid.T) *attempt {
	if len(w.under) == 0 {
		t.Skip("no attempt is running")
	}
	i := rapid.IntRange(0, len(w.under)-1).Draw(t, "attempt")
	a := w.under[i]
	w.under = append(w.under[:i:i], w.under[i+1:]...)
	return a
}

// concludes ends a leased attempt and reports whether it still had the lease. Without the lease it writes
// nothing.
func (w *world) concludes(t *rapid.T, a *attempt, ending dedupe.Ending, want dedupe.Seen) bool {
	seen, err := a.run.Conclude(context.Background(), ending)
	w.next = none
	require.NoError(t, err, "a lost answer is tried again")
	if a.event.owner == a.number {
		require.Equal(t, want, seen)
		return true
	}
	require.NotContains(t, []dedupe.Seen{dedupe.Own, dedupe.Counted}, seen)
	return false
}

// looks reads the record and reports whether the attempt may handle the event.
func (w *world) looks(t *rapid.T, e *event, a *attempt) bool {
	seen := filetest.Must(a.run.Look(context.Background()))(t)
	want, taken := w.expects(e, a)
	require.Equal(t, want, seen)
	return !taken
}

func (w *world) complete(t *rapid.T) {
	a := w.take(t)
	w.draw(t)
	if !w.concludes(t, a, dedupe.Ending{Status: dedupe.Completed, Effect: handler.Effect{Result: "delivered"}},
		dedupe.Own) {
		return
	}
	require.Equal(t, "delivered", a.run.Record.Result)
	a.event.ends(a, dedupe.Completed)
	w.logs(a, retry.Processed, "")
	a.event.expires = w.now.Add(remember)
	a.event.completed++
}

func (w *world) release(t *rapid.T) {
	a := w.take(t)
	w.draw(t)
	counted, kept := rapid.Bool().Draw(t, "counted"), rapid.SampledFrom([]string{"", a.dead}).Draw(t, "kept")
	if !w.concludes(t, a, dedupe.Ending{
		Status: dedupe.Failed, Reason: "handler_error", Next: w.now.Add(time.Minute), Uncounted: !counted,
		Kept: dedupe.Kept{Ticket: kept},
	}, dedupe.Counted) {
		return
	}
	a.event.owner, a.event.status, a.event.expires = 0, dedupe.Failed, w.now.Add(remember)
	a.event.due, a.event.kept = w.now.Add(time.Minute), kept
	if !counted {
		a.event.attempts--
		a.event.log = a.event.log[:len(a.event.log)-1]
		return
	}
	w.logs(a, retry.Retry, "handler_error")
	a.event.log[len(a.event.log)-1].Next = a.event.due
}

func (w *world) fails(t *rapid.T) {
	a := w.take(t)
	if !w.now.Before(a.event.expires) {
		t.Skip("the record has expired")
	}
	seen := filetest.Must(a.run.Look(context.Background()))(t)
	if a.event.owner != a.number {
		require.NotEqual(t, dedupe.Claimed, seen)
		return
	}
	require.Equal(t, dedupe.Claimed, seen)
	w.deadLetters(t, a)
	a.event.expires = w.now.Add(remember)
}

// die loses an attempt, as a crash does. Its lease remains.
func (w *world) die(t *rapid.T) { w.take(t) }

// credit is a Tx handler that is not idempotent by itself.
func (e *event) credit(context.Context, handler.Event) (handler.Effect, error) {
	return handler.Effect{
		Result: "credited", Writes: []store.Write{store.Increment(e.account(), map[string]int64{"n": 1}, nil)},
	}, nil
}

func (e *event) account() store.Key { return store.Key{Collection: "accounts", ID: e.id} }

func (w *world) effect(t *rapid.T) {
	e := w.pick(t)
	w.commit(t, e, w.begin(t, e), w.draw(t), e.credit)
}

// effects handles a second delivery while the handler of the first runs.
func (w *world) effects(t *rapid.T) {
	e := w.pick(t)
	a := w.begin(t, e)
	entered := false
	w.commit(t, e, a, none, func(ctx context.Context, event handler.Event) (handler.Effect, error) {
		if !entered {
			entered = true
			w.commit(t, e, w.begin(t, e), none, e.credit)
		}
		return e.credit(ctx, event)
	})
}

func (w *world) commit(t *rapid.T, e *event, a *attempt, f fault, h handler.Tx) {
	seen, err := Effect(context.Background(), a.run, handler.Event{Queue: "q", ID: e.id},
		rapid.Bool().Draw(t, "redelivered"), h)
	w.next = none
	want, taken := w.expects(e, a)
	switch {
	case taken && err == nil:
		require.Equal(t, want, seen)
	case taken:
		require.Equal(t, refuse, f)
	case err == nil:
		require.Equal(t, dedupe.Own, seen)
		w.committed(e, a)
	default:
		require.ErrorIs(t, err, errLost)
		if f == lose { // it is written
			w.committed(e, a)
		}
	}
}

func (w *world) committed(e *event, a *attempt) {
	w.takes(e, a)
	e.ends(a, dedupe.Completed)
	w.logs(a, retry.Processed, "")
	e.completed++
	e.effects++
}

func (w *world) fail(t *rapid.T) {
	e := w.pick(t)
	a := w.begin(t, e)
	_, err := Effect(context.Background(), a.run, handler.Event{}, rapid.Bool().Draw(t, "redelivered"),
		func(context.Context, handler.Event) (handler.Effect, error) { return handler.Effect{}, errHandler })
	if !errors.Is(err, errHandler) {
		return
	}
	next := w.now.Add(rapid.SampledFrom([]time.Duration{0, time.Minute}).Draw(t, "it waits"))
	for {
		seen, err := a.run.Conclude(context.Background(),
			dedupe.Ending{Status: dedupe.Failed, Reason: "handler_error", Next: next})
		require.NoError(t, err)
		want, taken := w.expects(e, a)
		switch {
		case seen == dedupe.Fresh:
			continue // it found an earlier attempt, and decides again
		case taken:
			require.Equal(t, want, seen)
		default:
			require.Equal(t, dedupe.Counted, seen)
			w.takes(e, a)
			w.failed(a, next)
		}
		return
	}
}

// failed applies the failure of an attempt without a lease to its event.
func (w *world) failed(a *attempt, next time.Time) {
	a.event.status, a.event.owner, a.event.due = dedupe.Failed, 0, next
	w.logs(a, retry.Retry, "handler_error")
	a.event.log[len(a.event.log)-1].Next = next
}

// early delivers an event before its next attempt is due: the copy and its ticket are stored together.
func (w *world) early(t *rapid.T) {
	e := w.pick(t)
	for _, other := range w.events {
		if other.status == dedupe.Failed && w.now.Before(other.due) {
			e = other
		}
	}
	a := w.begin(t, e)
	if want, _ := w.expects(e, a); want != dedupe.Early || w.looks(t, e, a) {
		return
	}
	require.Equal(t, e.due, a.run.Due())
	shelf := store.Key{Collection: "shelf", ID: a.dead}
	want, kept, there := dedupe.Waiting, a.dead, true
	switch rapid.SampledFrom([]string{"nothing", "another copy is kept", "its key is taken"}).Draw(t,
		"meanwhile") {
	case "another copy is kept":
		other := w.begin(t, e)
		if want, _ := w.expects(e, other); want != dedupe.Early || w.looks(t, e, other) {
			return
		}
		_, err := other.run.Conclude(context.Background(), dedupe.Ending{Kept: dedupe.Kept{Ticket: other.dead}})
		require.NoError(t, err)
		kept, there = other.dead, false
	case "its key is taken":
		require.NoError(t, filetest.ErrorOf(w.store.Commit(context.Background(),
			[]store.Write{store.Create(shelf, nil)})))
		want, kept = dedupe.Early, e.kept
	default:
		if f := w.draw(t); f == refuse {
			want, kept, there = dedupe.Fresh, e.kept, false
		} else if f == lose {
			want = dedupe.Fresh
		}
	}
	seen, err := a.run.Conclude(context.Background(),
		dedupe.Ending{Kept: dedupe.Kept{Ticket: a.dead, Writes: []store.Write{store.Create(shelf, nil)}}})
	require.Equal(t, want, seen)
	require.Equal(t, want == dedupe.Fresh, err != nil)
	_, err = w.store.Get(context.Background(), shelf)
	require.Equal(t, there, err == nil)
	e.kept = kept
}

// counts counts an attempt before it runs: then its worker dies, or it ends as any other does, or the count
// is taken back.
func (w *world) counts(t *rapid.T) {
	e := w.pick(t)
	a := w.begin(t, e)
	if rapid.Bool().Draw(t, "looks first") && !w.looks(t, e, a) {
		return
	}
	concludes := func(want dedupe.Seen, conclude func() (dedupe.Seen, error)) {
		seen := filetest.Must(conclude())(t)
		require.Equal(t, want, seen)
	}
	count := func() (dedupe.Seen, error) {
		return a.run.Conclude(context.Background(), dedupe.Ending{Status: dedupe.Failed, Reason: dedupe.Begun})
	}
	if want, taken := w.expects(e, a); taken {
		concludes(want, count)
		return
	}
	concludes(dedupe.Counted, func() (seen dedupe.Seen, err error) {
		if seen, err = count(); seen == dedupe.Fresh { // it found an earlier attempt, and decides again
			return count()
		}
		return seen, err
	})
	w.takes(e, a)
	e.status, e.owner = dedupe.Failed, 0
	switch rapid.SampledFrom([]string{
		"its worker dies", "it has its effect", "it fails", "it is dead-lettered", "it is not counted",
	}).Draw(t, "then") {
	case "it has its effect":
		e.attempts-- // counted once
		w.commit(t, e, a, none, e.credit)
	case "it fails":
		concludes(dedupe.Counted, func() (dedupe.Seen, error) {
			return a.run.Conclude(context.Background(),
				dedupe.Ending{Status: dedupe.Failed, Reason: "handler_error", Next: w.now})
		})
		w.failed(a, w.now)
	case "it is dead-lettered":
		w.deadLetters(t, a)
	case "it is not counted":
		for _, want := range []dedupe.Seen{dedupe.Counted, dedupe.Fresh} { // once
			concludes(want, func() (dedupe.Seen, error) { return a.run.Uncount(context.Background(), "contention") })
		}
		e.attempts--
		e.log = e.log[:len(e.log)-1]
	}
}

func (w *world) sweep(t *rapid.T) {
	orphans, reported, failed := map[string]*event{}, 0, 0
	if rapid.Bool().Draw(t, "long after the last lease") {
		w.now = w.now.Add(lease + orphaned)
	}
	for _, e := range w.events {
		if e.status == dedupe.Processing && !e.leaseUntil.After(w.now.Add(-orphaned)) {
			orphans[e.id] = e
		}
	}
	left := len(orphans)
	for more := true; more; {
		swept := filetest.Must(dedupe.Sweep(context.Background(), w.store, w.now.Add(-orphaned), w.now, 50,
			func(_ context.Context, record dedupe.Record) (bool, error) {
				require.NotNil(t, record.Message) // also of an earlier round, which failed
				e := orphans[string(record.Message.Data)]
				if e == nil {
					require.False(t, slices.ContainsFunc(w.events, func(e *event) bool {
						return e.id == string(record.Message.Data)
					}), "no other event of this round")
					return true, nil
				}
				left--
				switch meanwhile := rapid.SampledFrom([]string{
					"nothing", "nothing", "it cannot be published", "it is reported", "a worker takes it over",
				}).Draw(t, "meanwhile"); meanwhile {
				case "it cannot be published":
					failed++
					return false, errLost
				case "a worker takes it over":
					before := e.owner
					if w.claimed(t, e, true); e.owner != before {
						return true, nil // the sweep does not overwrite it
					}
					fallthrough
				default:
					e.status, e.owner = dedupe.Failed, 0
					if meanwhile == "it is reported" {
						reported++
					}
					return meanwhile != "it is reported", nil
				}
			}))(t)
		require.Equal(t, []int{failed, reported}, []int{swept.Failed, swept.Reported})
		require.True(t, swept.More || left == 0, "each orphan is found")
		failed, reported, more = 0, 0, swept.More && swept.Failed == 0
	}
}
