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

func TestAnOperationIsCancelledAndTouchesNothingMore(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	for n := range 60 {
		d.bury(t, n, "u1", "unknown_product", nil)
	}
	id := d.begin(t, deadletter.Replay, orders, nil).ID
	runner := d.operator()
	runner.Wait = func(ctx context.Context, _ time.Duration) error { // after its first commit
		cancelled, err := d.Cancel(ctx, id, "marta", "the wrong product")
		require.NoError(t, err)
		require.Equal(t, deadletter.Cancelled, cancelled.Progress)
		return nil
	}
	op, err := runner.Run(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, []any{deadletter.Cancelled, "marta", "the wrong product", d.now.Truncate(time.Microsecond)}, []any{op.Progress, op.EndedBy, op.EndedWhy, op.FinishedAt})
	require.EqualValues(t, 25, op.Done)
	require.Len(t, d.broker.messages, 25)
	again, err := d.Run(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, op.Done, again.Done)
	entries, err := audit.Subject{Kind: deadletter.AuditKind, ID: id}.All(t.Context(), d.store)
	require.NoError(t, err)
	require.Len(t, entries, 1)
	require.Equal(t, []any{"cancel", "marta", "the wrong product"}, []any{entries[0].Action, entries[0].Who, entries[0].Why})
	require.Equal(t, map[string]any{"progress": "running", "done": int64(25)}, entries[0].Before)
	twice, err := d.Cancel(t.Context(), id, "ada", "the same")
	require.NoError(t, err)
	require.Equal(t, "marta", twice.EndedBy)
	_, err = d.Reject(t.Context(), id, "ada", "late")
	require.ErrorIs(t, err, deadletter.ErrRefused)
}

func TestTheSecondPersonMayReject(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.bury(t, 1, "u1", "unknown_product", nil)
	running := d.begin(t, deadletter.Replay, orders, nil)
	_, err := d.Reject(t.Context(), running.ID, "marta", "no")
	require.ErrorContains(t, err, "does not wait for approval")
	d.queue.FourEyes = true
	op := d.begin(t, deadletter.Replay, orders, nil)
	for name, test := range map[string]struct{ who, why, want string }{
		"by its author":           {"ilse", "no", "somebody else rejects it"},
		"by nobody":               {"", "no", "required"},
		"for no reason":           {"marta", " ", "needs a reason"},
		"for one that is a trick": {"marta", "no\u202e", "not seen"},
		"with a customer's name":  {"marta", "ilse@example.org", "(email)"},
	} {
		_, err := d.Reject(t.Context(), op.ID, test.who, test.why)
		require.ErrorIs(t, err, deadletter.ErrRefused, name)
		require.ErrorContains(t, err, test.want, name)
	}
	op, err = d.Reject(t.Context(), op.ID, "marta", "ask the shop first")
	require.NoError(t, err)
	require.Equal(t, deadletter.Rejected, op.Progress)
	for _, late := range []func() error{
		func() error { _, err := d.Approve(t.Context(), op.ID, marta, "fine", 1); return err },
		func() error { _, err := d.Cancel(t.Context(), op.ID, "marta", "no"); return err },
	} {
		require.ErrorIs(t, late(), deadletter.ErrRefused)
	}
	op, err = d.Run(t.Context(), op.ID)
	require.NoError(t, err)
	require.Equal(t, deadletter.Rejected, op.Progress)
	require.Empty(t, d.broker.messages)
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
