package usage_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/catalog/catalogtest"
	"billhook/internal/apps/subscriptions"
	"billhook/internal/apps/usage"
	"billhook/internal/apps/usage/usagetest"
	"billhook/internal/console"
	"billhook/internal/contract"
	"billhook/internal/dedupe"
	"billhook/internal/filetest"
	"billhook/internal/pipeline/handler"
	"billhook/internal/pipeline/lane"
	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
	"billhook/internal/retry"
)

func TestMain(m *testing.M) { storetest.Main(m) }

var noon = time.Date(2026, 11, 2, 12, 0, 0, 0, time.UTC)

const (
	sub   = "s-1"
	large = "p-large"
)

type books struct {
	*storetest.Counter
	faults  *storetest.Faults
	shipped *catalog.Catalog
	tracker usage.Tracker
	now     time.Time
}

func open(t *testing.T) *books {
	t.Helper()
	shipped := catalogtest.Shipped()
	b := &books{Counter: &storetest.Counter{Store: storetest.Open(t)}, shipped: shipped, now: noon}
	b.faults = &storetest.Faults{Store: b.Counter}
	limits := shipped.Usage
	limits.Meters = map[string]catalog.Meter{
		"calls": {Quota: 100, Plans: map[string]int64{large: 1000}},
		"bytes": {Quota: 10},
	}
	warnings, ok := shipped.EmitsTo(usage.Handler)
	require.True(t, ok)
	b.tracker = usage.Tracker{
		Store: b.faults, Limits: limits, Warnings: warnings, Now: func() time.Time { return b.now },
	}
	return b
}

func (b *books) used(t require.TestingT, id, meter string, quantity int64, occurred string) handler.Event {
	data := map[string]any{"subscription_id": sub, "meter": meter, "quantity": quantity}
	if occurred != "" {
		data["occurred_at"] = occurred
	}
	body, _, err := b.shipped.Contracts.Compose(contract.Of(
		&contract.Event{Type: "usage_tracking", Version: 1, Data: data}), contract.Stamp{ID: id, At: b.now})
	require.NoError(t, err)
	return handler.Event{
		Queue: "q", Tenant: dedupe.DefaultTenant, ID: id, Type: "usage_tracking", Attempt: 1, Body: body,
	}
}

func (b *books) deliver(event handler.Event) (handler.Effect, error) {
	for ; event.Try < 3; event.Try++ {
		effect, err := handler.Typed(b.tracker.Track)(context.Background(), event)
		if err != nil || len(effect.Writes) == 0 {
			return effect, err
		}
		emitted := effect
		if _, err := lane.Emit(b.shipped, event, &emitted, b.now); err != nil {
			return effect, err
		}
		if _, err = b.faults.Commit(context.Background(), effect.Writes); err == nil {
			return effect, nil
		}
	}
	return handler.Effect{}, retry.Busy("contention", nil)
}

func (b *books) counts(t *testing.T, id, meter string, quantity int64, occurred string) handler.Effect {
	t.Helper()
	return filetest.Must(b.deliver(b.used(t, id, meter, quantity, occurred)))(t)
}

var owned, tenOfThem = console.Owned{Tenant: dedupe.DefaultTenant}, console.Page{Limit: 10}

func (b *books) total(t *testing.T, period, meter string) usage.Total {
	t.Helper()
	totals, _ := filetest.Both(usage.Totals(t.Context(), b.faults,
		usage.ListUsage{Owned: owned, Subscription: sub, Period: period, Page: tenOfThem}))(t)
	i := slices.IndexFunc(totals, func(total usage.Total) bool { return total.Meter == meter })
	require.GreaterOrEqual(t, i, 0, meter)
	return totals[i]
}

func requireReason(t *testing.T, err error, class retry.Class, reason string) {
	t.Helper()
	require.Error(t, err)
	require.Equal(t, []any{class, reason}, []any{retry.Decide(err).Class, retry.Decide(err).Reason})
}

func TestUsageIsCountedInThePeriodThatHoldsIt(t *testing.T) {
	t.Parallel()
	b := open(t)
	for _, row := range [][4]string{
		{"2026-09-10T08:00:00Z", "2026-09-10T08:00:00Z", "2026-10-10T08:00:00Z", ""},
		{"2026-10-10T08:00:01Z", "2026-10-10T10:00:00+02:00", "2026-11-10T08:00:00Z", large},
		{"2026-10-12T00:00:00Z", "2026-10-10T08:00:00Z", "2026-10-20T08:00:00Z", large}, // ended early
		{"2026-10-11T00:00:00Z", "2026-10-10T08:00:00Z", "2026-11-11T08:00:00Z", "p-old"},
	} {
		write, ok := usage.PeriodWrite(subscriptions.Event{
			Tenant: dedupe.DefaultTenant, Subscription: sub, EventID: "e-" + row[0], OccurredAt: row[0],
			PeriodStart: row[1], PeriodEnd: row[2], Product: row[3],
		})
		require.True(t, ok)
		storetest.Put(t, b.faults, write)
	}
	for at, want := range map[string]struct{ period, start, end, plan string }{
		"2026-09-10T07:59:59.999999Z": {"2026-09", "2026-09-01T00:00:00Z", "2026-10-01T00:00:00Z", ""},
		"2026-09-10T08:00:00Z":        {"20260910T080000Z", "2026-09-10T08:00:00Z", "2026-10-10T08:00:00Z", ""},
		"2026-10-10T07:59:59.999999Z": {"20260910T080000Z", "2026-09-10T08:00:00Z", "2026-10-10T08:00:00Z", ""},
		"2026-10-10T08:00:00Z":        {"20261010T080000Z", "2026-10-10T08:00:00Z", "2026-10-20T08:00:00Z", large},
		"2026-10-20T08:00:00Z":        {"20261020T080000Z", "2026-10-20T08:00:00Z", "0001-01-01T00:00:00Z", large},
		"2026-12-31T23:59:59Z":        {"20261020T080000Z", "2026-10-20T08:00:00Z", "0001-01-01T00:00:00Z", large},
		"0001-01-01T00:00:00Z":        {"0001-01", "0001-01-01T00:00:00Z", "0001-02-01T00:00:00Z", ""},
		"9999-12-31T23:59:59Z":        {"20261020T080000Z", "2026-10-20T08:00:00Z", "0001-01-01T00:00:00Z", large},
	} {
		when := filetest.Must(time.Parse(time.RFC3339, at))(t)
		b.Queries.Store(0)
		p := filetest.Must(usage.PeriodAt(t.Context(), b.faults, dedupe.DefaultTenant, sub, when))(t)
		require.EqualValues(t, 1, b.Queries.Load())
		require.Equal(t, []string{want.period, want.start, want.end, want.plan},
			[]string{p.ID, p.Start.Format(time.RFC3339), p.End.Format(time.RFC3339), p.Plan}, at)
	}
	for tenant, subscription := range map[string]string{dedupe.DefaultTenant: "s-10", "another": sub} {
		p := filetest.Must(usage.PeriodAt(t.Context(), b.faults, tenant, subscription, noon))(t)
		require.Equal(t, "2026-11", p.ID, "each subscription has its own periods")
	}
}

func TestAPeriodWithoutTwoValidBoundsIsNotStored(t *testing.T) {
	t.Parallel()
	for name, bounds := range map[string][2]string{
		"no start": {"", "2026-11-01T00:00:00Z"}, "no end": {"2026-11-01T00:00:00Z", ""}, "no bounds": {},
		"an end at the start":         {"2026-11-01T00:00:00Z", "2026-11-01T01:00:00+01:00"},
		"an end before the start":     {"2026-11-02T00:00:00Z", "2026-11-01T00:00:00Z"},
		"an end that no store holds":  {"2026-11-02T00:00:00Z", "9999-12-31T23:59:59-12:00"},
		"a start that no store holds": {"0001-01-01T00:00:00+12:00", "2026-11-01T00:00:00Z"},
		"bounds within a microsecond": {"2026-11-01T00:00:00.0000001Z", "2026-11-01T00:00:00.0000002Z"},
		"an invalid start":            {"yesterday", "2026-11-01T00:00:00Z"},
		"an invalid end":              {"2026-11-01T00:00:00Z", "soon"},
	} {
		_, ok := usage.PeriodWrite(subscriptions.Event{
			Tenant: "t", Subscription: sub, EventID: "e",
			OccurredAt: "2026-11-02T12:00:00Z", PeriodStart: bounds[0], PeriodEnd: bounds[1],
		})
		require.False(t, ok, name)
	}
	write, ok := usage.PeriodWrite(subscriptions.Event{
		Tenant: "t", Subscription: sub, EventID: "e",
		PeriodStart: "2026-11-01T00:00:00Z", PeriodEnd: "2026-12-01T00:00:00Z",
	})
	require.True(t, ok, "the event needs no time")
	require.NoError(t, store.CheckWrites([]store.Write{write}))
}

func TestUsageIsStoredAsAnEntryAndAddedToATotal(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.Gets.Store(0)
	effect := b.counts(t, "u-1", "calls", 30, "2026-11-02T13:00:00.123456789+02:00")
	require.Equal(t, usage.Counted, effect.Result)
	require.Len(t, effect.Writes, 2)
	require.Equal(t, usage.EntryKey("default", sub, "u-1").ID, effect.Ref)
	require.Equal(t, []int64{1, 1}, []int64{b.Gets.Load(), b.Queries.Load()}, "the total, and the period")
	b.counts(t, "u-2", "calls", -10, "2026-11-02T11:30:00Z")
	b.counts(t, "u-3", "rows", 1, "")

	start, end := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC), time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
	require.Equal(t, usage.Total{
		Tenant: "default", Subscription: sub, Period: "2026-11", Meter: "calls", Start: start, End: end,
		Used: 20, Entries: 2, Quota: 100, CountedAt: noon, Month: "default~2026-11",
	}, b.total(t, "2026-11", "calls"))
	require.Zero(t, b.total(t, "2026-11", "rows").Quota, "a meter that is not in the catalog is counted")
	of := usage.ListEntries{Owned: owned, Subscription: sub, Period: "2026-11", Page: tenOfThem}
	entries, _ := filetest.Both(usage.Entries(t.Context(), b.faults, of))(t)
	require.Len(t, entries, 3)
	of.Meter = "calls"
	entries, _ = filetest.Both(usage.Entries(t.Context(), b.faults, of))(t)
	require.Len(t, entries, 2)
	require.Equal(t, usage.Entry{
		Tenant: "default", Subscription: sub, Period: "2026-11", Meter: "calls", EventID: "u-1", Quantity: 30,
		OccurredAt: time.Date(2026, 11, 2, 11, 0, 0, 123_456_000, time.UTC), CountedAt: noon,
		Total: usage.Key("default", sub, "2026-11", "calls").ID,
	}, entries[0])
	require.EqualValues(t, -10, entries[1].Quantity)
}

// Without a queue of warnings usage is counted; once the queue runs, the next event emits the warning.
func TestAWarningNamesSubscriptionMeterPeriodAndQuota(t *testing.T) {
	t.Parallel()
	b := open(t)
	warnings := b.tracker.Warnings
	b.tracker.Warnings = catalog.Queue{}
	require.Empty(t, b.counts(t, "u-1", "calls", 85, "").Emit)
	require.EqualValues(t, 85, b.total(t, "2026-11", "calls").Used)
	require.Zero(t, b.total(t, "2026-11", "calls").Warned, "no warning was emitted")

	b.tracker.Warnings = warnings
	effect := b.counts(t, "u-2", "calls", 1, "")
	require.Len(t, effect.Emit, 1)
	require.Equal(t, []string{warnings.ID, sub}, []string{effect.Emit[0].To, effect.Emit[0].OrderingKey})
	event := filetest.Must(contract.As[*contract.Event](effect.Emit[0].Body))(t)
	require.Equal(t, usage.Warning{
		SubscriptionID: sub, Meter: "calls", Percent: 80, Period: "2026-11", Used: 86, Quota: 100,
	}, event.Data)
	_, taken := warnings.Handler(event.Type)
	require.True(t, taken, "its queue has a handler for it")
	require.Empty(t, b.counts(t, "u-3", "calls", 1, "").Emit, "a threshold has one warning")
}

// Each bound of the shipped catalog is tested at the limit and beyond it.
func TestUsageBeyondTheBoundsOfTimeIsADeadLetter(t *testing.T) {
	t.Parallel()
	limits := catalogtest.Shipped().Usage
	endOfNovember := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
	const november = "2026-11-30T23:00:00Z"
	ahead := func(more time.Duration) string { return noon.Add(limits.Ahead + more).Format(time.RFC3339Nano) }
	for name, test := range map[string]struct {
		now                      time.Time
		quantity                 int64
		occurred, result, reason string
	}{
		"in its period": {endOfNovember, 1, november, usage.Counted, ""},
		"after the end": {endOfNovember.Add(time.Microsecond), 1, november, usage.CountedLate, ""},
		"at the end of the grace": {
			endOfNovember.Add(limits.Grace), 1, november, usage.CountedLate, "",
		},
		"after the grace": {endOfNovember.Add(limits.Grace + time.Microsecond), 1, november, "", "usage_too_late"},
		"as far ahead as possible": {
			noon, 1, ahead(0), usage.Counted, "",
		},
		"further ahead":         {noon, 1, ahead(time.Microsecond), "", "usage_in_the_future"},
		"a quantity of 0":       {noon, 0, "", usage.Counted, ""},
		"before the first year": {noon, 1, "0001-01-01T00:00:00+12:00", "", "usage_time_invalid"},
		"in the year 10000":     {noon, 1, "9999-12-31T23:59:59-12:00", "", "usage_time_invalid"},
	} {
		b := open(t)
		b.now = test.now
		effect, err := b.deliver(b.used(t, "u-1", "calls", test.quantity, test.occurred))
		if test.reason != "" {
			requireReason(t, err, retry.Rejected, test.reason)
			require.Zero(t, b.Written.Load(), name)
			continue
		}
		require.NoError(t, err, name)
		require.Equal(t, test.result, effect.Result, name)
	}
	b := open(t)
	event := b.used(t, "u-1", "calls", 1, "")
	b.now = noon.AddDate(0, 1, 0)
	effect := filetest.Must(b.deliver(event))(t)
	require.Equal(t, usage.CountedLate, effect.Result, "without a time, the message's time counts")
}

func TestARepeatedEventWithOtherContentIsADeadLetter(t *testing.T) {
	t.Parallel()
	b := open(t)
	first := b.used(t, "u-1", "calls", 30, "2026-11-02T11:00:00Z")
	for _, result := range []string{usage.Counted, usage.AlreadyCounted} {
		require.Equal(t, result, filetest.Must(b.deliver(first))(t).Result)
	}
	for name, other := range map[string]handler.Event{
		"another meter":    b.used(t, "u-1", "rows", 30, "2026-11-02T11:00:00Z"),
		"another quantity": b.used(t, "u-1", "calls", 31, "2026-11-02T11:00:00Z"),
		"another time":     b.used(t, "u-1", "calls", 30, "2026-11-02T11:00:01Z"),
	} {
		_, err := b.deliver(other)
		requireReason(t, err, retry.Conflict, "usage_counted_differently")
		require.NotContains(t, err.Error(), "30", name)
	}
}

func TestUnreadableUsageIsTriedAgain(t *testing.T) {
	t.Parallel()
	period, _ := usage.PeriodWrite(subscriptions.Event{
		Tenant: "default", Subscription: sub, EventID: "e", OccurredAt: "2026-11-02T12:00:00Z",
		PeriodStart: "2026-11-01T00:00:00Z", PeriodEnd: "2026-12-01T00:00:00Z",
	})
	for try, keys := range map[int][]store.Key{
		0: {usage.Key("default", sub, "2026-11", "calls"), period.Key}, 1: {usage.EntryKey("default", sub, "u-1")},
	} {
		for _, unreadable := range keys {
			b := open(t)
			storetest.Put(t, b, store.Set(unreadable, map[string]any{"used": "a lot"}))
			event := b.used(t, "u-1", "calls", 1, "")
			event.Try = try
			_, err := handler.Typed(b.tracker.Track)(t.Context(), event)
			requireReason(t, err, retry.Failed, "usage_unreadable")
			require.NotContains(t, err.Error(), "a lot")
			b.faults.Down(true)
			_, err = handler.Typed(b.tracker.Track)(t.Context(), event)
			requireReason(t, err, retry.Unavailable, "store_unavailable")
		}
	}
}

func TestATotalThatWouldNotBeExactIsADeadLetter(t *testing.T) {
	t.Parallel()
	b := open(t)
	for meter, sign := range map[string]int64{"calls": 1, "rows": -1} {
		b.counts(t, "first-"+meter, meter, sign, "")
		total := usage.Key("default", sub, "2026-11", meter)
		storetest.Put(t, b.faults, store.Increment(total,
			map[string]int64{"used": sign * (catalog.MaxUsage - 2)}, nil))
		b.counts(t, "last-"+meter, meter, sign, "")
		_, err := b.deliver(b.used(t, "beyond-"+meter, meter, sign, ""))
		requireReason(t, err, retry.Rejected, "usage_total_out_of_bounds")
	}
}

func TestUsageIsTheSumOfItsEntriesOnTheEmbeddedStore(t *testing.T) {
	t.Parallel()
	usagetest.Run(t, storetest.Open)
}

func TestTheNotesOfUsageAreByMeterAndItsPagesAreJoined(t *testing.T) {
	t.Parallel()
	percent, at := int64(81), time.Date(2026, 11, 2, 0, 0, 0, 0, time.UTC)
	first := usage.Usage{Period: "2026-11", Meters: map[string]usage.MeterUsage{
		"calls": {Used: 81, Entries: 3, Quota: 100, Percent: &percent, Warned: 80, WarnedBy: "e1", CountedAt: at},
	}}
	whole := usage.Usage{
		Period: "2026-11", Start: at, Next: "more",
		Meters: map[string]usage.MeterUsage{"bytes": {Used: 5, Entries: 1, CountedAt: at}},
	}
	require.Equal(t, "more", whole.Join(&first))
	require.Equal(t, []string{
		"bytes: 5 used, in 1 entries, the last counted 2026-11-02T00:00:00Z.",
		"calls: 81 used of 100, 81 %, in 3 entries, the last counted 2026-11-02T00:00:00Z; warned at 80 % " +
			"by event e1.",
		"No event says when the period ends.",
	}, whole.Notes())
	require.Equal(t, []string{"Nothing was used in period 2026-12."}, usage.Usage{Period: "2026-12"}.Notes())
}
