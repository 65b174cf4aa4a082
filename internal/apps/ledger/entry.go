// Package ledger owns the books: double entry, in balanced and immutable entries, which are reversed and
// never changed. Posting is one create. The entries of an order's points form a chain, numbered in their
// ids, so that the store refuses an append to an outdated chain; only accounts that points are credited to
// have a stored balance. The package does not know why anything is posted, and it never commits.
package ledger

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"billhook/internal/contract/money"
	"billhook/internal/platform/store"
)

// The collections.
const (
	Accounts = "accounts"
	Entries  = "entries"
)

// The fields of an entry's document that are searched.
const (
	// FieldAccount is the account of a chain's entry whose document the entry changed.
	FieldAccount = "account"
	// FieldPostings lists the PostingKey of each control account of which the entry has lines.
	FieldPostings = "postings"
	// FieldBook is the BookKey of the entry's tenant and period.
	FieldBook = "book"
	// FieldCommitted is the database's time of the entry's commit, and FieldShard one of Shards parts of the
	// entries: rising times in one index would make it a hot spot.
	FieldCommitted = "committed_at"
	FieldShard     = "shard"
)

// Shards is the number of parts of the entries; each takes some 500 a second.
const Shards = 8

// MaxAmount is the largest amount of a line, in minor units. The database's increment saturates silently: an
// int64 balance takes more than 9,000 such lines to overflow.
const MaxAmount = money.Max

// MaxLines is how many lines an entry may have.
const MaxLines = 100

var (
	// ErrInvalid: the entry does not balance, an amount is out of bounds, or a name is missing or too long. The
	// text has no value of the entry.
	ErrInvalid = errors.New("ledger: invalid entry")
	// ErrBroken: a stored document is no entry, or the stored entries are no chain, because another program has
	// written to the books. Trying again does not help.
	ErrBroken = errors.New("ledger: stored entries are broken")
	// ErrIrreversible: the entry is a reversal, or belongs to a chain, which has rules of its own.
	ErrIrreversible = errors.New("ledger: entry cannot be reversed")
)

// Kind is what an entry is.
type Kind string

// The kinds of a journal's entries.
const (
	KindJournal         Kind = "journal"          // an event's entry by a rule of the journal
	KindJournalReversal Kind = "journal_reversal" // the opposite of an entry of the journal
)

// Line is a debit or a credit of one account, 1 to MaxAmount minor units; the other side is 0.
type Line struct {
	Account  string `json:"account" store:"account,required" show:"Account" link:"accounts"`
	Currency string `json:"currency" store:"currency,required" show:"Currency"`
	Debit    int64  `json:"debit" store:"debit,required" show:"Debit" in:"currency"`
	Credit   int64  `json:"credit" store:"credit,required" show:"Credit" in:"currency"`
}

func (l Line) String() string {
	side := "credit "
	if l.Debit > 0 {
		side = "debit "
	}
	return side + money.Text(l.Debit+l.Credit, l.Currency) + " " + l.Currency + ", " + l.Account
}

// Entry is one entry of the books, as its document holds it.
type Entry struct {
	// ID is the id of the document. Post derives it.
	ID     string `json:"id" show:"Entry,id" link:"journal/entries/{id}"`
	Tenant string `json:"tenant" store:"tenant" show:"Tenant,detail"`
	Kind   Kind   `json:"kind" store:"kind,required" show:"Kind"`
	// EventID names the event that made the entry; for a transfer of points, the operation.
	EventID   string `json:"event_id" store:"event_id,required" show:"Event" link:"events"`
	EventType string `json:"event_type,omitempty" store:"event_type,omitzero,strict" show:"Type,less"`
	Rule      string `json:"rule,omitempty" store:"rule,omitzero,strict" show:"Rule,detail"`
	// Order is the order whose chain the entry belongs to; empty: the entry is a journal's.
	Order   string `json:"order,omitempty" show:"Order,detail" link:"search"`
	Reverts string `json:"reverts,omitempty" store:"reverts,omitzero,strict" show:"Reverts,detail" link:"journal/entries/{reverts}"`
	// Period is the month that the entry counts in, such as 2026-11; see PeriodOf.
	Period     string    `json:"period" store:"period" show:"Month,detail" link:"journal/periods/{period}"`
	OccurredAt time.Time `json:"occurred_at" store:"occurred_at" show:"Happened,detail"`
	PostedAt   time.Time `json:"posted_at" store:"posted_at" show:"Posted"`
	// Lines are 2 to MaxLines, in the order in which they were posted.
	Lines []Line `json:"lines" store:"lines,required" show:"Lines,brief"`
	// CommittedAt is when the database committed it. With the id it is the entry's position, which seals follow.
	CommittedAt time.Time `json:"committed_at,omitzero" show:"Committed,detail"`
	// Seal is the number of the entry's seal, from 1, and Leaf its place in it. Both are read from the seals,
	// not from the entry, and are 0 in lists.
	Seal int64 `json:"seal,omitzero" show:"Seal,detail"`
	Leaf int64 `json:"leaf,omitzero" show:"Position in the seal,detail"`

	// Document is the document that the entry was read from.
	Document store.Document `json:"-"`
}

// EntryID is the id of the entry that an event makes in a tenant's journal.
func EntryID(tenant, eventID string) string { return store.ID(tenant, eventID) }

// shortest is the length of the shortest prefix. It is longer than the hash at the beginning of an id,
// because an event's id may look like such a hash.
const shortest = 12

// Find returns the document of the entry that a person names: by the id of its event, by its own id, or by a
// unique prefix of that. No event's id has a tilde. The error is absent if there is no such entry, or is as
// of store.Named.
func Find(
	ctx context.Context, from Reader, tenant, named string, absent error,
) (doc store.Document, err error) {
	id := strings.Contains(named, "~")
	if !id {
		doc, err = from.Get(ctx, Key(EntryID(tenant, named)))
		id = errors.Is(err, store.ErrNotFound) && len(named) >= shortest
	}
	if id {
		doc, err = store.Named(ctx, from, Key(named))
	}
	if errors.Is(err, store.ErrNotFound) || errors.Is(err, store.ErrInvalid) {
		err = absent
	}
	return doc, err
}

// ReversalID is the id of the one reversal that a journal's entry can have.
func ReversalID(entry string) string { return entry + "~reversal" }

// Key is the key of the document with an id.
func Key(id string) store.Key { return store.Key{Collection: Entries, ID: id} }

// PeriodOf returns the period that a moment is in: the month, in UTC, such as 2026-11.
func PeriodOf(at time.Time) string { return at.UTC().Format("2006-01") }

// IsPeriod reports whether the text names a period.
func IsPeriod(text string) bool {
	at, err := time.Parse("2006-01", text)
	return err == nil && at.Year() > 0
}

// BookKey is the value of FieldBook in the entries of a tenant and a period.
func BookKey(tenant, period string) string { return store.Path(tenant, period) }

// PostingKey is the value in FieldPostings for a control account.
func PostingKey(tenant, period, control string) string {
	return BookKey(tenant, period) + "~" + control
}

// Control returns the control account that has an account's totals: for points the account of their kind,
// such as points:user, so that totals do not grow with the number of users; else the account itself.
func Control(account string) string {
	if rest, points := strings.CutPrefix(account, pointsPrefix); points {
		if kind, _, ok := strings.Cut(rest, ":"); ok {
			return account[:len(pointsPrefix)+len(kind)]
		}
	}
	return account
}

// Post returns the writes that post an entry of a journal: one create. The commit fails with store.ErrExists
// if it was posted before. The caller fills all but ID, CommittedAt, Seal and Leaf. The error wraps
// ErrInvalid.
func Post(e Entry) ([]store.Write, error) {
	e.ID = e.journalID()
	if err := e.check(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	fields := store.Encode(&e)
	e.index(fields)
	return []store.Write{store.Create(Key(e.ID), fields).Stamped(FieldCommitted)}, nil
}

func (e Entry) journalID() string {
	if e.Kind == KindJournalReversal {
		return ReversalID(e.Reverts)
	}
	return EntryID(e.Tenant, e.EventID)
}

// index sets the fields by which entries are searched: the book, each control account once, and the shard
// with the time. Only they, and account with created_at, should have an index in the database: others rise.
func (e Entry) index(fields map[string]any) {
	book := BookKey(e.Tenant, e.Period)
	controls := make([]string, len(e.Lines))
	for i, line := range e.Lines {
		controls[i] = Control(line.Account)
	}
	slices.Sort(controls)
	var postings []any
	for _, control := range slices.Compact(controls) {
		postings = append(postings, book+"~"+control)
	}
	digit, _ := strconv.ParseInt(e.ID[:min(1, len(e.ID))], 16, 64) // ids begin with a hash
	fields[FieldBook], fields[FieldPostings], fields[FieldShard] = book, postings, digit%Shards
}

func (e Entry) check() error {
	switch {
	case e.Tenant == "", e.EventID == "":
		return errors.New("a name is missing")
	case e.Kind != KindJournal && e.Kind != KindJournalReversal:
		return errors.New("no kind of a journal")
	case (e.Kind == KindJournalReversal) != (e.Reverts != ""):
		return errors.New("a reversal, and nothing else, names the entry it reverts")
	case !IsPeriod(e.Period):
		return errors.New("no period")
	case e.OccurredAt.IsZero(), e.PostedAt.IsZero():
		return errors.New("no time")
	}
	if e.Kind == KindJournal && len(ReversalID(e.ID)) > store.MaxIDBytes {
		return errors.New("a name is too long")
	}
	return cmp.Or(store.CheckKey(Key(e.ID)), e.checkLines())
}

// checkLines requires valid lines whose debits equal their credits in each currency.
func (e Entry) checkLines() error {
	if len(e.Lines) < 2 || len(e.Lines) > MaxLines {
		return errors.New("too few lines, or too many")
	}
	left, book := map[string]int64{}, BookKey(e.Tenant, e.Period)
	for _, line := range e.Lines {
		switch {
		case line.Account == "", line.Currency == "":
			return errors.New("a name is missing")
		case len(book)+len("~")+len(Control(line.Account)) > store.MaxIDBytes:
			return errors.New("a name is too long") // an index truncates longer values
		case line.Debit < 0, line.Debit > MaxAmount, line.Credit < 0, line.Credit > MaxAmount:
			return errors.New("amount out of bounds")
		case (line.Debit == 0) == (line.Credit == 0):
			return errors.New("a line has one side, a debit or a credit")
		}
		left[line.Currency] += line.Debit - line.Credit // MaxLines of MaxAmount fit
	}
	for _, amount := range left {
		if amount != 0 {
			return errors.New("debits and credits differ")
		}
	}
	return nil
}

// Reversal returns the entry that reverses a journal's entry as a whole, in a period and at a time. eventID
// names the event or the operation that reverts it. Two reversals of an entry have the same id. The error
// wraps ErrIrreversible.
func (e Entry) Reversal(eventID, period string, at time.Time) (Entry, error) {
	if e.Kind != KindJournal {
		return Entry{}, fmt.Errorf("%w: it is a %s", ErrIrreversible, e.Kind)
	}
	reversal := Entry{
		ID: ReversalID(e.ID), Tenant: e.Tenant, Kind: KindJournalReversal, EventID: eventID, Rule: e.Rule,
		Reverts: e.ID,
		Period:  period, OccurredAt: at, PostedAt: at,
	}
	for _, line := range e.Lines {
		line.Debit, line.Credit = line.Credit, line.Debit
		reversal.Lines = append(reversal.Lines, line)
	}
	return reversal, nil
}
