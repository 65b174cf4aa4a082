package boltstore

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"go.etcd.io/bbolt"

	"billhook/internal/platform/store"
)

// Query returns one page, ordered by id or by time. It reads only the documents that it returns and those
// that are not in the file yet. The first query of a kind makes its index.
func (s *Store) Query(ctx context.Context, q store.Query) (store.Page, error) {
	if err := ready(ctx, store.CheckQuery(q)); err != nil {
		return store.Page{}, err
	}
	needed := indexFor(q)
	for {
		page, missing, err := s.page(q, needed)
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

// page answers a query from one state of all documents. missing: there is no such index.
func (s *Store) page(q store.Query, needed index) (page store.Page, missing bool, err error) {
	var newer map[string]*document
	s.mu.RLock()
	tx, err := s.db.Begin(false)
	if err == nil {
		newer = view{tx, []recent{s.recent, s.moving}}.newer(q.Collection)
	}
	s.mu.RUnlock() // a commit need not wait for the rest
	if err != nil {
		return page, false, err
	}
	defer func() { err = errors.Join(err, tx.Rollback()) }()
	keys := tx.Bucket([]byte(q.Collection))
	if !needed.ofIDs() {
		keys = tx.Bucket(indexes).Bucket(needed.name(q.Collection))
		if keys == nil || keys.Sequence() != whole {
			return page, true, nil
		}
	}
	page, err = s.look(tx, q, needed, keys, newer)
	return page, false, err
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

// look answers a query from the keys in the file and from the documents that are newer.
func (s *Store) look(
	tx *bbolt.Tx, q store.Query, x index, bucket *bbolt.Bucket, newer map[string]*document,
) (page store.Page, _ error) {
	var fresh, keys [][]byte
	for id, doc := range newer {
		fields, err := doc.decoded()
		if err != nil {
			return page, err
		}
		fresh = append(fresh, x.keys(id, fields)...)
	}
	from, to, id := within(q)
	outside := func(key []byte) bool { return bytes.Compare(key, from) < 0 || bytes.Compare(key, to) >= 0 }
	compare := bytes.Compare
	if q.Newest != nil {
		compare = func(a, b []byte) int { return bytes.Compare(b, a) }
	}
	n := 0
	for key := range keysFrom(bucket, from, to, q.Newest != nil, x.ofIDs()) {
		s.looked.Add(1)
		if newer[string(key[id:])] != nil {
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
		of := store.Key{Collection: q.Collection, ID: string(key[id:])}
		doc := view{tx, []recent{{q.Collection: newer}}}.read(of)
		fields, err := doc.fields()
		if doc.version == 0 {
			err = errors.New("boltstore: an index has a document that is not there")
		}
		if err != nil {
			return page, err
		}
		page.Documents = append(page.Documents, store.Document{Key: of, Fields: fields, Version: doc.version})
	}
	if n > q.Limit && q.ByTime() == nil {
		page.Next.ID = page.Documents[q.Limit-1].Key.ID
	}
	return page, nil
}
