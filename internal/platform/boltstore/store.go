// Package boltstore implements the operations of package store on one file. It replaces Firestore where only
// Go is installed. When a commit returns, its data is on the disk: in a log beside the file, and later, with
// many others, in the file. Only one process at a time can use them.
package boltstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
	"golang.org/x/sync/singleflight"

	"billhook/internal/platform/store"
)

// Store keeps documents in one file, and the latest in a log.
type Store struct {
	db     *bbolt.DB
	atOnce int // movedAtOnce, except in tests

	queue   sync.Mutex
	waiting []*commit

	// writing is locked by the caller that writes all waiting commits. Only it uses the next five, and
	// changes recent.
	writing sync.Mutex
	log     *logs         // nil: there is none, and what is recent is lost with the process
	stamped time.Time     // the time of the last commit
	version uint64        // the last version of a document
	size    int           // of the recent documents, each version counted
	moved   chan struct{} // closed at the end of the last move

	mu sync.RWMutex
	// recent and moving are not in the file yet. moving is being written to it.
	recent, moving recent
	// failed: the log or the file could not be written.
	failed error

	// making has the indexes that are being made, by bucket name.
	making singleflight.Group
	looked atomic.Int64
}

// ErrInUse: another process has the file open.
var ErrInUse = errors.New("boltstore: the store is in use")

// Open opens the file and creates it if needed. One process at a time may have it open;
// for a second one the error wraps ErrInUse.
func Open(path string) (*Store, error) {
	return openStore(path, false)
}

// OpenTemporary opens a store that does not sync commits to the disk. It is for tests and benchmarks, which
// do not need the file after a crash.
func OpenTemporary(path string) (*Store, error) {
	return openStore(path, true)
}

// ErrDamaged: the file is not a store, a part of it cannot be read, or another version wrote it.
var ErrDamaged = errors.New("boltstore: the store is damaged, or of another version")

func openStore(path string, noSync bool) (s *Store, err error) {
	// bbolt panics on a damaged page, and a truncated file causes a memory fault.
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if recover() != nil { // the file stays open, because bbolt cannot close a damaged one
			s, err = nil, Damaged(path)
		}
	}()
	info, err := os.Stat(path)
	if err == nil && info.Size() > 0 && info.Size() < int64(2*os.Getpagesize()) {
		return nil, Damaged(path) // bbolt's error for it has no name
	}
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{Timeout: time.Second, NoSync: noSync})
	if err != nil {
		switch {
		case errors.Is(err, bolterrors.ErrTimeout):
			return nil, fmt.Errorf("%w: %w", ErrInUse, err)
		case errors.Is(err, bolterrors.ErrInvalid), errors.Is(err, bolterrors.ErrChecksum),
			errors.Is(err, bolterrors.ErrVersionMismatch):
			return nil, Damaged(path)
		}
		return nil, fmt.Errorf("boltstore: open store: %w", err)
	}
	if readable(db) != nil {
		return nil, errors.Join(Damaged(path), db.Close())
	}
	if err := db.Update(begin); err != nil {
		return nil, errors.Join(fmt.Errorf("boltstore: begin store: %w", err), db.Close())
	}
	s = &Store{db: db, atOnce: movedAtOnce, recent: recent{}, moved: make(chan struct{})}
	close(s.moved)
	if err := s.restore(path, noSync); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return s, nil
}

// restore moves to the file what only the log has, as after a kill.
func (s *Store) restore(path string, noSync bool) error {
	var sequence uint64
	err := s.db.View(func(tx *bbolt.Tx) error {
		sequence, s.version = tx.Bucket(logged).Sequence(), tx.Bucket(versions).Sequence()
		return nil
	})
	if err != nil || noSync {
		return err
	}
	s.log, err = openLogs(path, sequence, s.redo)
	if err == nil {
		err = s.settle()
	}
	return err
}

// redo adds a log's record to the recent documents.
func (s *Store) redo(body []byte) (err error) {
	defer func() {
		if recover() != nil { // an index out of range
			err = errCutShort
		}
	}()
	for rest := decoder(body); rest != ""; {
		key, data := rest.next(rest.number()), rest.next(rest.number())
		var of stored
		if data != "" {
			of = parse([]byte(data))
			s.version = max(s.version, uint64(of.version)) //nolint:gosec // a count of writes
		}
		collection, id, _ := strings.Cut(key, "/")
		s.recent.set(store.Key{Collection: collection, ID: id}, of)
		s.size++
	}
	return nil
}

// settle moves all recent documents to the file.
func (s *Store) settle() error {
	<-s.moved
	err := s.move(0)
	<-s.moved
	s.mu.RLock()
	defer s.mu.RUnlock()
	return cmp.Or(err, s.failed)
}

// Damaged returns an ErrDamaged for a file, with the remedy in its text.
func Damaged(path string) error {
	return fmt.Errorf("%w: %s cannot be read; move it away, or remove it with what it holds, and start again: "+
		"a new one is made", ErrDamaged, path)
}

// Names of own buckets begin with a slash, which no collection's name has. The sequence of versions counts
// from 1 and never falls, even after deletes. The number in its name is the version of the encoding. The
// sequence of logged is the number of the last record of the log that the file has.
var (
	versions = []byte("/versions/4")
	logged   = []byte("/logged")
	indexes  = []byte("/indexes")
)

func begin(tx *bbolt.Tx) error {
	for _, name := range [][]byte{versions, logged, indexes} {
		if _, err := tx.CreateBucketIfNotExists(name); err != nil {
			return err
		}
	}
	return nil
}

// readable reads the whole file once, so that damage and another version are found at the start.
func readable(db *bbolt.DB) error {
	return db.View(func(tx *bbolt.Tx) error {
		if first, _ := tx.Cursor().First(); first != nil && tx.Bucket(versions) == nil {
			return ErrDamaged
		}
		return tx.ForEach(func(name []byte, bucket *bbolt.Bucket) error {
			return bucket.ForEach(func(inner, data []byte) error {
				switch {
				case data == nil:
					return bucket.Bucket(inner).ForEach(func(first, others []byte) error {
						_ = appendKeys(nil, first, others)
						return nil
					})
				case name[0] == '/':
					return nil
				}
				_, err := parse(data).fields()
				return err
			})
		})
	})
}

// Close moves all documents to the file, removes the log and closes the file.
func (s *Store) Close() error {
	s.writing.Lock()
	defer s.writing.Unlock()
	err := s.settle()
	if s.log != nil {
		err = cmp.Or(err, s.log.close())
		for _, at := range logPaths(s.db.Path()) {
			if err == nil {
				err = os.Remove(at)
			}
		}
	}
	if err = cmp.Or(err, s.db.Close()); err != nil {
		return fmt.Errorf("boltstore: close store: %w", err)
	}
	return nil
}

// Get returns the document, or an error wrapping store.ErrNotFound.
func (s *Store) Get(ctx context.Context, key store.Key) (store.Document, error) {
	if err := ready(ctx, store.CheckKey(key)); err != nil {
		return store.Document{}, err
	}
	doc := store.Document{Key: key}
	err := s.view(func(now view) (err error) {
		stored := now.read(key)
		if stored.version == 0 {
			return fmt.Errorf("get %s: %w", key, store.ErrNotFound)
		}
		doc.Version = stored.version
		doc.Fields, err = stored.fields()
		return err
	})
	return doc, err
}

// view is the state of all documents at one time.
type view struct {
	tx *bbolt.Tx
	// layers are newer than the file, the newest first.
	layers []recent
}

// read returns a document; version 0: it does not exist.
func (v view) read(key store.Key) stored {
	for _, layer := range v.layers {
		if newer := layer.get(key); newer != nil {
			return newer.stored
		}
	}
	return read(v.tx, key)
}

// view calls read, during which no commit becomes visible.
func (s *Store) view(read func(view) error) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.db.View(func(tx *bbolt.Tx) error { return read(view{tx, []recent{s.recent, s.moving}}) })
}

func ready(ctx context.Context, err error) error {
	if err != nil {
		return err
	}
	return ctx.Err()
}
