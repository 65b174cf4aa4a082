package journal

import (
	"cmp"
	"context"
	"slices"
	"time"

	"billhook/internal/apps/ledger"
	"billhook/internal/apps/ledger/seal"
	"billhook/internal/platform/store"
)

// Month is a month of a tenant's books with what it adds up to.
type Month struct {
	Period
	// Late are the ids of entries that were posted in it after it was closed, at most 100.
	Late []string `json:"late" show:"Entries after the closing"`
	// Books is its trial balance.
	Books seal.TrialBalance `json:"books" show:"*"`
}

// Alerts reports whether it got entries after it was closed, or its books are broken.
func (m Month) Alerts() bool { return len(m.Late) > 0 || m.Books.Alerts() }

// Notes says what its state means, and what its books say.
func (m Month) Notes() []string { return slices.Concat(m.Period.Notes(), m.Books.Notes()) }

// Month returns a month of a tenant. The error is as of Get, or that of summing up.
func (p *Periods) Month(ctx context.Context, tenant, period string) (m Month, err error) {
	if m.Period, err = p.Get(ctx, tenant, period); err != nil {
		return m, err
	}
	if m.Books, err = seal.Balances(ctx, p.Store, tenant, period, period); err == nil {
		m.Late, err = p.late(ctx, m.Period)
	}
	return m, err
}

// Months returns the months of a tenant that have sealed entries or were ever closed, and the one that runs, the newest
// first. The error is as of List, or that of reading the seals.
func (p *Periods) Months(ctx context.Context, tenant string) ([]Period, error) {
	months, err := seal.Months(ctx, p.Store, tenant)
	if err != nil {
		return nil, err
	}
	all, err := p.List(ctx, tenant)
	if err != nil {
		return nil, err
	}
	for _, month := range append(months, ledger.PeriodOf(p.Now())) {
		if !slices.ContainsFunc(all, func(known Period) bool { return known.Month == month }) {
			all = append(all, Period{Tenant: tenant, Month: month, State: Open})
		}
	}
	slices.SortFunc(all, func(a, b Period) int { return cmp.Compare(b.Month, a.Month) })
	return all, nil
}

const (
	// maxLate is how many late entries are found, and a page.
	maxLate = 100
	// sealsAtOnce is how many seals are read together.
	sealsAtOnce = 10
	// clocksDiffer is how far the clock that sealed an entry may be behind the one that posted it.
	clocksDiffer = time.Minute
)

// late finds the entries that were posted in a period from the moment on from which it is closed. It reads what is not
// sealed, and the seals behind that moment, back from the last one that has entries of the period.
func (p *Periods) late(ctx context.Context, of Period) ([]string, error) {
	late := []string{}
	if of.ClosesAt.IsZero() || p.Now().Before(of.ClosesAt) {
		return late, nil
	}
	find := func(equal map[string]any) error {
		query := store.Query{Collection: ledger.Entries, Equal: equal, Limit: store.MaxPage}
		for doc, err := range store.Each(ctx, p.Store, query) {
			if err != nil || len(late) >= maxLate {
				return err
			}
			entry, err := ledger.Read(doc)
			if err != nil {
				return err
			}
			if entry.Tenant == of.Tenant && entry.Period == of.Month && !entry.PostedAt.Before(of.ClosesAt) {
				late = append(late, entry.ID)
			}
		}
		return nil
	}
	if err := find(map[string]any{ledger.FieldUnsealed: of.Tenant}); err != nil {
		return nil, err
	}
	newest, _, err := seal.List(ctx, p.Store, of.Tenant, 0, 1)
	if err != nil || len(newest) == 0 {
		return late, err
	}
	for before := newest[0].Periods[of.Month] + 1; before > 1 && len(late) < maxLate; {
		seals, next, err := seal.List(ctx, p.Store, of.Tenant, before, sealsAtOnce)
		if err != nil {
			return nil, err
		}
		for _, s := range seals {
			if s.SealedAt.Before(of.ClosesAt.Add(-clocksDiffer)) || len(late) >= maxLate {
				return late, nil
			}
			if _, touched := s.Totals[of.Month]; touched {
				if err := find(map[string]any{"tenant": of.Tenant, "seal": s.Number}); err != nil {
					return nil, err
				}
			}
		}
		before = next
	}
	return late, nil
}
