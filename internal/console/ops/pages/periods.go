package pages

import (
	"cmp"
	"slices"
	"time"

	"github.com/go-chi/chi/v5"

	"billhook/internal/apps/journal"
	"billhook/internal/apps/ledger"
	"billhook/internal/apps/ledger/seal"
	"billhook/internal/console/ops"
	"billhook/internal/dedupe"
)

// periodRoutes adds the pages by which months are closed and reopened, and entries reverted.
func (p *Pages) periodRoutes(r chi.Router) {
	p.page(r, "/periods", "periods.html", p.periods)
	p.page(r, "/periods/{period}", "period.html", p.period)
	p.change(r, "/periods/{period}/close", "period_close.html", p.period, p.changePeriod("close"))
	p.change(r, "/periods/{period}/reopen", "period_reopen.html", p.period, p.changePeriod("reopen"))
	p.change(r, "/journal/entries/{entry}/revert", "entry_revert.html", p.entryNow, p.revertEntry)
}

// tenant is whose books the address means.
func (v *visit) tenant() string { return cmp.Or(v.query("tenant"), dedupe.DefaultTenant) }

// periods are the months of a tenant that were ever closed, and the last ones that are over.
type periods struct {
	ops.List[journal.Period]
	Tenant string
	Over   []string
}

// over is how many months that are over are named where nobody has closed them.
const over = 6

func (p *Pages) periods(v *visit) (any, error) {
	shown := periods{Tenant: v.tenant()}
	if err := v.get(with("/v1/ops/journal/periods", "tenant", shown.Tenant, "limit", rows, "page", v.query("page")), &shown.List); err != nil {
		return nil, err
	}
	month := time.Date(v.now.Year(), v.now.Month(), 1, 0, 0, 0, 0, time.UTC)
	for range over {
		month = month.AddDate(0, -1, 0)
		name := ledger.PeriodOf(month)
		if !slices.ContainsFunc(shown.Items, func(p journal.Period) bool { return p.Period == name }) {
			shown.Over = append(shown.Over, name)
		}
	}
	if asked := v.query("period"); ledger.IsPeriod(asked) && !slices.Contains(shown.Over, asked) {
		shown.Over = append([]string{asked}, shown.Over...)
	}
	return shown, nil
}

// period is a month with its trial balance.
type period struct {
	ops.Period
	Balances []seal.Balance
	// Left is how many balances more there are than are shown, and Unsealed how many entries are summed
	// up that have no seal.
	Left, Unsealed int64
	// Uneven are the currencies whose balances do not add up to nothing: the books are broken.
	Uneven []string
}

// shownBalances is how many accounts of a month a page shows.
const shownBalances = 100

func (p *Pages) period(v *visit) (any, error) {
	var shown period
	if err := v.get(with(href("/v1/ops/journal/periods/%s", v.param("period")), "tenant", v.tenant()), &shown.Period); err != nil {
		return nil, err
	}
	var balance seal.TrialBalance
	if err := v.get(with("/v1/ops/journal/balances", "tenant", v.tenant(), "period", v.param("period")), &balance); err != nil {
		return nil, err
	}
	shown.Balances, shown.Unsealed, shown.Uneven = balance.Balances, balance.Unsealed, uneven(balance.Balances)
	if more := len(shown.Balances) - shownBalances; more > 0 {
		shown.Balances, shown.Left = shown.Balances[:shownBalances], int64(more)
	}
	return shown, nil
}

// uneven returns the currencies whose closing balances do not add up to nothing, sorted.
func uneven(balances []seal.Balance) (currencies []string) {
	sums := map[string]int64{}
	for _, b := range balances {
		sums[b.Currency] += b.Closing
	}
	for currency, sum := range sums {
		if sum != 0 {
			currencies = append(currencies, currency)
		}
	}
	slices.Sort(currencies)
	return currencies
}

// changePeriod closes a month, or asks for it to be opened again.
func (p *Pages) changePeriod(how string) func(*visit) (string, error) {
	return func(v *visit) (string, error) {
		path := with(href("/v1/ops/journal/periods/%s/"+how, v.param("period")), "tenant", v.tenant())
		return with(href("/ops/periods/%s", v.param("period")), "tenant", v.tenant()), v.post(path, journal.Change{Why: v.form("why")}, nil)
	}
}

// entry is one entry of a tenant's books.
type entry struct {
	ops.JournalEntry
	Back string // the page of the entry
}

func (p *Pages) entryNow(v *visit) (any, error) {
	shown := entry{Back: with(href("/ops/journal/entries/%s", v.param("entry")), "tenant", v.tenant())}
	err := v.get(with(href("/v1/ops/journal/entries/%s", v.param("entry")), "tenant", v.tenant()), &shown.JournalEntry)
	return shown, err
}

func (p *Pages) revertEntry(v *visit) (string, error) {
	var reversal ledger.Entry
	path := with(href("/v1/ops/journal/entries/%s/revert", v.param("entry")), "tenant", v.tenant())
	err := v.post(path, journal.Change{Why: v.form("why")}, &reversal)
	return with(href("/ops/journal/entries/%s", reversal.ID), "tenant", v.tenant()), err
}
