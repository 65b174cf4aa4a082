package pages

import (
	"cmp"
	"encoding/csv"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"

	"billhook/internal/apps/journal"
	"billhook/internal/apps/ledger"
	"billhook/internal/apps/ledger/seal"
	"billhook/internal/console"
	"billhook/internal/contract/money"
	"billhook/internal/dedupe"
	"billhook/internal/platform/audit"
)

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

// accountPage is one account: a holder's points, or an account of the journal in a month.
type accountPage struct {
	Tenant, Account string
	// AsOf is the day in the address; empty: today. Month is that of an account of the journal; empty: it is a holder's.
	AsOf, Month string
	Figures     []seal.Balance
	// Before is the moment of the figures; zero: now.
	Before         time.Time
	User, Customer string
	// TooMany: the month has more entries than a page adds up to the balance of a day.
	TooMany bool
	Tables  []grid
}

func (p *Pages) account(v *visit) (any, error) {
	page := accountPage{Tenant: v.tenant(), Account: v.param("account"), AsOf: v.query("as_of")}
	if ledger.Account(page.Account).OfOrder() { // which has no document
		page.Account = ledger.Control(page.Account)
	}
	if ledger.Control(page.Account) == page.Account {
		return p.accountOfJournal(v, page)
	}
	if id, ok := strings.CutPrefix(page.Account, string(ledger.UserPoints(""))); ok {
		page.User = id
	} else if id, ok := strings.CutPrefix(page.Account, string(ledger.CustomerPoints(""))); ok {
		page.Customer = id
	}
	found, err := look[ledger.Holding](p, v, "accounts show", "limit", rows)
	if err != nil {
		return nil, err
	}
	page.Before, page.Figures = found.AsOf, []seal.Balance{{Currency: found.Currency, Closing: found.Balance}}
	_, page.Tables = p.facts(v, p.row("accounts show"), found)
	page.Tables[0].Empty, page.Tables[0].Next = "Nothing had moved on it by then.", v.next(found.Next)
	return page, nil
}

// accountOfJournal is the page of an account of the journal: of the month of a day, or of the one in the address.
func (p *Pages) accountOfJournal(v *visit, page accountPage) (any, error) {
	page.Month = cmp.Or(v.query("period"), ledger.PeriodOf(v.now))
	day, err := time.Parse(time.DateOnly, page.AsOf)
	asked := err == nil
	if asked {
		page.Month, page.Before = ledger.PeriodOf(day), day.AddDate(0, 0, 1)
	}
	trial, err := look[seal.TrialBalance](p, v, "journal balances", "period", page.Month)
	if err != nil {
		return nil, err
	}
	list, err := look[console.List[journal.Entry]](p, v, "journal ls", "limit", rows, "period", page.Month, "account", page.Account)
	if err != nil {
		return nil, err
	}
	trial.Balances = slices.DeleteFunc(trial.Balances, func(b seal.Balance) bool { return b.Account != page.Account })
	trial.Totals = nil
	page.TooMany = asked && (list.Next != "" || v.query("page") != "")
	for _, b := range trial.Balances {
		if asked && !page.TooMany {
			b.Closing = sumOf(b, list.Items, page.Before)
			page.Figures = append(page.Figures, b)
		}
	}
	_, tables := p.facts(v, p.row("journal balances"), trial)
	moved := gridOf(p.row("journal ls").Columns, reflect.ValueOf(list.Items), page.Tenant)
	moved.Title, moved.Empty, moved.Next = "Entries", "No entry of this month has a line of it.", v.next(list.Next)
	tables[0].Title, tables[0].Empty = page.Month, "Nothing has moved on it up to this month."
	page.Tables = []grid{tables[0], moved}
	return page, nil
}

// sumOf is the balance of a month's account before a moment: what it opened with, and its lines.
func sumOf(of seal.Balance, entries []journal.Entry, before time.Time) int64 {
	sum := of.Opening
	for _, e := range entries {
		for _, line := range e.Lines {
			if ledger.Control(line.Account) == of.Account && line.Currency == of.Currency && e.PostedAt.Before(before) {
				sum += line.Debit - line.Credit
			}
		}
	}
	return sum
}
