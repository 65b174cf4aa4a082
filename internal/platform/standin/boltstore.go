package standin

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"cloud.google.com/go/firestore/apiv1/firestorepb"
	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
	"golang.org/x/sync/singleflight"
	"google.golang.org/protobuf/proto"

	"billhook/internal/platform/gcp/firestore"
	"billhook/internal/platform/store"
)

// Store keeps documents in one file. It stands in for Firestore where only Go is installed.
// When a commit returns, it is on the disk.
type Store struct {
	db *bbolt.DB

	// writing is held by the one caller that writes, for all waiting commits.
	writing sync.Mutex
	mu      sync.Mutex
	waiting []*commit

	// making are the indexes that are being made, by their buckets. named are those that a commit has read.
	making singleflight.Group
	named  map[string]index

	looked atomic.Int64
}

// ErrInUse: another process has the file open.
var ErrInUse = errors.New("standin: the store is in use")

// OpenStore opens the file and creates it if needed. One process at a time may have it open;
// for a second one the error wraps ErrInUse.
func OpenStore(path string) (*Store, error) {
	return openStore(path, false)
}

// OpenTemporaryStore opens a store that does not force commits to the disk. It is for tests and
// benchmarks, which need no file after a crash.
func OpenTemporaryStore(path string) (*Store, error) {
	return openStore(path, true)
}

// ErrDamaged: a file of the state is none, or a part of it cannot be read.
var ErrDamaged = errors.New("standin: the store is damaged")

func openStore(path string, noSync bool) (s *Store, err error) {
	// The library panics where a page is not what it should be, and a file that was cut off faults.
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if recover() != nil { // the file stays open: what is damaged cannot be closed
			s, err = nil, damaged(path)
		}
	}()
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{Timeout: time.Second, NoSync: noSync})
	if err != nil {
		switch {
		case errors.Is(err, bolterrors.ErrTimeout):
			return nil, fmt.Errorf("%w: %w", ErrInUse, err)
		case errors.Is(err, bolterrors.ErrInvalid), errors.Is(err, bolterrors.ErrChecksum), errors.Is(err, bolterrors.ErrVersionMismatch):
			return nil, damaged(path)
		}
		return nil, fmt.Errorf("standin: open store: %w", err)
	}
	if readable(db) != nil {
		return nil, errors.Join(damaged(path), db.Close())
	}
	return &Store{db: db, named: map[string]index{}}, nil
}

func damaged(path string) error {
	return fmt.Errorf("%w: %s cannot be read; move it away, or remove it with what it holds, and start again: a new one is made", ErrDamaged, path)
}

// readable reads all of the file once, so that what is damaged is found at the start.
func readable(db *bbolt.DB) error {
	return db.View(func(tx *bbolt.Tx) error {
		return tx.ForEach(func(name []byte, bucket *bbolt.Bucket) error {
			return bucket.ForEach(func(_, data []byte) (err error) {
				if name[0] != '/' {
					_, err = parse(data)
				}
				return err
			})
		})
	})
}

// Close closes the file.
func (s *Store) Close() error {
	if err := s.db.Close(); err != nil {
		return fmt.Errorf("standin: close store: %w", err)
	}
	return nil
}

// Get returns the document, or an error wrapping store.ErrNotFound.
func (s *Store) Get(ctx context.Context, key store.Key) (store.Document, error) {
	if err := ready(ctx, store.CheckKey(key)); err != nil {
		return store.Document{}, err
	}
	doc := store.Document{Key: key}
	err := s.db.View(func(tx *bbolt.Tx) error {
		stored, err := read(tx, key)
		if err != nil {
			return err
		}
		if stored.version == 0 {
			return fmt.Errorf("get %s: %w", key, store.ErrNotFound)
		}
		doc.Version, doc.Fields = stored.version, stored.fields
		return nil
	})
	return doc, err
}

func ready(ctx context.Context, err error) error {
	if err != nil {
		return err
	}
	return ctx.Err()
}

// versions is the bucket whose sequence numbers the versions; no collection's name has a slash.
var versions = []byte("/versions")

// stored: version 0 means that there is no document.
type stored struct {
	version store.Version
	fields  map[string]any
	body    []byte
}

func read(tx *bbolt.Tx, key store.Key) (stored, error) {
	bucket := tx.Bucket([]byte(key.Collection))
	if bucket == nil {
		return stored{}, nil
	}
	data := bucket.Get([]byte(key.ID))
	if data == nil {
		return stored{}, nil
	}
	return parse(data)
}

// parse splits data into eight bytes of version and the fields, as Firestore sends them.
func parse(data []byte) (stored, error) {
	if len(data) < 8 {
		return stored{}, errors.New("standin: a document is cut short")
	}
	body, encoded := data[8:], &firestorepb.MapValue{}
	err := proto.Unmarshal(body, encoded)
	if err != nil {
		return stored{}, fmt.Errorf("standin: decode: %w", err)
	}
	fields, err := firestore.FromFields(encoded.GetFields())
	if err != nil {
		return stored{}, fmt.Errorf("standin: decode: %w", err)
	}
	return stored{
		version: store.Version(binary.BigEndian.Uint64(data)), //nolint:gosec // written from an int64
		fields:  fields, body: body,
	}, nil
}

func incremented(have map[string]any, w store.Write) (map[string]any, error) {
	fields := make(map[string]any, len(have)+len(w.Fields)+len(w.Add))
	maps.Copy(fields, have)
	maps.Copy(fields, w.Fields)
	for name, add := range w.Add {
		old, _ := fields[name].(int64)
		if (add > 0 && old > math.MaxInt64-add) || (add < 0 && old < math.MinInt64-add) {
			return nil, fmt.Errorf("%w: field %s would overflow", store.ErrInvalid, name)
		}
		fields[name] = old + add
	}
	if floor, _ := fields[w.Floor].(int64); w.Floor != "" && (have[w.Floor] == nil || floor < 0) {
		return nil, store.ErrStale
	}
	return fields, nil
}

// maxDocument is Firestore's limit: no test passes with a document that production refuses.
const maxDocument = 1 << 20

// size measures a value by Firestore's rules.
func size(value any) int {
	total := 0
	switch v := value.(type) {
	case string:
		return len(v) + 1
	case int64, time.Time:
		return 8
	case map[string]any:
		total = 32
		for name, inner := range v {
			total += len(name) + 1 + size(inner)
		}
	case []any:
		for _, inner := range v {
			total += size(inner)
		}
	default: // bool and nil
		return 1
	}
	return total
}

func encode(fields map[string]any) ([]byte, error) {
	body, err := proto.MarshalOptions{Deterministic: true}.Marshal(firestore.ToValue(fields).GetMapValue())
	if err != nil {
		return nil, fmt.Errorf("standin: encode: %w", err)
	}
	return body, nil
}
