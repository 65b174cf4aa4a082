// Package audit owns the entries of people's changes: who, when, why, and the values before and after. An
// entry is one immutable document, committed with the change itself. It refuses to decide a change, and to
// hold anything but ids, codes, amounts and times.
package audit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"strings"
	"time"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"billhook/internal/pii"
	"billhook/internal/platform/store"
)

// Collection holds the entries and the operations on dead letters, for good.
const Collection = "audit"

// mark begins the ids of entries alone, and sorts behind the random ids of the operations in the collection.
const mark = "~"

// MaxWhy and MaxWho bound the texts of an entry, in bytes.
const (
	MaxWhy = 1000
	MaxWho = 200
)

var (
	// ErrInvalid is wrapped by every refusal of an entry; its text says why, without a value.
	ErrInvalid = errors.New("audit: invalid entry")
	// ErrBroken: a stored document is not an entry.
	ErrBroken = errors.New("audit: stored entry is not readable")
)

// Entry is one change.
type Entry struct {
	// Kind is what was changed, such as customer, Subject its id, and Tenant its tenant; empty: none.
	Kind    string `json:"kind" store:"kind"`
	Tenant  string `json:"tenant,omitempty" store:"tenant,omitzero"`
	Subject string `json:"subject" store:"subject"`
	// At is when, in microseconds.
	At time.Time `json:"at" store:"at" show:"At"`
	// Action is what was done, such as link.
	Action string `json:"action" store:"action" show:"What"`
	// Who is the operator, as the API knows them; Why is the reason given, 1 to MaxWhy bytes.
	Who string `json:"who" store:"who" show:"Who"`
	Why string `json:"why" store:"why" show:"Why"`
	// Before and After are the fields that the change is about; nil: there was none, or is none now.
	Before map[string]any `json:"before" store:"before,omitzero" show:"Before,less"`
	After  map[string]any `json:"after" store:"after,omitzero" show:"After,less"`
}

// With returns the writes of a change with that of its entry, for one commit. id is random, for two changes
// of a subject in one microsecond. The error wraps ErrInvalid.
func (e Entry) With(id string, writes ...store.Write) ([]store.Write, error) {
	switch {
	case e.Kind == "", e.Subject == "", e.Action == "", e.Who == "", e.At.IsZero():
		return nil, fmt.Errorf("%w: kind, subject, action, operator and time are required", ErrInvalid)
	case strings.TrimSpace(e.Why) == "":
		return nil, fmt.Errorf("%w: a change needs a reason", ErrInvalid)
	}
	if err := cmp.Or(CheckWhy(e.Why), CheckWho(e.Who)); err != nil {
		return nil, err
	}
	newestFirst := math.MaxInt64 - e.At.UnixMicro() // ids ascend
	subject := Subject{e.Kind, e.Tenant, e.Subject}
	key := store.Key{Collection: Collection, ID: fmt.Sprintf("%s%019d-%s", subject.prefix(), newestFirst, id)}
	if err := store.CheckKey(key); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return append(writes, store.Create(key, store.Encode(&e))), nil
}

// ErrID wraps ErrInvalid: the id of a record, or of its tenant, is not valid.
var ErrID = fmt.Errorf(
	"%w: an id has at most 128 of letters, digits and . _ : -, and begins with a letter or digit", ErrInvalid)

// ErrChanged: the record has changed since the person looked at it. The change was not made.
var ErrChanged = errors.New("audit: changed since it was looked at")

// Change is what a person requests.
type Change struct {
	Who Author
	Why string
	// Expect is the version that the person has looked at, 0 if there was no record; nil: any.
	Expect *store.Version
}

// Made has the writes of a change, and the members of its entry; without writes nothing is changed.
type Made struct {
	Action        string
	Before, After map[string]any
	Writes        []store.Write
	// Version, if set, gets the version of the first write once it is committed.
	Version *store.Version
}

// Update changes a record for a person: it reads the document and commits the writes of decide, as
// store.Update does, with the entry, and reports whether there were any. id is as in Entry.With. The error is
// decide's own, ErrChanged or store.ErrBusy, wraps ErrInvalid, or is that of the store.
func (c Change) Update(
	ctx context.Context, s store.GetCommitter, key store.Key, of Subject, at time.Time, id string,
	decide func(store.Document) (Made, error),
) (changed bool, err error) {
	if !pii.ID.Valid(of.ID) || of.Tenant != "" && !pii.ID.Valid(of.Tenant) {
		return false, ErrID
	}
	var made Made
	versions, err := store.Update(ctx, s, key, func(doc store.Document) (_ []store.Write, err error) {
		if made, err = decide(doc); err != nil || len(made.Writes) == 0 {
			return nil, err
		}
		if c.Expect != nil && *c.Expect != doc.Version {
			return nil, ErrChanged
		}
		return Entry{
			Kind: of.Kind, Tenant: of.Tenant, Subject: of.ID, At: at,
			Action: made.Action, Before: made.Before, After: made.After,
		}.By(c).With(id, made.Writes...)
	})
	if changed = len(versions) > 0; changed && made.Version != nil {
		*made.Version = versions[0]
	}
	return changed, err
}

// By returns the entry with its author and reason.
func (e Entry) By(c Change) Entry {
	e.Who, e.Why = c.Who.String(), c.Why
	return e
}

// Subject is what entries are about; each member is as in an Entry.
type Subject struct{ Kind, Tenant, ID string }

// prefix begins the ids of a subject's entries and of no other's.
func (s Subject) prefix() string { return mark + store.Path(s.Kind, s.Tenant, s.ID) + "~" }

// All returns all entries of a subject, the newest first.
func (s Subject) All(ctx context.Context, q store.Querier) ([]Entry, error) {
	return store.All(ctx, q, store.Query{Collection: Collection, IDPrefix: s.prefix()}, EntryOf)
}

// List returns a page of the entries of a subject, the newest first: at most limit, 1 to store.MaxPage, from
// the cursor after on. next is zero on the last page.
func (s Subject) List(
	ctx context.Context, q store.Querier, after store.Cursor, limit int,
) (entries []Entry, next store.Cursor, err error) {
	query := store.Query{Collection: Collection, IDPrefix: s.prefix(), After: after, Limit: limit}
	return store.List(ctx, q, query, EntryOf)
}

// Newest returns a page of the entries of all kinds with the fields of equal, without its empty ones, in a
// span of time, the newest first, then by id, the greatest first: at most limit, 1 to store.MaxPage, from the
// cursor after on. next is zero if the page is not full, and may lead from a full one to an empty one.
func Newest(
	ctx context.Context, q store.Querier, equal map[string]any, span store.Newest, after store.Cursor, limit int,
) (entries []Entry, next store.Cursor, err error) {
	span.Field = "at" // operations have no such field, and are not found
	maps.DeleteFunc(equal, func(_ string, value any) bool { return value == "" })
	query := store.Query{Collection: Collection, Equal: equal, Newest: &span, After: after, Limit: limit}
	return store.List(ctx, q, query, EntryOf)
}

// EntryOf reads an entry's document.
func EntryOf(doc store.Document) (e Entry, err error) {
	err = store.Decode(doc.Fields, &e)
	if err != nil || e.Kind == "" || e.Subject == "" || e.Action == "" || e.At.IsZero() {
		return Entry{}, fmt.Errorf("%w: %s", ErrBroken, doc.Key)
	}
	return e, nil
}

// IsEntry reports whether a document of the collection is an entry.
func IsEntry(id string) bool { return strings.HasPrefix(id, mark) }

// Proof is how a person's name is known.
type Proof string

// The proofs.
const (
	// Identity: the name is that of a verified identity, such as one of Google.
	Identity Proof = "identity"
	// SharedToken: the person holds a token that others may hold too. It does not prove a name.
	SharedToken Proof = "token"
	// ThisMachine: the person is on this machine. Only emulators and stand-ins accept that.
	ThisMachine Proof = "local"
)

// Author is the person who requests something. The zero Author is nobody.
type Author struct {
	Proof Proof
	// Name is an identity's e-mail address, or the name that a person without one gives, which may be empty.
	Name string
}

// String is the author's name in the audit: ada@example.org, token:ada, local:ada, or token without a name.
func (a Author) String() string {
	switch {
	case a.Proof == Identity:
		return a.Name
	case a.Name == "":
		return string(a.Proof)
	default:
		return string(a.Proof) + ":" + a.Name
	}
}

var (
	// ErrNoIdentity: the person has no identity of their own, so that nobody can prove that two people were two.
	ErrNoIdentity = errors.New("audit: it takes two people, and each needs an identity of their own")
	// ErrSamePerson: the second person is the first.
	ErrSamePerson = errors.New("audit: it takes two people: somebody else has to approve it")
)

// TwoPeople checks one person's part in a change that takes two. first is the name of who began it, as of
// String; empty: this person begins it. Each needs an identity; on emulators and stand-ins a name will do.
// The error is ErrNoIdentity or ErrSamePerson.
func TwoPeople(first string, by Author) error {
	switch {
	case by.Name == "", by.Proof != Identity && by.Proof != ThisMachine:
		return ErrNoIdentity
	case first != "" && SamePerson(first, by.String()):
		return ErrSamePerson
	default:
		return nil
	}
}

// SamePerson reports whether two authors' names, as of String, may be one person's: they differ at most in
// case, spaces around them, a tag after a plus sign, and proof.
func SamePerson(a, b string) bool { return person(a) == person(b) }

func person(name string) string {
	for _, by := range []Proof{ThisMachine, SharedToken} {
		name = strings.TrimPrefix(name, string(by)+":")
	}
	name = strings.ToLower(strings.TrimSpace(name))
	box, domain, address := strings.Cut(name, "@")
	if box, _, _ = strings.Cut(box, "+"); address {
		return box + "@" + domain
	}
	return name
}

// CheckWhy refuses a reason that must not be stored or shown: one that is too long, is not UTF-8, has
// invisible characters, or has what looks like personal data. An empty reason passes. The error wraps
// ErrInvalid and repeats nothing of the reason.
func CheckWhy(why string) error {
	if err := check("reason", why, MaxWhy); err != nil {
		return err
	}
	// Reasons name orders and products by long numbers, of which one in ten could be a card's.
	words := strings.FieldsFunc(why, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
	for _, word := range words {
		if len(word) > len("4111111111111111") && strings.Trim(word, "0123456789") == "" {
			why = strings.Replace(why, word, "id", 1)
		}
	}
	if found, is := pii.Detect(pii.UID, why); is {
		return fmt.Errorf("%w: the reason has what looks like personal data (%s): name things by their ids",
			ErrInvalid, found)
	}
	return nil
}

// CheckWho refuses an operator's name that must not be stored or shown. It may be an e-mail address, so it is
// not checked for personal data.
func CheckWho(who string) error { return check("operator's name", who, MaxWho) }

func check(what, text string, limit int) error {
	switch {
	case len(text) > limit:
		return fmt.Errorf("%w: the %s is longer than %d bytes", ErrInvalid, what, limit)
	case !utf8.ValidString(text):
		return fmt.Errorf("%w: the %s is not UTF-8", ErrInvalid, what)
	case strings.ContainsFunc(text, unseen):
		return fmt.Errorf("%w: the %s has a line break, or another invisible character", ErrInvalid, what)
	}
	return nil
}

// unseen reports whether a character is invisible, moves the cursor, breaks the line or changes its
// direction. Some languages are written with the non-joiner and the joiner.
func unseen(r rune) bool {
	const nonJoiner, joiner = '\u200c', '\u200d'
	return unicode.IsControl(r) || unicode.In(r, unicode.Zl, unicode.Zp) ||
		(unicode.Is(unicode.Cf, r) && r != nonJoiner && r != joiner)
}

// Escape returns a text with each invisible character as an escape of JSON, such as \u202e: one that was
// stored must not reach a terminal. A JSON document of one line stays the same document.
func Escape(text string) string {
	if !strings.ContainsFunc(text, unseen) && utf8.ValidString(text) {
		return text
	}
	var out strings.Builder
	for _, r := range text {
		if !unseen(r) {
			_, _ = out.WriteRune(r)
			continue
		}
		for _, unit := range utf16.AppendRune(nil, r) {
			_, _ = fmt.Fprintf(&out, `\u%04x`, unit)
		}
	}
	return out.String()
}

// EscapeLines does the same, but keeps line breaks.
func EscapeLines(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = Escape(line)
	}
	return strings.Join(lines, "\n")
}
