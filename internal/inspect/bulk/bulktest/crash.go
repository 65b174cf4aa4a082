package bulktest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"billhook/internal/contract"
	"billhook/internal/filetest"
	"billhook/internal/inspect/bulk"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
	"billhook/internal/retry"
)

// disturbed has a person cancel the operation, or a second runner start, between two of its commits.
func (w *world) disturbed(t *rapid.T) {
	op, cancels := w.pick(t), rapid.Bool().Draw(t, "cancels")
	var done int64 = -1
	after, err := w.runs(t, op, w.operator(func(context.Context, time.Duration) error {
		if !cancels {
			_, err := w.operator(nil).Run(context.Background(), op.ID)
			require.ErrorIs(t, err, store.ErrBusy)
			return nil
		}
		cancelled, err := w.operator(nil).End(context.Background(), op.ID, bulk.Cancelled, byName("cyd", "stop"))
		require.NoError(t, err)
		done = cancelled.Done
		return nil
	}))
	if done >= 0 {
		require.NoError(t, err)
		require.Equal(t, []any{bulk.Cancelled, done}, []any{after.Progress, after.Done}, "no further one")
	}
}

// crash kills a runner in a commit: before it is written, or after.
func (w *world) crash(t *rapid.T) {
	op := w.pick(t)
	steps, until, lost := 0, rapid.IntRange(0, 3).Draw(t, "steps"), rapid.Bool().Draw(t, "written")
	kill := func() {
		if lost {
			w.faults.FailAfter(1)
		} else {
			w.faults.FailBefore(1)
		}
	}
	if until == 0 && op.Progress == bulk.Running && (op.Runner == "" || !w.now.Before(op.RunnerUntil)) {
		kill()
	}
	_, err := w.runs(t, op, w.operator(func(context.Context, time.Duration) error {
		if steps++; steps == until {
			kill()
		}
		return nil
	}))
	if err != nil && !errors.Is(err, store.ErrBusy) && !errors.Is(err, bulk.ErrRefused) {
		require.ErrorIs(t, err, storetest.ErrFault)
	}
}

func (w *world) waiting(t *rapid.T) (string, contract.Message) {
	var ids []string
	for id := range w.pending {
		ids = append(ids, id)
	}
	if len(ids) == 0 {
		t.Skip("nothing is under way")
	}
	// The ids differ in each history, the event ids do not.
	slices.SortFunc(ids, func(a, b string) int {
		return strings.Compare(w.pending[a].Attributes["event_id"], w.pending[b].Attributes["event_id"])
	})
	id := rapid.SampledFrom(ids).Draw(t, "item")
	return id, w.pending[id]
}

func (w *world) ends(t *rapid.T) {
	id, m := w.waiting(t)
	delete(w.pending, id)
	require.NoError(t, deadletter.Settle(context.Background(), w.faults, m, deadletter.Processed,
		retry.Processed, w.now))
	require.True(t, w.corrected[id] || w.items(t)[id].State == deadletter.Processed)
}

// correct closes an item, as the commit of an effect does, in any state of the item.
func (w *world) correct(t *rapid.T) {
	id := rapid.SampledFrom(byEvent(w.items(t))).Draw(t, "item")
	w.corrected[id] = true
	require.NoError(t, filetest.ErrorOf(w.faults.Commit(context.Background(),
		[]store.Write{deadletter.Correct(w.queue, id, "e", "77", w.now)})))
}

// again delivers the first dead letter of an item a second time.
func (w *world) again(t *rapid.T) {
	items := w.items(t)
	var n int
	_, err := fmt.Sscanf(items[rapid.SampledFrom(byEvent(items)).Draw(t, "item")].SourceMessageID, "%d", &n)
	require.NoError(t, err)
	w.bury(t, n, nil)
	require.Equal(t, items, w.items(t), "it is known")
}

func (w *world) dies(t *rapid.T) {
	id, m := w.waiting(t)
	delete(w.pending, id)
	var n int
	require.NoError(t, filetest.ErrorOf(fmt.Sscanf(m.Attributes["event_id"], "e%d", &n)))
	w.bury(t, n, m.Attributes)
	require.True(t, w.corrected[id] || w.items(t)[id].State == deadletter.Open)
}
