package store

import (
	"context"
	"fmt"
	"iter"
)

// List returns a page of what read makes of the documents that a query finds, and the Next of the page.
// The error is that of read, or wraps that of the store.
func List[T any](ctx context.Context, from Querier, query Query, read func(Document) (T, error)) (list []T, next Cursor, err error) {
	page, err := from.Query(ctx, query)
	if err != nil {
		return nil, next, fmt.Errorf("store: list %s: %w", query.Collection, err)
	}
	list = make([]T, len(page.Documents))
	for i, doc := range page.Documents {
		if list[i], err = read(doc); err != nil {
			return nil, next, err
		}
	}
	return list, page.Next, nil
}

// Each yields the documents that a query finds, page after page. An error is the last that it yields.
func Each(ctx context.Context, from Querier, query Query) iter.Seq2[Document, error] {
	return func(yield func(Document, error) bool) {
		for {
			page, err := from.Query(ctx, query)
			if err != nil {
				yield(Document{}, fmt.Errorf("store: read %s: %w", query.Collection, err))
				return
			}
			for _, doc := range page.Documents {
				if !yield(doc, nil) {
					return
				}
			}
			if query.After = page.Next; query.After.IsZero() {
				return
			}
		}
	}
}
