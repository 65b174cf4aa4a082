package standin

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.etcd.io/bbolt"
)

// index says which fields an index is of. It is made by the first query that needs it, and every
// later commit keeps it: no list of fields has to follow the queries, and no commit pays for a
// field that nobody asks for. A query for equal fields needs an index of each of them, as in
// Firestore; one that goes by a time needs one index of all its fields.
//
// A key of an index is the values of the fields, one after the other, and the document's id. Its
// value is empty. A document has no key where it lacks a field, and one for each text of a list.
type index struct {
	// Equal are the compared fields, in the order of their names.
	Equal []string `json:"equal,omitempty"`
	// List is a field whose texts are looked for.
	List string `json:"list,omitempty"`
	// Due is a field with a time, which orders the documents of equal values.
	Due string `json:"due,omitempty"`
}

// indexes begins the name of each index's bucket; the collection and the index follow. No collection's
// name has a slash.
const indexes = "/index"

// bucket is the name of the bucket of an index.
func (x index) bucket(collection string) []byte {
	name, _ := json.Marshal(x) // texts alone
	return append(indexesOf(collection), name...)
}

// indexesOf begins the names of a collection's indexes.
func indexesOf(collection string) []byte { return fmt.Appendf(nil, "%s/%s/", indexes, collection) }

// keys are those of a document in the index.
func (x index) keys(id string, fields map[string]any) [][]byte {
	var prefix []byte
	for _, name := range x.Equal {
		value, ok := spelled(fields[name])
		if !ok {
			return nil
		}
		prefix = append(prefix, value...)
	}
	if x.Due != "" {
		at, ok := fields[x.Due].(time.Time)
		if !ok {
			return nil
		}
		prefix = appendTime(prefix, at)
	}
	if x.List == "" {
		return [][]byte{append(prefix, id...)}
	}
	list, _ := fields[x.List].([]any)
	var keys [][]byte
	for _, element := range list {
		if text, ok := element.(string); ok {
			value, _ := spelled(text)
			keys = append(keys, append(value, id...))
		}
	}
	return keys
}

// longest is the length of a text that stands in an index as it is. Of a longer one the hash does.
const longest = 200

// spelled is a value as it stands in an index: what kind it is of, its length and itself. No such
// value begins another one. ok is false for a value that is not compared.
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

// appendTime appends a time in microseconds, so that the bytes have the order of the times.
func appendTime(to []byte, at time.Time) []byte {
	return binary.BigEndian.AppendUint64(to, uint64(at.UnixMicro())^(1<<63))
}

// keeper keeps the indexes in one transaction that writes.
type keeper struct {
	tx    *bbolt.Tx
	known map[string][]kept
}

// kept is one index with its bucket.
type kept struct {
	index

	bucket *bbolt.Bucket
}

// of returns the indexes of a collection.
func (k *keeper) of(collection string) ([]kept, error) {
	if all, ok := k.known[collection]; ok {
		return all, nil
	}
	var all []kept
	begins := indexesOf(collection)
	cursor := k.tx.Cursor()
	for name, _ := cursor.Seek(begins); bytes.HasPrefix(name, begins); name, _ = cursor.Next() {
		one := kept{bucket: k.tx.Bucket(name)}
		if err := json.Unmarshal(name[len(begins):], &one.index); err != nil {
			return nil, fmt.Errorf("standin: the name of an index: %w", err)
		}
		all = append(all, one)
	}
	k.known[collection] = all
	return all, nil
}

// keep changes the keys of one document.
func (k *keeper) keep(to change) error {
	all, err := k.of(to.key.Collection)
	if err != nil {
		return err
	}
	for _, one := range all {
		old, now := one.keys(to.key.ID, to.before), one.keys(to.key.ID, to.fields)
		for _, key := range old {
			if slices.ContainsFunc(now, func(same []byte) bool { return bytes.Equal(same, key) }) {
				continue
			}
			if err := one.bucket.Delete(key); err != nil {
				return err
			}
		}
		for _, key := range now {
			if slices.ContainsFunc(old, func(same []byte) bool { return bytes.Equal(same, key) }) {
				continue
			}
			if err := one.bucket.Put(key, nil); err != nil {
				return err
			}
		}
	}
	return nil
}

// makeIndexes reads the collection and makes those indexes of it that are missing.
func (s *Store) makeIndexes(ctx context.Context, collection string, missing []index) error {
	err := s.db.Update(func(tx *bbolt.Tx) error {
		if err := ctx.Err(); err != nil {
			return err // it has waited for its turn
		}
		missing = slices.DeleteFunc(slices.Clone(missing), func(x index) bool { return tx.Bucket(x.bucket(collection)) != nil })
		if len(missing) == 0 {
			return errNothing // another query has made them
		}
		return build(tx, collection, missing)
	})
	if err != nil && !errors.Is(err, errNothing) {
		return fmt.Errorf("standin: index of %s: %w", collection, err)
	}
	return nil
}

// build writes indexes of which no bucket exists.
func build(tx *bbolt.Tx, collection string, missing []index) error {
	keys := make([][][]byte, len(missing))
	if bucket := tx.Bucket([]byte(collection)); bucket != nil {
		if err := bucket.ForEach(func(id, data []byte) error {
			doc, err := parse(data)
			if err != nil {
				return err
			}
			for i, x := range missing {
				keys[i] = append(keys[i], x.keys(string(id), doc.fields)...)
			}
			return nil
		}); err != nil {
			return err
		}
	}
	for i, x := range missing {
		bucket, err := tx.CreateBucket(x.bucket(collection))
		if err != nil {
			return err
		}
		slices.SortFunc(keys[i], bytes.Compare)
		for _, key := range keys[i] {
			if err := bucket.Put(key, nil); err != nil {
				return err
			}
		}
	}
	return nil
}
