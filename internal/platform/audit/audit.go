// Package audit owns what is kept of a change that a person made: who, when, why, and what stood there before
// and after. An entry is one immutable document, committed with the change itself. It refuses to make a
// change, and to hold anything but ids, codes, amounts and times.
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

// mark begins the id of every entry alone, and sorts behind the random ids of the operations beside them.
const mark = "~"

// MaxWhy and MaxWho bound the texts of an entry, in bytes.
const (
	MaxWhy = 1000
	MaxWho = 200
)

var (
	// ErrInvalid is wrapped by every refusal of an entry; its text says why, without a value.
	ErrInvalid = errors.New("audit: invalid entry")
	// ErrBroken: what is stored is no entry.
	ErrBroken = errors.New("audit: stored entry is not readable")
)

// Entry is one change.
type Entry struct {
	// Kind is what was changed, such as customer, and Subject which one, by its id. Tenant is whose it
	// is; empty: what is changed belongs to no tenant.
	Kind    string `json:"kind" store:"kind"`
	Tenant  string `json:"tenant,omitempty" store:"tenant,omitzero"`
	Subject string `json:"subject" store:"subject"`
	// At is when, in microseconds.
	At time.Time `json:"at" store:"at" show:"At"`
	// Action is what was done to it, such as link.
	Action string `json:"action" store:"action" show:"What"`
	// Who is the operator, as the API knows them; Why is the reason given, 1 to MaxWhy bytes.
	Who string `json:"who" store:"who" show:"Who"`
	Why string `json:"why" store:"why" show:"Why"`
	// Before and After are the fields that the change is about; nil: there was, or is, nothing.
	Before map[string]any `json:"before" store:"before,omitzero" show:"Before,less"`
	After  map[string]any `json:"after" store:"after,omitzero" show:"After,less"`
}

// With returns the writes of a change with that of its entry, for one commit. The random id tells apart
// two changes of one subject in one microsecond. The error wraps ErrInvalid.
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
	// Ids ascend, and the newest shall come first.
	key := store.Key{
		Collection: Collection, ID: fmt.Sprintf("%s%019d-%s", Subject{e.Kind, e.Tenant, e.Subject}.prefix(),
			math.MaxInt64-e.At.UnixMicro(), id),
	}
	if err := store.CheckKey(key); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return append(writes, store.Create(key, store.Encode(&e))), nil
}

// ErrID wraps ErrInvalid: the id of a record, or of its tenant, is none.
var ErrID = fmt.Errorf(
	"%w: an id has at most 128 of letters, digits and . _ : -, and begins with a letter or digit", ErrInvalid)

// ErrChanged: the record is not as the person has seen it any more. Nothing was changed.
var ErrChanged = errors.New("audit: changed since it was looked at")

// Change is what a person asks for.
type Change struct {
	Who Author
	Why string
	// Expect is the version of the record that they have looked at, 0 where there was none; nil: whichever it
	// is.
	Expect *store.Version
}

// Made is what a change makes of a record, for its entry of the audit, and the writes; without writes nothing
// is changed.
type Made struct {
	Action        string
	Before, After map[string]any
	Writes        []store.Write
	// Version, if set, gets the version that the first write has once it is committed.
	Version *store.Version
}

// Update changes a record for a person: it reads the document and commits what decide makes of it, as
// store.Update does, with the entry of the audit, and reports whether there was anything to write. id tells
// apart two changes of one moment. The error is that of decide as it is, ErrChanged or store.ErrBusy, wraps
// ErrInvalid, or is that of the store.
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
			Kind: of.Kind, Tenant: of.Tenant, Subject: of.ID, Action: made.Action, At: at, Before: made.Before,
			After: made.After,
		}.By(c).With(id, made.Writes...)
	})
	if changed = len(versions) > 0; changed && made.Version != nil {
		*made.Version = versions[0]
	}
	return changed, err
}

// By is the entry with its author and reason.
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

// List returns a page of the entries of a subject, the newest first: at most limit, 1 to store.MaxPage,
// behind the entry after. next is zero on the last page.
func (s Subject) List(
	ctx context.Context, q store.Querier, after store.Cursor, limit int,
) (entries []Entry, next store.Cursor, err error) {
	return store.List(ctx, q,
		store.Query{Collection: Collection, IDPrefix: s.prefix(), After: after, Limit: limit}, EntryOf)
}

// Newest returns a page of the entries of all kinds with the fields of equal, of which an empty one is any,
// in a span of time, the newest first, ties by id, the greatest first: at most limit, 1 to store.MaxPage,
// behind the entry after. next is zero behind a page that is not full; behind a full one there may be none
// either.
func Newest(
	ctx context.Context, q store.Querier, equal map[string]any, span store.Newest, after store.Cursor, limit int,
) (entries []Entry, next store.Cursor, err error) {
	span.Field = "at" // The operations beside the entries have no such time, and are not found.
	maps.DeleteFunc(equal, func(_ string, value any) bool { return value == "" })
	query := store.Query{Collection: Collection, Equal: equal, Newest: &span, After: after, Limit: limit}
	return store.List(ctx, q, query, EntryOf)
}

// EntryOf reads an entry's document.
func EntryOf(doc store.Document) (e Entry, err error) {
	if err := store.Decode(doc.Fields, &e); err != nil || e.Kind == "" || e.Subject == "" || e.Action == "" ||
		e.At.IsZero() {
		return Entry{}, fmt.Errorf("%w: %s", ErrBroken, doc.Key)
	}
	return e, nil
}

// IsEntry reports whether a document of the collection is an entry.
func IsEntry(id string) bool { return strings.HasPrefix(id, mark) }

// Proof is how it is known who somebody is.
type Proof string

// The proofs.
const (
	// Identity: a verified identity has the name, such as one of Google.
	Identity Proof = "identity"
	// SharedToken: they hold a token that others may hold too. It says nothing about who they are.
	SharedToken Proof = "token"
	// ThisMachine: they are on this machine, which lets people in beside emulators and stand-ins alone.
	ThisMachine Proof = "local"
)

// Author is who asks for something. The zero Author is nobody.
type Author struct {
	Proof Proof
	// Name is the e-mail address of an identity, or what somebody without one says they are called; it may be
	// empty then.
	Name string
}

// String is the author's name in the audit: ada@example.org, token:ada, local:ada, or token where they say no
// name.
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
	// ErrNoIdentity: the person has no identity of their own, so that nobody can say that two people were two.
	ErrNoIdentity = errors.New("audit: it takes two people, and each needs an identity of their own")
	// ErrSamePerson: the second person is the first.
	ErrSamePerson = errors.New("audit: it takes two people: somebody else has to approve it")
)

// TwoPeople checks the part of one person in what takes two. first is who has begun it, as String has it;
// empty: this person begins it. Each needs an identity; beside emulators and stand-ins, where nothing is at
// stake, a name is one. The error is ErrNoIdentity or ErrSamePerson.
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

// SamePerson reports whether two names of authors, as String has them, may be one person's: in another case,
// with spaces around it, with a tag behind a plus sign, or known in another way.
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

// CheckWhy refuses a reason that must not be kept, or shown to the next person: one that is too
// long, is not text, has characters that are not seen, or has what a detector takes for personal
// data. An empty reason passes. The error wraps ErrInvalid and repeats nothing of the reason.
func CheckWhy(why string) error {
	if err := check("reason", why, MaxWhy); err != nil {
		return err
	}
	// The long numbers of orders and products are said in reasons, and one in ten looks like a card's.
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

// CheckWho refuses an operator's name that must not be kept or shown. An e-mail address is how some
// operators are known, so the detectors do not look at names.
func CheckWho(who string) error { return check("operator's name", who, MaxWho) }

func check(what, text string, limit int) error {
	switch {
	case len(text) > limit:
		return fmt.Errorf("%w: the %s is longer than %d bytes", ErrInvalid, what, limit)
	case !utf8.ValidString(text):
		return fmt.Errorf("%w: the %s is not UTF-8", ErrInvalid, what)
	case strings.ContainsFunc(text, unseen):
		return fmt.Errorf("%w: the %s has a line break, or another character that is not seen", ErrInvalid, what)
	}
	return nil
}

// unseen reports whether a character moves the cursor, turns or breaks the line, or does not show; those that
// join or part letters belong to how some languages are written.
func unseen(r rune) bool {
	const parts, joins = '\u200c', '\u200d'
	return unicode.IsControl(r) || unicode.In(r, unicode.Zl, unicode.Zp) ||
		(unicode.Is(unicode.Cf, r) && r != parts && r != joins)
}

// Escape returns a text with each character that is not seen as its number in JSON, such as \u202e: what was
// kept before it was refused must not reach a terminal. Of a JSON document of one line it is that document.
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

// EscapeLines does the same in each line of a text, whose ends stay.
func EscapeLines(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = Escape(line)
	}
	return strings.Join(lines, "\n")
}
