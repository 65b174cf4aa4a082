package standin

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"runtime/debug"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"billhook/internal/platform/store"
)

// Store keeps documents in one file. It stands in for Firestore where only Go is installed.
// When a commit returns, it is on the disk.
type Store struct {
	db *bbolt.DB

	// turn is held by the one caller that writes, for all waiting commits.
	turn    chan struct{}
	mu      sync.Mutex
	waiting []*commit

	// looked counts the keys and the documents that queries have read.
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

// ErrDamaged: the file is none of a store, or a part of it cannot be read.
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
		if errors.Is(err, bolterrors.ErrTimeout) {
			return nil, fmt.Errorf("%w: %w", ErrInUse, err)
		}
		if errors.Is(err, os.ErrPermission) {
			return nil, fmt.Errorf("standin: open store: not allowed: %w", err)
		}
		if errors.Is(err, bolterrors.ErrInvalid) || errors.Is(err, bolterrors.ErrChecksum) || errors.Is(err, bolterrors.ErrVersionMismatch) {
			return nil, damaged(path)
		}
		return nil, fmt.Errorf("standin: open store: %w", err)
	}
	if err := whole(db); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return &Store{db: db, turn: make(chan struct{}, 1)}, nil
}

func damaged(path string) error {
	return fmt.Errorf("%w: %s cannot be read; move it away, or remove it with what it holds, and start again: a new one is made", ErrDamaged, path)
}

// whole reads all of the file once, so that what is damaged is found at the start.
func whole(db *bbolt.DB) error {
	return db.View(func(tx *bbolt.Tx) error {
		return tx.ForEach(func(_ []byte, bucket *bbolt.Bucket) error {
			return bucket.ForEach(func(_, _ []byte) error { return nil })
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

// versions is the bucket whose sequence numbers the versions of the whole store. No
// collection's name has a slash.
var versions = []byte("/versions")

// stored is a document as the file holds it. Version 0 means that there is none.
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

// parse splits data into eight bytes of version and the encoded fields.
func parse(data []byte) (stored, error) {
	if len(data) < 8 {
		return stored{}, errors.New("standin: a document is cut short")
	}
	fields, err := decodeFields(data[8:])
	if err != nil {
		return stored{}, err
	}
	return stored{
		version: store.Version(binary.BigEndian.Uint64(data)), //nolint:gosec // written from an int64
		fields:  fields, body: data[8:],
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
	return fields, nil
}

// maxDocument is Firestore's limit. It holds here too, so that no test passes with a document
// that production refuses.
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

// A value is encoded as JSON with its type, so that an int64 and a time are decoded as such.
type tagged struct {
	String *string           `json:"s,omitempty"`
	Int    *string           `json:"i,omitempty"`
	Bool   *bool             `json:"b,omitempty"`
	Time   *time.Time        `json:"t,omitempty"`
	Map    map[string]tagged `json:"m,omitempty"`
	IsMap  bool              `json:"M,omitempty"`
	Array  []tagged          `json:"a,omitempty"`
	IsList bool              `json:"A,omitempty"`
}

func encodeFields(fields map[string]any) ([]byte, error) {
	body, err := json.Marshal(tag(fields))
	if err != nil {
		return nil, fmt.Errorf("standin: encode: %w", err)
	}
	return body, nil
}

func decodeFields(body []byte) (map[string]any, error) {
	var t tagged
	if err := json.Unmarshal(body, &t); err != nil {
		return nil, fmt.Errorf("standin: decode: %w", err)
	}
	fields, ok := t.value().(map[string]any)
	if !ok {
		return nil, errors.New("standin: decode: not a document")
	}
	return fields, nil
}

func tag(value any) tagged {
	switch v := value.(type) {
	case string:
		return tagged{String: &v}
	case int64:
		text := strconv.FormatInt(v, 10)
		return tagged{Int: &text}
	case bool:
		return tagged{Bool: &v}
	case time.Time:
		at := v.UTC().Truncate(time.Microsecond)
		return tagged{Time: &at}
	case map[string]any:
		t := tagged{IsMap: true, Map: make(map[string]tagged, len(v))}
		for name, inner := range v {
			t.Map[name] = tag(inner)
		}
		return t
	case []any:
		t := tagged{IsList: true, Array: make([]tagged, len(v))}
		for i, inner := range v {
			t.Array[i] = tag(inner)
		}
		return t
	default: // nil; CheckWrites refuses everything else
		return tagged{}
	}
}

func (t tagged) value() any {
	switch {
	case t.String != nil:
		return *t.String
	case t.Int != nil:
		n, _ := strconv.ParseInt(*t.Int, 10, 64) // written by FormatInt
		return n
	case t.Bool != nil:
		return *t.Bool
	case t.Time != nil:
		return t.Time.UTC()
	case t.IsMap:
		fields := make(map[string]any, len(t.Map))
		for name, inner := range t.Map {
			fields[name] = inner.value()
		}
		return fields
	case t.IsList:
		values := make([]any, len(t.Array))
		for i, inner := range t.Array {
			values[i] = inner.value()
		}
		return values
	}
	return nil
}
