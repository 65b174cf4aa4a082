package ledger

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/transparency-dev/merkle/rfc6962"

	"billhook/internal/platform/store"
)

// leafTime is the format of times in the canonical bytes: in UTC, always with six digits of a second.
const leafTime = "2006-01-02T15:04:05.000000Z"

// maxExact is the largest integer that RFC 8785 keeps exact: it writes numbers as IEEE doubles.
const maxExact = 1<<53 - 1

// exact writes times and integers as the canonical bytes have them.
var exact = json.WithMarshalers(json.JoinMarshalers(
	json.MarshalToFunc(func(to *jsontext.Encoder, at time.Time) error {
		return to.WriteToken(jsontext.String(at.UTC().Format(leafTime)))
	}),
	json.MarshalToFunc(func(to *jsontext.Encoder, n int64) error {
		if n < -maxExact || n > maxExact {
			return errors.New("a number that JSON does not keep exact")
		}
		return to.WriteToken(jsontext.Int(n))
	}),
))

// Canonical returns the bytes of an entry that a seal hashes: RFC 8785 JSON of its id and of all stored
// fields, with times in UTC with six digits of a second. The error wraps ErrBroken if the fields have no such
// form.
func (e Entry) Canonical() ([]byte, error) {
	fields := maps.Clone(e.Document.Fields)
	if _, there := fields["id"]; there {
		return nil, fmt.Errorf("%w: field id", ErrBroken)
	}
	fields["id"] = e.ID
	text, err := json.Marshal(fields, exact)
	if err == nil {
		err = (*jsontext.Value)(&text).Canonicalize()
	}
	if err != nil {
		return nil, fmt.Errorf("%w: no canonical form", ErrBroken)
	}
	return text, nil
}

// LeafHash returns RFC 6962's hash of a leaf, with SHA-256, over the bytes of Canonical; the error is its.
func (e Entry) LeafHash() ([]byte, error) {
	canonical, err := e.Canonical()
	if err != nil {
		return nil, err
	}
	return rfc6962.DefaultHasher.HashLeaf(canonical), nil
}

// Read reads the document of an entry, of a journal or of a chain. The error wraps ErrBroken; the entry still
// has what could be read.
func Read(doc store.Document) (Entry, error) {
	e, err := read(doc)
	if err != nil {
		e = Entry{ID: doc.Key.ID, Lines: []Line{}, Document: doc}
		e.Tenant, _ = doc.Fields["tenant"].(string)
		e.Period, _ = doc.Fields["period"].(string)
		e.EventID, _ = doc.Fields["event_id"].(string)
	}
	return e, broken(doc, err)
}

func broken(doc store.Document, err error) error {
	if err != nil {
		err = fmt.Errorf("%w: %s: %w", ErrBroken, doc.Key, err)
	}
	return err
}

func read(doc store.Document) (Entry, error) {
	var e Entry
	err := store.Decode(doc.Fields, &e)
	if err != nil {
		return Entry{}, err
	}
	if _, chained := doc.Fields["order"]; chained {
		move, failed := readMove(doc)
		period := e.Period
		if e, err = move.entry(), failed; err == nil && e.Period != period {
			err = errors.New("no period")
		}
		err = cmp.Or(err, e.checkLines())
	} else {
		e.ID = e.journalID()
		err = e.check()
	}
	fields, index := doc.Fields, map[string]any{}
	e.index(index)
	e.Document, e.CommittedAt = doc, Position(doc).At
	switch {
	case err != nil:
	case e.ID != doc.Key.ID:
		err = errors.New("the id is another entry's")
	case fields[FieldBook] != index[FieldBook], fields[FieldShard] != index[FieldShard],
		!reflect.DeepEqual(fields[FieldPostings], index[FieldPostings]):
		err = errors.New("its book, shard or accounts are those of another")
	case e.CommittedAt.IsZero():
		err = errors.New("it has no time of its commit")
	}
	return e, err
}

// Position is the place of an entry in the order in which entries are sealed: by the time of the commit, then
// by the id.
func Position(doc store.Document) store.Cursor {
	at, _ := doc.Fields[FieldCommitted].(time.Time)
	return store.Cursor{At: at, ID: doc.Key.ID}
}

// Reposition returns the write that gives the document of an unsealed entry a new time, at the version that
// was read, so that a later run of the sealer reads it again.
func Reposition(doc store.Document) store.Write {
	fields := maps.Clone(doc.Fields)
	delete(fields, FieldCommitted)
	return store.Replace(doc.Key, doc.Version, fields).Stamped(FieldCommitted)
}
