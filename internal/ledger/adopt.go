package ledger

import (
	"context"
	"maps"

	"billhook/internal/store"
)

// Adopted is what became of a page of entries.
type Adopted = store.Adopted

// Adopt completes the entries of the release before this, which wrote neither lines nor the mark
// that an entry is not sealed: a page of at most limit, 1 to store.MaxWrites, behind the entry
// after, as store.Adopt does. What it wrote stays as it was.
func Adopt(ctx context.Context, s store.Store, after string, limit int) (Adopted, error) {
	return store.Adopt(ctx, s, Entries, after, limit, func(doc store.Document) (map[string]any, error) {
		entry, err := Read(doc)
		if err != nil || entry.Marked {
			return nil, err
		}
		fields := maps.Clone(doc.Fields)
		entry.mark(fields)
		return fields, nil
	})
}
