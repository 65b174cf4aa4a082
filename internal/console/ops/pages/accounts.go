package pages

import (
	"cmp"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"

	"billhook/internal/apps/ledger"
	"billhook/internal/apps/ledger/seal"
	"billhook/internal/apps/usage"
	"billhook/internal/console/ops"
	"billhook/internal/platform/audit"
)

// accountRoutes adds the pages of accounts, and of whom they belong to.
func (p *Pages) accountRoutes(r chi.Router) {
	p.page(r, "/accounts/{account}", "account.html", p.account)
	p.page(r, "/customers/{id}", "customer.html", p.customer)
	p.page(r, "/subscriptions/{subscription}", "subscription.html", p.subscription)
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

// holder is the account of one user or customer, with what each entry has moved on it.
type holder struct {
	ops.Account
	Moves []accountMove
	// Owner is the id in the account's name.
	Owner string
	// Customer reports whether the owner is a customer whom no user is known of.
	Customer bool
}

// accountMove is an entry with the balance behind it.
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

// accountMonth is an account of the journal in a month of a tenant's books.
type accountMonth struct {
	Tenant, Period string
	Balances       []seal.Balance
	ops.List[ops.JournalEntry]
	// Sums are the balances at the end of the day that was asked for, by currency. They are nil where no
	// day was, or where the entries of the month are more than a page has.
	Sums    []daySum
	TooMany bool
}

// daySum is a balance at the end of a day.
type daySum struct {
	Currency string
	Balance  int64
}

func (p *Pages) account(v *visit) (any, error) {
	page := accountPage{Account: v.param("account"), AsOf: v.query("as_of")}
	if ledger.Control(page.Account) == page.Account {
		month, err := p.accountMonth(v, page.Account)
		page.Month = month
		return page, err
	}
	page.Holder = &holder{}
	path := with(v.of("/v1/ops/accounts/%s", page.Account), "as_of", page.AsOf, "limit", rows, "page", v.query("page"))
	if err := v.get(path, &page.Holder.Account); err != nil {
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
	page.Holder.Owner, page.Holder.Customer = owner(page.Account)
	return page, nil
}

// accountPageOf is the account whose page shows an account. What was issued for one order has no document.
func accountPageOf(account string) string {
	if strings.HasPrefix(account, string(ledger.IssuedPoints(""))) {
		return ledger.Control(account)
	}
	return account
}

// owner is whom an account of points belongs to.
func owner(account string) (id string, customer bool) {
	for prefix, customer := range map[string]bool{string(ledger.UserPoints("")): false, string(ledger.CustomerPoints("")): true} {
		if len(account) > len(prefix) && account[:len(prefix)] == prefix {
			return account[len(prefix):], customer
		}
	}
	return "", false
}

// accountMonth asks for the month of a day, or for the one that the address names, else for this one.
func (p *Pages) accountMonth(v *visit, account string) (*accountMonth, error) {
	month := &accountMonth{Tenant: v.tenant(), Period: cmp.Or(v.query("period"), ledger.PeriodOf(v.now))}
	day, err := time.Parse(time.DateOnly, v.query("as_of"))
	asked := err == nil
	if asked {
		month.Period = ledger.PeriodOf(day)
	}
	var trial seal.TrialBalance
	if err := v.get(with("/v1/ops/journal/balances", "tenant", month.Tenant, "period", month.Period), &trial); err != nil {
		return nil, err
	}
	for _, b := range trial.Balances {
		if b.Account == account {
			month.Balances = append(month.Balances, b)
		}
	}
	path := with("/v1/ops/journal/entries", "tenant", month.Tenant, "period", month.Period, "account", account, "limit", rows, "page", v.query("page"))
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

// customerPage is a customer with what has come of them, and who changed the link.
type customerPage struct {
	ops.Activity
	Changes ops.List[audit.Entry]
}

func (p *Pages) customer(v *visit) (any, error) {
	var page customerPage
	err := v.get(v.of("/v1/ops/customers/%s/activity", v.param("id")), &page.Activity)
	if err == nil {
		page.Changes, err = v.changes(v.of("/v1/ops/customers/%s/changes", v.param("id")))
	}
	return page, err
}

// subscriptionPage is a subscription: how it stands, and what it has used.
type subscriptionPage struct {
	ID, Tenant string
	// Stands is nil where no event of it has come.
	Stands *ops.Subscription
	// Now is the period that runs, and All what was used in any.
	Now ops.Usage
	All ops.List[usage.Total]
	// Of is the total whose Entries are shown, where the address names one.
	Of      *usage.Total
	Entries ops.List[usage.Entry]
}

func (p *Pages) subscription(v *visit) (any, error) {
	page := subscriptionPage{ID: v.param("subscription"), Tenant: v.tenant()}
	stands := &ops.Subscription{}
	switch err := v.get(v.of("/v1/ops/subscriptions/%s", page.ID), stands); {
	case err == nil:
		page.Stands = stands
	case notFound(err) == nil:
		return nil, err
	}
	if err := v.get(with(href("/v1/ops/usage/%s", page.ID), "tenant", page.Tenant), &page.Now); err != nil {
		return nil, err
	}
	if err := v.get(with("/v1/ops/usage", "tenant", page.Tenant, "subscription", page.ID, "limit", rows, "page", v.query("page")), &page.All); err != nil {
		return nil, err
	}
	if meter, period := v.query("meter"), v.query("period"); meter != "" && period != "" {
		page.Of = &usage.Total{Meter: meter, Period: period}
		path := with(href("/v1/ops/usage/%s/entries", page.ID), "tenant", page.Tenant, "meter", meter, "period", period, "limit", rows, "page", v.query("entries"))
		if err := v.get(path, &page.Entries); err != nil {
			return nil, err
		}
	}
	return page, nil
}
