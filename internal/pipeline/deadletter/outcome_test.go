package deadletter_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/internal/contract"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/platform/audit"
	"billhook/internal/platform/store"
	"billhook/internal/retry"
)

// ends ends the replay of a message with an effect, as the worker's commit does.
func (d *desk) ends(t *testing.T, m contract.Message, outcome retry.Outcome) {
	t.Helper()
	require.NoError(t, deadletter.Settle(t.Context(), d.store, m, deadletter.Ending{State: deadletter.Processed, Outcome: outcome, At: d.now}))
}

// dies makes a dead letter of a replayed message.
func (d *desk) dies(t *testing.T, m contract.Message) {
	t.Helper()
	var n int
	_, err := fmt.Sscanf(m.Attributes["event_id"], "e%d", &n)
	require.NoError(t, err)
	d.bury(t, n, "u1", "attempts_exhausted", func(again *contract.Message) {
		for _, name := range []string{deadletter.AttrReplayCount, deadletter.AttrReplayOf} {
			again.Attributes[name] = m.Attributes[name]
		}
	})
}

func (d *desk) outcomes(t *testing.T, id string) deadletter.Outcomes {
	t.Helper()
	op, err := d.Operation(t.Context(), id)
	require.NoError(t, err)
	found, err := d.Outcomes(t.Context(), op)
	require.NoError(t, err)
	return found
}

func TestAnOperationSaysWhatBecameOfEachOfItsReplays(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	for n := range 5 {
		d.bury(t, n, "u1", "unknown_product", nil)
	}
	op, err := d.Run(t.Context(), d.begin(t, deadletter.Replay, orders, nil).ID)
	require.NoError(t, err)
	require.Equal(t, deadletter.Outcomes{Waiting: 5}, d.outcomes(t, op.ID))
	d.ends(t, d.broker.messages[0], retry.Processed)
	d.ends(t, d.broker.messages[1], retry.Duplicate)
	d.dies(t, d.broker.messages[2])
	d.dies(t, d.broker.messages[3])
	require.Equal(t, deadletter.Outcomes{Processed: 2, DeadAgain: 2, Waiting: 1}, d.outcomes(t, op.ID))

	items, _, err := d.Items(t.Context(), op.ID, deadletter.Processed, store.Cursor{}, 10)
	require.NoError(t, err)
	require.ElementsMatch(t, []retry.Outcome{retry.Processed, retry.Duplicate}, []retry.Outcome{items[0].Outcome, items[1].Outcome})
	first, next, err := d.Items(t.Context(), op.ID, "", store.Cursor{}, 3)
	require.NoError(t, err)
	rest, last, err := d.Items(t.Context(), op.ID, "", next, 3)
	require.NoError(t, err)
	require.Equal(t, []any{3, 2, store.Cursor{}}, []any{len(first), len(rest), last})

	d.now = d.now.Add(time.Minute)
	_, err = d.Run(t.Context(), d.begin(t, deadletter.Discard, deadletter.Filter{Queue: "orders", EventID: "e2"}, nil).ID)
	require.NoError(t, err)
	require.Equal(t, deadletter.Outcomes{Processed: 2, DeadAgain: 1, Waiting: 1, Later: 1}, d.outcomes(t, op.ID), "somebody has dealt with it since")
}

func TestAReplayThatHasEndedIsNotReopenedByALateCopyOfAnEarlierDeath(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.bury(t, 1, "u1", "unknown_product", nil)
	_, err := d.Run(t.Context(), d.begin(t, deadletter.Replay, orders, nil).ID)
	require.NoError(t, err)
	first := d.broker.messages[0]
	d.dies(t, first)
	d.now = d.now.Add(time.Minute)
	second, err := d.Run(t.Context(), d.begin(t, deadletter.Replay, orders, nil).ID)
	require.NoError(t, err)
	d.ends(t, first, retry.Duplicate)
	require.EqualValues(t, 1, d.outcomes(t, second.ID).Waiting, "a copy of the first replay says nothing of the second")
	d.ends(t, d.broker.messages[1], retry.Processed)
	d.dies(t, first)
	d.dies(t, d.broker.messages[1])
	require.EqualValues(t, 1, d.outcomes(t, second.ID).Processed)
	d.ends(t, contract.Message{Attributes: map[string]string{deadletter.AttrReplayOf: "gone-orders~1"}}, retry.Processed)
}

func TestTheHistoryOfADeadLetterSaysWhoDidWhatAndWhy(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.bury(t, 1, "u1", "unknown_product", nil)
	var last string
	for n := range deadletter.MaxHistory + 2 {
		op := d.begin(t, deadletter.Replay, orders, func(op *deadletter.Operation) { op.Force, op.Why = true, fmt.Sprint("try ", n) })
		_, err := d.Run(t.Context(), op.ID)
		require.NoError(t, err)
		d.dies(t, d.broker.messages[n])
		d.now, last = d.now.Add(time.Minute), op.ID
	}
	items, _, err := d.List(t.Context(), orders, deadletter.Open, store.Cursor{}, 1)
	require.NoError(t, err)
	history := items[0].History
	require.Len(t, history, deadletter.MaxHistory)
	require.Equal(t, deadletter.Act{Kind: deadletter.Replay, Operation: last, Who: "ilse", Why: "try 11", At: d.now.Add(-time.Minute).Truncate(time.Microsecond)}, history[0], "the newest first")
	require.Equal(t, "try 2", history[len(history)-1].Why)
}

func TestARejectionNeedsAnotherPersonAReasonAndAnOperationThatWaits(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.bury(t, 1, "u1", "unknown_product", nil)
	running := d.begin(t, deadletter.Replay, orders, nil)
	d.queue.FourEyes = true
	waiting := d.begin(t, deadletter.Replay, orders, nil)
	for sentence, test := range map[string]struct{ op, who, why, want string }{
		"of one that runs":        {running.ID, "marta", "no", "does not wait for approval"},
		"by its author":           {waiting.ID, "ilse", "no", "somebody else rejects it"},
		"by nobody":               {waiting.ID, "", "no", "required"},
		"for no reason":           {waiting.ID, "marta", " ", "needs a reason"},
		"for one that is a trick": {waiting.ID, "marta", "no\u202e", "not seen"},
		"with a customer's name":  {waiting.ID, "marta", "ilse@example.org", "(email)"},
	} {
		_, err := d.Reject(t.Context(), test.op, test.who, test.why)
		require.ErrorIs(t, err, deadletter.ErrRefused, sentence)
		require.ErrorContains(t, err, test.want, sentence)
	}
}

func TestACancelDoesNotUndoWhatTheRunnerHasWritten(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	for n := range 60 {
		d.bury(t, n, "u1", "unknown_product", nil)
	}
	id, ran := d.begin(t, deadletter.Replay, orders, nil).ID, false
	canceller := d.operator()
	canceller.NewID = func() string { // between its read and its commit
		if !ran {
			ran = true
			runner := d.operator()
			runner.Wait = func(context.Context, time.Duration) error { return context.Canceled }
			_, err := runner.Run(t.Context(), id)
			require.NoError(t, err)
		}
		return fmt.Sprint("entry-", d.ids.Add(1))
	}
	op, err := canceller.Cancel(t.Context(), id, "marta", "the wrong product")
	require.NoError(t, err)
	require.Equal(t, []any{deadletter.Cancelled, int64(25)}, []any{op.Progress, op.Done})
	require.EqualValues(t, 25, d.outcomes(t, id).Waiting)
}

func TestACancelWhoseAnswerWasLostIsFoundDone(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.bury(t, 1, "u1", "unknown_product", nil)
	id := d.begin(t, deadletter.Replay, orders, nil).ID
	d.store.FailAfter(1)
	_, err := d.Cancel(t.Context(), id, "marta", "the wrong product")
	require.Error(t, err)
	op, err := d.Cancel(t.Context(), id, "marta", "the wrong product")
	require.NoError(t, err)
	require.Equal(t, deadletter.Cancelled, op.Progress)
	entries, err := audit.Subject{Kind: deadletter.AuditKind, ID: id}.All(t.Context(), d.store)
	require.NoError(t, err)
	require.Len(t, entries, 1)
}
