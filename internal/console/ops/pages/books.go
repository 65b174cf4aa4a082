package pages

import (
	"cmp"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"

	"billhook/internal/apps/journal"
	"billhook/internal/apps/ledger"
	"billhook/internal/apps/ledger/seal"
	"billhook/internal/console/ops"
	"billhook/internal/dedupe"
	"billhook/internal/platform/serve"
)

// bookRoutes adds the pages of accounts and of the books, and those by which months are closed and reopened and entries
// reverted.
func (p *Pages) bookRoutes(r chi.Router) {
	p.page(r, "/accounts/{account}", "account.html", account)
	p.page(r, "/journal", "journal.html", books)
	p.page(r, "/journal/entries", "journal_entries.html", entries)
	p.page(r, "/journal/entries/{entry}", "journal_entry.html", loads[ops.JournalEntry](named("/v1/ops/journal/entries/%s", "entry")))
	p.page(r, "/journal/entries/{entry}/proof", "journal_proof.html", loads[ops.Proof](named("/v1/ops/journal/entries/%s/proof", "entry")))
	p.change(r, "/journal/entries/{entry}/revert", "entry_revert.html", entryNow, revertEntry)
	p.outcome(r, "/journal/verify", "journal_verify.html", func(v *visit) (any, error) { return verification{Tenant: v.tenant()}, nil }, p.verify)
	p.page(r, "/periods", "periods.html", showPeriods)
	p.page(r, "/periods/{period}", "period.html", showPeriod)
	p.change(r, "/periods/{period}/close", "period_close.html", showPeriod, changePeriod("close"))
	p.change(r, "/periods/{period}/reopen", "period_reopen.html", showPeriod, changePeriod("reopen"))
}

func (v *visit) tenant() string { return cmp.Or(v.query("tenant"), dedupe.DefaultTenant) }

func (v *visit) balances(period string) (trial seal.TrialBalance, err error) {
	err = v.get(with("/v1/ops/journal/balances", "tenant", v.tenant(), "period", period), &trial)
	return trial, err
}

// accountPage is one account: a holder's points, or an account of the journal in a month.
type accountPage struct {
	Account string
	// AsOf is the day in the address; empty: today.
	AsOf string
	// Holder is nil for an account of the journal.
	Holder *holder
	Month  *accountMonth
}

type holder struct {
	ops.Account
	Moves []accountMove
	// Owner is the id in the account's name. Customer: it is a customer whom no user is known of.
	Owner    string
	Customer bool
}

type accountMove struct {
	ledger.Move
	Moved int64
	// Then is the balance behind the entry; Known: the page begins at the newest entry.
	Then  int64
	Known bool
}

// ByPerson reports whether a person has moved it, by linking a customer: it names no event.
func (m accountMove) ByPerson() bool {
	return m.Kind == ledger.KindTransferIn || m.Kind == ledger.KindTransferOut
}

type accountMonth struct {
	Tenant, Period string
	Balances       []seal.Balance
	ops.List[ops.JournalEntry]
	// Sums are the balances at the end of the day that was asked for, by currency.
	Sums    []daySum
	TooMany bool
}

type daySum struct {
	Currency string
	Balance  int64
}

func account(v *visit) (any, error) {
	page := accountPage{Account: v.param("account"), AsOf: v.query("as_of")}
	if ledger.Control(page.Account) == page.Account {
		month, err := monthOf(v, page.Account)
		page.Month = month
		return page, err
	}
	page.Holder = &holder{}
	if err := v.get(with(v.of("/v1/ops/accounts/%s", page.Account), append(v.filters("as_of", "page"), "limit", rows)...), &page.Holder.Account); err != nil {
		return nil, err
	}
	balance, first := page.Holder.Balance, v.query("page") == ""
	for _, e := range page.Holder.Entries {
		moved := e.Amount
		if string(e.To) != page.Account {
			moved = -moved
		}
		page.Holder.Moves = append(page.Holder.Moves, accountMove{Move: e, Moved: moved, Then: balance, Known: first})
		balance -= moved
	}
	user, ofUser := strings.CutPrefix(page.Account, string(ledger.UserPoints("")))
	customer, ofCustomer := strings.CutPrefix(page.Account, string(ledger.CustomerPoints("")))
	switch {
	case ofUser:
		page.Holder.Owner = user
	case ofCustomer:
		page.Holder.Owner, page.Holder.Customer = customer, true
	}
	return page, nil
}

// accountPageOf is the account whose page shows an account. What was issued for one order has no document.
func accountPageOf(account string) string {
	if strings.HasPrefix(account, string(ledger.IssuedPoints(""))) {
		return ledger.Control(account)
	}
	return account
}

// monthOf asks for the month of a day, or for the one that the address names, else for this one.
func monthOf(v *visit, account string) (*accountMonth, error) {
	month := &accountMonth{Tenant: v.tenant(), Period: cmp.Or(v.query("period"), ledger.PeriodOf(v.now))}
	day, err := time.Parse(time.DateOnly, v.query("as_of"))
	asked := err == nil
	if asked {
		month.Period = ledger.PeriodOf(day)
	}
	trial, err := v.balances(month.Period)
	if err != nil {
		return nil, err
	}
	for _, b := range trial.Balances {
		if b.Account == account {
			month.Balances = append(month.Balances, b)
		}
	}
	path := with(v.list("/v1/ops/journal/entries"), "tenant", month.Tenant, "period", month.Period, "account", account)
	if err := v.get(path, &month.List); err != nil {
		return nil, err
	}
	if month.TooMany = asked && (month.Next != "" || v.query("page") != ""); asked && !month.TooMany {
		month.Sums = sumsOf(account, month, day.AddDate(0, 0, 1))
	}
	return month, nil
}

// sumsOf are the balances of a month's account before a moment: what it opened with, and its lines.
func sumsOf(account string, month *accountMonth, before time.Time) (sums []daySum) {
	for _, b := range month.Balances {
		sum := daySum{Currency: b.Currency, Balance: b.Opening}
		for _, e := range month.Items {
			for _, line := range e.Lines {
				if ledger.Control(line.Account) == account && line.Currency == b.Currency && e.PostedAt.Before(before) {
					sum.Balance += line.Debit - line.Credit
				}
			}
		}
		sums = append(sums, sum)
	}
	return sums
}

// How much a page shows of tenants, of a month's accounts, and of the findings of a part of a verification.
const (
	shownTenants  = 50
	shownBalances = 100
	shownFindings = 100
)

type journalPage struct {
	Tenants        []string
	Tenant, Period string
	Seals          ops.List[seal.Seal]
	Trial          seal.TrialBalance
	// Left is how many accounts are not shown.
	Left   int
	Uneven []string
}

func books(v *visit) (any, error) {
	page := journalPage{Tenant: v.tenant(), Period: cmp.Or(v.query("period"), ledger.PeriodOf(v.now))}
	var tenants ops.List[string]
	if err := v.get("/v1/ops/journal/tenants", &tenants); err != nil {
		return nil, err
	}
	page.Tenants = tenants.Items[:min(len(tenants.Items), shownTenants)]
	if err := v.get(with("/v1/ops/journal/seals", "tenant", page.Tenant, "limit", recent, "page", v.query("page")), &page.Seals); err != nil {
		return nil, err
	}
	var err error
	page.Trial, err = v.balances(page.Period)
	page.Uneven = uneven(page.Trial.Balances)
	if page.Left = len(page.Trial.Balances) - shownBalances; page.Left > 0 {
		page.Trial.Balances = page.Trial.Balances[:shownBalances]
	}
	return page, err
}

type journalEntriesPage struct {
	ops.List[ops.JournalEntry]
	Tenant, Period, Account string
}

func entries(v *visit) (any, error) {
	page := journalEntriesPage{Tenant: v.tenant(), Period: v.query("period"), Account: v.query("account")}
	if page.Period == "" && ledger.Control(page.Account) == page.Account {
		page.Period = ledger.PeriodOf(v.now)
	}
	err := v.get(with(v.list("/v1/ops/journal/entries", "account"), "tenant", page.Tenant, "period", page.Period), &page.List)
	return page, err
}

type entry struct {
	ops.JournalEntry
	Back string // the page of the entry
}

func entryNow(v *visit) (any, error) {
	shown := entry{Back: v.of("/ops/journal/entries/%s", v.param("entry"))}
	err := v.get(v.of("/v1/ops/journal/entries/%s", v.param("entry")), &shown.JournalEntry)
	return shown, err
}

func revertEntry(v *visit) (string, error) {
	var reversal ledger.Entry
	err := v.post(v.of("/v1/ops/journal/entries/%s/revert", v.param("entry")), journal.Change{Why: v.form("why")}, &reversal)
	return with(href("/ops/journal/entries/%s", reversal.ID), "tenant", v.tenant()), err
}

type verification struct {
	Tenant string
	// Begun: a part was verified. Rest: what is left is entries that no tenant's chain knows.
	Begun, Rest bool
	// Next is where the next part begins; with Rest false and Next empty before Begun, at the beginning.
	Next                     string
	Seals, Entries, Unsealed int64
	// Found counts the findings of all parts, and Findings are those of this one.
	Found    int64
	Findings []seal.Finding
	Done     bool
}

// verifyFor is how long the parts of one request take together; a part that has begun is brought to its end.
const verifyFor = time.Second / 2

var errTooLong = serve.Refuse(http.StatusUnprocessableEntity, "too_long", "A part of these books takes longer than a page may; billhook ledger verify has the time.")

// verify checks part after part of a tenant's books until they end, something is found, or the time is up.
func (p *Pages) verify(v *visit) (any, error) {
	done := verification{Tenant: cmp.Or(v.form("tenant"), v.tenant()), Begun: true, Rest: v.form("rest") == "true", Next: v.form("next")}
	for field, into := range map[string]*int64{"seals": &done.Seals, "entries": &done.Entries, "unsealed": &done.Unsealed, "found": &done.Found} {
		*into, _ = strconv.ParseInt(v.form(field), 10, 64) // what the form before has counted; at its beginning nothing
	}
	for begun, first := p.Now(), true; ; first = false {
		path := with("/v1/ops/journal/verify", "tenant", done.Tenant, "page", done.Next)
		if done.Rest {
			path = with("/v1/ops/journal/verify/rest", "page", done.Next)
		}
		var part seal.Verified
		late, err := v.partly(http.MethodGet, path, nil, &part)
		switch {
		case err != nil:
			return nil, err
		case late && first:
			return nil, errTooLong
		case late: // it is the first of the next request
			return done, nil
		}
		done.Seals, done.Entries, done.Unsealed = done.Seals+part.Seals, done.Entries+part.Entries, done.Unsealed+part.Unsealed
		done.Found, done.Findings, done.Next = done.Found+int64(len(part.Findings)), part.Findings, part.Next
		if done.Next == "" {
			done.Done, done.Rest = done.Rest, true
		}
		if done.Done || len(part.Findings) > 0 || p.Now().Sub(begun) > verifyFor {
			done.Findings = done.Findings[:min(len(done.Findings), shownFindings)]
			return done, nil
		}
	}
}

// periods are the months of a tenant that were ever closed, and the last ones that are over.
type periods struct {
	ops.List[journal.Period]
	Tenant string
	Over   []string
}

// over is how many months that are over are named where nobody has closed them.
const over = 6

func showPeriods(v *visit) (any, error) {
	shown := periods{Tenant: v.tenant()}
	if err := v.get(v.list("/v1/ops/journal/periods", "tenant"), &shown.List); err != nil {
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

type period struct {
	ops.Period
	Balances []seal.Balance
	// Left is how many balances more there are than are shown, and Unsealed how many entries are summed
	// up that have no seal.
	Left, Unsealed int64
	// Uneven are the currencies whose balances do not add up to nothing: the books are broken.
	Uneven []string
}

func showPeriod(v *visit) (any, error) {
	var shown period
	if err := v.get(v.of("/v1/ops/journal/periods/%s", v.param("period")), &shown.Period); err != nil {
		return nil, err
	}
	trial, err := v.balances(v.param("period"))
	shown.Balances, shown.Unsealed, shown.Uneven = trial.Balances, trial.Unsealed, uneven(trial.Balances)
	if more := len(shown.Balances) - shownBalances; more > 0 {
		shown.Balances, shown.Left = shown.Balances[:shownBalances], int64(more)
	}
	return shown, err
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

func changePeriod(how string) func(*visit) (string, error) {
	return func(v *visit) (string, error) {
		next := with(href("/ops/periods/%s", v.param("period")), "tenant", v.tenant())
		return next, v.post(v.of("/v1/ops/journal/periods/%s/"+how, v.param("period")), journal.Change{Why: v.form("why")}, nil)
	}
}
