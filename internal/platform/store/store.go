// Package store describes the document database: three operations (Get, Commit, Query), which
// internal/platform/gcp/firestore and internal/platform/boltstore implement, and the codec between structs
// and documents. It has no interactive transactions: a caller reads a document with its version, decides, and
// commits on the condition that the version is the same. Update does this for the caller.
package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"
)

// The named errors. Any other error means that the store did not answer: the outcome of the call is unknown,
// and the caller retries.
var (
	// ErrNotFound: Get found no document at the key.
	ErrNotFound = errors.New("store: no such document")
	// ErrExists: a Create in the commit found a document; nothing was written. The document may come from the
	// caller's own earlier commit, whose answer was lost.
	ErrExists = errors.New("store: document exists already")
	// ErrStale: the document of a Replace or Delete has changed or is deleted; nothing was written.
	ErrStale = errors.New("store: document is not at the version")
	// ErrInvalid: the request itself is wrong; nothing was sent.
	ErrInvalid = errors.New("store: invalid request")
	// ErrAmbiguous: several ids begin with the given text.
	ErrAmbiguous = errors.New("store: ambiguous id")
)

// Limits: the bytes of an id, the writes of a commit, the documents of a page, and how deep maps and lists
// may nest in a document, with its fields as the first level.
const (
	MaxIDBytes = 1500
	MaxWrites  = 500
	MaxPage    = 1000
	MaxDepth   = 20
)

// Version identifies one state of one document; zero: no document. Versions have no order.
type Version int64

// MarshalText writes the version as text, because a JSON number would lose digits.
func (v Version) MarshalText() ([]byte, error) { return strconv.AppendInt(nil, int64(v), 10), nil }

// UnmarshalText reads the text of MarshalText.
func (v *Version) UnmarshalText(text []byte) error {
	n, err := strconv.ParseInt(string(text), 10, 64)
	*v = Version(n)
	return err //nolint:wrapcheck // JSON says where it stands
}

// Document is one stored document. A value in Fields is a string, bool, int64, time.Time (UTC, microseconds),
// nil, or a map[string]any or []any of these; never a float. Strings are valid UTF-8. A list holds no list. A
// name is not empty, and does not have the form __x__.
type Document struct {
	Key     Key
	Fields  map[string]any
	Version Version
}

// Op is the operation of a Write.
type Op int

// The operations of a Write; see the constructors.
const (
	OpCreate Op = iota + 1
	OpSet
	OpUpdate
	OpIncrement
	OpDelete
)

// Write is one write of a commit, made by Create, Set, Replace, Increment or Delete. A commit has at most one
// write per key.
type Write struct {
	Op      Op
	Key     Key
	Fields  map[string]any
	Add     map[string]int64
	Version Version
	// Moves marks a Move. Floor is the field that must not fall below zero; empty: none.
	Moves bool
	Floor string
	// Stamp names a field that is set to the database's time of the commit; empty: none.
	Stamp string
}

// Stamped makes the database set a field to its own time of the commit, which is the same in all writes of
// the commit. A commit that begins later never gets an earlier time, unless the database delays one of them
// unusually long.
func (w Write) Stamped(field string) Write {
	w.Stamp = field
	return w
}

// Create writes a new document; if there is one, the commit fails with ErrExists.
func Create(key Key, fields map[string]any) Write {
	return Write{Op: OpCreate, Key: key, Fields: fields}
}

// Set writes the whole document, whether it exists or not.
func Set(key Key, fields map[string]any) Write {
	return Write{Op: OpSet, Key: key, Fields: fields}
}

// Replace writes the whole document that was read at version; if it has changed since, the commit fails with
// ErrStale. Version 0 means that there was no document: then it is a Create.
func Replace(key Key, version Version, fields map[string]any) Write {
	if version == 0 {
		return Create(key, fields)
	}
	return Write{Op: OpUpdate, Key: key, Fields: fields, Version: version}
}

// Increment adds to int64 fields (absent: 0), sets the given fields, and keeps all others. It creates a
// missing document, and never conflicts. Commit it with a Create, so that a retry after a lost answer does
// not add twice. A sum outside int64 is ErrInvalid in boltstore, and the nearest int64 in Firestore, so bound
// the summands.
func Increment(key Key, add map[string]int64, fields map[string]any) Write {
	return Write{Op: OpIncrement, Key: key, Add: add, Fields: fields}
}

// Move is an Increment of a document that many callers change at once, such as a product's stock. Moves do
// not conflict. If the field floor is missing or would fall below zero, the commit fails with ErrStale. The
// commit must also have a Create or a write at a version, so that a retry does not move twice.
func Move(key Key, add map[string]int64, floor string) Write {
	return Write{Op: OpIncrement, Key: key, Add: add, Moves: true, Floor: floor}
}

// Incremented returns the document's fields after an Increment or a Move; have is nil if there is no
// document. The error is ErrStale below the floor, or ErrInvalid for a sum outside int64.
func (w Write) Incremented(have map[string]any) (map[string]any, error) {
	fields := maps.Clone(have)
	if fields == nil {
		fields = map[string]any{}
	}
	maps.Copy(fields, w.Fields)
	for name, add := range w.Add {
		old, _ := fields[name].(int64)
		if sum := old + add; add != 0 && (sum > old) != (add > 0) {
			return nil, fmt.Errorf("%w: field %s would overflow", ErrInvalid, name)
		}
		fields[name] = old + add
	}
	if floor, _ := fields[w.Floor].(int64); w.Floor != "" && (have[w.Floor] == nil || floor < 0) {
		return nil, ErrStale
	}
	return fields, nil
}

// Delete removes a document at a version; with version 0 at any version, even if there is none.
func Delete(key Key, version Version) Write {
	return Write{Op: OpDelete, Key: key, Version: version}
}

// Query selects documents of one collection, ordered by id, or with Due or Newest by a time.
type Query struct {
	Collection string
	IDPrefix   string
	// Equal selects documents whose top-level fields equal these.
	Equal map[string]any
	// Contains selects documents whose top-level field is a list with this text. A query has at most one such
	// field, and none with Due or Newest, so that it needs no composite index in Firestore.
	Contains map[string]string
	// After is the cursor of the page: the previous page's Next, or with Due and Newest its last document's.
	After Cursor
	// Due, if set, selects by a time: oldest first, then by id.
	Due *Due
	// Newest, if set, selects by a time: newest first, then by descending id.
	Newest *Newest
	// Count requests only the number of documents, up to Limit, which then may be any positive number.
	Count bool
	// Limit is the number of documents of a page, 1 to MaxPage.
	Limit int
}

// Newest selects documents with a time in Field from Since to before Until, in microseconds: newest first,
// then by descending id. A zero time is no bound. With Equal it needs a composite index. It cannot be
// combined with IDPrefix or Due.
type Newest struct {
	Field        string
	Since, Until time.Time
}

// Due is like Newest, but oldest first, then by id, and it includes Until, which is always a bound. Most
// callers change or remove the field of each handled document, so that the next query finds the rest.
type Due Newest

// ByTime returns the query's Newest or Due; nil: the query is ordered by id.
func (q Query) ByTime() *Newest { return cmp.Or(q.Newest, (*Newest)(q.Due)) }

// Cursor is where a page begins: after the document with this id, in an order by time after this time and id.
// The zero value is the beginning of a list; as the next page's cursor it means the end.
type Cursor struct {
	At time.Time
	ID string
}

// IsZero reports whether the cursor is the beginning, or as the next page's cursor the end.
func (c Cursor) IsZero() bool { return c.ID == "" }

// Compare compares cursors in an order by time, then by id.
func (c Cursor) Compare(other Cursor) int {
	return cmp.Or(c.At.Compare(other.At), cmp.Compare(c.ID, other.ID))
}

// Page is one page of a Query. Next is zero on the last page, and always with Due and Newest; see List.
type Page struct {
	Documents []Document
	Next      Cursor
	// Count is the number for a query with Count, whose page has no documents.
	Count int64
}

// Getter reads one document.
type Getter interface {
	// Get returns the document, or an error wrapping ErrNotFound.
	Get(ctx context.Context, key Key) (Document, error)
}

// Committer writes.
type Committer interface {
	// Commit applies all writes or none, and returns the version of each. If the error wraps ErrExists, ErrStale
	// or ErrInvalid, nothing was written; after any other error the outcome is unknown.
	Commit(ctx context.Context, writes []Write) ([]Version, error)
}

// Querier reads documents.
type Querier interface {
	// Query returns one page, and sees all commits that ended before the call.
	Query(ctx context.Context, query Query) (Page, error)
}

// GetCommitter reads single documents and writes.
type GetCommitter interface {
	Getter
	Committer
}

// Store has all three operations.
type Store interface {
	GetCommitter
	Querier
}

// CheckWrites checks the writes of one commit. The error wraps ErrInvalid.
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
		switch {
		case w.Op < OpCreate || w.Op > OpDelete:
			return fmt.Errorf("%w: %s has no operation", ErrInvalid, w.Key)
		case w.Op == OpUpdate && w.Version == 0:
			return fmt.Errorf("%w: update of %s without a version", ErrInvalid, w.Key)
		case w.Op == OpIncrement && len(w.Add) == 0:
			return fmt.Errorf("%w: increment of %s adds nothing", ErrInvalid, w.Key)
		case w.Moves && !slices.ContainsFunc(writes, once):
			return fmt.Errorf("%w: nothing holds that the move of %s is made once", ErrInvalid, w.Key)
		}
		_, set := w.Fields[w.Stamp]
		_, added := w.Add[w.Stamp]
		if w.Stamp != "" && (set || added || w.Op == OpDelete || !isName(w.Stamp)) {
			return fmt.Errorf("%w: %s cannot be stamped so", ErrInvalid, w.Key)
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

func once(w Write) bool { return w.Op == OpCreate || w.Version != 0 }

// CheckQuery returns an error that wraps ErrInvalid if the query is not valid.
func CheckQuery(q Query) error {
	// Each is checked separately, because the id of a cursor includes the prefix.
	for _, id := range []string{cmp.Or(q.IDPrefix, "x"), cmp.Or(q.After.ID, "x")} {
		if err := CheckKey(Key{Collection: q.Collection, ID: id}); err != nil {
			return err
		}
	}
	if q.Limit < 1 || (q.Limit > MaxPage && !q.Count) {
		return fmt.Errorf("%w: a page holds 1 to %d documents, not %d", ErrInvalid, MaxPage, q.Limit)
	}
	compared, of := []any{q.After.At}, q.ByTime()
	switch {
	case of != nil && (q.IDPrefix != "" || q.Newest != nil && q.Due != nil):
		return fmt.Errorf("%w: a query by a time has one, and no condition on ids", ErrInvalid)
	case len(q.Contains) > 1 || (len(q.Contains) > 0 && of != nil):
		return fmt.Errorf("%w: a query looks into one list at most, and into none where it goes by a time",
			ErrInvalid)
	case of != nil:
		compared = append(compared, map[string]any{of.Field: of.Since}, of.Until)
	}
	for name, value := range q.Contains {
		compared = append(compared, map[string]any{name: value})
	}
	for name, value := range q.Equal {
		switch value.(type) {
		case string, bool, int64, time.Time:
			compared = append(compared, map[string]any{name: value})
		default:
			return fmt.Errorf("%w: cannot compare with a %T", ErrInvalid, value)
		}
	}
	if err := checkValue(compared, 2); err != nil {
		return fmt.Errorf("%w: query: %w", ErrInvalid, err)
	}
	return nil
}

// The errors of checkValue do not name the field, because names may come from outside.
var (
	errName   = errors.New("a name is empty, reserved or not UTF-8")
	errString = errors.New("a string is not UTF-8")
	errYear   = errors.New("a time outside the years 1 to 9999")
	errDepth  = errors.New("nested too deep")
	errList   = errors.New("a list within a list")
)

func checkValue(value any, depth int) error {
	switch v := value.(type) {
	case nil, bool, int64:
	case time.Time:
		if year := v.UTC().Year(); year < 1 || year > 9999 {
			return errYear
		}
	case string:
		if !utf8.ValidString(v) {
			return errString
		}
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
	default:
		return fmt.Errorf("type %T cannot be stored", value)
	}
	return nil
}
