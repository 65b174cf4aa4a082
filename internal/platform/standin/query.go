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
	needed := indexesFor(q)
	for {
		var page store.Page
		var missing []index
		err := s.db.View(func(tx *bbolt.Tx) error {
			documents := tx.Bucket([]byte(q.Collection))
			if documents == nil {
				return nil
			}
			l := &look{Query: q, documents: documents}
			for _, x := range needed {
				bucket := tx.Bucket(x.bucket(q.Collection))
				if bucket == nil {
					missing = append(missing, x)
					continue
				}
				l.buckets = append(l.buckets, bucket)
			}
			if len(missing) > 0 {
				return nil
			}
			defer func() { s.looked.Add(l.looked) }()
			switch {
			case q.Due != nil:
				return l.due(&page)
			case q.Newest != nil:
				return l.newest(&page)
			case counts(q):
				l.count(&page)
				return nil
			default:
				return l.ids(&page)
			}
		})
		if err != nil {
			return store.Page{}, fmt.Errorf("query %s: %w", q.Collection, err)
		}
		if len(missing) == 0 {
			return page, nil
		}
		if err := s.makeIndexes(ctx, q.Collection, missing); err != nil {
			return store.Page{}, err
		}
	}
}

// indexesFor are the indexes that answer a query; none: the ids alone do.
func indexesFor(q store.Query) (needed []index) {
	compared := slices.Sorted(maps.Keys(q.Equal))
	if counts(q) && len(compared) > 1 {
		return []index{{Equal: compared}}
	}
	if q.Due != nil {
		return []index{{Equal: compared, Due: q.Due.Field}}
	}
	if q.Newest != nil {
		return []index{{Equal: compared, Due: q.Newest.Field}}
	}
	for _, name := range compared {
		needed = append(needed, index{Equal: []string{name}})
	}
	for name := range q.Contains {
		needed = append(needed, index{List: name})
	}
	return needed
}

// counts reports whether the number of documents is one run of keys. Going from one index to another and
// back would cost as much as the rarest value of all, and a queue may have a million of another status.
func counts(q store.Query) bool {
	return q.Count && q.Due == nil && q.Newest == nil && len(q.Contains) == 0
}

// look is one query under way.
type look struct {
	store.Query

	documents *bbolt.Bucket
	// buckets are those of the indexes.
	buckets []*bbolt.Bucket
	// looked counts the keys and the documents that were read.
	looked int64
}

// due takes what is due from one index, the oldest first.
func (l *look) due(page *store.Page) error {
	begins := l.values()
	until := appendTime(slices.Clone(begins), l.Due.Until)
	cursor := l.buckets[0].Cursor()
	for key, _ := cursor.Seek(begins); key != nil && bytes.HasPrefix(key, begins); key, _ = cursor.Next() {
		l.looked++
		if bytes.Compare(key[:len(until)], until) > 0 {
			return nil
		}
		full, err := l.take(page, key[len(until):])
		if err != nil || full {
			return err
		}
	}
	return nil
}

// newest takes the newest from one index. That is in the order of the times, and is read backwards.
func (l *look) newest(page *store.Page) error {
	begins := l.values()
	from := appendTime(slices.Clone(begins), l.Newest.Since)
	to := append(slices.Clone(begins), 0xff) // no time begins with this byte
	if !l.Newest.Until.IsZero() {
		to = appendTime(slices.Clone(begins), l.Newest.Until)
	}
	if after := l.After; !after.IsZero() {
		to = slices.MinFunc([][]byte{to, append(appendTime(slices.Clone(begins), after.At), after.ID...)}, bytes.Compare)
	}
	cursor := l.buckets[0].Cursor()
	last := cursor.Prev
	if key, _ := cursor.Seek(to); key == nil {
		last = cursor.Last
	}
	for key, _ := last(); bytes.Compare(key, from) >= 0; key, _ = cursor.Prev() {
		l.looked++
		full, err := l.take(page, key[len(from):])
		if err != nil || full {
			return err
		}
	}
	return nil
}

// values are those of the compared fields, as one index of all has them.
func (l *look) values() (begins []byte) {
	for _, name := range slices.Sorted(maps.Keys(l.Equal)) {
		value, _ := spelled(l.Equal[name]) // CheckQuery has refused others
		begins = append(begins, value...)
	}
	return begins
}

// count counts the keys of one index, or of the documents themselves.
func (l *look) count(page *store.Page) {
	cursor, begins := l.documents.Cursor(), []byte(nil)
	if len(l.buckets) > 0 {
		cursor, begins = l.buckets[0].Cursor(), l.values()
	}
	from := append(slices.Clone(begins), max(l.IDPrefix, l.After.ID)...)
	if !l.After.IsZero() && l.After.ID >= l.IDPrefix {
		from = append(from, 0) // no id has this byte
	}
	begins = append(begins, l.IDPrefix...)
	for key, _ := cursor.Seek(from); key != nil && bytes.HasPrefix(key, begins) && page.Count < int64(l.Limit); key, _ = cursor.Next() {
		l.looked++
		page.Count++
	}
}

// ids takes the documents that all indexes have, in the order of their ids. It goes from one index
// to the next, each time to the first id that is not before the last one's.
func (l *look) ids(page *store.Page) error {
	type list struct {
		cursor *bbolt.Cursor
		begins []byte
	}
	var lists []list
	for i, name := range slices.Sorted(maps.Keys(l.Equal)) {
		value, _ := spelled(l.Equal[name])
		lists = append(lists, list{l.buckets[i].Cursor(), value})
	}
	for _, text := range l.Contains { // one at most, whose index is the last
		value, _ := spelled(text)
		lists = append(lists, list{l.buckets[len(lists)].Cursor(), value})
	}
	if len(lists) == 0 {
		lists = append(lists, list{cursor: l.documents.Cursor()})
	}
	id := []byte(max(l.IDPrefix, l.After.ID))
	if !l.After.IsZero() && l.After.ID >= l.IDPrefix {
		id = append(id, 0) // no id has this byte
	}
	for {
		for agreed, i := 0, 0; agreed < len(lists); i++ {
			at := lists[i%len(lists)]
			key, _ := at.cursor.Seek(append(slices.Clone(at.begins), id...))
			l.looked++
			if key == nil || !bytes.HasPrefix(key, at.begins) || !bytes.HasPrefix(key[len(at.begins):], []byte(l.IDPrefix)) {
				return nil
			}
			if next := key[len(at.begins):]; bytes.Equal(next, id) {
				agreed++
			} else {
				id, agreed = slices.Clone(next), 1
			}
		}
		if !l.Count && len(page.Documents) == l.Limit {
			page.Next.ID = page.Documents[l.Limit-1].Key.ID
			return nil
		}
		full, err := l.take(page, id)
		if err != nil || (full && l.Count) {
			return err
		}
		id = append(id, 0)
	}
}

// take adds one document to the page, or counts it. full: the page has as many as it may have.
func (l *look) take(page *store.Page, id []byte) (full bool, err error) {
	if l.Count {
		page.Count++
		return page.Count == int64(l.Limit), nil
	}
	l.looked++
	data := l.documents.Get(id)
	if data == nil {
		return false, errors.New("standin: an index has a document that is not there")
	}
	doc, err := parse(data)
	if err != nil {
		return false, err
	}
	page.Documents = append(page.Documents, store.Document{
		Key: store.Key{Collection: l.Collection, ID: string(id)}, Fields: doc.fields, Version: doc.version,
	})
	return len(page.Documents) == l.Limit, nil
}
