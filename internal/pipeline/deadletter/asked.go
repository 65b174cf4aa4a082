package deadletter

import (
	"context"
	"fmt"
	"slices"

	"billhook/internal/platform/audit"
	"billhook/internal/platform/store"
)

// maxAsked bounds the operations that Asked looks through.
const maxAsked = 50

// Asked returns the operations that wait for a second person and would deal with the item. It looks
// through the first maxAsked that wait for one on the item's queue.
func Asked(ctx context.Context, from store.Querier, item Item) ([]Operation, error) {
	page, err := from.Query(ctx, store.Query{
		Collection: audit.Collection, Equal: map[string]any{"progress": string(Waiting), "queue": item.Queue}, Limit: maxAsked,
	})
	if err != nil {
		return nil, fmt.Errorf("deadletter: operations: %w", err)
	}
	var asked []Operation
	for _, doc := range page.Documents {
		op, err := OperationOf(doc)
		if err != nil {
			return nil, err
		}
		if op.Filter.selects(item, Open) && !item.Kept.After(op.CreatedAt) {
			asked = append(asked, op)
		}
	}
	return asked, nil
}

// selects reports whether the filter selects the item, of the items in a state.
func (f Filter) selects(i Item, state State) bool {
	has := map[string]any{
		"queue": i.Queue, "reason": i.Reason, "event_type": i.EventType, "event_id": i.EventID, "ordering_key": i.OrderingKey, "state": string(i.State),
	}
	for name, value := range f.equal(state) {
		if has[name] != value {
			return false
		}
	}
	return f.takes(i) && (f.Item == "" || f.Item == i.ID) && (len(f.Items) == 0 || slices.Contains(f.Items, i.ID))
}
