// This file is over 400 lines: the model, its moves and its checks are one specification.

// Package dedupetest holds the state machine of package dedupe to a model in memory,
// on whatever store it is given. Every store that the program runs on runs it.
package dedupetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"billhook/internal/contract"
	"billhook/internal/dedupe"
	"billhook/internal/pipeline/handler"
	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
	"billhook/internal/retry"
)

// The numbers of the model's queue.
const (
	lease    = 2 * time.Minute
	remember = 30 * 24 * time.Hour
	orphaned = 12 * time.Minute
)

var (
	errLost    = errors.New("dedupetest: no answer")
	errHandler = errors.New("dedupetest: the handler failed")
)

// fault is the outcome of the next commit.
type fault string

const (
	none fault = "answered"
	// refuse: nothing is written.
	refuse fault = "refused without a word"
	// lose: it is written, and the answer is lost.
	lose fault = "written, answer lost"
	// repeat: it is written, the answer is lost, and the client library sends it again.
	repeat fault = "written, answer lost, sent again"
)

// event is the model of one event: the specification of the machine.
type event struct {
	id      string
	status  dedupe.Status // empty: unknown
	payload string
	// owner is the attempt that holds the lease; 0: none.
	owner      int
	leaseUntil time.Time
	attempts   int64
	// log has the attempts of all its replays and corrections.
	log     []dedupe.Attempt
	expires time.Time
	// due is the time of the next attempt after a failed one, kept the ticket of the copy that waits for it.
	due  time.Time
	kept string
	// accept: another payload may replace a dead-lettered one.
	accept bool
	// corrected are the replaced payloads.
	corrected []string
	// replays is the record's count, letter the newest dead letter of its payload. again: the
	// payload had one before it was tried last.
	replays int64
	letter  string
	again   bool
	// open and closed are the dead letters that are not, or are, superseded.
	open, closed []string
	// conflicts says of each payload that was buried as a conflict until when that is known.
	conflicts map[string]time.Time
	// completed counts the attempts that have completed the event since it was last forgotten.
	completed int
	// effects counts those of a Tx handler, in the store as well.
	effects int64
}

// attempt is one delivery that a worker handles.
type attempt struct {
	number  int
	event   *event
	payload string
	replays int64
	// letter is the id of its dead letter, ticket that of the delivered copy.
	letter, ticket string
	run            *dedupe.Run
}

// world is the machine, the model, and the attempts of the workers.
type world struct {
	store *storetest.Faults
	next  fault // of the next commit
	once  *dedupe.Once
	// begun is when each attempt began.
	begun  map[int]time.Time
	now    time.Time
	events []*event
	under  []*attempt
	count  int
	// republished holds the events of the last sweep.
	republished map[string]bool
}

// Run drives deliveries of several workers through the machine, step by step, in any
// order: claims, completions, failures, crashes, lost answers, jumps of the clock,
// expiries, takeovers, sweeps and duplicates. After every step the store and the model
// agree, and no event has been completed twice.
func Run(t *testing.T, open func(t *testing.T) store.Store) {
	t.Helper()
	db, rounds := open(t), 0
	rapid.Check(t, func(t *rapid.T) {
		rounds++
		w := newWorld(db, rounds)
		t.Repeat(map[string]func(*rapid.T){
			"a worker claims":        w.claim,
			"a worker completes":     w.complete,
			"a worker releases":      w.release,
			"a worker buries":        w.bury,
			"a worker dies":          w.die,
			"an effect is committed": w.effect,
			"two effects at once":    w.effects,
			"an effect fails":        w.fail,
			"an attempt is counted":  w.counts,
			"one comes too early":    w.early,
			"an effect is condemned": w.condemn,
			"a message is broken":    w.broken,
			"a conflict is buried":   w.conflict,
			"a sweep":                w.sweep,
			"time passes":            w.pass,
			"":                       w.check,
		})
		w.drain(t)
	})
}

func newWorld(db store.Store, round int) *world {
	w := &world{
		store: &storetest.Faults{Store: db}, republished: map[string]bool{}, begun: map[int]time.Time{},
		now: time.Date(2026, 3, 2, 10, 15, 0, 0, time.UTC),
	}
	w.store.OnCommit = w.commitNext
	w.once = &dedupe.Once{Store: w.store, Now: func() time.Time { return w.now }, NewToken: func() string { return fmt.Sprint(w.count) }, Instance: "model"}
	for i := range 3 {
		w.events = append(w.events, &event{id: fmt.Sprintf("round-%d-event-%d", round, i), accept: i > 0, conflicts: map[string]time.Time{}})
	}
	return w
}

// commitNext makes a commit go wrong as drawn.
func (w *world) commitNext(_ context.Context, _ []store.Write, do func() error) error {
	next := w.next
	w.next = none
	if next == refuse {
		return errLost
	}
	err := do()
	switch {
	case err == nil && next == lose:
		return errLost
	case err == nil && next == repeat:
		return do()
	}
	return err
}

// begin starts a delivery of one of the events with one of two payloads.
func (w *world) begin(t *rapid.T, e *event) *attempt {
	w.count++
	w.forget(e)
	w.begun[w.count] = w.now
	a := &attempt{
		number: w.count, event: e, payload: rapid.SampledFrom([]string{"A", "A", "A", "B", "C"}).Draw(t, "payload"),
		letter: fmt.Sprintf("%s-letter-%d", e.id, w.count), ticket: rapid.SampledFrom([]string{"", e.kept}).Draw(t, "ticket"),
	}
	if e.status == dedupe.DeadLettered {
		switch rapid.SampledFrom([]string{"another message", "a redelivery", "a replay"}).Draw(t, "it is") {
		case "a redelivery":
			a.payload, a.letter = e.payload, e.letter
		case "a replay":
			a.payload, a.replays, a.letter = e.payload, e.replays+1, e.letter
		}
	}
	a.run = w.once.Begin(e.key(), dedupe.Record{
		Queue: "q", Tenant: dedupe.DefaultTenant, EventID: e.id, EventType: "initial", PayloadHash: hash(a.payload), Replays: a.replays, MessageID: fmt.Sprint("m-", a.number), DelayTicket: a.ticket,
	}, remember)
	a.run.Letters(letters{a})
	a.run.Delivered(a.number, "")
	return a
}

// hash is none of what broke the contract.
func hash(payload string) string {
	if payload == "" {
		return ""
	}
	return "sha256:" + payload
}

func (e *event) key() store.Key { return dedupe.Key("q", dedupe.DefaultTenant, e.id) }

// forget is what the passing of expire_at means: the event was never seen.
func (w *world) forget(e *event) {
	if e.owner == 0 {
		w.expire(e)
	}
}

func (w *world) expire(e *event) {
	if e.status != "" && !w.now.Before(e.expires) {
		e.status, e.payload, e.attempts, e.completed, e.replays = "", "", 0, 0, 0
		e.corrected, e.open, e.letter, e.again, e.log, e.due, e.kept = nil, nil, "", false, nil, time.Time{}, ""
	}
}

// takes is what an attempt does to the event when it writes the record.
func (w *world) takes(e *event, a *attempt) {
	w.expire(e)
	if e.status == dedupe.DeadLettered {
		e.attempts = 0
		if e.again = e.payload == a.payload; e.again {
			a.replays = max(a.replays, e.replays)
		} else {
			e.corrected = append(e.corrected, e.payload)
		}
	}
	e.payload, e.replays, e.expires = a.payload, a.replays, w.now.Add(remember)
	e.due, e.kept = time.Time{}, ""
}

// begins is what the begin of an attempt that counts does to the log, where it has no line of it.
func (w *world) begins(e *event, a *attempt) {
	line := dedupe.Attempt{
		Number: e.attempts, Delivery: int64(a.number), MessageID: fmt.Sprint("m-", a.number), Instance: "model", Begun: w.begun[a.number],
	}
	if last := len(e.log) - 1; last < 0 || e.log[last] != line {
		e.log = append(e.log, line)
	}
	e.log = e.log[max(0, len(e.log)-dedupe.MaxLog):]
}

// logs is what the end of an attempt does to its line of the log.
func (w *world) logs(a *attempt, outcome retry.Outcome, reason string) {
	own := &a.event.log[len(a.event.log)-1]
	own.Ended, own.Outcome, own.Reason = w.now, outcome, reason
}

// ends is what the end of an attempt does to the dead letters: of the others under the id none is
// open any more, but those of a payload that is dead once more.
func (e *event) ends(a *attempt, status dedupe.Status) {
	if status == dedupe.DeadLettered && e.again {
		if e.open = slices.DeleteFunc(e.open, func(id string) bool { return id == a.letter }); len(e.open) == most {
			e.closed, e.open = append(e.closed, e.open[0]), e.open[1:]
		}
		e.open = append(e.open, a.letter)
		e.owner, e.status, e.letter = 0, status, a.letter
		return
	}
	e.again = false
	for _, id := range e.open {
		if id != a.letter {
			e.closed = append(e.closed, id)
		}
	}
	e.open = nil
	if status == dedupe.DeadLettered {
		e.open, e.letter = []string{a.letter}, a.letter
	}
	e.owner, e.status = 0, status
}

func (w *world) pick(t *rapid.T) *event { return rapid.SampledFrom(w.events).Draw(t, "event") }

func (w *world) draw(t *rapid.T) fault {
	w.next = rapid.SampledFrom([]fault{none, none, none, refuse, lose, repeat}).Draw(t, "the commit is")
	return w.next
}

// expects returns what an attempt must learn of the event, and whether the event is not for it.
func (w *world) expects(e *event, a *attempt) (dedupe.Seen, bool) {
	expired := e.status != "" && !w.now.Before(e.expires)
	switch {
	case e.status == "" || expired:
		return dedupe.Fresh, false
	case e.payload != a.payload && slices.Contains(e.corrected, a.payload):
		return dedupe.Replaced, true
	case e.payload != a.payload && e.status == dedupe.DeadLettered && (e.accept || e.payload == "") && len(e.corrected) < most:
		return dedupe.Fresh, false
	case e.payload != a.payload:
		return dedupe.Differs, true
	case e.status == dedupe.Completed:
		return dedupe.Done, true
	case e.status == dedupe.DeadLettered && a.replays > e.replays:
		return dedupe.Fresh, false
	case e.status == dedupe.DeadLettered && e.accept && !slices.Contains(e.open, a.letter):
		return dedupe.Fresh, false
	case e.status == dedupe.DeadLettered:
		return dedupe.Gone, true
	case e.status == dedupe.Processing && w.now.Before(e.leaseUntil):
		return dedupe.Held, true
	case e.status == dedupe.Failed && w.now.Before(e.due) && e.kept != "" && e.kept != a.ticket:
		return dedupe.Waiting, true
	case e.status == dedupe.Failed && w.now.Before(e.due):
		return dedupe.Early, true
	}
	return dedupe.Fresh, false
}

func (w *world) claim(t *rapid.T) {
	e := w.pick(t)
	a := w.begin(t, e)
	f := w.draw(t)
	seen, err := a.run.Claim(context.Background(), lease, &contract.Message{Data: []byte(e.id)}, rapid.Bool().Draw(t, "redelivered"))
	w.next = none
	if want, taken := w.expects(e, a); taken {
		if f == refuse && err != nil {
			return // it had to ask the store, which did not answer
		}
		require.NoError(t, err)
		require.Equal(t, want, seen)
		return
	}
	if f == refuse && err != nil {
		return
	}
	require.NoError(t, err)
	require.Equal(t, dedupe.Claimed, seen, "an answer that is lost does not lose the claim")
	w.expire(e)
	replay := e.status == dedupe.DeadLettered && e.payload == a.payload
	require.Equal(t, replay || e.status == dedupe.Failed || e.status == dedupe.Processing, a.run.Repeated())
	w.takes(e, a)
	e.status, e.owner, e.leaseUntil = dedupe.Processing, a.number, w.now.Add(lease)
	e.attempts++
	w.begins(e, a)
	require.EqualValues(t, e.attempts, a.run.Attempt())
	w.under = append(w.under, a)
}

// take removes one of the attempts under way.
func (w *world) take(t *rapid.T) *attempt {
	if len(w.under) == 0 {
		t.Skip("nothing is under way")
	}
	i := rapid.IntRange(0, len(w.under)-1).Draw(t, "attempt")
	a := w.under[i]
	w.under = append(w.under[:i:i], w.under[i+1:]...)
	return a
}

// concludes ends a leased attempt and reports whether the attempt still had its event. It writes
// nothing if it had not.
func (w *world) concludes(t *rapid.T, a *attempt, ending dedupe.Ending, want dedupe.Seen) bool {
	seen, err := a.run.Conclude(context.Background(), ending)
	w.next = none
	require.NoError(t, err, "one lost answer is not the end")
	if a.event.owner == a.number {
		require.Equal(t, want, seen)
		return true
	}
	require.NotContains(t, []dedupe.Seen{dedupe.Own, dedupe.Counted}, seen)
	return false
}

// looks reads the record and reports whether the attempt may handle the event.
func (w *world) looks(t *rapid.T, e *event, a *attempt) bool {
	seen, err := a.run.Look(context.Background())
	require.NoError(t, err)
	want, taken := w.expects(e, a)
	require.Equal(t, want, seen)
	return !taken
}

func (w *world) complete(t *rapid.T) {
	a := w.take(t)
	w.draw(t)
	if !w.concludes(t, a, dedupe.Ending{Status: dedupe.Completed, Effect: handler.Effect{Result: "delivered"}}, dedupe.Own) {
		return
	}
	require.Equal(t, "delivered", a.run.Result())
	a.event.ends(a, dedupe.Completed)
	w.logs(a, retry.Processed, "")
	a.event.expires = w.now.Add(remember)
	a.event.completed++
}

func (w *world) release(t *rapid.T) {
	a := w.take(t)
	w.draw(t)
	counted, kept := rapid.Bool().Draw(t, "counted"), rapid.SampledFrom([]string{"", a.letter}).Draw(t, "kept")
	if !w.concludes(t, a, dedupe.Ending{
		Status: dedupe.Failed, Reason: "handler_error", Next: w.now.Add(time.Minute), Uncounted: !counted, Kept: dedupe.Kept{Ticket: kept},
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

func (w *world) bury(t *rapid.T) {
	a := w.take(t)
	if !w.now.Before(a.event.expires) {
		t.Skip("a worker that comes back after a month finds its event forgotten")
	}
	seen, err := a.run.Look(context.Background())
	require.NoError(t, err)
	if a.event.owner != a.number {
		require.NotEqual(t, dedupe.Claimed, seen)
		return
	}
	require.Equal(t, dedupe.Claimed, seen)
	seen, err = a.run.Conclude(context.Background(), dedupe.Ending{Status: dedupe.DeadLettered, Reason: "refused"})
	require.NoError(t, err)
	require.Equal(t, dedupe.Gone, seen)
	a.event.ends(a, dedupe.DeadLettered)
	w.logs(a, retry.DeadLettered, "refused")
	a.event.expires = w.now.Add(remember)
}

// die loses an attempt, as a crash does. Its claim stays.
func (w *world) die(t *rapid.T) { w.take(t) }

// credit is a Tx handler: only the record keeps it from counting twice.
func (e *event) credit(context.Context, handler.Event) (handler.Effect, error) {
	return handler.Effect{Result: "credited", Writes: []store.Write{store.Increment(e.account(), map[string]int64{"n": 1}, nil)}}, nil
}

func (e *event) account() store.Key { return store.Key{Collection: "accounts", ID: e.id} }

func (w *world) effect(t *rapid.T) {
	e := w.pick(t)
	w.commit(t, e, w.begin(t, e), w.draw(t), e.credit)
}

// effects has a second delivery go through while the first one's handler runs.
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
	seen, err := Effect(context.Background(), a.run, handler.Event{Queue: "q", ID: e.id}, rapid.Bool().Draw(t, "redelivered"), h)
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
		if f == lose { // it is there, and the next delivery will find it
			w.committed(e, a)
		}
	}
}

func (w *world) committed(e *event, a *attempt) {
	w.takes(e, a)
	e.ends(a, dedupe.Completed)
	e.attempts++
	w.begins(e, a)
	w.logs(a, retry.Processed, "")
	e.completed++
	e.effects++
}

func (w *world) fail(t *rapid.T) {
	e := w.pick(t)
	a := w.begin(t, e)
	_, err := Effect(context.Background(), a.run, handler.Event{}, rapid.Bool().Draw(t, "redelivered"), func(context.Context, handler.Event) (handler.Effect, error) { return handler.Effect{}, errHandler })
	if !errors.Is(err, errHandler) {
		return
	}
	next := w.now.Add(rapid.SampledFrom([]time.Duration{0, time.Minute}).Draw(t, "it waits"))
	for {
		seen, err := a.run.Conclude(context.Background(), dedupe.Ending{Status: dedupe.Failed, Reason: "handler_error", Next: next})
		require.NoError(t, err)
		want, taken := w.expects(e, a)
		switch {
		case seen == dedupe.Fresh:
			continue // it was tried before, unknown to this delivery
		case taken:
			require.Equal(t, want, seen)
		default:
			require.Equal(t, dedupe.Counted, seen)
			w.takes(e, a)
			e.attempts++
			w.begins(e, a)
			w.failed(a, next)
		}
		return
	}
}

// failed is what the failure of an attempt without a lease does to its event.
func (w *world) failed(a *attempt, next time.Time) {
	a.event.status, a.event.owner, a.event.due = dedupe.Failed, 0, next
	w.logs(a, retry.Retry, "handler_error")
	a.event.log[len(a.event.log)-1].Next = next
}

// early has a delivery that comes before its time put off: its copy is kept with the record, or neither is.
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
	shelf := store.Key{Collection: "shelf", ID: a.letter}
	want, kept, there := dedupe.Waiting, a.letter, true
	switch rapid.SampledFrom([]string{"nothing", "another copy is kept", "its place is taken"}).Draw(t, "meanwhile") {
	case "another copy is kept":
		other := w.begin(t, e)
		if want, _ := w.expects(e, other); want != dedupe.Early || w.looks(t, e, other) {
			return
		}
		_, err := other.run.Conclude(context.Background(), dedupe.Ending{Kept: dedupe.Kept{Ticket: other.letter}})
		require.NoError(t, err)
		kept, there = other.letter, false
	case "its place is taken":
		_, err := w.store.Commit(context.Background(), []store.Write{store.Create(shelf, nil)})
		require.NoError(t, err)
		want, kept = dedupe.Early, e.kept
	default:
		if f := w.draw(t); f == refuse {
			want, kept, there = dedupe.Fresh, e.kept, false
		} else if f == lose {
			want = dedupe.Fresh
		}
	}
	seen, err := a.run.Conclude(context.Background(), dedupe.Ending{Kept: dedupe.Kept{Ticket: a.letter, Writes: []store.Write{store.Create(shelf, nil)}}})
	require.Equal(t, want, seen)
	require.Equal(t, want == dedupe.Fresh, err != nil)
	_, err = w.store.Get(context.Background(), shelf)
	require.Equal(t, there, err == nil)
	e.kept = kept
}

// counts has an attempt counted before it runs: then its worker dies, or it ends as any other does, or
// it is none after all.
func (w *world) counts(t *rapid.T) {
	e := w.pick(t)
	a := w.begin(t, e)
	if rapid.Bool().Draw(t, "looks first") && !w.looks(t, e, a) {
		return
	}
	concludes := func(want dedupe.Seen, conclude func() (dedupe.Seen, error)) {
		seen, err := conclude()
		require.NoError(t, err)
		require.Equal(t, want, seen)
	}
	count := func() (dedupe.Seen, error) { return a.run.Count(context.Background()) }
	if want, taken := w.expects(e, a); taken {
		concludes(want, count)
		return
	}
	concludes(dedupe.Counted, func() (seen dedupe.Seen, err error) {
		if seen, err = count(); seen == dedupe.Fresh { // it found a record, and decides again
			return count()
		}
		return seen, err
	})
	w.takes(e, a)
	e.status, e.owner = dedupe.Failed, 0
	e.attempts++
	w.begins(e, a)
	switch rapid.SampledFrom([]string{"its worker dies", "it has its effect", "it fails", "it is refused", "it is none"}).Draw(t, "then") {
	case "it has its effect":
		e.attempts-- // counted once
		w.commit(t, e, a, none, e.credit)
	case "it fails":
		concludes(dedupe.Counted, func() (dedupe.Seen, error) {
			return a.run.Conclude(context.Background(), dedupe.Ending{Status: dedupe.Failed, Reason: "handler_error", Next: w.now})
		})
		w.failed(a, w.now)
	case "it is refused":
		concludes(dedupe.Gone, func() (dedupe.Seen, error) {
			return a.run.Conclude(context.Background(), dedupe.Ending{Status: dedupe.DeadLettered, Reason: "refused"})
		})
		e.ends(a, dedupe.DeadLettered)
		w.logs(a, retry.DeadLettered, "refused")
	case "it is none":
		for _, want := range []dedupe.Seen{dedupe.Counted, dedupe.Fresh} { // once
			concludes(want, func() (dedupe.Seen, error) { return a.run.Uncount(context.Background(), "contention") })
		}
		e.attempts--
		e.log = e.log[:len(e.log)-1]
	}
}

func (w *world) sweep(t *rapid.T) {
	for more := true; more; {
		swept, err := dedupe.Sweep(context.Background(), w.store, w.now.Add(-orphaned), w.now, 50, func(_ context.Context, record dedupe.Record) (bool, error) {
			require.NotNil(t, record.Message) // also of a round before, which failed
			w.republished[string(record.Message.Data)] = true
			return true, nil
		})
		require.NoError(t, err)
		require.Zero(t, swept.Failed)
		more = swept.More
	}
	for _, e := range w.events {
		orphan := e.status == dedupe.Processing && !e.leaseUntil.After(w.now.Add(-orphaned))
		require.Equal(t, orphan, w.republished[e.id], e.id)
		delete(w.republished, e.id)
		if orphan {
			e.status, e.owner = dedupe.Failed, 0
		}
	}
}

func (w *world) pass(t *rapid.T) {
	w.now = w.now.Add(rapid.SampledFrom([]time.Duration{
		time.Second, lease / 2, lease, orphaned, remember / 2, remember,
	}).Draw(t, "time"))
}

// check holds the store to the model.
func (w *world) check(t *rapid.T) {
	for _, e := range w.events {
		require.LessOrEqual(t, e.completed, 1, "completed twice")
		account, err := w.store.Get(context.Background(), e.account())
		if !errors.Is(err, store.ErrNotFound) {
			require.NoError(t, err)
		}
		effects, _ := account.Fields["n"].(int64)
		require.Equal(t, e.effects, effects, "effects in the store")
		for _, id := range e.closed {
			_, err := w.store.Get(context.Background(), letterKey(id))
			require.NoError(t, err, "closed")
		}
		for _, id := range e.open {
			if !slices.Contains(e.closed, id) {
				_, err := w.store.Get(context.Background(), letterKey(id))
				require.ErrorIs(t, err, store.ErrNotFound, "open")
			}
		}
		if e.status == "" {
			continue
		}
		doc, err := w.store.Get(context.Background(), e.key())
		require.NoError(t, err)
		record, err := dedupe.FromDocument(doc)
		require.NoError(t, err)
		require.Equal(t, e.status, record.Status)
		require.Equal(t, hash(e.payload), record.PayloadHash)
		require.Equal(t, e.replays, record.Replays)
		require.ElementsMatch(t, e.open, record.DeadLetters)
		require.Equal(t, e.attempts, record.Attempts)
		require.Equal(t, append([]dedupe.Attempt{}, e.log...), append([]dedupe.Attempt{}, record.Log...))
		require.Equal(t, e.expires, record.ExpireAt)
		require.Equal(t, []any{e.due, e.kept}, []any{record.NextRetryAt, record.DelayTicket})
		if e.status == dedupe.Processing {
			require.Equal(t, e.leaseUntil, record.LeaseUntil)
			require.Equal(t, fmt.Sprint(e.owner), record.LeaseToken)
			require.NotNil(t, record.Message)
		} else {
			require.Zero(t, record.LeaseUntil)
			require.Nil(t, record.Message, "a payload is kept no longer than it may be needed")
		}
	}
}

// drain leaves nothing for another round's sweep to find.
func (w *world) drain(t *rapid.T) {
	w.now = w.now.Add(lease + orphaned)
	w.sweep(t)
	w.check(t)
}
