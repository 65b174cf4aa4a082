package ledger

import (
	"errors"
	"fmt"
	"reflect"

	"billhook/internal/platform/store"
)

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

// readMarks reads what an entry is found by, and whether it is sealed.
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
