// Package store is the shape of the document database that Billhook keeps its
// state in: three operations (Get, Commit, Query), implemented by
// internal/gcp/firestore and by internal/standin, and the one way from a struct to a
// stored document and back.
//
// It owns the values a document may hold, the writes of a commit, and the named
// errors. It refuses interactive transactions: a caller reads a document with its
// version, decides, and commits at that version; where nothing needs reading, a
// create-if-absent or an increment decides on the server.
package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// The named errors. Any other error of an implementation means that the store
// did not answer, and that nothing is known about what was asked: retry.
var (
	// ErrNotFound: Get found no document at the key.
	ErrNotFound = errors.New("store: no such document")
	// ErrExists: a Create of the commit found a document; nothing was written.
	// It may be the caller's own earlier commit, whose answer was lost.
	ErrExists = errors.New("store: document exists already")
	// ErrStale: an Update or Delete of the commit did not find its version (the
	// document changed or is gone); nothing was written.
	ErrStale = errors.New("store: document is not at the version")
	// ErrInvalid: the request itself is wrong; nothing was sent.
	ErrInvalid = errors.New("store: invalid request")
)

// MaxIDBytes is how long an id may be.
const MaxIDBytes = 1500

// MaxWrites is how many writes one commit may hold.
const MaxWrites = 500

// MaxDepth is how deep maps and lists may nest in a document, its fields included.
const MaxDepth = 20

// Key names one document. A part is valid UTF-8 of 1 to MaxIDBytes, without a slash
// or a control character, and not of the form __x__, which Firestore keeps for itself.
type Key struct {
	Collection string
	ID         string
}

func (k Key) String() string { return k.Collection + "/" + k.ID }

// Version identifies one state of one document. Zero is no version. It is opaque:
// compare for equality only.
type Version int64

// Document is one stored document. Fields holds string, bool, int64, time.Time
// (UTC, microseconds), nil, map[string]any and []any of these, and nothing else:
// never a float. Strings are valid UTF-8; a list holds no list; names are not empty
// and not of the form __x__.
type Document struct {
	Key     Key
	Fields  map[string]any
	Version Version
}

// Op is what a Write does.
type Op int

// The operations of a Write; see the constructors.
const (
	OpCreate Op = iota + 1
	OpSet
	OpUpdate
	OpIncrement
	OpDelete
)

// Write is one write of a commit. Make it with Create, Set, Update, Increment or
// Delete. One commit holds at most one write per key.
type Write struct {
	Op      Op
	Key     Key
	Fields  map[string]any
	Add     map[string]int64
	Version Version
}

// Create writes a document that must not exist yet; else the commit fails with ErrExists.
func Create(key Key, fields map[string]any) Write {
	return Write{Op: OpCreate, Key: key, Fields: fields}
}

// Set writes the whole document, whatever was there.
func Set(key Key, fields map[string]any) Write {
	return Write{Op: OpSet, Key: key, Fields: fields}
}

// Update replaces the whole document, which must still be at version; else the
// commit fails with ErrStale.
func Update(key Key, version Version, fields map[string]any) Write {
	return Write{Op: OpUpdate, Key: key, Fields: fields, Version: version}
}

// Increment adds to int64 fields (absent counts as 0) and sets the given fields
// beside them, leaving all others. It creates the document if there is none, and
// never fails on what another writer did.
//
// An increment whose answer was lost cannot be told from one that never happened:
// where it must count once, commit it beside a Create, which its repetition meets as
// ErrExists. A sum outside int64 is ErrInvalid on the embedded store; Firestore stays
// at the nearest int64 and says nothing, so bound what you add.
func Increment(key Key, add map[string]int64, fields map[string]any) Write {
	return Write{Op: OpIncrement, Key: key, Add: add, Fields: fields}
}

// Delete removes a document: at a version, or, with version 0, whatever it is and
// whether or not it exists.
func Delete(key Key, version Version) Write {
	return Write{Op: OpDelete, Key: key, Version: version}
}

// Query asks for documents of one collection in ascending order of their ids, or,
// with Due, of a time.
type Query struct {
	Collection string
	// IDPrefix limits the answer to ids that start with it; empty is no limit.
	IDPrefix string
	// Equal limits the answer to documents whose top-level fields equal these.
	Equal map[string]any
	// After is the id to start behind: the Next of the page before.
	After string
	// Due asks for what is due instead, the longest due first, of one moment in the order
	// of the ids. Alone it needs no index but the field's own; with Equal it needs a
	// composite one of those fields and this, and it goes with no condition on ids. Who has
	// dealt with a document changes or removes one of the fields, so that a next call
	// finds the rest.
	Due *Due
	// Count asks how many documents there are instead, without reading them: up to
	// Limit of them, which may then be any positive number.
	Count bool
	// Limit is how many documents a page holds, 1 to 1000.
	Limit int
}

// Due selects documents that have a time in a top-level field, not after Until.
type Due struct {
	Field string
	Until time.Time
}

// Page is one page of a Query. Next is empty on the last page, and always with Due.
type Page struct {
	Documents []Document
	Next      string
	// Count is the answer to a query with Count, which has no documents.
	Count int64
}

// Getter reads one document.
type Getter interface {
	// Get returns the document, or an error wrapping ErrNotFound. After any other error
	// nothing is known.
	Get(ctx context.Context, key Key) (Document, error)
}

// Committer writes.
type Committer interface {
	// Commit applies all writes or none, and returns the version of each. An error wrapping
	// ErrExists or ErrStale means that a precondition failed and nothing was written; after
	// any other but ErrInvalid nothing is known.
	Commit(ctx context.Context, writes []Write) ([]Version, error)
}

// Querier reads documents.
type Querier interface {
	// Query returns one page of all that was committed before the call.
	Query(ctx context.Context, query Query) (Page, error)
}

// GetCommitter reads one document at a time, and writes.
type GetCommitter interface {
	Getter
	Committer
}

// Store is the whole of it.
type Store interface {
	GetCommitter
	Querier
}

// CheckWrites reports what is wrong with the writes of one commit, wrapping
// ErrInvalid. Both implementations call it before they do anything.
func CheckWrites(writes []Write) error {
	if len(writes) == 0 || len(writes) > MaxWrites {
		return fmt.Errorf("%w: a commit holds 1 to %d writes, not %d", ErrInvalid, MaxWrites, len(writes))
	}
	for i, w := range writes {
		if err := CheckKey(w.Key); err != nil {
			return err
		}
		for _, earlier := range writes[:i] {
			if earlier.Key == w.Key {
				return fmt.Errorf("%w: two writes to %s", ErrInvalid, w.Key)
			}
		}
		switch w.Op {
		case OpCreate, OpSet:
		case OpUpdate:
			if w.Version == 0 {
				return fmt.Errorf("%w: update of %s without a version", ErrInvalid, w.Key)
			}
		case OpIncrement:
			if len(w.Add) == 0 {
				return fmt.Errorf("%w: increment of %s adds nothing", ErrInvalid, w.Key)
			}
		case OpDelete:
		default:
			return fmt.Errorf("%w: %s has no operation", ErrInvalid, w.Key)
		}
		for name := range w.Add {
			if _, twice := w.Fields[name]; twice {
				return fmt.Errorf("%w: %s both sets and adds one field", ErrInvalid, w.Key)
			}
			if !isName(name) {
				return fmt.Errorf("%w: %s: %w", ErrInvalid, w.Key, errName)
			}
		}
		if err := checkValue(w.Fields, MaxDepth); err != nil {
			return fmt.Errorf("%w: %s: %w", ErrInvalid, w.Key, err)
		}
	}
	return nil
}

// MaxPage is the most documents a page may hold.
const MaxPage = 1000

// CheckQuery reports what is wrong with a query, wrapping ErrInvalid.
func CheckQuery(q Query) error {
	// Each for itself: an id after which to go on repeats the prefix.
	for _, id := range []string{cmp.Or(q.IDPrefix, "x"), cmp.Or(q.After, "x")} {
		if err := CheckKey(Key{Collection: q.Collection, ID: id}); err != nil {
			return err
		}
	}
	if q.Limit < 1 || (q.Limit > MaxPage && !q.Count) {
		return fmt.Errorf("%w: a page holds 1 to %d documents, not %d", ErrInvalid, MaxPage, q.Limit)
	}
	if q.Due != nil {
		if q.IDPrefix != "" || q.After != "" {
			return fmt.Errorf("%w: a query for what is due has no condition on ids", ErrInvalid)
		}
		if err := checkValue(map[string]any{q.Due.Field: q.Due.Until}, 1); err != nil {
			return fmt.Errorf("%w: query: %w", ErrInvalid, err)
		}
	}
	for name, value := range q.Equal {
		switch value.(type) {
		case string, bool, int64, time.Time:
			if err := checkValue(map[string]any{name: value}, 1); err != nil {
				return fmt.Errorf("%w: query: %w", ErrInvalid, err)
			}
		default:
			return fmt.Errorf("%w: cannot compare with a %T", ErrInvalid, value)
		}
	}
	return nil
}

// CheckKey reports whether the key can name a document, wrapping ErrInvalid.
func CheckKey(key Key) error {
	for _, part := range []string{key.Collection, key.ID} {
		if part == "" || len(part) > MaxIDBytes || part == "." || part == ".." {
			return fmt.Errorf("%w: key part of %d bytes", ErrInvalid, len(part))
		}
		for i := range len(part) {
			if part[i] == '/' || part[i] < 0x20 {
				return fmt.Errorf("%w: key part with a slash or a control character", ErrInvalid)
			}
		}
		if !isName(part) {
			return fmt.Errorf("%w: key part that is reserved or not UTF-8", ErrInvalid)
		}
	}
	return nil
}

// The errors of checkValue name no field: a name may come from outside.
var (
	errName   = errors.New("a name is empty, reserved or not UTF-8")
	errString = errors.New("a string is not UTF-8")
	errYear   = errors.New("a time outside the years 1 to 9999")
	errDepth  = errors.New("nested too deep")
	errList   = errors.New("a list within a list")
)

// isName reports whether a field or a key part can be called that.
func isName(name string) bool {
	reserved := len(name) >= 4 && strings.HasPrefix(name, "__") && strings.HasSuffix(name, "__")
	return name != "" && !reserved && utf8.ValidString(name)
}

func checkValue(value any, depth int) error {
	switch v := value.(type) {
	case nil, bool, int64:
		return nil
	case time.Time:
		if year := v.UTC().Year(); year < 1 || year > 9999 {
			return errYear
		}
		return nil
	case string:
		if !utf8.ValidString(v) {
			return errString
		}
		return nil
	case map[string]any:
		if depth == 0 {
			return errDepth
		}
		for name, inner := range v {
			if !isName(name) {
				return errName
			}
			if err := checkValue(inner, depth-1); err != nil {
				return err
			}
		}
		return nil
	case []any:
		if depth == 0 {
			return errDepth
		}
		for _, inner := range v {
			if _, nested := inner.([]any); nested {
				return errList
			}
			if err := checkValue(inner, depth-1); err != nil {
				return err
			}
		}
		return nil
	default:
		return fmt.Errorf("type %T cannot be stored", value)
	}
}
