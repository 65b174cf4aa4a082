package usage

import (
	"cmp"
	"context"
	"errors"
	"time"

	"billhook/catalog"
	"billhook/internal/contract"
	"billhook/internal/pipeline/handler"
	"billhook/internal/platform/store"
	"billhook/internal/retry"
)

// Handler is the name of the handler in the catalog.
const Handler = "usage.track"

// The results of an event.
const (
	Counted        = "counted"         // it is in the total of its period
	CountedLate    = "counted_late"    // it is in the total of its period, but came after its end
	AlreadyCounted = "already_counted" // it was counted before, and its idempotency record has expired
)

const warning = "quota_warning"

// Warning is the data of a quota_warning.
type Warning struct {
	SubscriptionID string `json:"subscription_id"`
	Meter          string `json:"meter"`
	Percent        int64  `json:"percent"`
	// Used is the usage of Period, and Quota its quota, when the threshold was crossed.
	Period string `json:"period"`
	Used   int64  `json:"used"`
	Quota  int64  `json:"quota"`
}

// Tracker counts events of usage.
type Tracker struct {
	Store    store.Store
	Limits   catalog.Usage
	Warnings catalog.Queue // the queue of the warnings; zero: no warnings are emitted
	Now      func() time.Time
}

// Register adds the handler, which emits to the queue that the catalog lists for it, if that queue runs.
func Register(r *handler.Registry, c *catalog.Catalog, db store.Store, now func() time.Time) {
	warnings, _ := c.EmitsTo(Handler)
	tracker := Tracker{Store: db, Limits: c.Usage, Warnings: warnings, Now: now}
	handler.RegisterTx(r, Handler, tracker.Track, c.EmitsOf(Handler)...)
}

// Track counts an event: it writes the entry, and the total of the period at its version. The same commit
// emits a warning for each threshold that the total crosses for the first time; without a queue, no warning
// counts as emitted. A further try reads the entry, and accepts an existing one if it is the same.
func (t Tracker) Track(ctx context.Context, event handler.Event, body contract.Body) (handler.Effect, error) {
	said, err := read(event, body)
	if err != nil {
		return handler.Effect{}, err
	}
	stated := body.Text("occurred_at") != ""
	key := EntryKey(said.Tenant, said.Subscription, event.ID)
	period, err := PeriodAt(ctx, t.Store, said.Tenant, said.Subscription, said.OccurredAt)
	if err != nil {
		return handler.Effect{}, unread(err)
	}
	effect, now := handler.Effect{Result: Counted, Ref: key.ID}, t.Now().UTC()
	said.CountedAt = now
	late := now.After(period.settles.Add(t.Limits.Grace))
	if event.Try > 0 || late { // the event may have been counted in time
		if counted, err := t.counted(ctx, key, said, stated); counted || err != nil {
			return handler.Effect{Result: AlreadyCounted, Ref: key.ID}, err
		}
	}
	switch {
	case said.OccurredAt.After(now.Add(t.Limits.Ahead)):
		return handler.Effect{}, retry.Permanent("usage_in_the_future", nil)
	case late:
		return handler.Effect{}, retry.Permanent("usage_too_late", nil)
	case now.After(period.settles):
		effect.Result = CountedLate
	}
	total, version, err := t.total(ctx, said, period)
	if err != nil {
		return handler.Effect{}, err
	}
	return t.count(event, effect, said, total, version)
}

// read returns the event as an entry without its period, and checks what the contract does not check.
func read(event handler.Event, body contract.Body) (Entry, error) {
	said := Entry{Tenant: event.Tenant, EventID: event.ID, Quantity: body.Number("quantity")}
	said.Subscription, said.Meter = body.Text("subscription_id"), body.Text("meter")
	if said.Subscription == "" || said.Meter == "" {
		return Entry{}, retry.Permanent("usage_of_nothing", nil)
	}
	occurred, err := time.Parse(time.RFC3339Nano, cmp.Or(body.Text("occurred_at"), body.Time()))
	if said.OccurredAt = occurred.UTC().Truncate(time.Microsecond); err != nil || !storable(said.OccurredAt) {
		return Entry{}, retry.Permanent("usage_time_invalid", nil)
	}
	return said, nil
}

func unread(err error) error {
	if errors.Is(err, store.ErrUnreadable) {
		return retry.Transient("usage_unreadable", err)
	}
	return retry.Outage("store_unavailable", err)
}

// counted reports whether the event has an entry. A different entry is a conflict; its time is compared only
// if the event states one.
func (t Tracker) counted(ctx context.Context, key store.Key, said Entry, stated bool) (bool, error) {
	entry, err := store.Read(ctx, t.Store, key, store.ErrNotFound, decoded[Entry])
	switch {
	case errors.Is(err, store.ErrNotFound):
		return false, nil
	case err != nil:
		return false, unread(err)
	case entry.Meter != said.Meter, entry.Quantity != said.Quantity,
		stated && !entry.OccurredAt.Equal(said.OccurredAt):
		return false, retry.Conflicting("usage_counted_differently", nil)
	}
	return true, nil
}

// total reads the total of a period; without usage the version is 0.
func (t Tracker) total(ctx context.Context, said Entry, p Period) (total Total, _ store.Version, err error) {
	total = Total{Tenant: said.Tenant, Subscription: said.Subscription, Period: p.ID, Meter: said.Meter}
	total.Start, total.Month = p.Start, said.Tenant+"~"+p.Start.Format(monthForm)
	doc, err := store.Find(ctx, t.Store, Key(said.Tenant, said.Subscription, p.ID, said.Meter))
	if err == nil && doc.Version != 0 {
		err = store.Decode(doc.Fields, &total)
	}
	if err != nil {
		return Total{}, 0, unread(err)
	}
	total.End, total.Plan = cmp.Or(p.End, total.End), cmp.Or(p.Plan, total.Plan)
	return total, doc.Version, nil
}

func (t Tracker) count(
	event handler.Event, effect handler.Effect, said Entry, total Total, version store.Version,
) (handler.Effect, error) {
	if said.Quantity > catalog.MaxUsage-total.Used || said.Quantity < -catalog.MaxUsage-total.Used {
		return handler.Effect{}, retry.Permanent("usage_total_out_of_bounds", nil)
	}
	key := Key(total.Tenant, total.Subscription, total.Period, total.Meter)
	total.Used += said.Quantity
	total.Entries++
	total.CountedAt, total.Quota = said.CountedAt, t.Limits.QuotaOf(total.Meter, total.Plan)
	for _, percent := range t.Limits.Thresholds { // in rising order
		// Both sides stay below 2^63: usage and quotas below 2^53, percents at most 1000.
		crossed := total.Quota > 0 && percent > total.Warned && total.Used*100 >= total.Quota*percent
		if crossed && t.Warnings.ID != "" {
			total.Warned, total.WarnedBy = percent, event.ID
			data := Warning{total.Subscription, total.Meter, percent, total.Period, total.Used, total.Quota}
			body := &contract.Event{Type: warning, Version: 1, CorrelationID: event.CorrelationID, Data: data}
			effect.Emit = append(effect.Emit, handler.Emission{
				To: t.Warnings.ID, OrderingKey: total.Subscription, Body: contract.Of(body),
			})
		}
	}
	said.Period, said.Total = total.Period, key.ID
	effect.Writes = []store.Write{
		store.Create(EntryKey(said.Tenant, said.Subscription, said.EventID), store.Encode(&said)),
		store.Replace(key, version, store.Encode(&total)),
	}
	return effect, nil
}
