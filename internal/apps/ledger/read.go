package ledger

import (
	"errors"
	"fmt"
	"slices"

	"billhook/internal/platform/store"
)

// Read reads the document of an entry, a journal's or a chain's. The error wraps ErrBroken: a
// field is missing, of another type, or contradicts another.
func Read(doc store.Document) (Entry, error) {
	e, err := read(doc)
	if err != nil {
		return Entry{}, fmt.Errorf("%w: %s: %w", ErrBroken, doc.Key, err)
	}
	return e, nil
}

func read(doc store.Document) (Entry, error) {
	e := Entry{ID: doc.Key.ID, document: doc}
	if err := store.Decode(doc.Fields, &e); err != nil {
		return Entry{}, err
	}
	lines, err := readLines(doc.Fields)
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
			return Entry{}, errPeriod
		}
		e = move.entry()
		e.ID, e.document, want = doc.Key.ID, doc, e.ID
		err = e.checkLines()
	} else {
		e.Lines = lines
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

func readLines(fields map[string]any) (lines []Line, err error) {
	list, ok := fields[fieldLines].([]any)
	if !ok {
		return nil, errLines
	}
	for _, element := range list {
		var line Line
		fields, _ := element.(map[string]any)
		if err := store.Decode(fields, &line); err != nil {
			return nil, err
		}
		lines = append(lines, line)
	}
	return lines, nil
}

// readMarks reads what an entry is found by, and whether it is sealed.
func (e *Entry) readMarks() error {
	fields := e.document.Fields
	postings, _ := fields[FieldPostings].([]any)
	if fields[FieldBook] != BookKey(e.Tenant, e.Period) || !slices.Equal(postings, e.postings()) {
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

// Sealed returns the write that marks an entry, which was read, as the leaf of a seal, at the
// version that it was read at.
func (e Entry) Sealed(seal, leaf int64) store.Write {
	fields := withoutMarks(e.document.Fields)
	fields[fieldSeal], fields[fieldLeaf] = seal, leaf
	return store.Replace(e.document.Key, e.document.Version, fields)
}
