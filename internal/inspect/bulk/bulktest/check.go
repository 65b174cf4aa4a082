package bulktest

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"billhook/internal/contract"
	"billhook/internal/filetest"
	"billhook/internal/inspect/bulk"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/pipeline/lane"
	"billhook/internal/platform/audit"
	"billhook/internal/platform/store"
)

func (w *world) items(t *rapid.T) map[string]deadletter.Item {
	page := filetest.Must(w.faults.Query(context.Background(),
		store.Query{Collection: deadletter.Collection, Equal: map[string]any{"queue": w.queue.ID}, Limit: 100}))(t)
	found := map[string]deadletter.Item{}
	for _, doc := range page.Documents {
		item := filetest.Must(deadletter.ItemOf(doc))(t)
		found[item.ID] = item
	}
	return found
}

// byEvent returns the ids of items sorted by event id. The event ids are the same in each history.
func byEvent(items map[string]deadletter.Item) []string {
	return slices.SortedFunc(maps.Keys(items), func(a, b string) int {
		return strings.Compare(items[a].EventID, items[b].EventID)
	})
}

// check verifies the invariants of each operation.
func (w *world) check(t *rapid.T) {
	items, operator := w.items(t), w.operator(nil)
	for id := range w.corrected {
		require.Equal(t, []any{deadletter.Corrected, "77", "{}"},
			[]any{items[id].State, items[id].CorrectedBy, string(items[id].Data)})
	}
	w.checkMessages(t)
	asked, _ := filetest.Both(bulk.Asked(context.Background(), w.faults, w.queue.ID, 100))(t)
	for _, id := range w.operations {
		op := filetest.Must(operator.Operation(context.Background(), id))(t)
		if before, over := w.over[id]; over {
			require.Equal(t, before.Progress, op.Progress, "what is over stays so")
			require.Equal(t, before.Done, op.Done, "and touches nothing more")
		} else if op.Progress.Over() {
			w.over[id] = op
			w.checkAudit(t, op)
		}
		for item := range items {
			if chosen := op.Filter.Items; chosen != nil && items[item].Operation == id {
				require.Contains(t, chosen, item, "it touches what was chosen alone")
			}
		}
		waits := func(one bulk.Operation) bool { return one.ID == id }
		require.Equal(t, op.Progress == bulk.Waiting, slices.ContainsFunc(asked, waits))
		for item, times := range w.replays[id] {
			require.Equal(t, 1, times, "%s was replayed more than once by %s", item, id)
		}
		if op.Kind != deadletter.Replay {
			continue
		}
		require.EqualValues(t, op.Done, len(w.replays[id]), "each counted once")
		var want bulk.Outcomes
		for _, item := range items {
			if item.Operation == id {
				switch item.State {
				case deadletter.Processed:
					want.Processed++
				case deadletter.Open:
					want.DeadAgain++
				case deadletter.Replayed:
					want.Waiting++
				default:
				}
			}
		}
		want.PassedBy, want.Later = op.Skipped, op.Done-want.Processed-want.DeadAgain-want.Waiting
		found := filetest.Must(operator.Outcomes(context.Background(), op))(t)
		require.Equal(t, want, found)
	}
}

// checkMessages verifies that the messages of replays keep the order of their ordering key, and that none is
// lost.
func (w *world) checkMessages(t *rapid.T) {
	last, known := map[string]string{}, map[string]bool{}
	for _, m := range w.published {
		by := w.by[replay(m)]
		require.NotEmpty(t, by, "nothing is published but what an operation has replayed")
		if known[replay(m)] {
			continue // published again after a lost answer: its consumer knows it
		}
		known[replay(m)] = true
		line, first := by+" "+m.OrderingKey, m.Attributes[contract.AttrFirstPublished]
		require.Less(t, last[line], first, "an operation replays those of a key in their old order")
		last[line] = first
	}
	if len(known) < len(w.by) {
		page := filetest.Must(w.faults.Query(context.Background(),
			store.Query{Collection: lane.Outbox.Entries(), Equal: map[string]any{"queue": w.queue.ID}, Limit: 100}))(t)
		for _, doc := range page.Documents {
			kept := filetest.Must(lane.KeptOf(doc))(t)
			known[replay(kept.Message)] = true
		}
	}
	require.Len(t, known, len(w.by), "a message is published, or waits in the outbox")
}

func (w *world) checkAudit(t *rapid.T, op bulk.Operation) {
	entries, _, err := audit.Subject{Kind: bulk.AuditKind, ID: op.ID}.List(context.Background(), w.faults,
		store.Cursor{}, 10)
	require.NoError(t, err)
	begun := slices.IndexFunc(entries, func(e audit.Entry) bool { return e.Action == string(op.Kind) })
	require.GreaterOrEqual(t, begun, 0)
	require.Equal(t, []any{op.Who, op.Why, op.Total},
		[]any{entries[begun].Who, entries[begun].Why, entries[begun].After["total"]})
	entries = slices.Delete(entries, begun, begun+1)
	approved := func(e audit.Entry) bool { return e.Action == "approve" }
	if at := slices.IndexFunc(entries, approved); op.ApprovedBy != "" {
		require.GreaterOrEqual(t, at, 0)
		require.Equal(t, []string{op.ApprovedBy, op.ApprovedWhy}, []string{entries[at].Who, entries[at].Why})
		require.NotEqual(t, op.Who, op.ApprovedBy)
		entries = slices.Delete(entries, at, at+1)
	}
	require.Equal(t, w.now, op.FinishedAt)
	if op.Progress == bulk.Finished {
		require.Empty(t, entries)
		require.Equal(t, op.Total, op.Done+op.Skipped)
		return
	}
	require.Len(t, entries, 1)
	require.Equal(t, []any{op.EndedBy, op.EndedWhy, op.Done},
		[]any{entries[0].Who, entries[0].Why, entries[0].Before["done"]})
}
