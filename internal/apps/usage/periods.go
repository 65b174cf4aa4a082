package usage

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"billhook/internal/pipeline/events"

	"billhook/internal/apps/subscriptions"
	"billhook/internal/console"
	"billhook/internal/dedupe"
	"billhook/internal/pipeline/lane"
	"billhook/internal/platform/audit"
	"billhook/internal/platform/store"
)

// Reader reads what is shown of usage, from what is shown of events.
type Reader struct{ events.Reads }

// PeriodOf asks what a subscription has used in a period.
type PeriodOf struct {
	subscriptions.SubscriptionOf
	Period string `json:"-" query:"period" validate:"omitempty,id" help:"such as 2026-11, or 20261102T101500Z for one of the subscription's own; without it the one that is running"`
	After  string `json:"-" query:"page" help:"where to continue: next of the previous answer"`
}

// Operations are what people do with usage, which is to look at it.
func (a Reader) Operations() []console.Operation {
	return append(lists(a.Store, a.Now), console.New(console.Row{
		Name: "usage show", Path: "GET /v1/ops/usage/{subscription}", Summary: "Show what a subscription has used in a period, by meter",
	}, a.usage))
}

// Usage is what a subscription has used in a period, by meter.
type Usage struct {
	Subscription string `json:"subscription" show:"Subscription" link:"subscriptions"`
	Tenant       string `json:"tenant"`
	Period       string `json:"period" show:"Period"`
	// Start and End bound the period where something was used in it; End is absent while no event has told it.
	Start  time.Time             `json:"start,omitzero" show:"From"`
	End    time.Time             `json:"end,omitzero" show:"To"`
	Meters map[string]MeterUsage `json:"meters"`
	Next   string                `json:"next,omitempty"`
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
	Warned    int64        `json:"warned,omitzero"`
	Warning   *SentWarning `json:"warning,omitempty"`
	Plan      string       `json:"plan,omitempty"`
	CountedAt time.Time    `json:"counted_at"`
}

// SentWarning is a message that tells of a threshold.
type SentWarning struct {
	// EmittedBy is the id of the event whose usage crossed the threshold.
	EmittedBy string `json:"emitted_by"`
	// Emission is what became of it, and absent where the record of that event is gone.
	Emission *events.Emission `json:"emission,omitempty"`
}

// Join adds the meters of the parts before.
func (u *Usage) Join(before any) (page string) {
	if b, ok := before.(*Usage); ok && u.Meters != nil {
		maps.Copy(u.Meters, b.Meters)
	}
	return u.Next
}

// Notes say what was used of each meter.
func (u Usage) Notes() (notes []string) {
	for _, name := range slices.Sorted(maps.Keys(u.Meters)) {
		m := u.Meters[name]
		said := fmt.Sprintf("%s: %d used", name, m.Used)
		if m.Percent != nil {
			said += fmt.Sprintf(" of %d, %d %%", m.Quota, *m.Percent)
		}
		said += fmt.Sprintf(", in %d entries, the last counted %s", m.Entries, m.CountedAt.UTC().Format(time.RFC3339))
		if m.Warned > 0 {
			said += fmt.Sprintf("; warned at %d %%", m.Warned)
		}
		if m.Warning != nil {
			said += ", " + m.Warning.String()
		}
		notes = append(notes, said+".")
	}
	if len(u.Meters) == 0 {
		notes = append(notes, "Nothing was used in period "+u.Period+".")
	}
	if !u.Start.IsZero() && u.End.IsZero() {
		notes = append(notes, "No event has told when the period ends.")
	}
	return notes
}

func (w SentWarning) String() string {
	if w.Emission == nil {
		return "emitted by event " + w.EmittedBy + ", whose record is gone"
	}
	return w.Emission.String()
}

// usage answers the meters of a period: of the one that holds this moment, where the request names none.
func (a Reader) usage(ctx context.Context, _ audit.Author, in PeriodOf) (Usage, error) {
	shown := Usage{Tenant: in.Tenant, Subscription: in.ID, Period: in.Period, Meters: map[string]MeterUsage{}}
	if in.Period == "" {
		now, err := PeriodAt(ctx, a.Store, in.Tenant, in.ID, a.Now())
		if err != nil {
			return Usage{}, err
		}
		shown.Period, shown.Start, shown.End = now.ID, now.Start, now.End
	}
	of := Of{Tenant: in.Tenant, Subscription: in.ID, Period: shown.Period}
	totals, next, err := Totals(ctx, a.Store, of, store.Cursor{ID: in.After}, store.MaxPage)
	if err != nil {
		return Usage{}, err
	}
	warned := 0
	for _, t := range totals {
		shown.Start, shown.End = t.Start, t.End
		meter := MeterUsage{Used: t.Used, Entries: t.Entries, Quota: t.Quota, Warned: t.Warned, Plan: t.Plan, CountedAt: t.CountedAt}
		if t.Quota > 0 {
			percent := max(t.Used, 0) * 100 / t.Quota
			meter.Percent = &percent
		}
		if t.Warned > 0 && warned < events.Closely {
			warned++
			if meter.Warning, err = a.warning(ctx, t); err != nil {
				return Usage{}, err
			}
		}
		shown.Meters[t.Meter] = meter
	}
	shown.Next = next.ID
	return shown, nil
}

func (a Reader) warning(ctx context.Context, t Total) (*SentWarning, error) {
	w := &SentWarning{EmittedBy: t.WarnedBy}
	q, _ := a.Catalog.HandledBy(Handler)
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
	var waits events.Emission
	page, err := a.Store.Query(ctx, store.Query{
		Collection: lane.Outbox.Entries(), Equal: map[string]any{"emits": emitted.EventID, "tenant": t.Tenant}, Limit: 1,
	})
	if err != nil {
		return nil, err
	}
	if len(page.Documents) > 0 {
		waits.State = events.EmissionWaiting
	}
	became, err := a.EmissionOf(ctx, emitted, t.Tenant, waits)
	if err == nil {
		w.Emission = &became[0]
	}
	return w, err
}
