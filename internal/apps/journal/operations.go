package journal

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"billhook/catalog"
	"billhook/internal/apps/ledger"
	"billhook/internal/apps/ledger/seal"
	"billhook/internal/console"
	"billhook/internal/platform/audit"
	"billhook/internal/platform/store"
)

// Months are the part of a request that says which months it is about.
type Months struct {
	Period string `json:"-" query:"period" validate:"omitempty,month" help:"the month; without it this one, in UTC"`
	From   string `json:"-" query:"from" validate:"omitempty,month" help:"the first of several months"`
	To     string `json:"-" query:"to" validate:"omitempty,month" help:"the last of several months"`
}

// span is the first and the last of the months; otherwise where the request names none.
func (m Months) span(otherwise string) (first, last string, err error) {
	if (m.From == "") != (m.To == "") || m.From > m.To || m.From != "" && m.Period != "" {
		return "", "", errSpan
	}
	month := cmp.Or(m.Period, otherwise)
	return cmp.Or(m.From, month), cmp.Or(m.To, month), nil
}

// ListOfEntries asks for the entries of months.
type ListOfEntries struct {
	console.Owned
	Months
	Account string `json:"-" query:"account" validate:"omitempty,uid" help:"only entries with lines of this account"`
	console.Page
}

// BalancesOf asks for a trial balance.
type BalancesOf struct {
	console.Owned
	Months
}

// RevertEntry reverses an entry.
type RevertEntry struct {
	seal.EntryOf
	console.Change
}

// PeriodOf asks for a month.
type PeriodOf struct {
	console.Owned
	Period string `json:"-" path:"period" validate:"required" help:"month"`
}

// ChangePeriod closes a month, or opens it again.
type ChangePeriod struct {
	PeriodOf
	console.Edit
}

// Operations are what people do with entries and months.
func Operations(from store.Store, c *catalog.Catalog, periods *Periods, reverter *Reverter) []console.Operation {
	return slices.Concat(entryOperations(from, c, periods, reverter), periods.operations())
}

func entryOperations(from store.Store, c *catalog.Catalog, periods *Periods, reverter *Reverter) []console.Operation {
	thisMonth := func() string { return ledger.PeriodOf(periods.Now()) }
	return []console.Operation{
		console.New(console.Row{
			Name: "journal ls", Path: "GET /v1/ops/journal/entries", Summary: "List the journal entries of one month or several, or of one account, unordered",
			Help:  "The entries of one user's or customer's points are those of all months.",
			Empty: "No entry is in this list. Events that move money or points make entries.", Errors: failures,
		}, func(ctx context.Context, _ audit.Author, in ListOfEntries) (console.List[Entry], error) {
			return console.Listed(listEntries(ctx, from, in, thisMonth()))
		}),
		console.New(console.Row{
			Name: "journal show", Path: "GET /v1/ops/journal/entries/{entry}", Errors: slices.Concat([]console.Refusal{unknown}, failures),
			Summary: "Show a journal entry, by its id or by the id of the event that made it",
		}, func(ctx context.Context, _ audit.Author, in seal.EntryOf) (Entry, error) {
			return FindEntry(ctx, from, in.Tenant, in.ID)
		}),
		console.New(console.Row{
			Name: "journal balances", Path: "GET /v1/ops/journal/balances", Errors: failures,
			Summary: "Show the trial balance of one month or several: opening, debit, credit and closing of each account",
			Help: "A balance is debits minus credits: what is owed to others, and revenue, is negative. All balances of a currency " +
				"add up to nothing, or the books are broken.",
		}, func(ctx context.Context, _ audit.Author, in BalancesOf) (seal.TrialBalance, error) {
			first, last, err := in.span(thisMonth())
			if err != nil {
				return seal.TrialBalance{}, err
			}
			trial, err := seal.Balances(ctx, from, in.Tenant, first, last)
			for i, b := range trial.Balances {
				trial.Balances[i].Type = string(c.Journal.Chart[b.Account].Type)
			}
			return trial, err
		}),
		console.New(console.Row{
			Name: "journal revert", Path: "POST /v1/ops/journal/entries/{entry}/revert", Needs: console.Reason, Before: "journal show",
			Summary: "Reverse an entry: post its lines with debit and credit exchanged, in the current month", Errors: failures,
		}, func(ctx context.Context, by audit.Author, in RevertEntry) (ledger.Entry, error) {
			reversal, err := reverter.Revert(ctx, in.Tenant, in.ID, in.By(by))
			if errors.Is(err, ErrReverted) {
				err = console.Refuse(console.Conflict, "entry_reverted", "The entry is reverted already, by "+reversal.ID+".")
			}
			return reversal, err
		}),
	}
}

func (p *Periods) operations() []console.Operation {
	return []console.Operation{
		console.New(console.Row{
			Name: "periods ls", Path: "GET /v1/ops/journal/periods", Errors: failures,
			Summary: "List the months of a tenant's books: who closed or reopened each, and which wait for a second person",
		}, func(ctx context.Context, _ audit.Author, in console.OwnedList) (console.List[Period], error) {
			months, err := p.Months(ctx, in.Tenant)
			if in.After.ID != "" {
				months = slices.DeleteFunc(months, func(m Period) bool { return m.Month >= in.After.ID })
			}
			next := store.Cursor{}
			if len(months) > in.Limit {
				months, next.ID = months[:in.Limit], months[in.Limit-1].Month
			}
			return console.ListOf(months, next), err
		}),
		console.New(console.Row{
			Name: "periods show", Path: "GET /v1/ops/journal/periods/{period}", Errors: failures,
			Summary: "Show a month: whether it is open, its totals, and what came after it was closed",
		}, func(ctx context.Context, _ audit.Author, in PeriodOf) (Month, error) {
			return p.Month(ctx, in.Tenant, in.Period)
		}),
		console.New(console.Row{
			Name: "periods close", Path: "POST /v1/ops/journal/periods/{period}/close", Needs: console.Reason, Before: "periods show",
			Summary: "Close a month that is over: no more entries are posted to it", Errors: failures,
			Help: "It takes no entries from two minutes after that. An event of the month becomes a dead letter with the reason " +
				"period_closed. Two people are needed to open it again.",
		}, func(ctx context.Context, by audit.Author, in ChangePeriod) (Period, error) {
			return p.Close(ctx, in.Tenant, in.Period, in.By(by))
		}),
		console.New(console.Row{
			Name: "periods reopen", Path: "POST /v1/ops/journal/periods/{period}/reopen", Needs: console.TwoPeople, Before: "periods show",
			Summary: "Reopen a closed month; a second person has to ask for the same", Errors: failures,
			Help: "The first request is kept until a second person asks for the same.",
		}, func(ctx context.Context, by audit.Author, in ChangePeriod) (Period, error) {
			return p.Reopen(ctx, in.Tenant, in.Period, in.By(by))
		}),
	}
}

var errSpan = console.Refuse(console.Malformed, "period_invalid", "Say either period, or from and to: two months, the earlier first.")

const noEntry = "The tenant's books have no entry of that id, nor one that an event of that id has made."

var unknown = console.Refusal{Of: ErrUnknown, Kind: console.Absent, Code: "entry_unknown", Detail: noEntry}

var failures = slices.Concat([]console.Refusal{
	{Of: ErrNotOver, Kind: console.Conflict, Code: "period_not_over", Detail: "The month is not over yet, in UTC; it can be closed when it is."},
	{Of: ErrUnknown, Kind: console.Absent, Code: "entry_unknown", Detail: "The tenant's journal has no entry of that id, nor one " +
		"that an event of that id has made. Points are taken back by refunds."},
	{Of: ErrReversal, Kind: console.Conflict, Code: "entry_is_reversal", Detail: "The entry is a reversal, which nobody reverts; " +
		"have the event sent again under another id."},
	{Of: ErrBroken, Kind: console.Broken, Code: "books_broken", Detail: seal.Unreadable},
	{Of: errOneOrder, Kind: console.Malformed, Code: "account_invalid", Detail: "What was issued for one order has no list of its " +
		"own; ask for the account points:issued, or for the account of the user."},
}, seal.Failures)
