package pages

import (
	"cmp"
	"encoding/csv"
	"io"
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
	"billhook/internal/contract/money"
	"billhook/internal/dedupe"
	"billhook/internal/platform/audit"
	"billhook/internal/platform/serve"
)

// bookRoutes adds the pages of accounts and of the books that have a shape of their own.
func (p *Pages) bookRoutes(r chi.Router) {
	p.page(r, "/accounts/{account}", "account.html", account)
	r.Get("/journal", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, strings.TrimSuffix("/ops/journal/balances?"+r.URL.RawQuery, "?"), http.StatusSeeOther)
	})
	r.Get("/journal/balances.csv", p.balancesCSV)
	p.outcome(r, "/journal/verify", "journal_verify.html", func(v *visit) (any, error) { return verification{Tenant: v.tenant()}, nil }, p.verify)
}

// balancesCSV answers a trial balance as a file for a spreadsheet.
func (p *Pages) balancesCSV(w http.ResponseWriter, r *http.Request) {
	v := p.visit(w, r)
	trial, err := look[seal.TrialBalance](p, v, "journal balances")
	if err != nil {
		p.fail(v, err)
		return
	}
	rows := [][]string{{"tenant", "period", "account", "type", "currency", "opening", "debit", "credit", "closing"}}
	for _, b := range slices.Concat(trial.Balances, trial.Totals) {
		row := []string{trial.Tenant, trial.Period, b.Account, b.Type, b.Currency}
		for _, amount := range []int64{b.Opening, b.Debit, b.Credit, b.Closing} {
			row = append(row, money.Text(amount, b.Currency))
		}
		rows = append(rows, row)
	}
	w.Header().Set("Content-Type", "text/csv; charset=utf-8")
	w.Header().Set("Content-Disposition", `attachment; filename="balances.csv"`)
	var file strings.Builder
	_ = csv.NewWriter(&file).WriteAll(rows)                    // a builder takes everything
	_, _ = io.WriteString(w, audit.EscapeLines(file.String())) // the client is gone
}

// lastMonth is the last month of a period of one or several.
func lastMonth(period string) string { return period[strings.Index(period, "/")+1:] }

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
	ops.List[journal.Entry]
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

// shownFindings is how many findings of a part of a verification a page shows.
const shownFindings = 100

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
