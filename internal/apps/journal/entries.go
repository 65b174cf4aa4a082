package journal

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"billhook/catalog"
	"billhook/internal/apps/ledger"
	"billhook/internal/apps/ledger/seal"
	"billhook/internal/console"
	"billhook/internal/pii"
	"billhook/internal/pipeline/handler"
	"billhook/internal/pipeline/lane"
	"billhook/internal/platform/audit"
	"billhook/internal/platform/store"
)

// Entry is an entry of the books as people see it.
type Entry struct {
	ledger.Entry
	// Hash is the entry's leaf hash in hex, as its seal has it. An entry that cannot be read has none.
	Hash string `json:"hash" show:"Hash,detail"`
	// Changed: the entry was changed after it was sealed, or, without a seal, after it was posted.
	Changed    bool   `json:"changed,omitempty"`
	RevertedBy string `json:"reverted_by,omitempty" show:"Reverted by,detail" link:"journal/entries/{reverted_by}"`
}

// ReadEntry reads the document of an entry. An entry that cannot be read is Changed.
func ReadEntry(doc store.Document) Entry {
	entry, err := ledger.Read(doc)
	var hash []byte
	if err == nil {
		hash, err = entry.LeafHash()
	}
	return Entry{Entry: entry, Hash: hex.EncodeToString(hash), Changed: err != nil}
}

// Alerts reports whether the entry was changed.
func (e Entry) Alerts() bool { return e.Changed }

// Notes says that the entry was changed, or is not sealed yet.
func (e Entry) Notes() []string {
	switch {
	case !e.Changed && e.Seal == 0:
		return []string{"It is not sealed yet, and nothing proves it before."}
	case !e.Changed:
		return nil
	}
	note := "Entry " + e.ID + " was changed after it was " +
		map[bool]string{true: "posted", false: "sealed"}[e.Seal == 0]
	if e.Hash == "" {
		note += ", and cannot be read any more"
	}
	return []string{note + ". Verify the books."}
}

// Failure says that the entry was changed.
func (e Entry) Failure() string {
	if !e.Changed {
		return ""
	}
	return e.Notes()[0]
}

// Allows reports whether the entry can be proven or reverted.
func (e Entry) Allows(verb string) bool {
	if verb == "prove" {
		return e.Seal > 0
	}
	return verb != "revert" || e.Kind == ledger.KindJournal && e.RevertedBy == ""
}

var errNoEntry = console.Refuse(console.Absent, "entry_unknown",
	"The tenant's books have no entry of that id, nor one that an event of that id has made.")

var errOneOrder = console.Refuse(console.Malformed, "account_invalid",
	"What was issued for one order has no list of its "+
		"own; ask for the account points:issued, or for the account of the user.")

// The bounds of a page: of entries, each of which may have ledger.MaxLines, and of the months that are read.
const (
	maxListed = 200
	maxMonths = 24
)

// books are the entries. Without a journal they have no index by control account: all entries move points,
// and most have lines of each control account, so that all entries of a month are read.
type books struct {
	store.Store
	indexed bool
}

// listEntries returns a page of a tenant's entries, one month after the other; with an account, only entries
// with lines of it. For a points account that is no control account, it finds those of all months at once.
func listEntries(
	ctx context.Context, from books, in ListOfEntries, now string,
) ([]Entry, store.Cursor, error) {
	single := ledger.Control(in.Account) != in.Account
	if single {
		now = ""
	}
	first, last, err := in.span(now)
	switch {
	case err != nil:
		return nil, store.Cursor{}, err
	case single && ledger.Account(in.Account).OfOrder():
		return nil, store.Cursor{}, errOneOrder
	}
	month, id, _ := strings.Cut(in.After.ID, "/") // no month has a slash
	month = cmp.Or(month, first)
	query := store.Query{
		Collection: ledger.Entries, Limit: min(in.Limit, maxListed), After: store.Cursor{ID: id},
	}
	for range maxMonths {
		posting := ledger.PostingKey(in.Tenant, month, in.Account)
		switch {
		case single:
			query.Equal = map[string]any{ledger.FieldAccount: in.Account}
		case in.Account != "" && from.indexed:
			query.Contains = map[string]string{ledger.FieldPostings: posting}
		default:
			query.Equal = map[string]any{ledger.FieldBook: ledger.BookKey(in.Tenant, month)}
		}
		page, err := from.Query(ctx, query)
		if err != nil {
			return nil, store.Cursor{}, err
		}
		var entries []Entry
		for _, doc := range page.Documents {
			postings, _ := doc.Fields[ledger.FieldPostings].([]any)
			if in.Account != "" && !single && !slices.Contains(postings, any(posting)) {
				continue
			}
			if e := ReadEntry(doc); e.Tenant == in.Tenant && (last == "" || first <= e.Period && e.Period <= last) {
				entries = append(entries, e)
			}
		}
		if page.Next.IsZero() {
			if single || month >= last {
				return entries, store.Cursor{}, nil
			}
			at, _ := time.Parse("2006-01", month) // an invalid month has no entries
			month = ledger.PeriodOf(at.AddDate(0, 1, 0))
		}
		if query.After = page.Next; len(entries) > 0 || !page.Next.IsZero() {
			return entries, store.Cursor{ID: month + "/" + page.Next.ID}, nil
		}
	}
	return nil, store.Cursor{ID: month + "/"}, nil
}

// KindEntry is the audit's kind of subject for an entry that a person has reverted.
const KindEntry = "entry"

// Errors of Revert.
var (
	ErrUnknown = console.Refuse(console.Absent, "entry_unknown",
		"The tenant's journal has no entry of that id, nor one "+
			"that an event of that id has made. Points are taken back by refunds.")
	ErrReversal = console.Refuse(console.Conflict, "entry_is_reversal",
		"The entry is a reversal, which nobody reverts; have the event sent again under another id.")
	ErrReverted = errors.New("journal: the entry is reverted already")
)

// Reverter makes reversals for people. Every field but Committed is required.
type Reverter struct {
	Store   store.Store
	Catalog *catalog.Catalog
	Now     func() time.Time
	// NewID returns a random id for the operation.
	NewID func() string
	// Committed is called with the lanes that have new messages; nil: the relay finds them.
	Committed func(ctx context.Context, lanes []string)
}

// Revert reverses an entry of a tenant, named by the id of its event or by its own, in the current month. It
// commits the reversal with an audit entry and its messages. The error is ErrUnknown, ErrReversal, or
// ErrReverted, with the existing reversal; or wraps audit.ErrInvalid or ErrBroken; after any other, a second
// call shows the outcome.
func (r *Reverter) Revert(ctx context.Context, tenant, named string, by audit.Change) (ledger.Entry, error) {
	if !pii.ID.Valid(tenant) {
		return ledger.Entry{}, audit.ErrID
	}
	doc, err := ledger.Find(ctx, r.Store, tenant, named, ErrUnknown)
	if err != nil {
		return ledger.Entry{}, err
	}
	original, err := ledger.Read(doc)
	switch {
	case err != nil:
		return ledger.Entry{}, fmt.Errorf("%w: %w", ErrBroken, err)
	case original.Tenant != tenant, original.Kind != ledger.KindJournal &&
		original.Kind != ledger.KindJournalReversal:
		return ledger.Entry{}, ErrUnknown
	case original.Kind == ledger.KindJournalReversal:
		return ledger.Entry{}, ErrReversal
	}
	now, operation := r.Now().UTC().Truncate(time.Microsecond), "by-hand-"+r.NewID()
	reversal, err := original.Reversal(operation, ledger.PeriodOf(now), now)
	var effect handler.Effect
	if err == nil {
		effect.Writes, err = ledger.Post(reversal)
	}
	if err == nil {
		effect.Emit, err = emissionsOf(reversal, original.EventID, r.Catalog.EmitsOf(catalog.JournalRevert))
	}
	var emitted lane.Emitted
	if err == nil {
		queue, _ := r.Catalog.HandledBy(catalog.JournalRevert)
		emitted, err = lane.Emit(r.Catalog, handler.Event{Queue: queue.ID, Tenant: tenant, ID: operation},
			&effect, now)
	}
	if err != nil {
		return ledger.Entry{}, fmt.Errorf("%w: %w", audit.ErrInvalid, err)
	}
	_, err = store.Update(ctx, r.Store, ledger.Key(reversal.ID),
		func(doc store.Document) ([]store.Write, error) {
			if doc.Version != 0 {
				if reversal, err = ledger.Read(doc); err != nil {
					return nil, fmt.Errorf("%w: %w", ErrBroken, err)
				}
				return nil, ErrReverted
			}
			return audit.Entry{
				Kind: KindEntry, Tenant: tenant, Subject: original.ID, Action: "revert", At: now,
				After: map[string]any{"reversal": reversal.ID},
			}.By(by).With(r.NewID(), effect.Writes...)
		})
	if err == nil && r.Committed != nil {
		r.Committed(ctx, emitted.Lanes)
	}
	return reversal, err
}

// Months are the months of a request.
type Months struct {
	Period string `json:"-" query:"period" validate:"omitempty,month" help:"the month; without it this one, in UTC"`
	From   string `json:"-" query:"from" validate:"omitempty,month" help:"the first of several months"`
	To     string `json:"-" query:"to" validate:"omitempty,month" help:"the last of several months"`
}

// span returns the first and the last month. If the request names no month, both are otherwise.
func (m Months) span(otherwise string) (first, last string, err error) {
	if (m.From == "") != (m.To == "") || m.From > m.To || m.From != "" && m.Period != "" {
		return "", "", errSpan
	}
	month := cmp.Or(m.Period, otherwise)
	return cmp.Or(m.From, month), cmp.Or(m.To, month), nil
}

// ListOfEntries requests the entries of months.
type ListOfEntries struct {
	console.Owned
	Months
	Account string `json:"-" query:"account" validate:"omitempty,uid" help:"only entries with lines of this account"`
	console.Page
}

// BalancesOf requests a trial balance.
type BalancesOf struct {
	console.Owned
	Months
}

// RevertEntry reverses an entry.
type RevertEntry struct {
	seal.EntryOf
	console.Change
}

// builtIn has the types of the points accounts, which are in no chart.
var builtIn = map[string]catalog.AccountType{
	ledger.Control(string(ledger.UserPoints(""))):     catalog.Liability,
	ledger.Control(string(ledger.CustomerPoints(""))): catalog.Liability,
	ledger.Control(string(ledger.IssuedPoints(""))):   catalog.Expense,
}

// Operations are what people do with entries and months.
func Operations(
	from store.Store, c *catalog.Catalog, periods *Periods, reverter *Reverter,
) []console.Operation {
	thisMonth := func() string { return ledger.PeriodOf(periods.Now()) }
	entries := books{from, c.KeepsJournal()}
	return append([]console.Operation{
		console.New(console.Row{
			Name: "accounts statement", Path: "GET /v1/ops/accounts/{account}/statement", Errors: failures,
			Summary: "Show the entries of an account in one month or several, with the balance after each",
			Help: "The lines are in the order in which they were posted. An account is one of the chart of " +
				"catalog/journal.yaml, or one of\n" +
				"points: of a user (points:user:<uid>), a customer (points:customer:<id>), or all of a kind " +
				"(points:user).",
		}, func(ctx context.Context, _ audit.Author, in StatementOf) (Statement, error) {
			return statement(ctx, entries, in, thisMonth())
		}),
		console.New(console.Row{
			Name: "journal ls", Path: "GET /v1/ops/journal/entries",
			Summary: "List the journal entries of one month or several, or of one account, unordered",
			Help:    "The entries of one user's or customer's points are those of all months.",
			Empty:   "No entry is in this list. Events that move money or points make entries.", Errors: failures,
		}, func(ctx context.Context, _ audit.Author, in ListOfEntries) (console.List[Entry], error) {
			return console.Listed(listEntries(ctx, entries, in, thisMonth()))
		}),
		console.New(console.Row{
			Name: "journal show", Path: "GET /v1/ops/journal/entries/{entry}", Errors: failures,
			Summary: "Show a journal entry, by its id or by the id of the event that made it",
		}, func(ctx context.Context, _ audit.Author, in seal.EntryOf) (Entry, error) {
			doc, err := ledger.Find(ctx, from, in.Tenant, in.ID, errNoEntry)
			if err != nil {
				return Entry{}, err
			}
			entry := ReadEntry(doc)
			same, err := seal.Locate(ctx, from, &entry.Entry)
			entry.Changed = entry.Changed || !same
			if entry.Kind == ledger.KindJournal && err == nil {
				doc, err = store.Find(ctx, from, ledger.Key(ledger.ReversalID(entry.ID)))
			}
			if doc.Version != 0 && doc.Key.ID != entry.ID {
				entry.RevertedBy = doc.Key.ID
			}
			return entry, err
		}),
		console.New(console.Row{
			Name: "journal balances", Path: "GET /v1/ops/journal/balances", Errors: failures,
			Summary: "Show the trial balance of one month or several: opening, debit, credit and closing of " +
				"each account",
			Help: "A balance is debits minus credits: what is owed to others, and revenue, is negative. All " +
				"balances of a currency " +
				"add up to nothing, or the books are broken.",
		}, func(ctx context.Context, _ audit.Author, in BalancesOf) (seal.TrialBalance, error) {
			first, last, err := in.span(thisMonth())
			if err != nil {
				return seal.TrialBalance{}, err
			}
			trial, err := seal.Balances(ctx, from, in.Tenant, first, last)
			for i, b := range trial.Balances {
				trial.Balances[i].Type = string(cmp.Or(builtIn[b.Account], c.Journal.Chart[b.Account].Type))
			}
			return trial, err
		}),
		console.New(console.Row{
			Name: "journal revert", Path: "POST /v1/ops/journal/entries/{entry}/revert", Needs: console.Reason,
			Before:  "journal show",
			Summary: "Reverse an entry: post its lines with debit and credit exchanged, in the current month",
			Errors:  failures,
		}, func(ctx context.Context, by audit.Author, in RevertEntry) (ledger.Entry, error) {
			reversal, err := reverter.Revert(ctx, in.Tenant, in.ID, in.By(by))
			if errors.Is(err, ErrReverted) {
				err = console.Refuse(console.Conflict, "entry_reverted",
					"The entry is reverted already, by "+reversal.ID+".")
			}
			return reversal, err
		}),
	}, periods.operations()...)
}

var errSpan = console.Refuse(console.Malformed, "period_invalid",
	"Say either period, or from and to: two months, the earlier first.")

var failures = append([]console.Refusal{
	{Of: ErrBroken, Kind: console.Broken, Code: "books_broken", Detail: seal.Unreadable},
}, seal.Failures...)
