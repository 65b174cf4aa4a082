package deadletter_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/internal/contract"
	"billhook/internal/pipeline/deadletter"
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

func TestTheItemsOfAnOperationAreListedByTheirState(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	for n := range 5 {
		d.bury(t, n, "u1", "unknown_product", nil)
	}
	op := d.run(t, deadletter.Replay)
	d.ends(t, d.broker.messages[0], retry.Processed)
	d.ends(t, d.broker.messages[1], retry.Duplicate)
	items, _, err := d.Items(t.Context(), op.ID, deadletter.Processed, store.Cursor{}, 10)
	require.NoError(t, err)
	require.ElementsMatch(t, []retry.Outcome{retry.Processed, retry.Duplicate}, []retry.Outcome{items[0].Outcome, items[1].Outcome})
	first, next, err := d.Items(t.Context(), op.ID, "", store.Cursor{}, 3)
	require.NoError(t, err)
	rest, last, err := d.Items(t.Context(), op.ID, "", next, 3)
	require.NoError(t, err)
	require.Equal(t, []any{3, 2, store.Cursor{}}, []any{len(first), len(rest), last})
}

func TestAReplayThatHasEndedIsNotReopenedByALateCopyOfAnEarlierDeath(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.bury(t, 1, "u1", "unknown_product", nil)
	d.run(t, deadletter.Replay)
	first := d.broker.messages[0]
	d.dies(t, first)
	d.now = d.now.Add(time.Minute)
	second := d.run(t, deadletter.Replay)
	d.ends(t, first, retry.Duplicate)
	require.EqualValues(t, 1, d.outcomes(t, second.ID).Waiting, "a copy of the first replay says nothing of the second")
	d.ends(t, d.broker.messages[1], retry.Processed)
	d.dies(t, first)
	d.dies(t, d.broker.messages[1])
	require.EqualValues(t, 1, d.outcomes(t, second.ID).Processed)
	d.ends(t, contract.Message{Attributes: map[string]string{deadletter.AttrReplayOf: "gone-orders~1"}}, retry.Processed)
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
