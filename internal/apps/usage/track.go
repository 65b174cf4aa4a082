package usage

import (
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

// The result codes of an event.
const (
	Counted        = "counted"
	CountedLate    = "counted_late" // after the end of its period
	AlreadyCounted = "already_counted"
)

// warning is the type of the message that tells of a crossed threshold.
const warning = "quota_warning"

// Warning is the data of a quota_warning.
type Warning struct {
	SubscriptionID string `json:"subscription_id"`
	Meter          string `json:"meter"`
	// Percent is the threshold that was crossed.
	Percent int64 `json:"percent"`
	// Period is that of the usage: of Quota, Used was used when the threshold was crossed.
	Period string `json:"period"`
	Used   int64  `json:"used"`
	Quota  int64  `json:"quota"`
}

// Tracker counts events of usage.
type Tracker struct {
	Store  store.Store
	Limits catalog.Usage
	// Warnings is the queue of the warnings; without one nobody is warned.
	Warnings catalog.Queue
	Now      func() time.Time
}

// Register adds the handler, which emits to the queue that the catalog lists for it, if that runs.
func Register(r *handler.Registry, c *catalog.Catalog, db store.Store, now func() time.Time) {
	warnings, _ := c.EmitsTo(Handler)
	handler.RegisterTx(r, Handler, Tracker{Store: db, Limits: c.Usage, Warnings: warnings, Now: now}.Track, c.EmitsOf(Handler)...)
}

// told is what an event says.
type told struct {
	tenant, subscription, meter string
	quantity                    int64
	occurred                    time.Time
	// stated: the event says itself when it occurred.
	stated bool
}

// Track counts an event: its entry, and the total of its period, which is read and written at
// its version. Each threshold that the total crosses for the first time in its period is emitted in
// the same commit. Where the queue of the warnings does not run, none counts as told: once it runs,
// the next event tells them.
//
// An event that was counted before is refused by the store; then Track is called again with a
// higher Try, looks, and accepts the entry that is there if it says the same.
func (t Tracker) Track(ctx context.Context, event handler.Event, body contract.Body) (handler.Effect, error) {
	said, err := t.read(event, body)
	if err != nil {
		return handler.Effect{}, err
	}
	key := EntryKey(said.tenant, said.subscription, event.ID)
	if event.Try > 0 {
		if counted, err := t.counted(ctx, key, said); counted || err != nil {
			return handler.Effect{Result: AlreadyCounted, Ref: key.ID}, err
		}
	}
	period, err := PeriodAt(ctx, t.Store, said.tenant, said.subscription, said.occurred)
	switch {
	case errors.Is(err, store.ErrUnreadable):
		return handler.Effect{}, retry.Transient("usage_unreadable", err)
	case err != nil:
		return handler.Effect{}, retry.Outage("store_unavailable", err)
	}
	now := t.Now().UTC()
	switch {
	case said.occurred.After(now.Add(t.Limits.Ahead)):
		return handler.Effect{}, retry.Permanent("usage_in_the_future", nil)
	case now.After(period.settles.Add(t.Limits.Grace)):
		// It may be a copy of one that was in time.
		if counted, err := t.counted(ctx, key, said); counted || err != nil {
			return handler.Effect{Result: AlreadyCounted, Ref: key.ID}, err
		}
		return handler.Effect{}, retry.Permanent("usage_too_late", nil)
	}
	total, version, err := t.total(ctx, said, period)
	if err != nil {
		return handler.Effect{}, err
	}
	result := Counted
	if now.After(period.settles) {
		result = CountedLate
	}
	return t.count(event, said, counting{total: total, version: version, at: now, result: result})
}

// read takes what the event says, and checks what the contract does not.
func (t Tracker) read(event handler.Event, body contract.Body) (told, error) {
	said := told{
		tenant: event.Tenant, subscription: body.Text("subscription_id"), meter: body.Text("meter"), quantity: body.Number("quantity"),
	}
	if said.subscription == "" || said.meter == "" {
		return told{}, retry.Permanent("usage_of_nothing", nil)
	}
	at := body.Text("occurred_at")
	if said.stated = at != ""; !said.stated {
		at = body.Time()
	}
	occurred, err := time.Parse(time.RFC3339Nano, at)
	if said.occurred = occurred.UTC().Truncate(time.Microsecond); err != nil || !storable(said.occurred) {
		return told{}, retry.Permanent("usage_time_invalid", nil)
	}
	return said, nil
}

// counted reports whether the event has its entry. The error is a conflict where that says
// something else.
func (t Tracker) counted(ctx context.Context, key store.Key, said told) (bool, error) {
	doc, err := t.Store.Get(ctx, key)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return false, nil
	case err != nil:
		return false, retry.Outage("store_unavailable", err)
	}
	var entry Entry
	if err := store.Decode(doc.Fields, &entry); err != nil {
		return false, retry.Transient("usage_unreadable", err)
	}
	if entry.Meter != said.meter || entry.Quantity != said.quantity || (said.stated && !entry.OccurredAt.Equal(said.occurred)) {
		return false, retry.Conflicting("usage_counted_differently", nil)
	}
	return true, nil
}

// total reads the total of a period; that of one without usage is empty, and has no version.
func (t Tracker) total(ctx context.Context, said told, p Period) (total Total, version store.Version, err error) {
	doc, err := t.Store.Get(ctx, Key(said.tenant, said.subscription, p.ID, said.meter))
	switch {
	case errors.Is(err, store.ErrNotFound):
		total = Total{
			Tenant: said.tenant, Subscription: said.subscription, Period: p.ID, Meter: said.meter, Start: p.Start,
			Month: said.tenant + "~" + p.Start.Format(monthForm),
		}
	case err != nil:
		return Total{}, 0, retry.Outage("store_unavailable", err)
	default:
		if err := store.Decode(doc.Fields, &total); err != nil {
			return Total{}, 0, retry.Transient("usage_unreadable", err)
		}
	}
	if !p.End.IsZero() {
		total.End = p.End
	}
	if p.Plan != "" {
		total.Plan = p.Plan
	}
	return total, doc.Version, nil
}

// counting is what an event is counted in.
type counting struct {
	total   Total
	version store.Version // 0: the period has no total yet
	at      time.Time
	result  string
}

// count adds the event to its total.
func (t Tracker) count(event handler.Event, said told, c counting) (handler.Effect, error) {
	total := c.total
	key := Key(total.Tenant, total.Subscription, total.Period, total.Meter)
	if said.quantity > catalog.MaxUsage-total.Used || said.quantity < -catalog.MaxUsage-total.Used {
		return handler.Effect{}, retry.Permanent("usage_total_out_of_bounds", nil)
	}
	total.Used += said.quantity
	total.Entries++
	total.CountedAt = c.at
	total.Quota = t.Limits.QuotaOf(total.Meter, total.Plan)
	thresholds := t.Limits.Thresholds
	made := EntryKey(total.Tenant, total.Subscription, event.ID)
	effect := handler.Effect{Result: c.result, Ref: made.ID}
	if t.Warnings.ID == "" {
		thresholds = nil
	}
	for _, percent := range crossed(total, thresholds) {
		total.Warned, total.WarnedBy = percent, event.ID
		effect.Emit = append(effect.Emit, t.warn(event, total))
	}
	entry := Entry{
		Tenant: total.Tenant, Subscription: total.Subscription, Period: total.Period, Meter: total.Meter, EventID: event.ID,
		Quantity: said.quantity, OccurredAt: said.occurred, CountedAt: c.at, Total: key.ID,
	}
	effect.Writes = []store.Write{store.Create(made, store.Encode(&entry)), store.Replace(key, c.version, store.Encode(&total))}
	return effect, nil
}

// crossed are the thresholds that a total has reached, above the one it was warned of.
func crossed(total Total, thresholds []int64) (percents []int64) {
	for _, percent := range thresholds {
		// Both sides stay below 2^63: usage and quotas below 2^53, percents at most 1000.
		if total.Quota > 0 && percent > total.Warned && total.Used*100 >= total.Quota*percent {
			percents = append(percents, percent)
		}
	}
	return percents
}

// warn tells of the threshold that the total was warned of last.
func (t Tracker) warn(event handler.Event, total Total) handler.Emission {
	body := contract.Of(&contract.Event{Type: warning, Version: 1, CorrelationID: event.CorrelationID, Data: Warning{
		SubscriptionID: total.Subscription, Meter: total.Meter, Percent: total.Warned, Period: total.Period, Used: total.Used, Quota: total.Quota,
	}})
	return handler.Emission{To: t.Warnings.ID, OrderingKey: total.Subscription, Body: body}
}
