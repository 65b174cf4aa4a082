package store

import (
	"context"
	"errors"
	"fmt"
)

// adoptTries is how often Adopt looks at a page again that others have changed in the meantime.
const adoptTries = 5

// Adopted is what became of a page of documents that were to be adopted. In JSON its fields are
// named as here.
type Adopted struct {
	// Looked counts the documents of the page, and Adopted those that were completed.
	Looked  int `json:"looked"`
	Adopted int `json:"adopted"`
	// Broken are the ids of those that cannot be read. They stay as they are.
	Broken []string `json:"broken"`
	// Next is the place behind the page; empty: it was the last.
	Next string `json:"next"`
}

// Adopt completes the documents of a collection that the release before this wrote without a field
// that is needed now: a page of at most limit, 1 to MaxWrites, behind the id after, in one commit.
// complete returns the fields of a completed document, nil for one that is complete, and an error
// for one that cannot be read. A run may stop anywhere, be repeated, and meet another, or whatever
// else writes the documents. While workers of that release run, new ones without the field may
// come: the last run begins after they have stopped. The error is that of the store, or wraps
// ErrStale: others kept changing the page.
func Adopt(ctx context.Context, s Store, collection, after string, limit int, complete func(Document) (map[string]any, error)) (Adopted, error) {
	for range adoptTries {
		page, err := s.Query(ctx, Query{Collection: collection, After: after, Limit: min(limit, MaxWrites)})
		if err != nil {
			return Adopted{}, fmt.Errorf("store: query what to adopt: %w", err)
		}
		done := Adopted{Looked: len(page.Documents), Broken: []string{}, Next: page.Next}
		var writes []Write
		for _, doc := range page.Documents {
			fields, err := complete(doc)
			switch {
			case err != nil:
				done.Broken = append(done.Broken, doc.Key.ID)
			case fields != nil:
				writes = append(writes, Update(doc.Key, doc.Version, fields))
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
		case !errors.Is(err, ErrStale):
			return Adopted{}, fmt.Errorf("store: adopt: %w", err)
		}
	}
	return Adopted{}, fmt.Errorf("store: adopt: %w", ErrStale)
}
