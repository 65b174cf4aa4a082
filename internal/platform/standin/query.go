package standin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"go.etcd.io/bbolt"

	"billhook/internal/platform/store"
)

// Query returns one page, in the order of ids or of times. It looks at what it returns. The
// first query of a kind looks once at the whole collection, and makes the index that it needs.
func (s *Store) Query(ctx context.Context, q store.Query) (store.Page, error) {
	if err := ready(ctx, store.CheckQuery(q)); err != nil {
		return store.Page{}, err
	}
	needed := indexFor(q)
	for {
		var page store.Page
		missing := false
		err := s.db.View(func(tx *bbolt.Tx) error {
			documents := tx.Bucket([]byte(q.Collection))
			if documents == nil {
				return nil
			}
			keys := documents
			if needed.of() {
				keys = tx.Bucket(needed.bucket(q.Collection))
			}
			if missing = keys == nil; missing {
				return nil
			}
			l := &look{Query: q, documents: documents}
			defer func() { s.looked.Add(l.looked) }()
			return l.through(keys.Cursor(), &page)
		})
		if err != nil {
			return store.Page{}, fmt.Errorf("query %s: %w", q.Collection, err)
		}
		if !missing {
			return page, nil
		}
		if err := s.makeIndex(q.Collection, needed); err != nil {
			return store.Page{}, err
		}
	}
}

// indexFor is the index that answers a query. One of nothing is of the ids alone, as the documents are.
func indexFor(q store.Query) index {
	x := index{Equal: slices.Sorted(maps.Keys(q.Equal))}
	for x.List = range q.Contains { // one at most
	}
	switch {
	case q.Due != nil:
		x.Time = q.Due.Field
	case q.Newest != nil:
		x.Time = q.Newest.Field
	}
	return x
}

func (x index) of() bool { return len(x.Equal) > 0 || x.List != "" || x.Time != "" }

// look is one query under way.
type look struct {
	store.Query

	documents *bbolt.Bucket
	// looked counts the keys and the documents that were read.
	looked int64
}

// end is above what may follow in a key: no id and no time begins with this byte.
const end = 0xff

// within returns the keys that answer the query: from the first on, and below to. Ids begin at id.
func (l *look) within() (from, to []byte, id int) {
	var begins []byte
	for _, name := range slices.Sorted(maps.Keys(l.Equal)) {
		value, _ := spelled(l.Equal[name]) // CheckQuery has refused others
		begins = append(begins, value...)
	}
	for _, text := range l.Contains {
		value, _ := spelled(text)
		begins = append(begins, value...)
	}
	with := func(more ...byte) []byte { return append(slices.Clone(begins), more...) }
	switch {
	case l.Due != nil:
		return begins, with(append(appendTime(nil, l.Due.Until), end)...), len(begins) + timeBytes
	case l.Newest != nil:
		to = with(end)
		if !l.Newest.Until.IsZero() {
			to = with(appendTime(nil, l.Newest.Until)...)
		}
		if !l.After.IsZero() {
			to = slices.MinFunc([][]byte{to, with(append(appendTime(nil, l.After.At), l.After.ID...)...)}, bytes.Compare)
		}
		return with(appendTime(nil, l.Newest.Since)...), to, len(begins) + timeBytes
	}
	from = with([]byte(l.IDPrefix)...)
	if !l.After.IsZero() {
		from = slices.MaxFunc([][]byte{from, with(append([]byte(l.After.ID), 0)...)}, bytes.Compare) // no id has this byte
	}
	return from, append(with([]byte(l.IDPrefix)...), end), len(begins)
}

// through goes through the keys that answer the query: those of the newest from the last to the first.
func (l *look) through(cursor *bbolt.Cursor, page *store.Page) error {
	from, to, id := l.within()
	next := cursor.Next
	key, _ := cursor.Seek(from)
	if l.Newest != nil {
		next = cursor.Prev
		if key, _ = cursor.Seek(to); key == nil {
			key, _ = cursor.Last()
		} else {
			key, _ = cursor.Prev()
		}
	}
	for ; key != nil && bytes.Compare(key, from) >= 0 && bytes.Compare(key, to) < 0; key, _ = next() {
		l.looked++
		if len(page.Documents) == l.Limit { // there is more behind a page by ids
			page.Next.ID = page.Documents[l.Limit-1].Key.ID
			return nil
		}
		if l.Count {
			page.Count++
		} else if err := l.take(page, key[id:]); err != nil {
			return err
		}
		full := page.Count == int64(l.Limit) || len(page.Documents) == l.Limit
		if full && (l.Count || l.Due != nil || l.Newest != nil) {
			return nil
		}
	}
	return nil
}

// take adds one document to the page.
func (l *look) take(page *store.Page, id []byte) error {
	l.looked++
	data := l.documents.Get(id)
	if data == nil {
		return errors.New("standin: an index has a document that is not there")
	}
	doc, err := parse(data)
	if err != nil {
		return err
	}
	page.Documents = append(page.Documents, store.Document{
		Key: store.Key{Collection: l.Collection, ID: string(id)}, Fields: doc.fields, Version: doc.version,
	})
	return nil
}
