package ops

import (
	"context"
	"errors"
	"net/http"
	"time"

	"billhook/internal/apps/ledger"
	"billhook/internal/apps/usage"
	"billhook/internal/dedupe"
	"billhook/internal/pii"
	"billhook/internal/pipeline/lane"
	"billhook/internal/platform/serve"
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
	// More reports whether there are more entries than are shown, and Next is the parameter page for them.
	More bool   `json:"more"`
	Next string `json:"next,omitempty"`
}

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

// endOf is a moment: the end of a day, in UTC, where it is given as a day.
func (p *parameters) endOf(name string, now time.Time) time.Time {
	if day, err := time.Parse(time.DateOnly, p.values.Get(name)); err == nil {
		return day.AddDate(0, 0, 1)
	}
	return p.at(name, now, time.Time{}).Truncate(time.Microsecond)
}

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

// balance reads an account without its entries.
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

// Usage is what a subscription has used in a period, by meter.
type Usage struct {
	Subscription string `json:"subscription"`
	Tenant       string `json:"tenant"`
	Period       string `json:"period"`
	// Start and End bound the period where something was used in it; End is absent while no event has told it.
	Start  time.Time             `json:"start,omitzero"`
	End    time.Time             `json:"end,omitzero"`
	Meters map[string]MeterUsage `json:"meters"`
	// Next is the page of further meters.
	Next string `json:"next,omitempty"`
}

// MeterUsage is the usage of one meter.
type MeterUsage struct {
	Used    int64 `json:"used"`
	Entries int64 `json:"entries"`
	// Quota is the allowance, and Percent the part of it that is used, rounded down.
	Quota   int64  `json:"quota,omitzero"`
	Percent *int64 `json:"percent,omitempty"`
	// Warned is the highest threshold that was crossed. Its warning was emitted in the same commit, and Warning is
	// what became of that; it is there for the first ten meters that were warned of.
	Warned    int64     `json:"warned,omitzero"`
	Warning   *Warning  `json:"warning,omitempty"`
	Plan      string    `json:"plan,omitempty"`
	CountedAt time.Time `json:"counted_at"`
}

// Warning is a message that tells of a threshold.
type Warning struct {
	// EmittedBy is the id of the event whose usage crossed the threshold.
	EmittedBy string `json:"emitted_by"`
	// Emission is what became of it, and absent where the record of that event is gone.
	Emission *Emission `json:"emission,omitempty"`
}

func meterUsage(t usage.Total) MeterUsage {
	m := MeterUsage{Used: t.Used, Entries: t.Entries, Quota: t.Quota, Warned: t.Warned, Plan: t.Plan, CountedAt: t.CountedAt}
	if t.Quota > 0 {
		percent := max(t.Used, 0) * 100 / t.Quota
		m.Percent = &percent
	}
	return m
}

// showUsage answers the meters of a period: of the one that holds this moment, where the request names none.
func (a *API) showUsage(r *http.Request) (Usage, error) {
	params := read(r, "tenant", "period", "page")
	shown := Usage{Tenant: params.tenant(), Period: params.id("period"), Meters: map[string]MeterUsage{}}
	shown.Subscription = params.subscription(r)
	at := params.page(r.URL.Path, Place{})
	if err := params.err(); err != nil {
		return Usage{}, err
	}
	if shown.Period == "" {
		now, err := usage.PeriodAt(r.Context(), a.Store, shown.Tenant, shown.Subscription, a.Now())
		if err != nil {
			return Usage{}, err
		}
		shown.Period, shown.Start, shown.End = now.ID, now.Start, now.End
	}
	of := usage.Of{Tenant: shown.Tenant, Subscription: shown.Subscription, Period: shown.Period}
	totals, next, err := usage.Totals(r.Context(), a.Store, of, at.Cursor, store.MaxPage)
	if err != nil {
		return Usage{}, err
	}
	warned := 0
	for _, t := range totals {
		shown.Start, shown.End = t.Start, t.End
		meter := meterUsage(t)
		if t.Warned > 0 && warned < closely {
			warned++
			if meter.Warning, err = a.warning(r.Context(), t); err != nil {
				return Usage{}, err
			}
		}
		shown.Meters[t.Meter] = meter
	}
	shown.Next = params.next(r.URL.Path, at, next)
	return shown, nil
}

func (a *API) warning(ctx context.Context, t usage.Total) (*Warning, error) {
	w := &Warning{EmittedBy: t.WarnedBy}
	q, _ := a.Catalog.HandledBy(usage.Handler)
	doc, err := a.Store.Get(ctx, dedupe.Key(q.ID, t.Tenant, t.WarnedBy))
	if errors.Is(err, store.ErrNotFound) {
		return w, nil
	}
	if err != nil {
		return nil, err
	}
	record, err := dedupe.FromDocument(doc)
	if err != nil || len(record.Emitted) == 0 {
		return w, err
	}
	emitted := record.Emitted[len(record.Emitted)-1] // the thresholds rise
	var waits Emission
	page, err := a.Store.Query(ctx, store.Query{
		Collection: lane.Outbox.Entries(), Equal: map[string]any{"emits": emitted.EventID, "tenant": t.Tenant}, Limit: 1,
	})
	if err != nil {
		return nil, err
	}
	if len(page.Documents) > 0 {
		waits.State = EmissionWaiting
	}
	became, err := a.emission(ctx, emitted, t.Tenant, waits)
	if err == nil {
		w.Emission = &became[0]
	}
	return w, err
}

// listUsage answers the totals of a subscription, or those of the periods that begin in a month.
func (a *API) listUsage(r *http.Request) (List[usage.Total], error) {
	params := read(r, "tenant", "subscription", "month", "limit", "page")
	of := usage.Of{Tenant: params.tenant(), Subscription: params.id("subscription"), Month: params.values.Get("month")}
	if _, err := time.Parse("2006-01", of.Month); of.Month != "" && err != nil {
		params.refuse("month_invalid", "The parameter month is such as 2026-11.")
	}
	if (of.Subscription == "") == (of.Month == "") {
		params.refuse("usage_of_what", "Say subscription= or month=.")
	}
	return paged(params, "usage", Place{}, most, func(at Place, limit int) ([]usage.Total, store.Cursor, error) {
		return usage.Totals(r.Context(), a.Store, of, at.Cursor, limit)
	})
}

func (a *API) usageEntries(r *http.Request) (List[usage.Entry], error) {
	params := read(r, "tenant", "period", "meter", "limit", "page")
	tenant, period, meter := params.tenant(), params.id("period"), params.id("meter")
	if period == "" || meter == "" {
		params.refuse("usage_of_what", "Say period= and meter=.")
	}
	subscription := params.subscription(r)
	return paged(params, r.URL.Path, Place{}, most, func(at Place, limit int) ([]usage.Entry, store.Cursor, error) {
		return usage.Entries(r.Context(), a.Store, usage.Key(tenant, subscription, period, meter), at.Cursor, limit)
	})
}

func (p *parameters) subscription(r *http.Request) string {
	id := param(r, "subscription")
	if !pii.ID.Valid(id) {
		p.bad = serve.Refuse(http.StatusBadRequest, "subscription_invalid", "A subscription's id has letters, digits and . _ : - only.")
	}
	return id
}
