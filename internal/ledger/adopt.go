package ledger

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"billhook/internal/store"
)

// adoptTries is how often Adopt looks at a page again that another has changed in the meantime.
const adoptTries = 5

// Adopted is what became of a page of entries. In JSON its fields are named as here.
type Adopted struct {
	// Looked counts the entries of the page, and Adopted those that were completed.
	Looked  int `json:"looked"`
	Adopted int `json:"adopted"`
	// Broken are the ids of those that cannot be read. They stay as they are.
	Broken []string `json:"broken"`
	// Next is the place behind the page; empty: it was the last.
	Next string `json:"next"`
}

// Adopt completes the entries of the release before this, which wrote neither lines nor the mark
// that an entry is not sealed: a page of at most limit, 1 to store.MaxWrites, behind the entry
// after, in one commit. What it wrote stays as it was. So a run may stop anywhere, be repeated,
// and meet another, or a sealer. An entry that is complete is left alone. While workers of that
// release run, new ones without a mark may come: the last run begins after they have stopped.
// The error is that of the store, or wraps store.ErrStale: others kept changing the page.
func Adopt(ctx context.Context, s store.Store, after string, limit int) (Adopted, error) {
	for range adoptTries {
		page, err := s.Query(ctx, store.Query{Collection: Entries, After: after, Limit: min(limit, store.MaxWrites)})
		if err != nil {
			return Adopted{}, fmt.Errorf("ledger: query entries: %w", err)
		}
		done := Adopted{Looked: len(page.Documents), Broken: []string{}, Next: page.Next}
		var writes []store.Write
		for _, doc := range page.Documents {
			entry, err := Read(doc)
			switch {
			case err != nil:
				done.Broken = append(done.Broken, doc.Key.ID)
			case !entry.Marked:
				fields := maps.Clone(doc.Fields)
				entry.mark(fields)
				writes = append(writes, store.Update(doc.Key, doc.Version, fields))
			}
		}
		done.Adopted = len(writes)
		if len(writes) == 0 {
			return done, nil
		}
		_, err = s.Commit(ctx, writes)
		switch {
		case err == nil:
			return done, nil
		case !errors.Is(err, store.ErrStale):
			return Adopted{}, fmt.Errorf("ledger: adopt entries: %w", err)
		}
	}
	return Adopted{}, fmt.Errorf("ledger: adopt entries: %w", store.ErrStale)
}
