package bulk_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/internal/contract"
	"billhook/internal/filetest"
	"billhook/internal/inspect/bulk"
	"billhook/internal/inspect/bulk/bulktest"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/platform/store"
	"billhook/internal/retry"
)

func (d *rig) ends(t *testing.T, m contract.Message, outcome retry.Outcome) {
	t.Helper()
	require.NoError(t, deadletter.Settle(t.Context(), d.store, m, deadletter.Processed, outcome, d.now))
}

func (d *rig) dies(t *testing.T, m contract.Message) {
	t.Helper()
	var n int
	require.NoError(t, filetest.ErrorOf(fmt.Sscanf(m.Attributes["event_id"], "e%d", &n)))
	d.bury(t, n, "u1", "attempts_exhausted", func(again *contract.Message) {
		for _, name := range []string{deadletter.AttrReplayCount, deadletter.AttrReplayOf} {
			again.Attributes[name] = m.Attributes[name]
		}
	})
}

func (d *rig) outcomes(t *testing.T, id string) bulk.Outcomes {
	t.Helper()
	op := filetest.Must(d.Operation(t.Context(), id))(t)
	return filetest.Must(d.Outcomes(t.Context(), op))(t)
}

func TestAReplayThatHasEndedIsNotReopenedByALateCopyOfAnEarlierDeath(t *testing.T) {
	t.Parallel()
	d := newRig(t)
	d.bury(t, 1, "u1", "unknown_product", nil)
	d.run(t, deadletter.Replay)
	first := d.broker.messages[0]
	d.dies(t, first)
	d.now = d.now.Add(time.Minute)
	second := d.run(t, deadletter.Replay)
	d.ends(t, first, retry.Duplicate)
	require.EqualValues(t, 1, d.outcomes(t, second.ID).Waiting,
		"a copy of the first replay says nothing of the second")
	d.ends(t, d.broker.messages[1], retry.Processed)
	d.dies(t, first)
	d.dies(t, d.broker.messages[1])
	require.EqualValues(t, 1, d.outcomes(t, second.ID).Processed)
	d.ends(t, contract.Message{Attributes: map[string]string{deadletter.AttrReplayOf: "gone-orders~1"}},
		retry.Processed)
	for state, want := range map[deadletter.State]int{"": 1, deadletter.Processed: 1, deadletter.Open: 0} {
		items, _ := filetest.Both(d.Items(t.Context(), second.ID, state, store.Cursor{}, 10))(t)
		require.Len(t, items, want, state)
	}
}

func (d *rig) only(t *testing.T) deadletter.Item {
	t.Helper()
	all, _ := filetest.Both(d.List(t.Context(), orders, "", store.Cursor{}, 10))(t)
	require.Len(t, all, 1)
	return all[0]
}

func (d *rig) run(t *testing.T, kind deadletter.Kind) bulk.Operation {
	t.Helper()
	return filetest.Must(d.Run(t.Context(), d.begin(t, kind, orders, nil).ID))(t)
}

func (d *rig) many(t *testing.T, items int, change func(n int, i *deadletter.Item)) {
	t.Helper()
	bulktest.Many(t, d.store, *d.queue, dead, items, change)
	d.now = dead.Add(24 * time.Hour)
}

func TestSummariesNameWhatThereIs(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 23, 14, 5, 6, 0, time.UTC)
	for want, got := range map[string]fmt.Stringer{
		"orders": orders,
		"orders, reason r, type t, event e, key k, kept since 2026-11-23T14:05:06Z, kept before " +
			"2026-11-23T15:05:06Z, 2 chosen": bulk.Filter{
			Queue: "orders", Reason: "r", EventType: "t", EventID: "e", OrderingKey: "k", Since: at,
			Until: at.Add(time.Hour), Items: []string{"1", "2"},
		},
		"3 processed": bulk.Outcomes{Processed: 3},
		"0 processed, 1 dead again, 2 still waiting": bulk.Outcomes{DeadAgain: 1, Waiting: 2},
	} {
		require.Equal(t, want, got.String())
	}
}

func TestAnOperationIsFollowedUntilNothingOfItIsOpen(t *testing.T) {
	t.Parallel()
	waits, dead, done := &bulk.Outcomes{Waiting: 1}, &bulk.Outcomes{DeadAgain: 1}, &bulk.Outcomes{Processed: 1}
	for name, test := range map[string]struct {
		kind          deadletter.Kind
		progress      bulk.Progress
		outcomes      *bulk.Outcomes
		goesOn, fails bool
		notes         int
	}{
		"a discard that runs":            {deadletter.Discard, bulk.Running, nil, true, false, 0},
		"a discard that has ended":       {deadletter.Discard, bulk.Finished, nil, false, false, 0},
		"a replay that nobody approved":  {deadletter.Replay, bulk.Waiting, nil, false, true, 1},
		"one with an event on its way":   {deadletter.Replay, bulk.Finished, waits, true, true, 0},
		"one with a dead letter again":   {deadletter.Replay, bulk.Finished, dead, false, true, 0},
		"one that was cancelled":         {deadletter.Replay, bulk.Cancelled, done, false, true, 0},
		"one whose events are processed": {deadletter.Replay, bulk.Finished, done, false, false, 0},
	} {
		op := bulk.Operation{Kind: test.kind, Progress: test.progress, Outcomes: test.outcomes}
		_, goesOn := op.Stands()
		require.Equal(t, []any{test.goesOn, test.fails, test.notes},
			[]any{goesOn, op.Missed() != nil, len(op.Notes())}, name)
	}
}
