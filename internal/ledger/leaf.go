package ledger

import (
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/transparency-dev/merkle/rfc6962"
)

// leafTime is how a time stands in the canonical bytes: in UTC, always with six digits.
const leafTime = "2006-01-02T15:04:05.000000Z"

// maxExact bounds the integers that RFC 8785 keeps exact: it writes numbers as IEEE doubles.
const maxExact = 1<<53 - 1

// withoutMarks returns a copy of the fields of an entry without those that sealing changes.
func withoutMarks(fields map[string]any) map[string]any {
	fields = maps.Clone(fields)
	for _, mark := range []string{FieldOpen, FieldUnsealed, fieldSeal, fieldLeaf} {
		delete(fields, mark)
	}
	return fields
}

// Canonical returns the bytes that stand for an entry in its seal: RFC 8785 JSON of all fields of
// its document, but for those that sealing changes, and of its id, in the member id. Times are in
// RFC 3339, in UTC, with six digits of a second. Of an entry that was read it is the document as
// it was stored, also of fields that this release does not know; of another it is what Post would
// store. The error wraps ErrInvalid or ErrBroken: the fields have no such form.
func (e Entry) Canonical() ([]byte, error) {
	fields := e.document.Fields
	if fields == nil {
		writes, err := Post(e)
		if err != nil {
			return nil, err
		}
		fields, e.ID = writes[0].Fields, writes[0].Key.ID
	}
	fields = withoutMarks(fields)
	if _, there := fields["id"]; there {
		return nil, fmt.Errorf("%w: field id", ErrBroken)
	}
	fields["id"] = e.ID
	spelled, err := spell(fields)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBroken, err)
	}
	text, err := json.Marshal(spelled)
	if err != nil {
		return nil, fmt.Errorf("%w: not JSON", ErrBroken)
	}
	canonical := jsontext.Value(text)
	if err := canonical.Canonicalize(); err != nil {
		return nil, fmt.Errorf("%w: not JSON", ErrBroken)
	}
	return canonical, nil
}

// LeafHash returns the hash that stands for an entry in its seal: RFC 6962's hash of a leaf, over
// the bytes of Canonical, with SHA-256. The error is that of Canonical.
func (e Entry) LeafHash() ([]byte, error) {
	canonical, err := e.Canonical()
	if err != nil {
		return nil, err
	}
	return rfc6962.DefaultHasher.HashLeaf(canonical), nil
}

// spell returns a stored value with its times as texts.
func spell(value any) (any, error) {
	var err error
	switch v := value.(type) {
	case time.Time:
		return v.UTC().Format(leafTime), nil
	case int64:
		if v < -maxExact || v > maxExact {
			return nil, errors.New("a number that JSON does not keep exact")
		}
		return v, nil
	case map[string]any:
		spelled := make(map[string]any, len(v))
		for name, inner := range v {
			if spelled[name], err = spell(inner); err != nil {
				return nil, err
			}
		}
		return spelled, nil
	case []any:
		spelled := make([]any, len(v))
		for i, inner := range v {
			if spelled[i], err = spell(inner); err != nil {
				return nil, err
			}
		}
		return spelled, nil
	default:
		return value, nil
	}
}
