// Package ledger owns the books: double entry, in balanced and immutable entries of n lines. In
// each currency of an entry the debits equal the credits. An entry is only ever created; what is
// wrong is taken back by an entry that reverses it. Points are a currency like any other.
//
// There are two kinds of books in one collection. A journal's entry is one document that nothing
// else touches: no balance, no number that follows another. So posting is one create, and no two
// entries wait for each other. The entries of the points of one order form a chain: a credit,
// numbered 0, and its reversals and transfers, numbered from 1. The number is part of the
// document's id, so the store refuses an append to an outdated chain: optimistic concurrency
// without a document that changes. A Chain is a view on entries; its rules are its own.
//
// The account that points are credited to has a document with its balance, kept by increments,
// so crediting reads nothing. The issuing side has none: its lines name an account of that one
// order, whose balance follows from the order's entries. A balance of everything ever issued
// would be a document that every event writes to. It may be negative: what was credited may have
// been spent before it was taken back, and the debt is a fact.
//
// An entry is posted with the mark that it is not sealed yet. Sealing replaces the mark by the
// number of the seal and the place in it. Nothing else of an entry ever changes, and all else of
// it, its id included, is in its leaf hash.
//
// Of entries the only fields that are ever searched are tenant, account, seal, postings, book, open and
// unsealed, and account with created_at; of accounts the tenant. All others need no index and should
// have none, since their values rise.
//
// The package refuses to know why anything is posted, and it never commits: it returns writes for
// the caller's own commit.
package ledger

import (
	"errors"
	"fmt"
	"slices"
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
	// FieldPostings lists the PostingKey of each control account that an entry has lines of.
	FieldPostings = "postings"
	// FieldBook is the BookKey of the entry's tenant and period.
	FieldBook = "book"
	// FieldOpen is true, and FieldUnsealed the tenant, until the entry is sealed. The one finds
	// the unsealed entries of all tenants, the other those of one.
	FieldOpen     = "open"
	FieldUnsealed = "unsealed"
)

// The marks that take the place of FieldOpen and FieldUnsealed: the number of the seal, from 1,
// and the entry's place in it, from 0.
const (
	fieldSeal = "seal"
	fieldLeaf = "leaf"
)

const fieldLines = "lines"

// MaxAmount is the most one line may move, in minor units. An int64 balance takes
// more than 9,000 such lines to overflow, and the increment of the database
// saturates silently instead of failing: the bound is what keeps sums exact.
const MaxAmount = money.Max

// MaxLines is how many lines an entry may have.
const MaxLines = 100

// The errors of entries.
var (
	// ErrInvalid says that the entry may not be written: it does not balance, an amount is out of
	// bounds, a name is missing or too long. The text holds no value.
	ErrInvalid = errors.New("ledger: invalid entry")
	// ErrBroken: what is stored is no entry, or the stored entries are not a chain: another
	// program has written to the books. Trying again does not help.
	ErrBroken = errors.New("ledger: stored entries are broken")
	// ErrIrreversible: the entry is a reversal, or one of a chain, which has rules of its own.
	ErrIrreversible = errors.New("ledger: entry cannot be reversed")
)

// Kind is what an entry is.
type Kind string

// The kinds of a journal's entries.
const (
	KindJournal         Kind = "journal"
	KindJournalReversal Kind = "journal_reversal"
)

// Line is one line of an entry: a debit or a credit of one account, 1 to MaxAmount minor units of
// the currency. The other of the two is 0.
type Line struct {
	Account  string `json:"account" store:"account,required"`
	Currency string `json:"currency" store:"currency,required"`
	Debit    int64  `json:"debit" store:"debit,required"`
	Credit   int64  `json:"credit" store:"credit,required"`
}

// Entry is one entry of the books, as its document holds it.
type Entry struct {
	// ID is the id of the document. Post derives it.
	ID     string `json:"id"`
	Tenant string `json:"tenant" store:"tenant"`
	Kind   Kind   `json:"kind" store:"kind,required"`
	// EventID names the event that made the entry, unique within the tenant; of a transfer of
	// points, the operation.
	EventID   string `json:"event_id" store:"event_id,required"`
	EventType string `json:"event_type,omitempty" store:"event_type,omitzero,strict"`
	// Rule names the rule that made the lines of the event.
	Rule string `json:"rule,omitempty" store:"rule,omitzero,strict"`
	// Order is the order whose chain the entry belongs to; empty: it is a journal's.
	Order string `json:"order,omitempty"`
	// Reverts is the id of the entry that this one reverses, in a journal.
	Reverts string `json:"reverts,omitempty" store:"reverts,omitzero,strict"`
	// Period is the month that the entry counts in, such as 2026-11; see PeriodOf.
	Period string `json:"period" store:"period"`
	// OccurredAt is when what the event tells of happened, PostedAt when the entry was made. In
	// a chain both are when it was made.
	OccurredAt time.Time `json:"occurred_at" store:"occurred_at"`
	PostedAt   time.Time `json:"posted_at" store:"posted_at"`
	// Lines are 2 to MaxLines, in the order in which they were posted.
	Lines []Line `json:"lines"`
	// Seal is the number of the entry's seal, from 1, and Leaf its place in it, from 0. While the
	// entry is not sealed both are 0.
	Seal int64 `json:"seal"`
	Leaf int64 `json:"leaf"`

	document store.Document // that it was read from
}

// EntryID is the id of the entry that an event makes in a tenant's journal.
func EntryID(tenant, eventID string) string { return store.ID(tenant, eventID) }

// ReversalID is the id of the one reversal that a journal's entry can have.
func ReversalID(entry string) string { return entry + "~reversal" }

// Key is the key of the document with an id.
func Key(id string) store.Key { return store.Key{Collection: Entries, ID: id} }

// PeriodOf is the period that a moment is in: the month, in UTC, such as 2026-11.
func PeriodOf(at time.Time) string { return at.UTC().Format("2006-01") }

// IsPeriod reports whether the text names a period.
func IsPeriod(text string) bool {
	at, err := time.Parse("2006-01", text)
	return err == nil && PeriodOf(at) == text && at.Year() > 0
}

// BookKey is what FieldBook holds in the entries of a tenant and a period.
func BookKey(tenant, period string) string { return store.Path(tenant, period) }

// PostingKey is what FieldPostings holds in the entries of a tenant and a period with lines of a
// control account.
func PostingKey(tenant, period, control string) string {
	return BookKey(tenant, period) + "~" + control
}

// Control is the control account of an account, by which totals are kept: of points the account
// that stands for all of their kind, such as points:user; else the account itself. So totals do
// not grow with the number of users.
func Control(account string) string {
	if rest, points := strings.CutPrefix(account, pointsPrefix); points {
		if kind, _, ok := strings.Cut(rest, ":"); ok {
			return pointsPrefix + kind
		}
	}
	return account
}

// Post returns the writes that post an entry of a journal: one create. The commit fails with
// store.ErrExists if the event, or the reversal, was posted before. The caller fills all but ID,
// Seal and Leaf; EventType and Rule may be empty. The error wraps ErrInvalid.
func Post(e Entry) ([]store.Write, error) {
	e.OccurredAt, e.PostedAt = e.OccurredAt.UTC().Truncate(time.Microsecond), e.PostedAt.UTC().Truncate(time.Microsecond)
	e.ID = e.journalID()
	if err := e.check(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	fields := store.Encode(&e)
	e.mark(fields)
	return []store.Write{store.Create(Key(e.ID), fields)}, nil
}

// journalID is the id that the entry must have in a journal.
func (e Entry) journalID() string {
	if e.Kind == KindJournalReversal {
		return ReversalID(e.Reverts)
	}
	return EntryID(e.Tenant, e.EventID)
}

// mark adds the lines, what the entry is found by, and the mark that it is not sealed.
func (e Entry) mark(fields map[string]any) {
	lines := make([]any, len(e.Lines))
	for i := range e.Lines {
		lines[i] = store.Encode(&e.Lines[i])
	}
	fields[fieldLines] = lines
	fields["tenant"], fields["period"] = e.Tenant, e.Period
	fields[FieldBook], fields[FieldPostings] = BookKey(e.Tenant, e.Period), e.postings()
	fields[FieldOpen], fields[FieldUnsealed] = true, e.Tenant
}

// postings returns what FieldPostings holds: each control account once, in order.
func (e Entry) postings() []any {
	var keys []string
	for _, line := range e.Lines {
		keys = append(keys, PostingKey(e.Tenant, e.Period, Control(line.Account)))
	}
	slices.Sort(keys)
	all := []any{}
	for _, key := range slices.Compact(keys) {
		all = append(all, key)
	}
	return all
}

// The errors of check. They name no value.
var (
	errName     = errors.New("a name is missing")
	errLong     = errors.New("a name is too long")
	errKind     = errors.New("no kind of a journal")
	errPeriod   = errors.New("no period")
	errTime     = errors.New("no time")
	errLines    = errors.New("too few lines, or too many")
	errAmount   = errors.New("amount out of bounds")
	errSides    = errors.New("a line has one side, a debit or a credit")
	errBalance  = errors.New("debits and credits differ")
	errNoReason = errors.New("a reversal, and nothing else, names the entry it reverts")
)

// check says what is wrong with a journal's entry.
func (e Entry) check() error {
	switch {
	case e.Tenant == "", e.EventID == "":
		return errName
	case e.Kind != KindJournal && e.Kind != KindJournalReversal:
		return errKind
	case (e.Kind == KindJournalReversal) != (e.Reverts != ""):
		return errNoReason
	case !IsPeriod(e.Period):
		return errPeriod
	case e.OccurredAt.IsZero(), e.PostedAt.IsZero():
		return errTime
	}
	if e.Kind == KindJournal && len(ReversalID(e.ID)) > store.MaxIDBytes {
		return errLong
	}
	if err := store.CheckKey(Key(e.ID)); err != nil {
		return err
	}
	return e.checkLines()
}

// checkLines says what is wrong with the lines: in each currency the debits equal the credits.
func (e Entry) checkLines() error {
	if len(e.Lines) < 2 || len(e.Lines) > MaxLines {
		return errLines
	}
	left := map[string]int64{}
	for _, line := range e.Lines {
		switch {
		case line.Account == "", line.Currency == "":
			return errName
		case len(PostingKey(e.Tenant, e.Period, Control(line.Account))) > store.MaxIDBytes:
			return errLong // an index keeps no more of a value
		case line.Debit < 0, line.Debit > MaxAmount, line.Credit < 0, line.Credit > MaxAmount:
			return errAmount
		case (line.Debit == 0) == (line.Credit == 0):
			return errSides
		}
		left[line.Currency] += line.Debit - line.Credit // MaxLines of MaxAmount fit
	}
	for _, amount := range left {
		if amount != 0 {
			return errBalance
		}
	}
	return nil
}

// Reversal returns the entry that takes back the whole of a journal's entry: the same lines with
// their sides exchanged, in a period, as of a moment, which is when the reverting event happened
// and when the entry is made, unless the caller sets OccurredAt. eventID names the event or the
// operation that reverts. An entry has one reversal: two have the same id. The error wraps
// ErrIrreversible.
func (e Entry) Reversal(eventID, period string, at time.Time) (Entry, error) {
	if e.Kind != KindJournal {
		return Entry{}, fmt.Errorf("%w: it is a %s", ErrIrreversible, e.Kind)
	}
	reversal := Entry{
		ID: ReversalID(e.ID), Tenant: e.Tenant, Kind: KindJournalReversal, EventID: eventID, Rule: e.Rule, Reverts: e.ID,
		Period: period, OccurredAt: at, PostedAt: at,
	}
	for _, line := range e.Lines {
		line.Debit, line.Credit = line.Credit, line.Debit
		reversal.Lines = append(reversal.Lines, line)
	}
	return reversal, nil
}
