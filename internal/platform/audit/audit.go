// Package audit owns the entries of people's changes: who, when, why, and the values before and after. An
// entry is one immutable document, committed together with the change. The package does not decide changes,
// and stores nothing but ids, codes, amounts and times.
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

// Collection holds the entries and the operations on dead letters; they are never deleted.
const Collection = "audit"

// mark begins the id of every entry. It sorts after the random ids of the operations in the collection.
const mark = "~"

// MaxWhy and MaxWho bound the texts of an entry, in bytes.
const (
	MaxWhy = 1000
	MaxWho = 200
)

var (
	// ErrInvalid is wrapped by every error for a refused entry, whose text gives the reason without a value.
	ErrInvalid = errors.New("audit: invalid entry")
	// ErrBroken: a stored document is not an entry.
	ErrBroken = errors.New("audit: stored entry is not readable")
)

// Entry is one change.
type Entry struct {
	// Kind is what was changed, such as customer; Subject is its id; Tenant is its tenant, or empty.
	Kind    string `json:"kind" store:"kind"`
	Tenant  string `json:"tenant,omitempty" store:"tenant,omitzero"`
	Subject string `json:"subject" store:"subject"`
	// At is the time of the change, to the microsecond.
	At time.Time `json:"at" store:"at" show:"At"`
	// Action is the kind of change, such as link.
	Action string `json:"action" store:"action" show:"What"`
	// Who is the operator's name in the API; Why is the given reason, 1 to MaxWhy bytes.
	Who string `json:"who" store:"who" show:"Who"`
	Why string `json:"why" store:"why" show:"Why"`
	// Before and After have the changed fields; nil: the record did not exist, or does not any more.
	Before map[string]any `json:"before" store:"before,omitzero" show:"Before,less"`
	After  map[string]any `json:"after" store:"after,omitzero" show:"After,less"`
}

// With returns the writes of a change and the write of its entry, for one commit. id must be random, so that
// two changes of a subject in one microsecond differ. The error wraps ErrInvalid.
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
	newestFirst := math.MaxInt64 - e.At.UnixMicro() // queries return ids in ascending order
	subject := Subject{e.Kind, e.Tenant, e.Subject}
	key := store.Key{Collection: Collection, ID: fmt.Sprintf("%s%019d-%s", subject.prefix(), newestFirst, id)}
	if err := store.CheckKey(key); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return append(writes, store.Create(key, store.Encode(&e))), nil
}

// ErrID wraps ErrInvalid: the record's or the tenant's id is not valid.
var ErrID = fmt.Errorf(
	"%w: an id has at most 128 of letters, digits and . _ : -, and begins with a letter or digit", ErrInvalid)

// ErrChanged: the record has changed since the person saw it, so the new change was not made.
var ErrChanged = errors.New("audit: changed since it was looked at")

// Change is a change that a person requests.
type Change struct {
	Who Author
	Why string
	// Expect is the version that the person saw, 0 if there was no record; nil: any version.
	Expect *store.Version
}

// Made has the writes of a change and the fields of its entry; without writes there is no change.
type Made struct {
	Action        string
	Before, After map[string]any
	Writes        []store.Write
	// Version, if set, receives the version of the first write after the commit.
	Version *store.Version
}

// Update changes a record for a person: like store.Update, it reads the document and commits decide's writes,
// with the entry. It reports whether there were writes. id is as in Entry.With. The error comes from decide
// or the store, is ErrChanged or store.ErrBusy, or wraps ErrInvalid.
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

// Subject identifies a changed record; see the fields of Entry.
type Subject struct{ Kind, Tenant, ID string }

// prefix begins the ids of this subject's entries, and no other ids.
func (s Subject) prefix() string { return mark + store.Path(s.Kind, s.Tenant, s.ID) + "~" }

// All returns all entries of a subject, the newest first.
func (s Subject) All(ctx context.Context, q store.Querier) ([]Entry, error) {
	return store.All(ctx, q, store.Query{Collection: Collection, IDPrefix: s.prefix()}, EntryOf)
}

// List returns a page of a subject's entries after the cursor, the newest first: at most limit, which is 1 to
// store.MaxPage. next is zero on the last page.
func (s Subject) List(
	ctx context.Context, q store.Querier, after store.Cursor, limit int,
) (entries []Entry, next store.Cursor, err error) {
	query := store.Query{Collection: Collection, IDPrefix: s.prefix(), After: after, Limit: limit}
	return store.List(ctx, q, query, EntryOf)
}

// Newest returns a page of entries in a span of time, after the cursor, the newest first and then by
// descending id. They have the non-empty fields of equal. limit is 1 to store.MaxPage. next is zero if the
// page is not full; after a full page the next one may be empty.
func Newest(
	ctx context.Context, q store.Querier, equal map[string]any, span store.Newest, after store.Cursor, limit int,
) (entries []Entry, next store.Cursor, err error) {
	span.Field = "at" // operations lack this field, so the query leaves them out
	maps.DeleteFunc(equal, func(_ string, value any) bool { return value == "" })
	query := store.Query{Collection: Collection, Equal: equal, Newest: &span, After: after, Limit: limit}
	return store.List(ctx, q, query, EntryOf)
}

// EntryOf decodes an entry from its document.
func EntryOf(doc store.Document) (e Entry, err error) {
	err = store.Decode(doc.Fields, &e)
	if err != nil || e.Kind == "" || e.Subject == "" || e.Action == "" || e.At.IsZero() {
		return Entry{}, fmt.Errorf("%w: %s", ErrBroken, doc.Key)
	}
	return e, nil
}

// IsEntry reports whether a document of the collection is an entry.
func IsEntry(id string) bool { return strings.HasPrefix(id, mark) }

// Proof is the evidence for a person's name.
type Proof string

// The proofs.
const (
	// Identity: the name belongs to a verified identity, such as a Google account.
	Identity Proof = "identity"
	// SharedToken: the person has a token that others may have, too. It does not prove a name.
	SharedToken Proof = "token"
	// ThisMachine: the person uses this machine. Only emulators and stand-ins accept that.
	ThisMachine Proof = "local"
)

// Author is a person who requests a change. The zero Author is nobody.
type Author struct {
	Proof Proof
	// Name is the identity's e-mail address; without an identity, the name the person gave, or empty.
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
	// ErrNoIdentity: the person has no identity, so it cannot be proved that two different people took part.
	ErrNoIdentity = errors.New("audit: it takes two people, and each needs an identity of their own")
	// ErrSamePerson: the second person is the same as the first.
	ErrSamePerson = errors.New("audit: it takes two people: somebody else has to approve it")
)

// TwoPeople checks whether a person may take part in a change that needs two people. first is the String of
// the first person; empty: this is the first. Each needs an identity, or on emulators and stand-ins a name.
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

// SamePerson reports whether two authors' names, as from String, may belong to one person: they differ at
// most in case, surrounding spaces, a tag after a plus sign, and proof.
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

// CheckWhy refuses a reason that is too long, is not UTF-8, or contains invisible characters or what looks
// like personal data. An empty reason passes. The error wraps ErrInvalid and contains no part of the reason.
func CheckWhy(why string) error {
	if err := check("reason", why, MaxWhy); err != nil {
		return err
	}
	// Reasons contain long order and product numbers, and one in ten of those passes a card's check.
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
// direction. Joiner and non-joiner are allowed, because some languages need them.
func unseen(r rune) bool {
	const nonJoiner, joiner = '\u200c', '\u200d'
	return unicode.IsControl(r) || unicode.In(r, unicode.Zl, unicode.Zp) ||
		(unicode.Is(unicode.Cf, r) && r != nonJoiner && r != joiner)
}

// Escape replaces each invisible character by its JSON escape, such as \u202e, so that a stored one does not
// reach a terminal. A JSON document of one line keeps its meaning.
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

// EscapeLines does the same as Escape, but keeps line breaks.
func EscapeLines(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = Escape(line)
	}
	return strings.Join(lines, "\n")
}
