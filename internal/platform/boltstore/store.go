// Package boltstore implements the operations of package store on one file. It replaces Firestore where only
// Go is installed. When a commit returns, its data is on the disk. Only one process at a time can use the
// file.
package boltstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
	"golang.org/x/sync/singleflight"

	"billhook/internal/platform/store"
)

// Store keeps documents in one file.
type Store struct {
	db *bbolt.DB

	// writing is locked by the caller that writes all waiting commits.
	writing sync.Mutex
	mu      sync.Mutex
	waiting []*commit
	stamped time.Time // the time of the last commit

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
	if cmp.Or(db.Update(begin), readable(db)) != nil {
		return nil, errors.Join(Damaged(path), db.Close())
	}
	return &Store{db: db}, nil
}

// Damaged returns an ErrDamaged for a file, with the remedy in its text.
func Damaged(path string) error {
	return fmt.Errorf("%w: %s cannot be read; move it away, or remove it with what it holds, and start again: "+
		"a new one is made", ErrDamaged, path)
}

// Names of own buckets begin with a slash, which no collection's name has. The sequence of versions counts
// from 1 and never falls, even after deletes. The number in its name is the version of the encoding.
var (
	versions = []byte("/versions/3")
	changed  = []byte("/changed")
	indexes  = []byte("/indexes")
)

func begin(tx *bbolt.Tx) error {
	if first, _ := tx.Cursor().First(); first != nil && tx.Bucket(versions) == nil {
		return ErrDamaged
	}
	for _, name := range [][]byte{versions, changed, indexes} {
		if _, err := tx.CreateBucketIfNotExists(name); err != nil {
			return err
		}
	}
	return nil
}

// readable reads the whole file once, so that damage is found at the start.
func readable(db *bbolt.DB) error {
	return db.View(func(tx *bbolt.Tx) error {
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

// Close closes the file.
func (s *Store) Close() error {
	if err := s.db.Close(); err != nil {
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
	err := s.db.View(func(tx *bbolt.Tx) (err error) {
		stored := read(tx, key)
		if stored.version == 0 {
			return fmt.Errorf("get %s: %w", key, store.ErrNotFound)
		}
		doc.Version = stored.version
		doc.Fields, err = stored.fields()
		return err
	})
	return doc, err
}

func ready(ctx context.Context, err error) error {
	if err != nil {
		return err
	}
	return ctx.Err()
}
