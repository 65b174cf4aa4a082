package boltstore

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"go.etcd.io/bbolt"

	"billhook/internal/platform/store"
)

// Query returns one page, ordered by id or by time. It reads only the documents that it returns and those
// that have changed since the indexes caught up. The first query of a kind makes its index.
func (s *Store) Query(ctx context.Context, q store.Query) (store.Page, error) {
	if err := ready(ctx, store.CheckQuery(q)); err != nil {
		return store.Page{}, err
	}
	needed := indexFor(q)
	for {
		var page store.Page
		missing := false
		err := s.db.View(func(tx *bbolt.Tx) (err error) {
			documents := tx.Bucket([]byte(q.Collection))
			keys := documents
			if !needed.ofIDs() {
				keys = tx.Bucket(indexes).Bucket(needed.name(q.Collection))
				missing = keys == nil || keys.Sequence() != whole
			}
			if !missing && documents != nil {
				page, err = s.look(tx, q, needed, keys.Cursor())
			}
			return err
		})
		switch {
		case err != nil:
			return store.Page{}, fmt.Errorf("query %s: %w", q.Collection, err)
		case !missing:
			return page, nil
		}
		if err := s.makeIndex(ctx, q.Collection, needed); err != nil {
			return store.Page{}, err
		}
	}
}

// indexFor returns the index that answers a query. For a query by id only, it is the zero index; see ofIDs.
func indexFor(q store.Query) index {
	x := index{Equal: slices.Sorted(maps.Keys(q.Equal))}
	for x.List = range q.Contains { // one at most
	}
	if of := q.ByTime(); of != nil {
		x.Time = of.Field
	}
	return x
}

// ofIDs: the documents, which are sorted by id, serve as the index.
func (x index) ofIDs() bool { return len(x.Equal) == 0 && x.List == "" && x.Time == "" }

// end sorts after anything that may follow in a key: no id and no time begins with this byte.
const end = "\xff"

// within returns the bounds of a query's keys, the second excluded, and the offset of the id in a key.
func within(q store.Query) (from, to []byte, id int) {
	var begins []byte
	for _, name := range slices.Sorted(maps.Keys(q.Equal)) {
		begins, _ = appendSpelled(begins, q.Equal[name]) // CheckQuery has refused incomparable values
	}
	for _, text := range q.Contains {
		begins, _ = appendSpelled(begins, text)
	}
	place := func(at time.Time, id string) []byte {
		key := slices.Clone(begins)
		if q.ByTime() != nil {
			key = appendTime(key, at)
		}
		return append(key, id...)
	}
	of := cmp.Or(q.ByTime(), &store.Newest{})
	from, to = place(of.Since, q.IDPrefix), place(of.Until, q.IDPrefix+end)
	switch {
	case q.Newest != nil && of.Until.IsZero():
		to = append(slices.Clone(begins), end...)
	case q.Newest != nil:
		to = place(of.Until, "")
	}
	switch after := place(q.After.At, q.After.ID); {
	case q.After.IsZero():
	case q.Newest != nil:
		to = slices.MinFunc([][]byte{to, after}, bytes.Compare)
	default:
		from = slices.MaxFunc([][]byte{from, append(after, 0)}, bytes.Compare) // no id has this byte
	}
	return from, to, len(place(time.Time{}, ""))
}

// look answers a query from its index and from the documents that have changed since the index caught up.
func (s *Store) look(tx *bbolt.Tx, q store.Query, x index, cursor *bbolt.Cursor) (page store.Page, _ error) {
	documents, changedIDs := tx.Bucket([]byte(q.Collection)), map[string]bool{}
	var fresh, keys [][]byte
	noted := map[string]stored{}
	if !x.ofIDs() {
		noted = asIndexed(tx)
	}
	for key := range noted {
		collection, id, _ := strings.Cut(key, "/")
		if collection != q.Collection {
			continue
		}
		fields, err := parse(documents.Get([]byte(id))).fields()
		if err != nil {
			return page, err
		}
		changedIDs[id], fresh = true, append(fresh, x.keys(id, fields)...)
	}
	from, to, id := within(q)
	outside := func(key []byte) bool { return bytes.Compare(key, from) < 0 || bytes.Compare(key, to) >= 0 }
	compare := bytes.Compare
	if q.Newest != nil {
		compare = func(a, b []byte) int { return bytes.Compare(b, a) }
	}
	n := 0
	for key := range keysFrom(cursor, from, to, q.Newest != nil, x.ofIDs()) {
		s.looked.Add(1)
		if changedIDs[string(key[id:])] {
			continue
		}
		if n++; !q.Count { // a count may cover all documents, so its keys are not kept
			keys = append(keys, key)
		}
		if n > q.Limit {
			break
		}
	}
	fresh = slices.DeleteFunc(fresh, outside)
	slices.SortFunc(fresh, compare)
	fresh = slices.CompactFunc(fresh, bytes.Equal) // a document's list may repeat a text
	if n += len(fresh); q.Count {
		return store.Page{Count: int64(min(n, q.Limit))}, nil
	}
	keys = append(keys, fresh...)
	slices.SortFunc(keys, compare)
	for _, key := range keys[:min(n, q.Limit)] {
		s.looked.Add(1)
		doc := parse(documents.Get(key[id:]))
		fields, err := doc.fields()
		if doc.version == 0 {
			err = errors.New("boltstore: an index has a document that is not there")
		}
		if err != nil {
			return page, err
		}
		of := store.Key{Collection: q.Collection, ID: string(key[id:])}
		page.Documents = append(page.Documents, store.Document{Key: of, Fields: fields, Version: doc.version})
	}
	if n > q.Limit && q.ByTime() == nil {
		page.Next.ID = page.Documents[q.Limit-1].Key.ID
	}
	return page, nil
}
