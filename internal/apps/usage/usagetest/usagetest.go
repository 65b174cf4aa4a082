// Package usagetest compares the counting of usage with a model in memory. The tests of each kind of store
// run it.
package usagetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"billhook/catalog"
	"billhook/catalog/catalogtest"
	"billhook/internal/apps/subscriptions"
	"billhook/internal/apps/usage"
	"billhook/internal/console"
	"billhook/internal/contract"
	"billhook/internal/dedupe"
	"billhook/internal/dedupe/dedupetest"
	"billhook/internal/filetest"
	"billhook/internal/pipeline/handler"
	"billhook/internal/pipeline/lane"
	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
	"billhook/internal/retry"
)

const (
	day      = 24 * time.Hour
	grace    = 3 * day
	ahead    = 5 * time.Minute
	remember = 400 * day
)

var errLost = errors.New("usagetest: no answer")

var (
	subscribers = rapid.SampledFrom([]string{"-s1", "-s2"})
	meters      = rapid.SampledFrom([]string{"calls", "calls", "bytes", "seats", "rows"})
	quantities  = rapid.SampledFrom([]int64{0, 1, 10, 40, 79, 80, 120, -1, -30, -100, 150, 151, -151})
	times       = rapid.SampledFrom([]time.Duration{time.Second, time.Hour, 2 * day, 20 * day})
	ages        = rapid.SampledFrom([]time.Duration{
		0, 0, time.Hour, 2 * day, 10 * day, 40 * day, -ahead, -ahead - time.Microsecond,
	})
)

// limits has three meters with a quota, one of them only by its plan.
var limits = catalog.Usage{
	Grace: grace, Ahead: ahead, Thresholds: []int64{80, 100},
	Meters: map[string]catalog.Meter{
		"calls": {Quota: 100, Plans: map[string]int64{"large": 400, "free": 0}},
		"bytes": {Quota: 50},
		"seats": {Plans: map[string]int64{"large": 10}},
	},
}

// event is the model of one event of usage.
type event struct {
	id, subscription, meter string
	quantity                int64
	occurred                time.Time
	counted                 bool
	reason                  string // the reason of its refusal; empty: none
}

// bucket names a total.
type bucket struct{ subscription, period, meter string }

// known is the model of a stored period.
type known struct {
	start, end, at time.Time
	plan           string
}

// world is a store, its events, and the usage that it must have.
type world struct {
	db      store.Store
	catalog *catalog.Catalog
	tracker usage.Tracker
	once    dedupe.Once
	now     time.Time
	run     string // distinguishes this run's names from those of others on the same store
	seq     int

	events  []*event
	periods map[string][]known
	used    map[bucket]int64
	entries map[bucket]int64
	plans   map[bucket]string // the last known ones
	quotas  map[bucket]int64
	warned  map[bucket][]int64 // the warnings that must be emitted
	emitted map[bucket][]int64 // the warnings that were

	// before, if set, is called once, before the next commit, to which lose and refuse apply.
	before       func()
	lose, refuse bool
}

// Run checks that usage is the sum of its entries, with repeated, late and concurrent events and with faults.
// The runs share the store that open returns.
func Run(t *testing.T, open func(t testing.TB) store.Store) {
	t.Helper()
	c, db, runs := catalogtest.Shipped(), open(t), 0
	rapid.Check(t, func(t *rapid.T) {
		runs++
		w := begin(db, c, fmt.Sprint("r", runs))
		t.Repeat(map[string]func(*rapid.T){
			"an event":                  func(t *rapid.T) { w.deliver(t, w.add(t), false) },
			"another event":             func(t *rapid.T) { w.deliver(t, w.add(t), false) },
			"an event again":            func(t *rapid.T) { w.again(t, false) },
			"an event after its expiry": func(t *rapid.T) { w.again(t, true) },
			"an answer that is lost":    func(t *rapid.T) { w.lose = true; w.faulty(t) },
			"a commit that is refused":  func(t *rapid.T) { w.refuse = true; w.faulty(t) },
			"two concurrent events":     w.meet,
			"a period begins":           w.begins,
			"time passes":               func(t *rapid.T) { w.now = w.now.Add(times.Draw(t, "time")) },
			"":                          w.check,
		})
	})
}

func begin(db store.Store, c *catalog.Catalog, run string) *world {
	w := &world{catalog: c, run: run, now: time.Date(2026, 1, 30, 12, 0, 0, 0, time.UTC)}
	w.periods, w.plans, w.quotas = map[string][]known{}, map[bucket]string{}, map[bucket]int64{}
	w.used, w.entries = map[bucket]int64{}, map[bucket]int64{}
	w.warned, w.emitted = map[bucket][]int64{}, map[bucket][]int64{}
	w.db = &storetest.Faults{Store: db, OnCommit: w.commit}
	clock := func() time.Time { return w.now }
	warnings, _ := c.EmitsTo(usage.Handler)
	w.tracker = usage.Tracker{Store: w.db, Limits: limits, Warnings: warnings, Now: clock}
	w.once = dedupe.Once{Store: w.db, Now: clock, NewToken: w.next}
	return w
}

func (w *world) next() string {
	w.seq++
	return fmt.Sprint(w.run, "-", w.seq)
}

// commit makes a commit, or refuses it, and notes its warnings.
func (w *world) commit(_ context.Context, writes []store.Write, do func() error) error {
	if before := w.before; before != nil {
		w.before = nil
		before()
	}
	if w.refuse {
		w.refuse = false
		return errLost
	}
	if err := do(); err != nil {
		return err
	}
	for _, write := range writes {
		if write.Key.Collection == lane.Outbox.Entries() {
			w.note(write.Fields)
		}
	}
	if w.lose {
		w.lose = false
		return errLost
	}
	return nil
}

func (w *world) note(fields map[string]any) {
	message, _ := fields["message"].(map[string]any)
	text, _ := message["data"].(string)
	var body struct {
		Data usage.Warning `json:"data"`
	}
	if err := json.Unmarshal([]byte(text), &body); err != nil {
		panic(err)
	}
	at := bucket{body.Data.SubscriptionID, body.Data.Period, body.Data.Meter}
	w.emitted[at] = append(w.emitted[at], body.Data.Percent)
}

func (w *world) add(t *rapid.T) *event {
	e := &event{id: w.next(), subscription: w.run + subscribers.Draw(t, "subscription")}
	e.meter, e.quantity = meters.Draw(t, "meter"), quantities.Draw(t, "quantity")
	e.occurred = w.now.Add(-ages.Draw(t, "ago"))
	w.events = append(w.events, e)
	return e
}

// period is the model's rule for periods.
func (w *world) period(e *event) (id, plan string, settles time.Time) {
	var last *known
	for i, p := range w.periods[e.subscription] {
		if !p.start.After(e.occurred) && (last == nil || p.start.After(last.start) ||
			(p.start.Equal(last.start) && p.at.After(last.at))) {
			last = &w.periods[e.subscription][i]
		}
	}
	const moment = "20060102T150405Z"
	switch {
	case last == nil:
		first := time.Date(e.occurred.Year(), e.occurred.Month(), 1, 0, 0, 0, 0, time.UTC)
		return first.Format("2006-01"), "", first.AddDate(0, 1, 0)
	case e.occurred.Before(last.end):
		return last.start.Format(moment), last.plan, last.end
	default:
		return last.end.Format(moment), last.plan, e.occurred.Add(last.end.Sub(last.start))
	}
}

// expect returns the bucket that an event is counted in, with its plan, or the reason of its refusal.
func (w *world) expect(e *event) (at bucket, plan, reason string) {
	id, plan, settles := w.period(e)
	switch {
	case e.occurred.After(w.now.Add(ahead)):
		reason = "usage_in_the_future"
	case w.now.After(settles.Add(grace)):
		reason = "usage_too_late"
	}
	return bucket{e.subscription, id, e.meter}, plan, reason
}

// apply counts an event in the model.
func (w *world) apply(e *event, at bucket, plan string) {
	e.counted = true
	w.used[at] += e.quantity
	w.entries[at]++
	meter := limits.Meters[at.meter]
	quota := meter.Quota
	if plan != "" {
		w.plans[at] = plan
	}
	if own, ok := meter.Plans[w.plans[at]]; ok {
		quota = own
	}
	w.quotas[at] = quota
	for _, percent := range limits.Thresholds {
		if quota > 0 && !slices.Contains(w.warned[at], percent) && w.used[at]*100 >= quota*percent &&
			percent > slices.Max(append(w.warned[at], 0)) {
			w.warned[at] = append(w.warned[at], percent)
		}
	}
}

// try delivers an event as the worker does.
func (w *world) try(e *event, look bool) error {
	message := contract.Of(&contract.Event{Type: "usage_tracking", Version: 1, Data: map[string]any{
		"subscription_id": e.subscription, "meter": e.meter, "quantity": e.quantity,
		"occurred_at": e.occurred.Format(time.RFC3339Nano),
	}})
	body, _, err := w.catalog.Contracts.Compose(message, contract.Stamp{ID: e.id, At: e.occurred})
	if err != nil {
		return err
	}
	at := handler.Event{Queue: "q", Tenant: dedupe.DefaultTenant, ID: e.id, Type: "usage_tracking", Body: body}
	run := w.once.Begin(dedupe.Key(at.Queue, at.Tenant, e.id), dedupe.Record{Identity: dedupe.Identity{
		Queue: at.Queue, Tenant: at.Tenant, EventID: e.id, PayloadHash: "sha256:A",
	}}, remember)
	handle := func(ctx context.Context, at handler.Event) (handler.Effect, error) {
		effect, err := handler.Typed(w.tracker.Track)(ctx, at)
		if err == nil {
			_, err = lane.Emit(w.catalog, at, &effect, w.now)
		}
		return effect, err
	}
	_, err = dedupetest.Effect(context.Background(), run, at, look, handle)
	return err
}

// deliver delivers an event without faults, and applies it to the model.
func (w *world) deliver(t *rapid.T, e *event, look bool) {
	at, plan, reason := w.expect(e)
	err := w.try(e, look)
	switch {
	case e.counted:
		require.NoError(t, err, "a duplicate is accepted")
	case reason != "":
		require.Error(t, err)
		require.Equal(t, reason, retry.Decide(err).Reason)
		require.True(t, retry.Decide(err).Class.Terminal())
		e.reason = reason
	default:
		require.NoError(t, err)
		w.apply(e, at, plan)
	}
}

// again delivers an event again, perhaps after its record has expired.
func (w *world) again(t *rapid.T, expired bool) {
	if len(w.events) == 0 {
		t.Skip("there is no event")
	}
	e := rapid.SampledFrom(w.events).Draw(t, "event")
	if expired {
		remove := store.Delete(dedupe.Key("q", dedupe.DefaultTenant, e.id), 0)
		require.NoError(t, filetest.ErrorOf(w.db.Commit(context.Background(), []store.Write{remove})))
	}
	w.deliver(t, e, rapid.Bool().Draw(t, "it looks first") && !expired)
}

// faulty delivers an event whose commit has a fault, by a worker that dies from it, and then again.
func (w *world) faulty(t *rapid.T) {
	e := w.add(t)
	at, plan, reason := w.expect(e)
	lost := w.lose
	_ = w.try(e, false)
	if w.lose, w.refuse = false, false; reason == "" && lost {
		w.apply(e, at, plan)
	}
	w.deliver(t, e, true)
}

// meet delivers an event before another's commit: often both write the same total.
func (w *world) meet(t *rapid.T) {
	first, second := w.add(t), w.add(t)
	w.before = func() { w.deliver(t, second, false) }
	at, plan, reason := w.expect(first)
	err := w.try(first, false)
	if w.before != nil { // the first had nothing to commit
		w.before = nil
		w.deliver(t, second, false)
	}
	if reason != "" {
		require.Equal(t, reason, retry.Decide(err).Reason)
		return
	}
	require.NoError(t, err)
	w.apply(first, at, plan)
}

// begins stores a period of a subscription: the first, the next, or the last one again.
func (w *world) begins(t *rapid.T) {
	subscription := w.run + subscribers.Draw(t, "subscription")
	before := w.periods[subscription]
	w.now = w.now.Add(time.Second)
	p := known{at: w.now, plan: rapid.SampledFrom([]string{"", "small", "large", "free"}).Draw(t, "plan")}
	p.start = w.now.Add(-rapid.SampledFrom([]time.Duration{0, time.Hour, 5 * day}).Draw(t, "began"))
	p.end = p.start.Add(30 * day)
	if len(before) > 0 {
		last := before[len(before)-1]
		switch rapid.IntRange(0, 3).Draw(t, "which") {
		case 0: // it ends early, or gets another plan
			long := rapid.SampledFrom([]time.Duration{day, 10 * day, 30 * day}).Draw(t, "long")
			p.start, p.end = last.start, last.start.Add(long)
		case 1, 2:
			p.start, p.end = last.end, last.end.Add(30*day)
		}
	}
	named := subscriptions.Event{Tenant: dedupe.DefaultTenant, Subscription: subscription, EventID: w.next()}
	named.OccurredAt, named.Product = p.at.Format(time.RFC3339Nano), p.plan
	named.PeriodStart, named.PeriodEnd = p.start.Format(time.RFC3339Nano), p.end.Format(time.RFC3339Nano)
	write, ok := usage.PeriodWrite(named)
	require.True(t, ok)
	require.NoError(t, filetest.ErrorOf(w.db.Commit(context.Background(), []store.Write{write})))
	w.periods[subscription] = append(before, p)
}

// check compares the store with the model.
func (w *world) check(t *rapid.T) {
	require.Equal(t, w.warned, w.emitted, "each threshold has one warning")
	sums, counts := map[bucket]int64{}, map[bucket]int64{}
	for _, subscription := range []string{w.run + "-s1", w.run + "-s2"} {
		all := usage.EntryKey(dedupe.DefaultTenant, subscription, "")
		query := store.Query{Collection: all.Collection, IDPrefix: all.ID, Limit: store.MaxPage}
		page := filetest.Must(w.db.Query(context.Background(), query))(t)
		for _, doc := range page.Documents {
			var entry usage.Entry
			require.NoError(t, store.Decode(doc.Fields, &entry))
			at := bucket{entry.Subscription, entry.Period, entry.Meter}
			require.Equal(t, usage.Key(entry.Tenant, entry.Subscription, entry.Period, entry.Meter).ID, entry.Total)
			sums[at] += entry.Quantity
			counts[at]++
			i := slices.IndexFunc(w.events, func(e *event) bool { return e.id == entry.EventID })
			require.True(t, w.events[i].counted, "an entry of an event that was not counted")
			require.Equal(t, w.events[i].quantity, entry.Quantity)
			require.True(t, w.events[i].occurred.Equal(entry.OccurredAt))
		}
		of := usage.ListUsage{Owned: console.Owned{Tenant: dedupe.DefaultTenant}, Subscription: subscription}
		of.Limit = store.MaxPage
		totals, next := filetest.Both(usage.Totals(context.Background(), w.db, of))(t)
		require.Empty(t, next)
		for _, total := range totals {
			at := bucket{total.Subscription, total.Period, total.Meter}
			require.Equal(t, sums[at], total.Used, "usage is the sum of its entries: %v", at)
			require.Equal(t, counts[at], total.Entries)
			require.Equal(t, w.plans[at], total.Plan)
			require.Equal(t, w.quotas[at], total.Quota)
			require.Equal(t, slices.Max(append(w.warned[at], 0)), total.Warned)
		}
	}
	require.Equal(t, w.used, sums)
	require.Equal(t, w.entries, counts)
}
