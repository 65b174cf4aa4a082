package store

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"
)

// List returns a page of a query's documents, converted by read, and the cursor of the next page. With
// Newest, the page after a full one may be empty. The error is read's, or wraps the store's.
func List[T any](
	ctx context.Context, from Querier, query Query, read func(Document) (T, error),
) (list []T, next Cursor, err error) {
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
	if len(list) > 0 && len(list) == query.Limit && query.Newest != nil {
		page.Next = query.behind(page.Documents[len(list)-1])
	}
	return list, page.Next, nil
}

// behind returns the cursor after a document in the order of Newest.
func (q Query) behind(doc Document) Cursor {
	at, _ := doc.Fields[q.Newest.Field].(time.Time)
	return Cursor{At: at, ID: doc.Key.ID}
}

// Each yields the documents that a query finds, page by page. It ends after it has yielded an error.
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

// All returns all documents of a query, converted by read. The error is read's, or wraps the store's.
func All[T any](
	ctx context.Context, from Querier, query Query, read func(Document) (T, error),
) (all []T, err error) {
	query.Limit = MaxPage
	for doc, err := range Each(ctx, from, query) {
		if err != nil {
			return nil, err
		}
		one, err := read(doc)
		if err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, nil
}

// Equals returns a query's Equal, from pairs of field and value. It leaves out empty values.
func Equals(pairs ...string) map[string]any {
	equal := map[string]any{}
	for pair := range slices.Chunk(pairs, 2) {
		if pair[1] != "" {
			equal[pair[0]] = pair[1]
		}
	}
	return equal
}

// Count returns how many documents a query finds, up to its limit.
func Count(ctx context.Context, from Querier, query Query) (int64, error) {
	query.Count = true
	page, err := from.Query(ctx, query)
	if err != nil {
		return 0, fmt.Errorf("store: count %s: %w", query.Collection, err)
	}
	return page.Count, nil
}

// few is the page size of Few: the documents may be large.
const few = 100

// Few answers queries by Newest with a condition on a field whose values are each shared by few documents,
// such as an event's id. It queries only by that field, which needs no composite index, and filters and sorts
// the result itself. It passes other queries on.
type Few struct {
	Querier
	Field string
}

// Query returns a page of the documents.
func (f Few) Query(ctx context.Context, q Query) (page Page, err error) {
	value, named := q.Equal[f.Field]
	if !named || q.Newest == nil {
		return f.Querier.Query(ctx, q)
	}
	newestFirst := func(a, b Document) int { return q.behind(b).Compare(q.behind(a)) }
	of := Query{Collection: q.Collection, Equal: map[string]any{f.Field: value}, Limit: few}
	for doc, err := range Each(ctx, f.Querier, of) {
		switch {
		case err != nil:
			return Page{}, err
		case !q.selects(doc):
		case q.Count:
			if page.Count++; page.Count == int64(q.Limit) {
				return page, nil
			}
		default:
			at, _ := slices.BinarySearchFunc(page.Documents, doc, newestFirst)
			page.Documents = slices.Insert(page.Documents, at, doc)
			page.Documents = page.Documents[:min(len(page.Documents), q.Limit)]
		}
	}
	return page, nil
}

// selects reports whether a query by Newest selects a document.
func (q Query) selects(doc Document) bool {
	for name, value := range q.Equal {
		if doc.Fields[name] != value {
			return false
		}
	}
	at, timed := doc.Fields[q.Newest.Field].(time.Time)
	return timed && !at.Before(q.Newest.Since) && (q.Newest.Until.IsZero() || at.Before(q.Newest.Until)) &&
		(q.After.IsZero() || q.behind(doc).Compare(q.After) < 0)
}

// Readable is a store whose pages leave out unreadable documents and are filled up with the next ones, so
// that one damaged document does not stop a list. Get still returns it, for its caller to report an error.
type Readable struct {
	Store
	// Check returns, by collection, why a document is unreadable. Other collections are not checked.
	Check map[string]func(Document) error
	// Skipped is called with each document that a page leaves out.
	Skipped func(ctx context.Context, key Key)
}

// Query returns a page of readable documents. A query by Due is passed on unchecked: its documents are work
// to do, and the caller decides what happens with an unreadable one.
func (r Readable) Query(ctx context.Context, q Query) (Page, error) {
	check := r.Check[q.Collection]
	if check == nil || q.Count || q.Due != nil {
		return r.Store.Query(ctx, q)
	}
	var all Page
	for {
		page, err := r.Store.Query(ctx, q)
		if err != nil {
			return Page{}, err
		}
		all.Next = page.Next
		full := len(page.Documents) == q.Limit
		for _, doc := range page.Documents {
			if check(doc) != nil {
				r.Skipped(ctx, doc.Key)
				continue
			}
			all.Documents = append(all.Documents, doc)
			q.Limit--
		}
		if q.Limit == 0 || !full {
			return all, nil
		}
		if q.After = page.Next; q.Newest != nil {
			q.After = q.behind(page.Documents[len(page.Documents)-1])
		}
		if q.After.IsZero() {
			return all, nil
		}
	}
}

const shortest = 4

// Named returns the document whose id is key.ID, or the only one whose id begins with it. The error wraps
// ErrNotFound or ErrAmbiguous, which names two ids, or is the store's.
func Named(ctx context.Context, from interface {
	Getter
	Querier
}, key Key,
) (Document, error) {
	doc, err := from.Get(ctx, key)
	if !errors.Is(err, ErrNotFound) || len(key.ID) < shortest {
		return doc, err
	}
	page, failed := from.Query(ctx, Query{Collection: key.Collection, IDPrefix: key.ID, Limit: 2})
	switch {
	case failed != nil:
		return doc, failed
	case len(page.Documents) == 0:
		return doc, err
	case len(page.Documents) > 1:
		one, other := page.Documents[0].Key.ID, page.Documents[1].Key.ID
		//nolint:staticcheck // It is the detail of an answer.
		return doc, fmt.Errorf("%w: The ids %s and %s begin so; name more of one.", ErrAmbiguous, one, other)
	}
	return page.Documents[0], nil
}
