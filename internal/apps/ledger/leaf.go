package ledger

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/transparency-dev/merkle/rfc6962"

	"billhook/internal/platform/store"
)

// leafTime is how a time stands in the canonical bytes: in UTC, always with six digits.
const leafTime = "2006-01-02T15:04:05.000000Z"

// maxExact bounds the integers that RFC 8785 keeps exact: it writes numbers as IEEE doubles.
const maxExact = 1<<53 - 1

// exact writes times and integers as the canonical bytes have them.
var exact = json.WithMarshalers(json.JoinMarshalers(
	json.MarshalFunc(func(at time.Time) ([]byte, error) { return jsontext.AppendQuote(nil, at.UTC().Format(leafTime)) }),
	json.MarshalFunc(func(n int64) ([]byte, error) {
		if n < -maxExact || n > maxExact {
			return nil, errors.New("a number that JSON does not keep exact")
		}
		return strconv.AppendInt(nil, n, 10), nil
	}),
))

func withoutMarks(fields map[string]any) map[string]any {
	fields = maps.Clone(fields)
	for _, mark := range []string{FieldOpen, FieldUnsealed, fieldSeal, fieldLeaf} {
		delete(fields, mark)
	}
	return fields
}

// Canonical returns the bytes that stand for an entry in its seal: RFC 8785 JSON of its id and of all stored
// fields but those that sealing changes, with times in UTC with six digits of a second. The error wraps
// ErrInvalid or ErrBroken: the fields have no such form.
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
	text, err := json.Marshal(fields, exact)
	if err == nil {
		err = (*jsontext.Value)(&text).Canonicalize()
	}
	if err != nil {
		return nil, fmt.Errorf("%w: no canonical form", ErrBroken)
	}
	return text, nil
}

// LeafHash returns RFC 6962's hash of a leaf, with SHA-256, over the bytes of Canonical, whose error it has.
func (e Entry) LeafHash() ([]byte, error) {
	canonical, err := e.Canonical()
	if err != nil {
		return nil, err
	}
	return rfc6962.DefaultHasher.HashLeaf(canonical), nil
}

// Read reads the document of an entry, a journal's or a chain's. The error wraps ErrBroken.
func Read(doc store.Document) (Entry, error) {
	e, err := read(doc)
	if err != nil {
		return Entry{}, fmt.Errorf("%w: %s: %w", ErrBroken, doc.Key, err)
	}
	return e, nil
}

func read(doc store.Document) (Entry, error) {
	e := Entry{ID: doc.Key.ID, document: doc}
	err := store.Decode(doc.Fields, &e)
	if err != nil {
		return Entry{}, err
	}
	want := e.journalID()
	if _, chained := doc.Fields["order"]; chained {
		move, failed := readMove(doc)
		if failed != nil {
			return Entry{}, failed
		}
		if e.Period != PeriodOf(move.CreatedAt) {
			return Entry{}, errors.New("no period")
		}
		e = move.entry()
		e.ID, e.document, want = doc.Key.ID, doc, e.ID
		err = e.checkLines()
	} else {
		err = e.check()
	}
	switch {
	case err != nil:
		return Entry{}, err
	case e.ID != want:
		return Entry{}, errors.New("the id is another entry's")
	}
	return e, e.readMarks()
}

func (e *Entry) readMarks() error {
	fields, want := e.document.Fields, e.index()
	if fields[FieldBook] != want[FieldBook] || !reflect.DeepEqual(fields[FieldPostings], want[FieldPostings]) {
		return errors.New("it stands in another book, or under other accounts")
	}
	seal, sealed := fields[fieldSeal]
	leaf, placed := fields[fieldLeaf]
	open, isOpen := fields[FieldOpen]
	tenant, isUnsealed := fields[FieldUnsealed]
	if !sealed && !placed {
		if open != true || tenant != e.Tenant {
			return errors.New("it is neither sealed nor marked as unsealed")
		}
		return nil
	}
	e.Seal, _ = seal.(int64)
	e.Leaf, placed = leaf.(int64)
	if e.Seal < 1 || !placed || e.Leaf < 0 || isOpen || isUnsealed {
		return errors.New("the marks of its seal are not readable")
	}
	return nil
}

// Document is the document that the entry was read from.
func (e Entry) Document() store.Document { return e.document }

// Sealed returns the write that marks an entry, at the version that was read, as the leaf of a seal.
func (e Entry) Sealed(seal, leaf int64) store.Write {
	fields := withoutMarks(e.document.Fields)
	fields[fieldSeal], fields[fieldLeaf] = seal, leaf
	return store.Replace(e.document.Key, e.document.Version, fields)
}
