package boltstore

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"go.etcd.io/bbolt"

	"billhook/internal/platform/store"
)

// index answers one kind of query. The first query of its kind creates it, and changes update it. A key
// joins the values of the compared fields, a text of the list, the time, and the document's id. A document
// has one key for each text of the list, and no key if it lacks one of the fields.
type index struct {
	Equal []string `store:"equal"`
	List  string   `store:"list"`
	// Time is the field whose time orders documents with equal values.
	Time string `store:"time"`
}

// name returns the name of the index's bucket within indexes.
func (x index) name(collection string) []byte {
	return appendFields([]byte(collection+"/"), store.Encode(&x))
}

func (x index) keys(id string, fields map[string]any) (keys [][]byte) {
	if fields == nil {
		return nil
	}
	key := make([]byte, 0, 24*(1+len(x.Equal))+len(id))
	for _, name := range x.Equal {
		var ok bool
		if key, ok = appendSpelled(key, fields[name]); !ok {
			return nil
		}
	}
	at, ok := fields[x.Time].(time.Time)
	if x.Time != "" && !ok {
		return nil
	}
	ended := func(key []byte) []byte {
		if x.Time != "" {
			key = appendTime(key, at)
		}
		return append(key, id...)
	}
	if x.List == "" {
		return [][]byte{ended(key)}
	}
	texts, _ := fields[x.List].([]any)
	for _, element := range texts {
		if text, ok := element.(string); ok {
			one, _ := appendSpelled(slices.Clip(key), text)
			keys = append(keys, ended(one))
		}
	}
	return keys
}

// longest is the most bytes of a text in an index. A longer text is replaced by its hash.
const longest = 200

// appendSpelled appends a value in the index's form: no value is another's prefix. ok: it is comparable.
func appendSpelled(to []byte, value any) (key []byte, ok bool) {
	switch v := value.(type) {
	case string:
		if len(v) > longest {
			hash := sha256.Sum256([]byte(v))
			return append(append(to, 'h'), hash[:]...), true
		}
		return appendText(append(to, 's'), v), true
	case int64:
		return binary.BigEndian.AppendUint64(append(to, 'i'), uint64(v)), true //nolint:gosec // the same bits
	case bool:
		return appendValue(to, v), true
	case time.Time:
		return appendTime(append(to, 'd'), v), true
	default:
		return to, false
	}
}

// appendTime appends a time in microseconds, in bytes that sort like the times.
func appendTime(to []byte, at time.Time) []byte {
	return binary.BigEndian.AppendUint64(to, uint64(at.UnixMicro())^(1<<63))
}

// moved is a document with its fields as indexed and its current fields.
type moved struct {
	id       string
	had, has map[string]any
}

func (x index) move(bucket *bbolt.Bucket, documents []moved) error {
	complete := bucket.Sequence() == whole
	var edits []edit
	for _, doc := range documents {
		had, has := x.keys(doc.id, doc.had), x.keys(doc.id, doc.has)
		for _, key := range had {
			if !contains(has, key) {
				edits = append(edits, edit{key, true})
			}
		}
		for _, key := range has {
			if !complete || !contains(had, key) {
				edits = append(edits, edit{key, false})
			}
		}
	}
	slices.SortFunc(edits, func(a, b edit) int { return bytes.Compare(a.key, b.key) })
	return write(bucket, edits)
}

func contains(keys [][]byte, key []byte) bool {
	return slices.ContainsFunc(keys, func(one []byte) bool { return bytes.Equal(one, key) })
}

// makeIndex makes an index if it does not exist.
func (s *Store) makeIndex(ctx context.Context, collection string, x index) error {
	name := x.name(collection)
	made := s.making.DoChan(string(name), func() (any, error) {
		made := false
		err := s.db.Update(func(tx *bbolt.Tx) error {
			bucket, err := tx.Bucket(indexes).CreateBucketIfNotExists(name)
			if err == nil && tx.Bucket([]byte(collection)) == nil { // there are no documents to read
				err = bucket.SetSequence(whole)
			}
			made = err == nil && bucket.Sequence() == whole
			return err
		})
		if !made && err == nil {
			err = s.fill(collection, name, x)
		}
		if err != nil {
			err = fmt.Errorf("boltstore: index of %s: %w", collection, err)
		}
		return nil, err
	})
	select {
	case result := <-made:
		return result.Err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// fill fills an index while other callers write. It reads documents and writes their sorted keys, some in
// each transaction. This index follows changes meanwhile, like all others, so fill may skip a document whose
// version has changed.
func (s *Store) fill(collection string, name []byte, x index) error {
	for id := []byte{}; id != nil; {
		var part []entry
		for id != nil && len(part) < sortedAtOnce {
			if err := s.db.View(func(tx *bbolt.Tx) (err error) {
				part, id, err = x.extend(part, tx, collection, id)
				return err
			}); err != nil {
				return err
			}
		}
		slices.SortFunc(part, func(a, b entry) int { return bytes.Compare(a.key, b.key) })
		for some := range slices.Chunk(part, writtenAtOnce) {
			if err := s.db.Update(func(tx *bbolt.Tx) error { return add(tx, name, some) }); err != nil {
				return err
			}
		}
	}
	return s.db.Update(func(tx *bbolt.Tx) error { return tx.Bucket(indexes).Bucket(name).SetSequence(whole) })
}

const (
	// readAtOnce documents take a few ms to read; while a transaction reads, the file cannot grow.
	readAtOnce = 500
	// sortedAtOnce keys take about 20 MB. They are sorted since neighbours share pages of the file.
	sortedAtOnce = 100_000
	// writtenAtOnce keys take a few ms to write, during which other callers wait.
	writtenAtOnce = 500
	// whole is the sequence number of an index that has all documents.
	whole = 1
)

// entry is a key of the index, for a document at a version.
type entry struct {
	key     []byte
	of      store.Key
	version store.Version
}

// extend appends entries of the next documents from an id on, and returns the id to continue at; nil: done.
func (x index) extend(to []entry, tx *bbolt.Tx, collection string, from []byte) ([]entry, []byte, error) {
	cursor, n := tx.Bucket([]byte(collection)).Cursor(), 0
	for id, data := cursor.Seek(from); id != nil; id, data = cursor.Next() {
		if n++; n > readAtOnce {
			return to, bytes.Clone(id), nil
		}
		key := store.Key{Collection: collection, ID: string(id)}
		doc := parse(data)
		fields, err := doc.fields()
		if err != nil {
			return nil, nil, err
		}
		for _, one := range x.keys(key.ID, fields) {
			to = append(to, entry{one, key, doc.version})
		}
	}
	return to, nil, nil
}

// add adds entries, sorted by key, to an index. It skips documents that have changed since they were read.
func add(tx *bbolt.Tx, name []byte, entries []entry) error {
	var edits []edit
	for _, one := range entries {
		if read(tx, one.of).version == one.version {
			edits = append(edits, edit{key: one.key})
		}
	}
	return write(tx.Bucket(indexes).Bucket(name), edits)
}
