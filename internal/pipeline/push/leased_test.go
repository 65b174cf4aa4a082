package push_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/contract"
	"billhook/internal/dedupe"
	"billhook/internal/pipeline/handler"
	"billhook/internal/platform/store"
	"billhook/internal/retry"
)

// gateway is the other side of a leased handler, which does as the test says.
type gateway struct {
	mu    sync.Mutex
	calls []string
	// do and asked are what the next calls do; nil: sent, and not there.
	do    func(ctx context.Context, event handler.Event) (string, error)
	asked func(ctx context.Context, event handler.Event) (string, bool, error)
}

func (g *gateway) leased() *handler.Leased {
	h := handler.Outside(g.send, g.ask)
	return &h
}

// repeats is a leased handler that is safe to repeat, and asks nobody.
func repeats(do func(context.Context, handler.Event) (string, error)) *handler.Leased {
	h := handler.Outside(do, nil)
	h.SafeToRepeat = true
	return &h
}

func (g *gateway) send(ctx context.Context, event handler.Event) (string, error) {
	g.note("do %d", event.Attempt)
	if g.do == nil {
		return "sent", nil
	}
	return g.do(ctx, event)
}

func (g *gateway) ask(ctx context.Context, event handler.Event) (string, bool, error) {
	g.note("ask %d", event.Attempt)
	if g.asked == nil {
		return "", false, nil
	}
	return g.asked(ctx, event)
}

func (g *gateway) note(format string, args ...any) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.calls = append(g.calls, fmt.Sprintf(format, args...))
}

// called returns the calls since it was last called, such as "ask 2, do 2".
func (g *gateway) called() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	calls := strings.Join(g.calls, ", ")
	g.calls = nil
	return calls
}

// step is one delivery to a leased handler.
type step struct {
	// after is how long after the one before it comes.
	after time.Duration
	// before happens before the delivery; do and asked are the gateway's.
	before func(*rig)
	do     func(*rig) (string, error)
	asked  func(*rig) (string, bool, error)
	// deliver, if not zero, is delivered instead of the event e1.
	deliver message
	// count is the broker's count of deliveries; 0: it does not count.
	count int

	code    int
	reason  string
	attempt int
	// called is what the gateway was asked for.
	called string
	// cost, if set, is the reads and commits of the delivery.
	cost []int64
}

// What a gateway does, in a step.
var (
	fails = func(err error) func(*rig) (string, error) {
		return func(*rig) (string, error) { return "", err }
	}
	// dies is a worker that is gone once it has called the gateway.
	dies = func(r *rig) (string, error) {
		r.faults.Down(true)
		return "sent", nil
	}
	found  = func(*rig) (string, bool, error) { return "found", true, nil }
	unsure = func(err error) func(*rig) (string, bool, error) {
		return func(*rig) (string, bool, error) { return "", false, err }
	}
)

const (
	leaseOver = 2*time.Minute + time.Microsecond
	republish = "its message kept"
)

func TestALeasedEvent(t *testing.T) {
	t.Parallel()
	first := step{code: 200, reason: "sent", attempt: 1, called: "do 1"}
	died := func(attempt int) step {
		return step{after: leaseOver, do: dies, code: 503, reason: "store_unavailable", attempt: attempt, called: fmt.Sprintf("ask %d, do %d", attempt, attempt)}
	}
	diedFirst := step{do: dies, code: 503, reason: "store_unavailable", attempt: 1, called: "do 1"}
	for sentence, test := range map[string]struct {
		steps   []step
		repeats bool // the handler has no Reconcile and is safe to repeat

		status    dedupe.Status
		attempts  int
		result    string
		lastError string
		letters   []string // the reasons of dead letters
	}{
		"a new one costs two commits": {
			steps:  []step{{code: 200, reason: "sent", attempt: 1, called: "do 1", cost: []int64{0, 2}}},
			status: dedupe.Completed, attempts: 1, result: "sent",
		},
		"a new one costs two commits also where the broker says it is the first delivery": {
			steps:  []step{{count: 1, code: 200, reason: "sent", attempt: 1, called: "do 1", cost: []int64{0, 2}}},
			status: dedupe.Completed, attempts: 1, result: "sent",
		},
		"a duplicate is a refused commit and a read, and nobody is called": {
			steps:  []step{first, {code: 204, reason: "processed_before", cost: []int64{1, 1}}},
			status: dedupe.Completed, attempts: 1, result: "sent",
		},
		"a duplicate that the broker counts is a read": {
			steps:  []step{first, {count: 2, code: 204, reason: "processed_before", cost: []int64{1, 0}}},
			status: dedupe.Completed, attempts: 1, result: "sent",
		},
		"one whose lease is held waits, and counts nothing": {
			steps: []step{
				diedFirst, {code: 503, reason: "lease_held", cost: []int64{2, 1}},
				{after: 2*time.Minute - 3*time.Second, count: 3, code: 503, reason: "lease_held", cost: []int64{2, 0}},
			},
			status: dedupe.Processing, attempts: 1,
		},
		"one whose worker died is taken over when the lease ends, and done where the gateway has it": {
			steps:  []step{diedFirst, {after: 2 * time.Minute, asked: found, code: 200, reason: "found", attempt: 2, called: "ask 2"}},
			status: dedupe.Completed, attempts: 2, result: "found",
		},
		"and done again where the gateway does not have it": {
			steps:  []step{diedFirst, {after: leaseOver, count: 2, code: 200, reason: "sent", attempt: 2, called: "ask 2, do 2", cost: []int64{1, 2}}},
			status: dedupe.Completed, attempts: 2, result: "sent",
		},
		"a question that fails is a failure of the attempt": {
			steps: []step{
				diedFirst, {after: leaseOver, asked: unsure(errHandler), code: 500, reason: "handler_error", attempt: 2, called: "ask 2"},
			},
			status: dedupe.Failed, attempts: 2, lastError: "handler_error",
		},
		"a question that is refused for good is a dead letter": {
			steps: []step{
				diedFirst, {after: leaseOver, asked: unsure(retry.Permanent("refused", nil)), code: 422, reason: "refused", attempt: 2, called: "ask 2"},
			},
			status: dedupe.DeadLettered, attempts: 2, lastError: "refused", letters: []string{"refused"},
		},
		"a question that cannot be asked now counts nothing": {
			steps: []step{
				diedFirst,
				{after: leaseOver, asked: unsure(retry.Busy("breaker_open", nil)), code: 503, reason: "breaker_open", called: "ask 2"},
				{asked: found, code: 200, reason: "found", attempt: 2, called: "ask 2"},
			},
			status: dedupe.Completed, attempts: 2, result: "found",
		},
		"one that is safe to repeat is done again unasked": {
			repeats: true,
			steps:   []step{diedFirst, {after: leaseOver, code: 200, reason: "sent", attempt: 2, called: "do 2"}},
			status:  dedupe.Completed, attempts: 2, result: "sent",
		},
		"one that failed is asked about before it is done again": {
			steps: []step{
				{do: fails(errHandler), code: 500, reason: "handler_error", attempt: 1, called: "do 1", cost: []int64{0, 2}},
				{code: 200, reason: "sent", attempt: 2, called: "ask 2, do 2"},
			},
			status: dedupe.Completed, attempts: 2, result: "sent",
		},
		"one that failed after it was done is completed by the question": {
			steps: []step{
				{do: fails(retry.Down("gateway_unavailable", nil)), code: 503, reason: "gateway_unavailable", attempt: 1, called: "do 1"},
				{count: 2, asked: found, code: 200, reason: "found", attempt: 2, called: "ask 2"},
			},
			status: dedupe.Completed, attempts: 2, result: "found",
		},
		"one that is refused for good is a dead letter": {
			steps: []step{
				{do: fails(retry.Permanent("refused", errHandler)), code: 422, reason: "refused", attempt: 1, called: "do 1"},
				{code: 204, reason: "dead_lettered_before"}, {count: 2, code: 204, reason: "dead_lettered_before"},
			},
			status: dedupe.DeadLettered, attempts: 1, lastError: "refused", letters: []string{"refused"},
		},
		"the last attempt that fails is a dead letter": {
			steps: []step{
				{do: fails(errHandler), code: 500, reason: "handler_error", attempt: 1, called: "do 1"},
				{do: fails(errHandler), code: 500, reason: "handler_error", attempt: 2, called: "ask 2, do 2"},
				{do: fails(errHandler), code: 422, reason: "handler_error", attempt: 3, called: "ask 3, do 3"},
				{code: 204, reason: "dead_lettered_before"},
			},
			status: dedupe.DeadLettered, attempts: 3, lastError: "handler_error", letters: []string{"handler_error: attempts_exhausted"},
		},
		"one that kills its worker every time is asked about, and then a dead letter": {
			steps: []step{
				diedFirst, died(2), died(3),
				{after: leaseOver, code: 422, reason: "worker_died", attempt: 4, called: "ask 4"},
			},
			status: dedupe.DeadLettered, attempts: 4, lastError: "worker_died", letters: []string{"worker_died: attempts_exhausted"},
		},
		"one that kills its worker every time is completed where the gateway has it": {
			steps: []step{
				diedFirst, died(2), died(3), {after: leaseOver, asked: found, code: 200, reason: "found", attempt: 4, called: "ask 4"},
			},
			status: dedupe.Completed, attempts: 4, result: "found",
		},
		"one that kills its worker every time and is safe to repeat is a dead letter unasked": {
			repeats: true,
			steps: []step{
				diedFirst,
				{after: leaseOver, do: dies, code: 503, reason: "store_unavailable", attempt: 2, called: "do 2"},
				{after: leaseOver, do: dies, code: 503, reason: "store_unavailable", attempt: 3, called: "do 3"},
				{after: leaseOver, code: 422, reason: "worker_died", attempt: 4},
			},
			status: dedupe.DeadLettered, attempts: 4, lastError: "worker_died", letters: []string{"worker_died: attempts_exhausted"},
		},
		"a claim whose answer is lost is the worker's own": {
			steps: []step{{
				before: func(r *rig) { r.faults.FailAfter(1) }, code: 200, reason: "sent", attempt: 1, called: "do 1", cost: []int64{1, 2},
			}},
			status: dedupe.Completed, attempts: 1, result: "sent",
		},
		"a claim that does not happen is no attempt": {
			steps: []step{
				{before: func(r *rig) { r.faults.FailBefore(1) }, code: 503, reason: "store_unavailable"}, first,
			},
			status: dedupe.Completed, attempts: 1, result: "sent",
		},
		"a completion whose answer is lost is met as the worker's own": {
			steps: []step{{
				do: func(r *rig) (string, error) {
					r.faults.FailAfter(1)
					return "sent", nil
				}, code: 200, reason: "sent", attempt: 1, called: "do 1",
			}},
			status: dedupe.Completed, attempts: 1, result: "sent",
		},
		"a completion that is refused is written again": {
			steps: []step{{
				do: func(r *rig) (string, error) {
					r.faults.FailBefore(1)
					return "sent", nil
				}, code: 200, reason: "sent", attempt: 1, called: "do 1", cost: []int64{0, 2},
			}},
			status: dedupe.Completed, attempts: 1, result: "sent",
		},
		"a failure whose record cannot be written leaves the lease": {
			steps: []step{
				{do: func(r *rig) (string, error) {
					r.faults.Down(true)
					return "", errHandler
				}, code: 500, reason: "handler_error", attempt: 1, called: "do 1"},
				{code: 503, reason: "lease_held"},
				{after: leaseOver, code: 200, reason: "sent", attempt: 2, called: "ask 2, do 2"},
			},
			status: dedupe.Completed, attempts: 2, result: "sent",
		},
		"a dead letter that cannot be marked leaves the lease, and is made again": {
			steps: []step{
				{do: func(r *rig) (string, error) {
					r.faults.FailBefore(1)
					return "", retry.Permanent("refused", nil)
				}, code: 503, reason: "store_unavailable", attempt: 1, called: "do 1"},
				{code: 503, reason: "lease_held"},
				{after: leaseOver, do: fails(retry.Permanent("refused", nil)), code: 422, reason: "refused", attempt: 2, called: "ask 2, do 2"},
			},
			status: dedupe.DeadLettered, attempts: 2, lastError: "refused", letters: []string{"refused", "refused"},
		},
		"a store that is down is tried again, and nobody is called": {
			steps: []step{
				{before: func(r *rig) { r.faults.Down(true) }, code: 503, reason: "store_unavailable"},
				{before: func(r *rig) { r.faults.Down(true) }, count: 2, code: 503, reason: "store_unavailable"},
			},
		},
		"what is no fault of the message frees the lease and counts nothing": {
			steps: []step{
				{do: fails(retry.Busy("breaker_open", nil)), code: 503, reason: "breaker_open", called: "do 1"},
				{do: fails(retry.Busy("breaker_open", nil)), code: 503, reason: "breaker_open", called: "ask 1, do 1"},
				{do: fails(retry.Busy("breaker_open", nil)), code: 503, reason: "breaker_open", called: "ask 1, do 1"},
				{do: fails(retry.Busy("breaker_open", nil)), code: 503, reason: "breaker_open", called: "ask 1, do 1"},
			},
			status: dedupe.Failed, attempts: 0, lastError: "breaker_open",
		},
		"a handler that panics has failed": {
			steps: []step{{
				do: func(*rig) (string, error) { panic("ilse@example.org") }, code: 500, reason: "handler_panic", attempt: 1, called: "do 1",
			}},
			status: dedupe.Failed, attempts: 1, lastError: "handler_panic",
		},
		"a question that panics has failed": {
			steps: []step{
				{do: fails(errHandler), code: 500, reason: "handler_error", attempt: 1, called: "do 1"},
				{asked: func(*rig) (string, bool, error) { panic("ilse@example.org") }, code: 500, reason: "handler_panic", attempt: 2, called: "ask 2"},
			},
			status: dedupe.Failed, attempts: 2, lastError: "handler_panic",
		},
		"another payload under its id is a dead letter, and nobody is called": {
			steps: []step{
				first, {deliver: paid("e1", known, 7), code: 409, reason: "payload_conflict", attempt: 1},
				{deliver: paid("e1", known, 7), code: 204, reason: "dead_lettered_before"}, {code: 204, reason: "processed_before"},
			},
			status: dedupe.Completed, attempts: 1, result: "sent", letters: []string{"payload_conflict"},
		},
		"another payload under its id is a dead letter also while the lease is held": {
			steps: []step{
				diedFirst, {deliver: paid("e1", known, 7), code: 409, reason: "payload_conflict", attempt: 1}, {code: 503, reason: "lease_held"},
			},
			status: dedupe.Processing, attempts: 1, letters: []string{"payload_conflict"},
		},
		"one of long ago is forgotten, and new": {
			steps:  []step{first, {after: 30 * 24 * time.Hour, code: 200, reason: "sent", attempt: 1, called: "do 1"}},
			status: dedupe.Completed, attempts: 1, result: "sent",
		},
		"data that is not UTF-8 is a dead letter before anybody is called": {
			steps: []step{{
				deliver: paid("e1", known, 1).with(func(m *message) { m.body = "{\"eventId\":\"\xff\"}" }), code: 400, reason: "body_malformed", attempt: 1,
			}},
			letters: []string{"body_malformed"},
		},
		"an attribute of a name that no document can have does not matter": {
			steps: []step{{
				deliver: paid("e1", known, 1).with(func(m *message) { m.attributes["__own__"] = "x" }), code: 200, reason: "sent", attempt: 1, called: "do 1",
			}},
			status: dedupe.Completed, attempts: 1, result: "sent",
		},
	} {
		for _, kept := range []string{"", republish} {
			t.Run(strings.TrimSuffix(sentence+"; "+kept, "; "), func(t *testing.T) {
				t.Parallel()
				g := &gateway{}
				h := g.leased()
				if test.repeats {
					h = repeats(g.send)
				}
				r := newRig(t, setup{leased: h, queue: func(q *catalog.Queue) {
					if kept == "" {
						q.OnOrphan = catalog.Report
					}
				}})
				for i, s := range test.steps {
					r.pass(s.after)
					g.do, g.asked = nil, nil
					if s.do != nil {
						g.do = func(context.Context, handler.Event) (string, error) { return s.do(r) }
					}
					if s.asked != nil {
						g.asked = func(context.Context, handler.Event) (string, bool, error) { return s.asked(r) }
					}
					if s.before != nil {
						s.before(r)
					}
					r.counter.Gets.Store(0)
					r.counter.Commits.Store(0)
					m := s.deliver
					if m.id == "" {
						m = paid("e1", known, 1)
					}
					got := r.deliver(m.again(s.count))
					r.faults.Down(false)
					require.Equal(t, s.called, g.called(), "step %d", i)
					require.Equal(t, s.code, got.code, "step %d: %s", i, got.text)
					lines := r.log.lines(t, "delivery")
					require.Equal(t, s.reason, lines[len(lines)-1]["reason"], "step %d", i)
					require.EqualValues(t, s.attempt, lines[len(lines)-1]["attempt"], "step %d", i)
					if s.cost != nil {
						cost := []int64{r.counter.Gets.Load(), r.counter.Commits.Load()}
						require.Equal(t, s.cost, cost, "reads and commits of step %d", i)
					}
				}
				record, _ := r.record(t, "e1")
				require.Equal(t, test.status, record.Status)
				require.EqualValues(t, test.attempts, record.Attempts)
				require.Equal(t, test.result, record.Result)
				require.Equal(t, test.lastError, record.LastError)
				require.Equal(t, test.status == dedupe.Processing, !record.LeaseUntil.IsZero())
				require.Equal(t, test.status == dedupe.Processing && kept != "", record.Message != nil, "kept only while it may be needed")
				var letters []string
				for _, letter := range r.letters() {
					why := letter.Attributes["dead_letter_reason"]
					if detail := letter.Attributes["dead_letter_detail"]; detail != "" {
						why += ": " + detail
					}
					letters = append(letters, why)
				}
				require.Equal(t, test.letters, letters)
				require.NotContains(t, r.log.String(), "ilse")
			})
		}
	}
}

// TestAWorkerThatComesLateChangesNothing has another delivery take the event over,
// after the end of the lease, while the first one is still at work.
func TestAWorkerThatComesLateChangesNothing(t *testing.T) {
	t.Parallel()
	results := map[string]error{
		"done":                 nil,
		"failed":               errHandler,
		"refused for good":     retry.Permanent("refused", nil),
		"failed, uncounted":    retry.Busy("breaker_open", nil),
		"failed in every way ": retry.Down("gateway_unavailable", nil),
	}
	for sentence, test := range map[string]struct {
		other func(*rig) (string, error)
		// swept: there is no other worker, but a sweep.
		swept  bool
		code   int
		reason string
	}{
		"what the other has completed":      {other: func(*rig) (string, error) { return "sent by the other", nil }, code: 204, reason: "processed_before"},
		"what the other has failed":         {other: fails(errHandler), code: 503, reason: "lease_held"},
		"what the other holds":              {other: dies, code: 503, reason: "lease_held"},
		"what the other has given back":     {other: fails(retry.Busy("full", nil)), code: 503, reason: "lease_held"},
		"what the other has dead-lettered":  {other: fails(retry.Permanent("bad", nil)), code: 204, reason: "dead_lettered_before"},
		"what nobody has, but a sweep took": {swept: true, code: 503, reason: "lease_held"},
	} {
		for outcome, err := range results {
			t.Run(sentence+", itself "+outcome, func(t *testing.T) {
				t.Parallel()
				g := &gateway{}
				r := newRig(t, setup{leased: g.leased(), queue: func(q *catalog.Queue) { q.Handlers["order.paid"] = tries(q, 9) }})
				var meanwhile dedupe.Record
				g.do = func(context.Context, handler.Event) (string, error) {
					g.do = func(context.Context, handler.Event) (string, error) { return test.other(r) }
					r.pass(leaseOver)
					if test.swept {
						now := time.Unix(0, r.now.Load()).UTC()
						swept, err := dedupe.Sweep(context.Background(), r.counter, now, now, 10, func(context.Context, dedupe.Record) (bool, error) { return true, nil })
						if err != nil || swept.Republished != 1 {
							return "", fmt.Errorf("the sweep found %v: %w", swept, err)
						}
					} else {
						r.deliver(paid("e1", known, 1))
						r.faults.Down(false)
					}
					meanwhile, _ = r.record(t, "e1")
					return "sent too late", err
				}
				letters := 0
				if test.reason == "dead_lettered_before" {
					letters = 1
				}
				got := r.deliver(paid("e1", known, 1))
				lines := r.log.lines(t, "delivery")
				require.Equal(t, test.reason, lines[len(lines)-1]["reason"])
				require.Equal(t, test.code, got.code, got.text)
				record, _ := r.record(t, "e1")
				require.Equal(t, meanwhile, record)
				require.Len(t, r.letters(), letters)
			})
		}
	}
}

// tries is the handler of order.paid with as many attempts.
func tries(q *catalog.Queue, attempts int) catalog.Handler {
	h := q.Handlers["order.paid"]
	h.MaxAttempts = attempts
	return h
}

func TestALateWorkerThatNobodyWaitedForCompletes(t *testing.T) {
	t.Parallel()
	g := &gateway{}
	r := newRig(t, setup{leased: g.leased()})
	g.do = func(context.Context, handler.Event) (string, error) {
		r.pass(leaseOver)
		return "sent", nil
	}
	require.Equal(t, http.StatusOK, r.deliver(paid("e1", known, 1)).code)
	record, _ := r.record(t, "e1")
	require.Equal(t, dedupe.Completed, record.Status)
}

func TestALeasedHandlerThatSeesItsDeadlineIsATimeoutWhateverItCallsIt(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]error{
		"a deadline": context.DeadlineExceeded, "a dependency": retry.Down("gateway_unavailable", nil), "its own": errHandler, "no room": retry.Busy("full", nil),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				g := &gateway{}
				r := newRig(t, setup{leased: g.leased()})
				began := time.Now()
				g.do = func(ctx context.Context, _ handler.Event) (string, error) {
					<-ctx.Done()
					return "", answer
				}
				got := r.deliver(paid("e1", known, 1))
				require.Equal(t, 30*time.Second, time.Since(began))
				require.Equal(t, http.StatusGatewayTimeout, got.code)
				require.Equal(t, "handler_timeout", got.Reason)
				record, _ := r.record(t, "e1")
				require.Equal(t, dedupe.Failed, record.Status)
				require.EqualValues(t, 1, record.Attempts)
				require.Equal(t, start.Add(10*time.Second), record.NextRetryAt)
			})
		})
	}
}

func TestALeasedHandlerThatEndsWithItsDeadlineIsDone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := &gateway{}
		r := newRig(t, setup{leased: g.leased()})
		g.do = func(ctx context.Context, _ handler.Event) (string, error) {
			<-ctx.Done()
			return "sent", nil
		}
		require.Equal(t, http.StatusOK, r.deliver(paid("e1", known, 1)).code)
	})
}

// TestALeasedHandlerThatIgnoresItsDeadlineKeepsItsLease: it may still be at work, so
// nobody else may begin before the lease ends.
func TestALeasedHandlerThatIgnoresItsDeadlineKeepsItsLease(t *testing.T) {
	t.Parallel()
	for name, asking := range map[string]bool{"while it acts": false, "while it asks": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				g := &gateway{}
				r := newRig(t, setup{leased: g.leased()})
				release := make(chan struct{})
				attempts := int64(1)
				if asking {
					g.do = func(context.Context, handler.Event) (string, error) { return "", errHandler }
					require.Equal(t, http.StatusInternalServerError, r.deliver(paid("e1", known, 1)).code)
					g.asked = func(context.Context, handler.Event) (string, bool, error) {
						<-release
						return "found too late", true, nil
					}
					attempts = 2
				}
				g.do = func(context.Context, handler.Event) (string, error) {
					<-release
					return "sent too late", nil
				}
				began := time.Now()
				got := r.deliver(paid("e1", known, 1))
				require.Equal(t, 31*time.Second, time.Since(began), "one second to say good-bye")
				require.Equal(t, http.StatusGatewayTimeout, got.code)
				require.Equal(t, "handler_timeout", got.Reason)
				require.Len(t, r.log.lines(t, "handler does not return"), 1)
				held, _ := r.record(t, "e1")
				require.Equal(t, dedupe.Processing, held.Status)
				require.Equal(t, attempts, held.Attempts)

				synctest.Wait() // it is stuck, and reads no more of the gateway
				g.do, g.asked = nil, nil
				g.called()
				got = r.deliver(paid("e1", known, 1).again(2))
				require.Equal(t, http.StatusServiceUnavailable, got.code)
				require.Equal(t, "lease_held", got.Reason)
				require.Empty(t, g.called())

				close(release)
				synctest.Wait()
				record, _ := r.record(t, "e1")
				require.Equal(t, held, record, "what comes too late is nobody's")

				r.pass(leaseOver)
				require.Equal(t, http.StatusOK, r.deliver(paid("e1", known, 1).again(3)).code)
				require.Equal(t, fmt.Sprintf("ask %[1]d, do %[1]d", attempts+1), g.called())
			})
		})
	}
}

func TestACallerThatLeavesDoesNotEndALeasedHandler(t *testing.T) {
	t.Parallel()
	ctx, leave := context.WithCancel(t.Context())
	g := &gateway{}
	r := newRig(t, setup{leased: g.leased()})
	g.do = func(ctx context.Context, _ handler.Event) (string, error) {
		leave()
		return "sent", ctx.Err()
	}
	got := r.serve(request(ctx, paid("e1", known, 1)))
	require.Equal(t, http.StatusOK, got.code, got.text)
	record, _ := r.record(t, "e1")
	require.Equal(t, dedupe.Completed, record.Status)
}

func TestTheMessageIsKeptWhileASweepMayNeedIt(t *testing.T) {
	t.Parallel()
	large := paid("e1", known, 1).with(func(m *message) { m.body = string(paid("e1", known, 1).data()) + strings.Repeat(" ", 512<<10) })
	for sentence, test := range map[string]struct {
		onOrphan catalog.OnOrphan
		deliver  message
		kept     bool
	}{
		"where orphans are published again": {catalog.Republish, paid("e1", known, 1), true},
		"and not where they are reported":   {catalog.Report, paid("e1", known, 1), false},
		"nor where it is too large":         {catalog.Republish, large, false},
		"nor where no document can hold it": {catalog.Republish, paid("e1", known, 1).with(func(m *message) { m.attributes["__own__"] = "x" }), false},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			g := &gateway{}
			r := newRig(t, setup{leased: g.leased(), queue: func(q *catalog.Queue) { q.OnOrphan = test.onOrphan }})
			var during dedupe.Record
			g.do = func(context.Context, handler.Event) (string, error) {
				during, _ = r.record(t, "e1")
				return "sent", nil
			}
			require.Equal(t, http.StatusOK, r.deliver(test.deliver).code)
			require.Equal(t, dedupe.Processing, during.Status)
			require.Equal(t, start.Add(2*time.Minute), during.LeaseUntil)
			if test.kept {
				require.Equal(t, &contract.Message{Data: test.deliver.data(), Attributes: test.deliver.attributes, OrderingKey: buyer}, during.Message)
			} else {
				require.Nil(t, during.Message)
			}
			record, _ := r.record(t, "e1")
			require.Nil(t, record.Message)
		})
	}
}

// TestAConflictRemembersBothHashes: the person who decides about a conflict sees both hashes,
// also when the event's own record is gone, and no payload.
func TestAConflictRemembersBothHashes(t *testing.T) {
	t.Parallel()
	for kind, with := range map[string]setup{"of a leased event": {leased: (&gateway{}).leased()}, "of a committed event": {}} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, with)
			other := paid("e1", known, 7)
			require.Equal(t, http.StatusOK, r.deliver(paid("e1", known, 1)).code)
			require.Equal(t, http.StatusConflict, r.deliver(other).code)
			first, _ := r.record(t, "e1")
			require.Empty(t, first.ConflictsWith)
			page, err := r.counter.Query(t.Context(), store.Query{Collection: dedupe.Collection, Equal: map[string]any{"conflicts_with": first.PayloadHash}, Limit: 10})
			require.NoError(t, err)
			require.Len(t, page.Documents, 1)
			conflict, err := dedupe.FromDocument(page.Documents[0])
			require.NoError(t, err)
			require.Equal(t, dedupe.DeadLettered, conflict.Status)
			require.Equal(t, first.PayloadHash, conflict.ConflictsWith)
			body := other.body.(contract.PayNow)
			hash, err := contract.Of(&body).PayloadHash()
			require.NoError(t, err)
			require.Equal(t, hash, conflict.PayloadHash)
			require.NotContains(t, fmt.Sprint(page.Documents[0].Fields), known)
		})
	}
}
