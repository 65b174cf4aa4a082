package boltstore

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"go.etcd.io/bbolt"

	"billhook/internal/platform/store"
)

// recent are documents in versions that are newer than in the file, by collection and id: they are in a log.
// Many documents that move to the file together share the pages that they and their index keys change.
type recent map[string]map[string]*document

// document is a stored document whose fields are decoded once, only for reading.
type document struct {
	stored
	decoded func() (map[string]any, error)
}

func (r recent) get(key store.Key) *document { return r[key.Collection][key.ID] }

func (r recent) set(key store.Key, of stored) {
	if r[key.Collection] == nil {
		r[key.Collection] = map[string]*document{}
	}
	r[key.Collection][key.ID] = &document{of, sync.OnceValues(of.fields)}
}

// add sets the documents of another.
func (r recent) add(others recent) {
	for collection, documents := range others {
		if r[collection] == nil {
			r[collection] = documents
			continue
		}
		maps.Copy(r[collection], documents)
	}
}

const (
	// movedAtOnce is the size at which recent documents are moved to the file together. Each query reads
	// them all, so a document of a few bytes counts as much as leastBytes.
	movedAtOnce = 1 << 20
	leastBytes  = 1000
	// When mostRecent times as much is recent while others are being moved, each commit waits for the move, but
	// no longer than patience: moves catch up then, and nobody waits for a whole one.
	mostRecent = 5
	patience   = 20 * time.Millisecond
)

// newer returns the recent documents of a collection, by id.
func (v view) newer(collection string) map[string]*document {
	all := map[string]*document{}
	for _, layer := range slices.Backward(v.layers) {
		maps.Copy(all, layer[collection])
	}
	return all
}

// move begins to move the recent documents to the file if their size is above some. Only the holder of
// writing calls it.
func (s *Store) move(some int) error {
	if s.size > mostRecent*s.atOnce {
		end := time.NewTimer(patience)
		defer end.Stop()
		select {
		case <-s.moved:
		case <-end.C:
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed != nil || s.moving != nil || s.size <= some {
		return s.failed
	}
	s.moving, s.recent, s.size = s.recent, recent{}, 0
	sequence, version := uint64(0), s.version
	if s.log != nil {
		sequence = s.log.sequence
		s.log.turn()
	}
	moving, moved := s.moving, make(chan struct{})
	s.moved = moved
	go func() {
		defer close(moved)
		err := s.db.Update(func(tx *bbolt.Tx) error { return moving.write(tx, sequence, version) })
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.failed = cmp.Or(s.failed, err); err == nil {
			s.moving = nil
		}
	}()
	return nil
}

// write writes the documents and their index keys to the file, where the log's records up to the sequence
// number and the versions up to the version are from then on.
func (r recent) write(tx *bbolt.Tx, sequence, version uint64) error {
	for collection, documents := range r {
		bucket, err := tx.CreateBucketIfNotExists([]byte(collection))
		if err != nil {
			return fmt.Errorf("boltstore: %s: %w", collection, err)
		}
		all := make([]moved, 0, len(documents))
		for _, id := range slices.Sorted(maps.Keys(documents)) {
			one := moved{id: id}
			if one.has, err = documents[id].decoded(); err == nil {
				one.had, err = parse(bucket.Get([]byte(id))).fields()
			}
			if err == nil && documents[id].version == 0 {
				err = bucket.Delete([]byte(id))
			} else if err == nil {
				err = bucket.Put([]byte(id), documents[id].data)
			}
			if err != nil {
				return fmt.Errorf("boltstore: %s/%s: %w", collection, id, err)
			}
			all = append(all, one)
		}
		cursor, begins := tx.Bucket(indexes).Cursor(), []byte(collection+"/")
		for name, _ := cursor.Seek(begins); bytes.HasPrefix(name, begins); name, _ = cursor.Next() {
			var x index
			fields, err := decode(name[len(begins):])
			if err = cmp.Or(err, store.Decode(fields, &x)); err == nil {
				err = x.move(tx.Bucket(indexes).Bucket(name), all)
			}
			if err != nil {
				return fmt.Errorf("boltstore: index of %s: %w", collection, err)
			}
		}
	}
	return errors.Join(tx.Bucket(logged).SetSequence(sequence), tx.Bucket(versions).SetSequence(version))
}
