package boltstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"

	"go.etcd.io/bbolt"

	"billhook/internal/platform/store"
)

// Query returns one page, in the order of ids or of times. It looks at what it returns, and at what has changed since
// the indexes caught up. The first query of a kind makes the index that it needs.
func (s *Store) Query(ctx context.Context, q store.Query) (store.Page, error) {
	if err := ready(ctx, store.CheckQuery(q)); err != nil {
		return store.Page{}, err
	}
	needed := indexFor(q)
	for {
		var page store.Page
		missing := false
		err := s.db.View(func(tx *bbolt.Tx) (err error) {
			l := &look{Query: q, documents: tx.Bucket([]byte(q.Collection))}
			defer func() { s.looked.Add(l.looked) }()
			keys := l.documents
			if len(needed.Equal) > 0 || needed.List != "" || needed.Time != "" {
				keys = tx.Bucket(indexes).Bucket(needed.name(q.Collection))
				missing = keys == nil || keys.Sequence() != whole
				if !missing {
					err = l.note(tx.Bucket(changed).Cursor(), needed)
				}
			}
			if missing || err != nil || l.documents == nil {
				return err
			}
			return l.through(keys.Cursor(), &page)
		})
		if err != nil {
			return store.Page{}, fmt.Errorf("query %s: %w", q.Collection, err)
		}
		if !missing {
			return page, nil
		}
		if err := s.makeIndex(ctx, q.Collection, needed); err != nil {
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

type look struct {
	store.Query

	documents *bbolt.Bucket
	looked    int64
	// changed are the ids of the documents that the index has otherwise, and fresh are the keys that they have now.
	changed map[string]bool
	fresh   [][]byte
}

// note reads the documents that have changed since the index caught up.
func (l *look) note(cursor *bbolt.Cursor, x index) error {
	l.changed = map[string]bool{}
	begins := []byte(l.Collection + "/")
	for key, _ := cursor.Seek(begins); bytes.HasPrefix(key, begins); key, _ = cursor.Next() {
		id := string(key[len(begins):])
		fields, err := parse(l.documents.Get([]byte(id))).fields()
		if err != nil {
			return err
		}
		l.changed[id], l.fresh = true, append(l.fresh, x.keys(id, fields)...)
	}
	return nil
}

// end is above what may follow in a key: no id and no time begins with this byte.
const end = 0xff

func (l *look) within() (from, to []byte, id int) {
	var begins []byte
	for _, name := range slices.Sorted(maps.Keys(l.Equal)) {
		begins, _ = appendSpelled(begins, l.Equal[name]) // CheckQuery has refused others
	}
	for _, text := range l.Contains {
		begins, _ = appendSpelled(begins, text)
	}
	with := func(more ...byte) []byte { return append(slices.Clone(begins), more...) }
	switch {
	case l.Due != nil:
		if from = begins; !l.After.IsZero() {
			from = with(append(append(appendTime(nil, l.After.At), l.After.ID...), 0)...) // no id has this byte
		}
		return from, with(append(appendTime(nil, l.Due.Until), end)...), len(begins) + timeBytes
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

// ids yields the ids that answer the query, of an index and of what has changed since: those of the newest from the
// last to the first.
func (l *look) ids(cursor *bbolt.Cursor) iter.Seq[[]byte] {
	from, to, id := l.within()
	compare, next := bytes.Compare, cursor.Next
	key, _ := cursor.Seek(from)
	if l.Newest != nil {
		compare, next = func(a, b []byte) int { return bytes.Compare(b, a) }, cursor.Prev
		if key, _ = cursor.Seek(to); key == nil {
			key, _ = cursor.Last()
		} else {
			key, _ = cursor.Prev()
		}
	}
	outside := func(key []byte) bool { return bytes.Compare(key, from) < 0 || bytes.Compare(key, to) >= 0 }
	fresh := slices.SortedFunc(slices.Values(slices.DeleteFunc(l.fresh, outside)), compare)
	fresh = slices.CompactFunc(fresh, bytes.Equal) // a list may have a text twice
	return func(yield func(id []byte) bool) {
		for more := true; more; {
			for key != nil && !outside(key) && l.changed[string(key[id:])] {
				key, _ = next()
			}
			one := key
			switch there := key != nil && !outside(key); {
			case len(fresh) > 0 && (!there || compare(fresh[0], key) < 0):
				one, fresh = fresh[0], fresh[1:]
			case there:
				key, _ = next()
			default:
				return
			}
			more = yield(one[id:])
		}
	}
}

func (l *look) through(cursor *bbolt.Cursor, page *store.Page) error {
	for id := range l.ids(cursor) {
		l.looked++
		if len(page.Documents) == l.Limit { // there is more behind a page by ids
			page.Next.ID = page.Documents[l.Limit-1].Key.ID
			return nil
		}
		if l.Count {
			page.Count++
		} else if err := l.take(page, id); err != nil {
			return err
		}
		full := page.Count == int64(l.Limit) || len(page.Documents) == l.Limit
		if full && (l.Count || l.Due != nil || l.Newest != nil) {
			return nil
		}
	}
	return nil
}

func (l *look) take(page *store.Page, id []byte) error {
	l.looked++
	doc := parse(l.documents.Get(id))
	fields, err := doc.fields()
	if doc.version == 0 {
		err = errors.New("boltstore: an index has a document that is not there")
	}
	page.Documents = append(page.Documents, store.Document{
		Key: store.Key{Collection: l.Collection, ID: string(id)}, Fields: fields, Version: doc.version,
	})
	return err
}
