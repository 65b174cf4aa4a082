package journal

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"billhook/internal/apps/ledger"
	"billhook/internal/apps/ledger/seal"
	"billhook/internal/console"
	"billhook/internal/contract/money"
)

// StatementOf requests the lines on an account in months.
type StatementOf struct {
	console.Owned
	Months
	Account string `json:"-" path:"account" validate:"required,uid" help:"account"`
	console.Page
}

// Statement has the lines on an account, or a page of them.
type Statement struct {
	Tenant string `json:"tenant" show:"Tenant"`
	// Period is the month, such as 2026-11, or the first and the last of several: 2026-11/2027-01.
	Period  string `json:"period" show:"Months"`
	Account string `json:"account" show:"Account"`
	// Opening and Closing are debits minus credits by currency, in minor units.
	Opening map[string]int64 `json:"opening"`
	Lines   []Stated         `json:"lines" show:"Lines"`
	Closing map[string]int64 `json:"closing"`
	console.Continued

	later bool
}

// Stated is a line of an entry on the account, and the balance after it.
type Stated struct {
	PostedAt   time.Time   `json:"posted_at" show:"Posted"`
	OccurredAt time.Time   `json:"occurred_at" show:"Happened,less"`
	Entry      string      `json:"entry" show:"Entry,less" link:"journal/entries"`
	EventID    string      `json:"event_id" show:"Event"`
	EventType  string      `json:"event_type,omitempty" show:"Type,less"`
	Kind       ledger.Kind `json:"kind" show:"Kind"`
	ledger.Line
	Balance int64 `json:"balance" show:"Balance" in:"currency"`
}

// Notes says the balances before and after the lines.
func (s Statement) Notes() (notes []string) {
	if s.later {
		notes = append(notes, "These lines are a part: the balances leave out the lines of the parts before.")
	}
	if len(s.Lines) == 0 {
		notes = append(notes, "Nothing has moved on it.")
	}
	for _, currency := range slices.Sorted(maps.Keys(s.Opening)) {
		opening, closing := money.Text(s.Opening[currency], currency), money.Text(s.Closing[currency], currency)
		notes = append(notes, fmt.Sprintf("%s: opening %s, closing %s", currency, opening, closing))
	}
	return notes
}

// Join adds the lines of earlier pages, and computes the balances in the order in which the lines were
// posted.
func (s *Statement) Join(before any) (page string) {
	if b, ok := before.(*Statement); ok {
		s.Lines = append(s.Lines, b.Lines...)
		for currency, had := range b.Opening {
			s.Opening[currency] += had
		}
	}
	slices.SortStableFunc(s.Lines, func(a, b Stated) int {
		return cmp.Or(a.PostedAt.Compare(b.PostedAt), strings.Compare(a.Entry, b.Entry))
	})
	s.Closing = maps.Clone(s.Opening)
	for i, line := range s.Lines {
		s.Closing[line.Currency] += line.Debit - line.Credit
		s.Lines[i].Balance = s.Closing[line.Currency]
	}
	return s.Next
}

// statement reads a page of an account's entries. The opening balance of a control account comes from the
// trial balance, on the first page. The opening balance of another account is the sum of its earlier entries,
// which are listed with the entries of all months.
func statement(ctx context.Context, from books, in StatementOf, thisMonth string) (Statement, error) {
	first, last, err := in.span(thisMonth)
	if err != nil {
		return Statement{}, err
	}
	s := Statement{
		Tenant: in.Tenant, Period: seal.Span(first, last), Account: in.Account,
		Opening: map[string]int64{}, Lines: []Stated{}, later: !in.After.IsZero(),
	}
	list := ListOfEntries{Owned: in.Owned, Account: in.Account, Page: in.Page}
	control := ledger.Control(in.Account) == in.Account
	if control {
		list.From, list.To = first, last
	}
	if control && !s.later {
		trial, err := seal.Balances(ctx, from, in.Tenant, first, last)
		if err != nil {
			return s, err
		}
		for _, b := range trial.Balances {
			if b.Account == in.Account {
				s.Opening[b.Currency] = b.Opening
			}
		}
	}
	entries, next, err := listEntries(ctx, from, list, thisMonth)
	for _, e := range entries {
		if e.Changed {
			return s, console.Refuse(console.Conflict, "books_changed", e.Notes()[0])
		}
		for _, line := range e.Lines {
			switch of := line.Account == in.Account || control && ledger.Control(line.Account) == in.Account; {
			case !of:
			case e.Period < first:
				s.Opening[line.Currency] += line.Debit - line.Credit
			case e.Period <= last:
				s.Opening[line.Currency] += 0 // the currency has an opening balance
				s.Lines = append(s.Lines, Stated{e.PostedAt, e.OccurredAt, e.ID, e.EventID, e.EventType, e.Kind, line, 0})
			}
		}
	}
	s.Continued = console.Continued{Behind: next}
	s.Join(nil)
	return s, err
}
