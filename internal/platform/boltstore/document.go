package boltstore

import (
	"encoding/binary"
	"errors"
	"slices"
	"time"

	"go.etcd.io/bbolt"

	"billhook/internal/platform/store"
)

// stored is a document in the file's format. Its data has the version, then the fields sorted by name, so
// that equal fields are equal bytes. Version 0: the document does not exist.
type stored struct {
	version store.Version
	data    []byte
}

func read(tx *bbolt.Tx, key store.Key) stored {
	bucket := tx.Bucket([]byte(key.Collection))
	if bucket == nil {
		return stored{}
	}
	return parse(bucket.Get([]byte(key.ID)))
}

const versionBytes = 8

// parse reads the version of data; nil is no document. If data is too short, fields returns errCutShort.
func parse(data []byte) stored {
	switch {
	case data == nil:
		return stored{}
	case len(data) < versionBytes:
		return stored{version: newVersion}
	}
	return stored{store.Version(binary.BigEndian.Uint64(data)), data} //nolint:gosec // written from an int64
}

func (s stored) fields() (fields map[string]any, err error) {
	switch {
	case s.version == 0:
		return nil, nil
	case s.data == nil:
		return nil, errCutShort
	}
	return decode(s.data[versionBytes:])
}

var errCutShort = errors.New("boltstore: a document is cut short")

// decode reads the fields that appendFields wrote.
func decode(body []byte) (fields map[string]any, err error) {
	defer func() {
		if recover() != nil { // an index out of range
			fields, err = nil, errCutShort
		}
	}()
	rest := decoder(body)
	return rest.fields(), nil
}

func appendFields(to []byte, fields map[string]any) []byte {
	to = binary.AppendUvarint(to, uint64(len(fields)))
	names := make([]string, 0, 24) // enough for most documents to stay on the stack
	for name := range fields {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		to = appendValue(appendText(to, name), fields[name])
	}
	return to
}

func appendText[T string | []byte](to []byte, text T) []byte {
	return append(binary.AppendUvarint(to, uint64(len(text))), text...)
}

// appendValue appends a letter for the type, then the value.
func appendValue(to []byte, value any) []byte {
	switch v := value.(type) {
	case string:
		return appendText(append(to, 's'), v)
	case int64:
		return binary.AppendVarint(append(to, 'i'), v)
	case bool:
		return append(to, map[bool]byte{false: 'f', true: 't'}[v])
	case time.Time:
		return binary.AppendVarint(append(to, 'd'), v.UnixMicro())
	case map[string]any:
		return appendFields(append(to, 'm'), v)
	case []any:
		to = binary.AppendUvarint(append(to, 'l'), uint64(len(v)))
		for _, inner := range v {
			to = appendValue(to, inner)
		}
		return to
	default: // nil; CheckWrites refuses everything else
		return append(to, 'n')
	}
}

// decoder has the rest of a text that appendFields wrote. It panics if the text is anything else.
type decoder string

func (d *decoder) next(n uint64) (text string) {
	text, *d = string(*d)[:n], (*d)[n:]
	return text
}

func (d *decoder) number() uint64 {
	n, read := binary.Uvarint([]byte((*d)[:min(len(*d), binary.MaxVarintLen64)]))
	_ = d.next(uint64(max(read, 1)))
	return n
}

// int reads a number that AppendVarint wrote.
func (d *decoder) int() int64 {
	n := d.number()
	return int64(n>>1) ^ -int64(n&1)
}

func (d *decoder) fields() map[string]any {
	n := d.number()
	fields := make(map[string]any, min(n, 32))
	for range n {
		name := d.next(d.number())
		fields[name] = d.value()
	}
	return fields
}

func (d *decoder) value() any {
	switch d.next(1) {
	case "s":
		return d.next(d.number())
	case "i":
		return d.int()
	case "f":
		return false
	case "t":
		return true
	case "d":
		return time.UnixMicro(d.int()).UTC()
	case "m":
		return d.fields()
	case "l":
		list := []any{}
		for range d.number() {
			list = append(list, d.value())
		}
		return list
	default:
		return nil
	}
}

// maxDocument is Firestore's limit, so that tests fail with a document that production would refuse.
const maxDocument = 1 << 20

// shortest is the most by which a document is shorter here than in Firestore's count, as a factor.
const shortest = 16

// size returns the bytes of a value by Firestore's rules.
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
