package ops

import (
	"context"
	"errors"
	"net/http"
	"time"

	"billhook/internal/apps/ledger"
	"billhook/internal/platform/store"
)

var (
	errNoAccount   = errors.New("ops: no entry has moved anything on an account of that name")
	errLongAgo     = errors.New("ops: too much has moved on the account since then")
	errAccountBusy = errors.New("ops: the account moves faster than it can be read")
)

// Account is one holder's account of points.
type Account struct {
	Tenant   string `json:"tenant"`
	Account  string `json:"account"`
	Currency string `json:"currency" store:"currency"`
	// Balance is what it has in minor units, or had at AsOf.
	Balance int64 `json:"balance" store:"balance"`
	// AsOf is the moment of the balance; zero: now.
	AsOf time.Time `json:"as_of,omitzero"`
	// Entries are those before AsOf, the newest first.
	Entries []ledger.Move `json:"entries"`
	// More reports whether there are more entries than are shown, and Next is the parameter page for
	// them.
	More bool   `json:"more"`
	Next string `json:"next,omitempty"`
}

// created is the field that has the time of an account's entry.
const created = "created_at"

func (a *API) account(r *http.Request) (Account, error) {
	params := read(r, "tenant", "as_of", "limit", "page")
	of := holding{params.tenant(), ledger.Account(param(r, "account"))}
	name := r.URL.Path + "?" + of.tenant
	asOf, limit := params.endOf("as_of", a.Now().UTC()), params.limit(most, most)
	at := params.page(name, Place{newest: true, until: asOf})
	if err := params.err(); err != nil {
		return Account{}, err
	}
	found, last, err := a.Account(r.Context(), of.tenant, string(of.name), asOf, at.Cursor, limit)
	found.Next = params.next(name, at, last)
	return found, err
}

// endOf is a moment: the end of a day, in UTC, where it is given as a day. It is zero where there is
// none.
func (p *parameters) endOf(name string, now time.Time) time.Time {
	if day, err := time.Parse(time.DateOnly, p.values.Get(name)); err == nil {
		return day.AddDate(0, 0, 1)
	}
	return p.at(name, now, time.Time{}).Truncate(time.Microsecond)
}

// holding names a tenant's account.
type holding struct {
	tenant string
	name   ledger.Account
}

// Account returns a tenant's account with at most limit of its entries behind a cursor, the newest first,
// and the next page. A moment that is not zero leaves out what was
// entered at it and later, in the entries and in the balance.
func (a Reads) Account(ctx context.Context, tenant, name string, asOf time.Time, after store.Cursor, limit int) (Account, store.Cursor, error) {
	of := holding{tenant, ledger.Account(name)}
	found, err := a.balance(ctx, of, asOf)
	if err != nil {
		return Account{}, store.Cursor{}, err
	}
	page, err := a.Store.Query(ctx, store.Query{
		Collection: ledger.Entries, Equal: of.entries(), Newest: &store.Newest{Field: created, Until: asOf}, After: after, Limit: limit + 1,
	})
	if err != nil {
		return Account{}, store.Cursor{}, err
	}
	found.More = len(page.Documents) > limit
	var last store.Cursor
	for _, doc := range page.Documents[:min(limit, len(page.Documents))] {
		entry, err := ledger.MoveFromDocument(doc)
		if err != nil {
			return Account{}, store.Cursor{}, err
		}
		found.Entries, last = append(found.Entries, entry), store.Cursor{At: entry.CreatedAt, ID: doc.Key.ID}
	}
	if !found.More {
		last = store.Cursor{}
	}
	return found, last, nil
}

// balance reads an account without its entries. That of a moment is what the account has now less
// what was entered since, as long as nothing is entered in between.
func (a Reads) balance(ctx context.Context, of holding, asOf time.Time) (Account, error) {
	found := Account{Tenant: of.tenant, Account: string(of.name), AsOf: asOf, Entries: []ledger.Move{}}
	doc, err := a.accountDocument(ctx, of)
	if err != nil {
		return found, err
	}
	if asOf.IsZero() {
		return found, store.Decode(doc.Fields, &found)
	}
	const tries = 3
	for range tries {
		since, err := a.entered(ctx, of, asOf)
		if err != nil {
			return found, err
		}
		now, err := a.accountDocument(ctx, of)
		if err != nil {
			return found, err
		}
		if now.Version == doc.Version {
			err = store.Decode(doc.Fields, &found)
			found.Balance -= since
			return found, err
		}
		doc = now
	}
	return found, errAccountBusy
}

// entered is what was entered on an account from a moment on.
func (a Reads) entered(ctx context.Context, of holding, from time.Time) (sum int64, err error) {
	page, err := a.Store.Query(ctx, store.Query{
		Collection: ledger.Entries, Equal: of.entries(), Newest: &store.Newest{Field: created, Since: from}, Limit: store.MaxPage,
	})
	if err != nil {
		return 0, err
	}
	if len(page.Documents) == store.MaxPage {
		return 0, errLongAgo
	}
	for _, doc := range page.Documents {
		entry, err := ledger.MoveFromDocument(doc)
		if err != nil {
			return 0, err
		}
		if entry.To == of.name {
			sum += entry.Amount
		} else {
			sum -= entry.Amount
		}
	}
	return sum, nil
}

// entries selects the account's entries.
func (of holding) entries() map[string]any {
	return map[string]any{"tenant": of.tenant, "account": string(of.name)}
}

func (a Reads) accountDocument(ctx context.Context, of holding) (store.Document, error) {
	doc, err := a.Store.Get(ctx, of.name.Key(of.tenant))
	if errors.Is(err, store.ErrNotFound) || errors.Is(err, store.ErrInvalid) {
		return doc, errNoAccount
	}
	return doc, err
}
