package push_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/pipeline/handler"
	"billhook/internal/retry"
)

// TestWhatADeliveryCostsTheStore counts round trips and documents.
func TestWhatADeliveryCostsTheStore(t *testing.T) {
	t.Parallel()
	first := paid("e1", known, 1)
	for name, test := range map[string]struct {
		setup   setup
		before  []message
		deliver message
		code    int

		reads, commits, documents int64
	}{
		"a new credit is one commit of three documents":           {deliver: first, code: 200, commits: 1, documents: 3},
		"so it is where the broker says it is the first delivery": {deliver: first.again(1), code: 200, commits: 1, documents: 3},
		"a duplicate is a refused commit and a read":              {before: []message{first}, deliver: first, code: 204, commits: 1, reads: 1},
		"a duplicate that the broker counts is a read":            {before: []message{first}, deliver: first.again(2), code: 204, reads: 1},
		"a retry that the broker counts is a read and a commit": {
			setup: setup{credit: times(1, errHandler)}, before: []message{first}, deliver: first.again(2), code: 200, reads: 1, commits: 1, documents: 3,
		},
		"a failure is one commit": {setup: setup{credit: always(errHandler)}, deliver: first, code: 500, commits: 1, documents: 1},
		"a second failure that the broker counts is a read and a commit": {
			setup: setup{credit: always(errHandler)}, before: []message{first}, deliver: first.again(2), code: 500, reads: 1, commits: 1, documents: 1,
		},
		"a dead letter is a read and a commit": {deliver: paid("e1", unknown, 1), code: 400, reads: 1, commits: 1, documents: 1},
		"in order, where the broker keeps time, no more while the queue is known to be calm": {
			setup: setup{queue: inOrder}, before: []message{paid("e0", known, 1)}, deliver: first, code: 200, commits: 1, documents: 3,
		},
		"and one read, of no document, where that is a second ago": {setup: setup{queue: inOrder}, deliver: first, code: 200, reads: 1, commits: 1, documents: 3},
		"in order, where something can, the lane is a read more": {
			setup: setup{queue: both(patient, inOrder)}, deliver: first, code: 200, reads: 1, commits: 1, documents: 3,
		},
		"in no order, where something can, no more": {setup: setup{queue: patient}, deliver: first, code: 200, commits: 1, documents: 3},
		"a failure that is kept is its lane and a commit": {
			setup: setup{queue: patient, credit: always(errHandler)}, deliver: first, code: 200, reads: 1, commits: 1, documents: 3,
		},
		"what waits behind it is two reads and a commit": {
			setup: setup{queue: both(patient, inOrder), credit: always(errHandler)}, before: []message{first},
			deliver: paid("e2", known, 1), code: 200, reads: 2, commits: 1, documents: 2,
		},
		"a correction is a refused commit, a read and a commit, of the dead letter too": {
			setup: setup{queue: accepting}, before: []message{paid("e1", unknown, 1)}, deliver: first.with(func(m *message) { m.id = "m-2" }), code: 200, commits: 2, reads: 1, documents: 4,
		},
		"a new credit where corrections are accepted is no more than elsewhere":     {setup: setup{queue: accepting}, deliver: first, code: 200, commits: 1, documents: 3},
		"what is broken where corrections are accepted is a read and a commit more": {setup: setup{queue: accepting}, deliver: paid("e1", known, 0), code: 422, reads: 2, commits: 2, documents: 2},
		"a dead letter where corrections are accepted is no more than elsewhere":    {setup: setup{queue: accepting}, deliver: paid("e1", unknown, 1), code: 400, reads: 1, commits: 1, documents: 1},
		"the old payload's redelivery after the correction is a read": {
			setup: setup{queue: accepting}, before: []message{paid("e1", unknown, 1), first.with(func(m *message) { m.id = "m-2" })}, deliver: paid("e1", unknown, 1).again(2), code: 204, reads: 1,
		},
		"a redelivery of what was dead-lettered is a read": {before: []message{paid("e1", unknown, 1)}, deliver: paid("e1", unknown, 1).again(2), code: 204, reads: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, test.setup)
			for _, m := range test.before {
				r.deliver(m)
			}
			r.counter.Gets.Store(0)
			r.counter.Queries.Store(0)
			r.counter.Commits.Store(0)
			r.counter.Written.Store(0)
			require.Equal(t, test.code, r.deliver(test.deliver).code)
			require.Equal(t, test.reads, r.counter.Gets.Load()+r.counter.Queries.Load(), "reads")
			require.Equal(t, test.commits, r.counter.Commits.Load(), "commits")
			require.Equal(t, test.documents, r.counter.Written.Load(), "documents written")
		})
	}
}

// TestAMessageOfAQueueWithoutRecordsCostsTheStoreNothing: whatever becomes of it.
func TestAMessageOfAQueueWithoutRecordsCostsTheStoreNothing(t *testing.T) {
	t.Parallel()
	first := paid("e1", known, 1)
	fails := func(err error) *handler.Leased {
		return repeats(func(context.Context, handler.Event) (string, error) { return "tracked", err })
	}
	for name, test := range map[string]struct {
		leased  *handler.Leased
		deliver message
		code    int
		outcome string
		reason  string
	}{
		"it is handled":                    {fails(nil), first, 200, "processed", "tracked"},
		"it is redelivered, and again":     {fails(nil), first.again(7), 200, "processed", "tracked"},
		"it fails, and is dropped":         {fails(errHandler), first, 204, "dropped", "handler_error"},
		"it is refused, and is dropped":    {fails(retry.Permanent("callee_refused_400", nil)), first, 204, "dropped", "callee_refused_400"},
		"its contract is broken":           {fails(nil), paid("e1", known, 0), 204, "dropped", "contract_broken"},
		"what it needs rests for a minute": {fails(retry.After(time.Minute, retry.Busy("callee_resting", nil))), first, 503, "retry", "callee_resting"},
		"the worker is crowded":            {fails(retry.Busy("callee_crowded", nil)), first, 503, "retry", "callee_crowded"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, setup{queue: forgetful, leased: test.leased})
			for range 2 { // nothing is remembered of the first
				require.Equal(t, test.code, r.deliver(test.deliver).code)
			}
			for _, line := range r.log.lines(t, "delivery") {
				require.Equal(t, test.outcome, line["outcome"])
				require.Equal(t, test.reason, line["reason"])
			}
			require.Zero(t, r.counter.Gets.Load()+r.counter.Queries.Load(), "reads")
			require.Zero(t, r.counter.Commits.Load(), "commits")
			require.Empty(t, r.letters())
		})
	}
}

// forgetful makes a queue of the kind of analytics-track: losing some messages is accepted.
func forgetful(q *catalog.Queue) {
	q.RememberFor, q.DeadLetter, q.OnTerminal, q.MaxAttempts = 0, catalog.DeadLetter{Drop: true}, catalog.Ack, 1
	for eventType, h := range q.Handlers {
		h.MaxAttempts = 1
		q.Handlers[eventType] = h
	}
}

// TestATimeOfDeliveryIsKeptWithoutRecordsToo: what waits for its time is written down until then.
func TestATimeOfDeliveryIsKeptWithoutRecordsToo(t *testing.T) {
	t.Parallel()
	tracked := 0
	r := newRig(t, setup{queue: forgetful, leased: repeats(func(context.Context, handler.Event) (string, error) {
		tracked++
		return "tracked", nil
	})})
	m := paid("e1", known, 1).with(func(m *message) { m.attributes["deliver_at"] = start.Add(time.Hour).Format(time.RFC3339) })
	got := r.deliver(m)
	require.Equal(t, 200, got.code)
	require.True(t, got.Delayed)
	require.Zero(t, tracked)
	r.pass(time.Hour + time.Second)
	back := r.release(t)
	require.Len(t, back, 1)
	require.Equal(t, 200, r.deliver(back[0]).code)
	require.Equal(t, 1, tracked)
	_, found := r.record(t, "e1")
	require.False(t, found)
}
