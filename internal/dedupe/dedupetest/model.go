// Package dedupetest compares the state machine of package dedupe with a model in memory, on a given store.
// The tests of each kind of store run it.
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

	"billhook/internal/dedupe"
	"billhook/internal/filetest"
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
	refuse fault = "refused without an answer"
	// lose: it is written, and the answer is lost.
	lose fault = "written, answer lost"
	// repeat: it is written, the answer is lost, and the client library repeats the commit.
	repeat fault = "written, answer lost, repeated"
)

// event is the model of one event: the specification of the state machine.
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
	// due is the time of the next attempt after a failed one; kept is the ticket of the copy that waits for it.
	due  time.Time
	kept string
	// accept: another payload may replace a dead-lettered one.
	accept bool
	// corrected are the replaced payloads.
	corrected []string
	// replays is the record's count; dead is the newest dead letter of its payload. again: the payload had a
	// dead letter before its last attempt.
	replays int64
	dead    string
	again   bool
	// open has the dead letters that are not superseded; closed has those that are.
	open, closed []string
	// conflicts has the expiry of the record of each payload that was dead-lettered as a conflict.
	conflicts map[string]time.Time
	// completed counts the attempts that have completed the event since its record last expired.
	completed int
	// effects counts the effects of a Tx handler, as the store does.
	effects int64
}

// attempt is the handling of one delivery by a worker.
type attempt struct {
	number  int
	event   *event
	payload string
	replays int64
	// dead is the id of its dead letter; ticket is the ticket of the delivered copy.
	dead, ticket string
	run          *dedupe.Run
}

// world is the state machine, the model, and the attempts of the workers.
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
}

// Run handles deliveries by several workers, step by step, in any order: claims, completions, failures,
// crashes, lost answers, jumps of the clock, expiries, takeovers, sweeps and duplicates. After every step the
// store and the model agree, and no event has been completed twice.
func Run(t *testing.T, open func(t testing.TB) store.Store) {
	t.Helper()
	db, rounds := open(t), 0
	rapid.Check(t, func(t *rapid.T) {
		rounds++
		w := newWorld(db, rounds)
		t.Repeat(map[string]func(*rapid.T){
			"a worker claims":        w.claim,
			"a worker completes":     w.complete,
			"a worker releases":      w.release,
			"a worker dead-letters":  w.fails,
			"a worker dies":          w.die,
			"an effect is committed": w.effect,
			"two effects at once":    w.effects,
			"an effect fails":        w.fail,
			"an attempt is counted":  w.counts,
			"one is early":           w.early,
			"an effect is rejected":  w.reject,
			"a message is broken":    w.broken,
			"a payload conflicts":    w.conflict,
			"a sweep":                w.sweep,
			"time passes":            w.pass,
			"":                       w.check,
		})
		w.drain(t)
	})
}

func newWorld(db store.Store, round int) *world {
	w := &world{
		store: &storetest.Faults{Store: db}, begun: map[int]time.Time{},
		now: time.Date(2026, 3, 2, 10, 15, 0, 0, time.UTC),
	}
	w.store.OnCommit = w.commitNext
	w.once = &dedupe.Once{
		Store: w.store, Now: func() time.Time { return w.now }, NewToken: func() string {
			return fmt.Sprint(w.count)
		}, Instance: "model",
	}
	for i := range 3 {
		w.events = append(w.events,
			&event{id: fmt.Sprintf("round-%d-event-%d", round, i), accept: i > 0, conflicts: map[string]time.Time{}})
	}
	return w
}

// commitNext makes a commit with the drawn fault.
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

// begin starts a delivery of an event with one of three payloads.
func (w *world) begin(t *rapid.T, e *event) *attempt {
	w.count++
	w.forget(e)
	w.begun[w.count] = w.now
	a := &attempt{
		number: w.count, event: e, payload: rapid.SampledFrom([]string{"A", "A", "A", "B", "C"}).Draw(t, "payload"),
		dead:   fmt.Sprintf("%s-dead-%d", e.id, w.count),
		ticket: rapid.SampledFrom([]string{"", e.kept}).Draw(t, "ticket"),
	}
	if e.status == dedupe.DeadLettered {
		switch rapid.SampledFrom([]string{"another message", "a redelivery", "a replay"}).Draw(t, "it is") {
		case "a redelivery":
			a.payload, a.dead = e.payload, e.dead
		case "a replay":
			a.payload, a.replays, a.dead = e.payload, e.replays+1, e.dead
		}
	}
	a.run = w.once.Begin(e.key(), dedupe.Record{
		Identity: dedupe.Identity{
			Queue: "q", Tenant: dedupe.DefaultTenant, EventID: e.id, EventType: "initial",
			PayloadHash: hash(a.payload), MessageID: fmt.Sprint("m-", a.number),
		},
		Tries: dedupe.Tries{Replays: a.replays}, Delay: dedupe.Delay{DelayTicket: a.ticket},
	}, remember)
	a.run.DeadLetters = deadLetters{a}
	a.run.Line.Delivery = int64(a.number)
	return a
}

// hash returns the hash of a payload; a message that broke the contract has none.
func hash(payload string) string {
	if payload == "" {
		return ""
	}
	return "sha256:" + payload
}

func (e *event) key() store.Key { return dedupe.Key("q", dedupe.DefaultTenant, e.id) }

// forget expires an event that no attempt holds.
func (w *world) forget(e *event) {
	if e.owner == 0 {
		w.expire(e)
	}
}

func (w *world) expire(e *event) {
	if e.status != "" && !w.now.Before(e.expires) {
		e.status, e.payload, e.attempts, e.completed, e.replays = "", "", 0, 0, 0
		e.corrected, e.open, e.dead, e.again, e.log, e.due, e.kept = nil, nil, "", false, nil, time.Time{}, ""
	}
}

// takes updates an event after an attempt has written its record, with one line in the log.
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
	e.attempts++
	line := dedupe.Attempt{
		Number: e.attempts, Delivery: int64(a.number), MessageID: fmt.Sprint("m-", a.number), Instance: "model",
		Begun: w.begun[a.number],
	}
	if last := len(e.log) - 1; last < 0 || e.log[last] != line {
		e.log = append(e.log, line)
	}
	e.log = e.log[max(0, len(e.log)-dedupe.MaxLog):]
}

// logs updates the line of an attempt in the log after its end.
func (w *world) logs(a *attempt, outcome retry.Outcome, reason string) {
	own := &a.event.log[len(a.event.log)-1]
	own.Ended, own.Outcome, own.Reason = w.now, outcome, reason
}

// ends updates the dead letters after the end of an attempt: the others under the id are closed, except those
// of the same payload if it is dead-lettered again.
func (e *event) ends(a *attempt, status dedupe.Status) {
	if status == dedupe.DeadLettered && e.again {
		if e.open = slices.DeleteFunc(e.open, func(id string) bool { return id == a.dead }); len(e.open) == most {
			e.closed, e.open = append(e.closed, e.open[0]), e.open[1:]
		}
		e.open = append(e.open, a.dead)
		e.owner, e.status, e.dead = 0, status, a.dead
		return
	}
	e.again = false
	for _, id := range e.open {
		if id != a.dead {
			e.closed = append(e.closed, id)
		}
	}
	e.open = nil
	if status == dedupe.DeadLettered {
		e.open, e.dead = []string{a.dead}, a.dead
	}
	e.owner, e.status = 0, status
}

func (w *world) pick(t *rapid.T) *event { return rapid.SampledFrom(w.events).Draw(t, "event") }

func (w *world) draw(t *rapid.T) fault {
	w.next = rapid.SampledFrom([]fault{none, none, none, refuse, lose, repeat}).Draw(t, "the commit is")
	return w.next
}

// expects returns what an attempt must find about its event, and whether it must not handle the event.
func (w *world) expects(e *event, a *attempt) (dedupe.Seen, bool) {
	expired := e.status != "" && !w.now.Before(e.expires)
	switch {
	case e.status == "" || expired:
		return dedupe.Fresh, false
	case e.payload != a.payload && slices.Contains(e.corrected, a.payload):
		return dedupe.Replaced, true
	case e.payload != a.payload && e.status == dedupe.DeadLettered && (e.accept || e.payload == "") &&
		len(e.corrected) < most:
		return dedupe.Fresh, false
	case e.payload != a.payload:
		return dedupe.Differs, true
	case e.status == dedupe.Completed:
		return dedupe.Done, true
	case e.status == dedupe.DeadLettered && a.replays > e.replays:
		return dedupe.Fresh, false
	case e.status == dedupe.DeadLettered && e.accept && !slices.Contains(e.open, a.dead):
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

func (w *world) pass(t *rapid.T) {
	w.now = w.now.Add(rapid.SampledFrom([]time.Duration{
		time.Second, lease / 2, lease, orphaned, remember / 2, remember,
	}).Draw(t, "time"))
}

// check compares the store with the model.
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
			_, err := w.store.Get(context.Background(), deadKey(id))
			require.NoError(t, err, "closed")
		}
		for _, id := range e.open {
			if !slices.Contains(e.closed, id) {
				_, err := w.store.Get(context.Background(), deadKey(id))
				require.ErrorIs(t, err, store.ErrNotFound, "open")
			}
		}
		if e.status == "" {
			continue
		}
		record := filetest.Must(dedupe.FromDocument(storetest.Get(t, w.store, e.key())))(t)
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
			require.Nil(t, record.Message, "a payload is kept only while the event is processed")
		}
	}
}

// drain leaves nothing for another round's sweep to find.
func (w *world) drain(t *rapid.T) {
	w.now = w.now.Add(lease + orphaned)
	w.sweep(t)
	w.check(t)
}
