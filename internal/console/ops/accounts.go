package ops

import (
	"context"
	"errors"
	"net/http"
	"time"

	"billhook/internal/apps/usage"
	"billhook/internal/dedupe"
	"billhook/internal/pii"
	"billhook/internal/pipeline/lane"
	"billhook/internal/platform/serve"
	"billhook/internal/platform/store"
)

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
