package seal

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"billhook/internal/apps/ledger"
	"billhook/internal/contract/money"
	"billhook/internal/platform/store"
)

// Balance is a line of a trial balance. Opening and Closing are debits minus credits.
type Balance struct {
	Account string `json:"account" show:"Account" link:"accounts"`
	// Type is the account's type in the chart, such as asset; empty: the chart has no such account.
	Type     string `json:"type,omitempty" show:"Type,less"`
	Currency string `json:"currency" show:"Currency"`
	Opening  int64  `json:"opening" show:"Opening" in:"currency"`
	Debit    int64  `json:"debit" show:"Debit" in:"currency"`
	Credit   int64  `json:"credit" show:"Credit" in:"currency"`
	Closing  int64  `json:"closing" show:"Closing" in:"currency"`
}

// TrialBalance has the sums of a period, or of several. Opening is the sum of all earlier periods.
type TrialBalance struct {
	Tenant string `json:"tenant"`
	// Period is the month, such as 2026-11, or the first and the last of several: 2026-11/2027-01.
	Period string `json:"period" show:"Months"`
	// Seal is the last seal that is included; Unsealed counts the included entries without a seal.
	Seal     int64     `json:"seal"`
	Unsealed int64     `json:"unsealed"`
	Balances []Balance `json:"balances" show:"Balances"`
	// Totals are the sums of the balances of each currency. Closing is 0, or the books are broken.
	Totals []Balance `json:"totals" show:"Totals"`
	// Changed lists the ids of unsealed entries that cannot be read and are left out.
	Changed []string `json:"changed,omitempty"`
}

// Alerts reports whether the books are broken.
func (t TrialBalance) Alerts() bool {
	return len(t.Changed) > 0 || slices.ContainsFunc(t.Totals, func(of Balance) bool { return of.Closing != 0 })
}

// Failure says that the books are broken.
func (t TrialBalance) Failure() string {
	if t.Alerts() {
		return "the books do not balance: verify them with billhook ledger verify"
	}
	return ""
}

// Notes says what is wrong with the books, and what the sums include.
func (t TrialBalance) Notes() (notes []string) {
	if len(t.Changed) > 0 {
		notes = append(notes, "Entries were changed, cannot be read and are left out: "+strings.Join(t.Changed,
			", ")+". Verify the books.")
	}
	for _, of := range t.Totals {
		if of.Closing != 0 {
			sum := money.Text(of.Closing, of.Currency)
			notes = append(notes, "The balances in "+of.Currency+" add up to "+sum+" and not to nothing: the books "+
				"are broken. Verify them.")
		}
	}
	if len(t.Balances) == 0 {
		return append(notes, "The books of "+t.Tenant+" have nothing up to "+t.Period+".")
	}
	return append(notes, fmt.Sprintf("Summed up to seal %d, and %d entries that are not sealed yet.", t.Seal,
		t.Unsealed))
}

// Span names a period, or several by the first and the last, in the form of ISO 8601.
func Span(first, last string) string {
	if first == last {
		return first
	}
	return first + "/" + last
}

// Months returns the periods of a tenant that have sealed entries, in order. The error is as in Balances.
func Months(ctx context.Context, from store.Getter, tenant string) ([]string, error) {
	now, err := readHead(ctx, from, tenant)
	return slices.Sorted(maps.Keys(now.Periods)), err
}

// Balances sums up the periods from first to last: from one seal of each period, and from the unsealed
// entries. Every entry that was posted before the call counts exactly once, even while a sealer runs. The
// error wraps ErrBroken or ErrOverflow, or is a read error.
func Balances(ctx context.Context, from ledger.Reader, tenant, first, last string) (TrialBalance, error) {
	t := TrialBalance{Tenant: tenant, Period: Span(first, last), Balances: []Balance{}, Totals: []Balance{}}
	before, err := readHead(ctx, from, tenant)
	if err != nil {
		return t, err
	}
	unsealed := map[string]ledger.Entry{}
	for doc, err := range stream(ctx, from, tenant, before.cursor(), end) {
		if err != nil {
			return t, err
		}
		switch entry, err := ledger.Read(doc); {
		case err != nil:
			t.Changed = append(t.Changed, doc.Key.ID)
		case entry.Period <= last:
			unsealed[entry.ID] = entry
		}
	}
	now, err := readHead(ctx, from, tenant)
	if err != nil {
		return t, err
	}
	// An entry that was sealed meanwhile is included through its seal.
	maps.DeleteFunc(unsealed, func(_ string, e ledger.Entry) bool {
		return !now.before(ledger.Position(e.Document))
	})
	t.Seal, t.Unsealed = now.Number, int64(len(unsealed))
	// up to the last month, and from the first to the last
	all, moved := map[string]Totals{}, map[string]Totals{}
	sum := func(period string, more Totals) error {
		if err := add(all, "", more); err != nil || period < first {
			return err
		}
		return add(moved, "", more)
	}
	for period := range now.Periods {
		if period > last {
			continue
		}
		running, err := now.running(ctx, from, period)
		if err == nil {
			err = sum(period, running)
		}
		if err != nil {
			return t, err
		}
	}
	for _, entry := range unsealed {
		for _, line := range entry.Lines {
			if err := sum(entry.Period, totalsOf(line)); err != nil {
				return t, err
			}
		}
	}
	totals := map[string]Balance{}
	for _, account := range slices.Sorted(maps.Keys(all[""])) {
		for _, currency := range slices.Sorted(maps.Keys(all[""][account])) {
			whole, by := all[""][account][currency], moved[""][account][currency]
			b := Balance{Account: account, Currency: currency, Debit: by.Debit, Credit: by.Credit}
			b.Closing = whole.Debit - whole.Credit
			b.Opening = b.Closing - (b.Debit - b.Credit)
			t.Balances = append(t.Balances, b)
			sum := totals[currency]
			totals[currency] = Balance{
				Account: "total", Currency: currency, Opening: sum.Opening + b.Opening, Debit: sum.Debit + b.Debit,
				Credit: sum.Credit + b.Credit, Closing: sum.Closing + b.Closing,
			}
		}
	}
	for _, currency := range slices.Sorted(maps.Keys(totals)) {
		t.Totals = append(t.Totals, totals[currency])
	}
	return t, nil
}

// List returns a page of a tenant's seals, newest first: with a number in after, those below it. next is the
// after of the next page, zero on the last. The error wraps ErrBroken, or is a read error.
func List(
	ctx context.Context, from ledger.Reader, tenant string, after store.Cursor, limit int,
) (_ []Seal, next store.Cursor, err error) {
	before, _ := strconv.ParseInt(after.ID, 10, 64)
	if before <= 0 {
		h, err := readHead(ctx, from, tenant)
		if err != nil {
			return nil, next, err
		}
		before = h.Number + 1
	}
	first := max(before-int64(limit), 1)
	if first >= before {
		return []Seal{}, next, nil
	}
	seals, _, err := store.List(ctx, from, store.Query{
		Collection: Seals, IDPrefix: HeadID(tenant) + "~", After: store.Cursor{ID: ID(tenant, first-1)},
		Limit: min(int(before-first), store.MaxPage),
	}, decode[Seal])
	slices.Reverse(seals)
	if first > 1 {
		next.ID = strconv.FormatInt(first, 10)
	}
	return seals, next, err
}

// ErrOverflow: a sum does not fit in 64 bits.
var ErrOverflow = errors.New("seal: a sum is too large")

func totalsOf(line ledger.Line) Totals {
	return Totals{ledger.Control(line.Account): {line.Currency: {line.Debit, line.Credit}}}
}

func add(periods map[string]Totals, period string, more Totals) error {
	if periods[period] == nil {
		periods[period] = Totals{}
	}
	for account, sums := range more {
		if periods[period][account] == nil {
			periods[period][account] = map[string]Sum{}
		}
		for currency, by := range sums {
			sum := periods[period][account][currency]
			if by.Debit < 0 || by.Credit < 0 || sum.Debit > math.MaxInt64-by.Debit ||
				sum.Credit > math.MaxInt64-by.Credit {
				return fmt.Errorf("%w: %s", ErrOverflow, period)
			}
			periods[period][account][currency] = Sum{sum.Debit + by.Debit, sum.Credit + by.Credit}
		}
	}
	return nil
}

func sums(periods map[string]Totals) (n int) {
	for _, totals := range periods {
		for _, currencies := range totals {
			n += len(currencies)
		}
	}
	return n
}
