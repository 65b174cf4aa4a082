package standin

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"go.etcd.io/bbolt"

	"billhook/internal/platform/store"
)

// index is what answers one kind of query. The first query of the kind makes it, and every later commit keeps it up to
// date. A key is the values of the compared fields, a text of the list, the time, and the document's id. A document has
// no key where it lacks a field, and one for each text of the list.
type index struct {
	Equal []string `json:"equal,omitempty"`
	List  string   `json:"list,omitempty"`
	// Time is a field with a time, which orders the documents of equal values.
	Time string `json:"due,omitempty"`
}

// indexes begins the name of each index's bucket; no collection's name has a slash.
const indexes = "/index"

func (x index) bucket(collection string) []byte {
	name, _ := json.Marshal(x) // texts alone
	return append(indexesOf(collection), name...)
}

func indexesOf(collection string) []byte { return fmt.Appendf(nil, "%s/%s/", indexes, collection) }

func (x index) keys(id string, fields map[string]any) (keys [][]byte) {
	var prefix []byte
	for _, name := range x.Equal {
		value, ok := spelled(fields[name])
		if !ok {
			return nil
		}
		prefix = append(prefix, value...)
	}
	at, ok := fields[x.Time].(time.Time)
	if x.Time != "" && !ok {
		return nil
	}
	texts := []any{""}
	if x.List != "" {
		texts, _ = fields[x.List].([]any)
	}
	for _, element := range texts {
		key := slices.Clone(prefix)
		if x.List != "" {
			text, ok := element.(string)
			if !ok {
				continue
			}
			value, _ := spelled(text)
			key = append(key, value...)
		}
		if x.Time != "" {
			key = appendTime(key, at)
		}
		keys = append(keys, append(key, id...))
	}
	return keys
}

// longest is the length of a text that stands in an index as it is. Of a longer one the hash does.
const longest = 200

// spelled is a value as it stands in an index; no such value begins another one. ok: it can be compared.
func spelled(value any) (key []byte, ok bool) {
	switch v := value.(type) {
	case string:
		if len(v) > longest {
			hash := sha256.Sum256([]byte(v))
			return append([]byte("h"), hash[:]...), true
		}
		return append(binary.AppendUvarint([]byte("s"), uint64(len(v))), v...), true
	case int64:
		return binary.BigEndian.AppendUint64([]byte("i"), uint64(v)), true //nolint:gosec // the same bits
	case bool:
		if v {
			return []byte("b1"), true
		}
		return []byte("b0"), true
	case time.Time:
		return appendTime([]byte("t"), v), true
	default:
		return nil, false
	}
}

const timeBytes = 8

// appendTime appends a time in microseconds, so that the bytes have the order of the times.
func appendTime(to []byte, at time.Time) []byte {
	return binary.BigEndian.AppendUint64(to, uint64(at.UnixMicro())^(1<<63))
}

// indexer keeps the indexes of one transaction up to date.
type indexer struct {
	tx    *bbolt.Tx
	known map[string][]open
	// named are the indexes by the names of their buckets, which the store reads once. Who writes to it is alone.
	named map[string]index
}

type open struct {
	index

	bucket *bbolt.Bucket
}

func (k *indexer) of(collection string) ([]open, error) {
	if all, ok := k.known[collection]; ok {
		return all, nil
	}
	var all []open
	begins := indexesOf(collection)
	cursor := k.tx.Cursor()
	for name, _ := cursor.Seek(begins); bytes.HasPrefix(name, begins); name, _ = cursor.Next() {
		x, read := k.named[string(name)]
		if !read {
			if err := json.Unmarshal(name[len(begins):], &x); err != nil {
				return nil, fmt.Errorf("standin: the name of an index: %w", err)
			}
			k.named[string(name)] = x
		}
		all = append(all, open{x, k.tx.Bucket(name)})
	}
	k.known[collection] = all
	return all, nil
}

func (k *indexer) change(to change) error {
	all, err := k.of(to.key.Collection)
	if err != nil {
		return err
	}
	for _, one := range all {
		before, after := one.keys(to.key.ID, to.before.fields), one.keys(to.key.ID, to.after.fields)
		for _, key := range before {
			if !has(after, key) {
				err = cmp.Or(err, one.bucket.Delete(key))
			}
		}
		for _, key := range after {
			if !has(before, key) {
				err = cmp.Or(err, one.bucket.Put(key, nil))
			}
		}
	}
	return err
}

func has(keys [][]byte, key []byte) bool {
	return slices.ContainsFunc(keys, func(one []byte) bool { return bytes.Equal(one, key) })
}

// makeIndex makes an index, unless there is one: a part in each transaction, since nothing else is written meanwhile.
// What has begun is kept up to date by commits, and goes on where the caller leaves.
func (s *Store) makeIndex(ctx context.Context, collection string, x index) error {
	made := s.making.DoChan(string(x.bucket(collection)), func() (any, error) {
		for from := []byte{}; from != nil; {
			if err := s.db.Update(func(tx *bbolt.Tx) (err error) {
				from, err = extend(tx, collection, x, from)
				return err
			}); err != nil {
				return nil, fmt.Errorf("standin: index of %s: %w", collection, err)
			}
		}
		return nil, nil //nolint:nilnil // DoChan wants a value
	})
	select {
	case result := <-made:
		return result.Err
	case <-ctx.Done():
		return ctx.Err()
	}
}

const (
	// indexedAtOnce is how many documents a part has: so many take some 10 ms.
	indexedAtOnce = 500
	// whole is the sequence of an index that has all documents.
	whole = 1
)

// extend adds the documents from an id on to an index, a part of them, and returns the id to go on at; nil: it is whole.
func extend(tx *bbolt.Tx, collection string, x index, from []byte) (next []byte, err error) {
	bucket, err := tx.CreateBucketIfNotExists(x.bucket(collection))
	if err != nil || bucket.Sequence() == whole { // another query has made it
		return nil, err
	}
	documents := tx.Bucket([]byte(collection))
	if documents == nil {
		return nil, bucket.SetSequence(whole)
	}
	cursor, added := documents.Cursor(), 0
	for id, data := cursor.Seek(from); id != nil; id, data = cursor.Next() {
		if added++; added > indexedAtOnce {
			return bytes.Clone(id), nil
		}
		doc, err := parse(data)
		if err != nil {
			return nil, err
		}
		for _, key := range x.keys(string(id), doc.fields) {
			if err := bucket.Put(key, nil); err != nil {
				return nil, err
			}
		}
	}
	return nil, bucket.SetSequence(whole)
}

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
			keys := documents
			if len(needed.Equal) > 0 || needed.List != "" || needed.Time != "" {
				keys = tx.Bucket(needed.bucket(q.Collection))
				missing = keys == nil || keys.Sequence() != whole
			}
			if missing || documents == nil {
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
}

// end is above what may follow in a key: no id and no time begins with this byte.
const end = 0xff

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
