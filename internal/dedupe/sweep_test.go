package dedupe_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/internal/contract"
	"billhook/internal/dedupe"
	"billhook/internal/pipeline/handler"
	"billhook/internal/platform/standin"
	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
)

var (
	morning  = time.Date(2026, 3, 2, 10, 15, 0, 0, time.UTC)
	errTopic = errors.New("no answer")
)

// floor is a store with events that workers have claimed.
type floor struct {
	*storetest.Counter
	faults *storetest.Faults
	once   *dedupe.Once
	now    time.Time
	names  int
}

func newFloor(t *testing.T) *floor {
	t.Helper()
	db, err := standin.OpenTemporaryStore(filepath.Join(t.TempDir(), "store.db"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	f := &floor{Counter: &storetest.Counter{Store: db}, now: morning}
	f.faults = &storetest.Faults{Store: f.Counter}
	f.once = &dedupe.Once{Store: f.faults, Now: func() time.Time { return f.now }, NewToken: func() string {
		f.names++
		return fmt.Sprint("token-", f.names)
	}}
	return f
}

func (f *floor) begin(id string) *dedupe.Run {
	return f.once.Begin(dedupe.Key("q", dedupe.DefaultTenant, id), dedupe.Record{
		Queue: "q", Tenant: dedupe.DefaultTenant, EventID: id, EventType: "initial", PayloadHash: "sha256:A",
	}, remember)
}

// claim has a worker claim an event for two minutes, and keep its message if so.
func (f *floor) claim(t *testing.T, id string, keep bool) *dedupe.Run {
	t.Helper()
	var message *contract.Message
	if keep {
		message = &contract.Message{Data: []byte(id), Attributes: map[string]string{"event_id": id}, OrderingKey: "k"}
	}
	run := f.begin(id)
	seen, err := run.Claim(t.Context(), 2*time.Minute, message, false)
	require.NoError(t, err)
	require.Equal(t, dedupe.Claimed, seen)
	return run
}

func (f *floor) record(t *testing.T, id string) dedupe.Record {
	t.Helper()
	doc, err := f.Get(t.Context(), dedupe.Key("q", dedupe.DefaultTenant, id))
	require.NoError(t, err)
	record, err := dedupe.FromDocument(doc)
	require.NoError(t, err)
	return record
}

// belt takes what a sweep publishes again.
type belt struct {
	mu     sync.Mutex
	taken  []string
	fails  map[string]bool
	before func()
}

func (b *belt) republish(_ context.Context, record dedupe.Record) (bool, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.before != nil {
		b.before()
	}
	if b.fails[record.EventID] {
		return false, errTopic
	}
	if record.Message == nil {
		return false, nil
	}
	b.taken = append(b.taken, string(record.Message.Data))
	return true, nil
}

func (f *floor) sweep(t *testing.T, limit int, b *belt) dedupe.Swept {
	t.Helper()
	swept, err := dedupe.Sweep(t.Context(), f.faults, f.now.Add(-10*time.Minute), f.now, limit, b.republish)
	require.NoError(t, err)
	return swept
}

func TestASweepTakesWhatNobodyWillFinish(t *testing.T) {
	t.Parallel()
	f := newFloor(t)
	done := f.claim(t, "done", true)
	_, err := done.Conclude(t.Context(), dedupe.Ending{Status: dedupe.Completed, Effect: handler.Effect{Result: "sent"}})
	require.NoError(t, err)
	failed := f.claim(t, "failed", true)
	_, err = failed.Conclude(t.Context(), dedupe.Ending{Status: dedupe.Failed, Reason: "handler_error", Next: f.now})
	require.NoError(t, err)
	f.claim(t, "orphan", true)
	f.claim(t, "silent", false)
	f.now = f.now.Add(time.Second)
	f.claim(t, "younger", true)
	f.now = morning.Add(12 * time.Minute) // ten minutes after the end of the first leases
	untouched := map[string]dedupe.Record{"done": f.record(t, "done"), "failed": f.record(t, "failed"), "younger": f.record(t, "younger")}

	b := &belt{}
	require.Equal(t, dedupe.Swept{Republished: 1, Reported: 1}, f.sweep(t, 10, b))
	require.Equal(t, []string{"orphan"}, b.taken)
	for id, want := range untouched {
		require.Equal(t, want, f.record(t, id))
	}
	for _, id := range []string{"orphan", "silent"} {
		record := f.record(t, id)
		require.Equal(t, dedupe.Failed, record.Status)
		require.Equal(t, dedupe.Orphaned, record.LastError)
		require.EqualValues(t, 1, record.Attempts, "the attempt was one")
		require.Zero(t, record.LeaseUntil)
		require.Empty(t, record.LeaseToken)
		require.Nil(t, record.Message)
		require.Equal(t, morning, record.CreatedAt)
		require.Equal(t, morning.Add(remember), record.ExpireAt)
	}
	require.Equal(t, dedupe.Swept{}, f.sweep(t, 10, b), "and passes it by from then on")

	again := f.begin("orphan")
	seen, err := again.Claim(t.Context(), time.Minute, nil, false)
	require.NoError(t, err)
	require.Equal(t, dedupe.Claimed, seen)
	require.Equal(t, 2, again.Attempt())
	require.True(t, again.Repeated(), "nobody knows whether it took place")
}

func TestAnOrphanIsPublishedBeforeItIsMarked(t *testing.T) {
	t.Parallel()
	f := newFloor(t)
	f.claim(t, "e1", true)
	f.now = f.now.Add(time.Hour)
	var during dedupe.Status
	b := &belt{}
	b.before = func() { during = f.record(t, "e1").Status }
	f.sweep(t, 10, b)
	require.Equal(t, dedupe.Processing, during)
}

func TestWhatCannotBePublishedAgainStays(t *testing.T) {
	t.Parallel()
	f := newFloor(t)
	f.claim(t, "e1", true)
	f.claim(t, "e2", true)
	f.now = f.now.Add(time.Hour)
	before := f.record(t, "e1")
	b := &belt{fails: map[string]bool{"e1": true}}
	require.Equal(t, dedupe.Swept{Republished: 1, Failed: 1}, f.sweep(t, 10, b), "one does not hold up the other")
	require.Equal(t, before, f.record(t, "e1"))
	b.fails = nil
	require.Equal(t, dedupe.Swept{Republished: 1}, f.sweep(t, 10, b))
	require.ElementsMatch(t, []string{"e1", "e2"}, b.taken)
}

func TestASweepWritesOverNobodysWork(t *testing.T) {
	t.Parallel()
	for name, meanwhile := range map[string]func(t *testing.T, f *floor, run *dedupe.Run){
		"of the worker, which was only slow": func(t *testing.T, _ *floor, run *dedupe.Run) {
			t.Helper()
			seen, err := run.Conclude(context.Background(), dedupe.Ending{Status: dedupe.Completed, Effect: handler.Effect{Result: "sent"}})
			require.NoError(t, err)
			require.Equal(t, dedupe.Own, seen)
		},
		"of another worker that took over": func(t *testing.T, f *floor, _ *dedupe.Run) {
			t.Helper()
			seen, err := f.begin("e1").Claim(context.Background(), time.Minute, nil, true)
			require.NoError(t, err)
			require.Equal(t, dedupe.Claimed, seen)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFloor(t)
			run := f.claim(t, "e1", true)
			f.now = f.now.Add(time.Hour)
			var theirs dedupe.Record
			b := &belt{}
			b.before = func() {
				meanwhile(t, f, run)
				theirs = f.record(t, "e1")
			}
			require.Zero(t, f.sweep(t, 10, b).Failed)
			require.Equal(t, theirs, f.record(t, "e1"))
		})
	}
}

func TestARecordThatASweepCannotReadIsLeftAndCounted(t *testing.T) {
	t.Parallel()
	f := newFloor(t)
	f.claim(t, "e1", true)
	_, err := f.Commit(t.Context(), []store.Write{store.Set(store.Key{Collection: dedupe.Collection, ID: "x"}, map[string]any{"lease_until": morning})})
	require.NoError(t, err)
	f.now = f.now.Add(time.Hour)
	require.Equal(t, dedupe.Swept{Republished: 1, Failed: 1}, f.sweep(t, 10, &belt{}))
}

func TestASweepOrACleaningThatCannotAskIsAnError(t *testing.T) {
	t.Parallel()
	f := newFloor(t)
	f.faults.Down(true)
	_, err := dedupe.Sweep(t.Context(), f.faults, f.now, f.now, 10, (&belt{}).republish)
	require.ErrorIs(t, err, storetest.ErrFault)
	_, _, err = dedupe.Clean(t.Context(), f.faults, dedupe.Collection, f.now, 10)
	require.ErrorIs(t, err, storetest.ErrFault)
}

func TestWhatHasExpiredIsRemovedBoundedly(t *testing.T) {
	t.Parallel()
	f := newFloor(t)
	const collection = "things"
	put := func(id string, fields map[string]any) {
		_, err := f.Commit(t.Context(), []store.Write{store.Set(store.Key{Collection: collection, ID: id}, fields)})
		require.NoError(t, err)
	}
	for i := range 5 {
		put(fmt.Sprint("old-", i), map[string]any{"expire_at": f.now.Add(-time.Duration(i) * time.Second)})
	}
	put("young", map[string]any{"expire_at": f.now.Add(time.Microsecond)})
	put("forever", map[string]any{"n": int64(1)})
	put("text", map[string]any{"expire_at": "2001-01-01"})
	for _, want := range []struct {
		removed int
		more    bool
	}{{2, true}, {2, true}, {1, false}, {0, false}} {
		removed, more, err := dedupe.Clean(t.Context(), f.faults, collection, f.now, 2)
		require.NoError(t, err)
		require.Equal(t, want.removed, removed)
		require.Equal(t, want.more, more)
	}
	page, err := f.Query(t.Context(), store.Query{Collection: collection, Limit: 10})
	require.NoError(t, err)
	require.Len(t, page.Documents, 3)
}

// revived is a store in which a document is written anew after it was found expired.
type revived struct {
	*storetest.Faults
	write store.Write
}

func (r revived) Query(ctx context.Context, query store.Query) (store.Page, error) {
	page, err := r.Faults.Query(ctx, query)
	if err == nil {
		_, err = r.Commit(ctx, []store.Write{r.write})
	}
	return page, err
}

func TestACleaningThatFailsSaysWhatItHasDone(t *testing.T) {
	t.Parallel()
	f := newFloor(t)
	for i := range 3 {
		_, err := f.Commit(t.Context(), []store.Write{store.Set(store.Key{Collection: "things", ID: fmt.Sprint(i)}, map[string]any{"expire_at": f.now})})
		require.NoError(t, err)
	}
	f.faults.FailBefore(1)
	removed, more, err := dedupe.Clean(t.Context(), f.faults, "things", f.now, 10)
	require.ErrorIs(t, err, storetest.ErrFault)
	require.Zero(t, removed)
	require.True(t, more)
	removed, more, err = dedupe.Clean(t.Context(), f.faults, "things", f.now, 10)
	require.NoError(t, err)
	require.Equal(t, 3, removed)
	require.False(t, more)
}

// completed puts a record of an event there that was completed and expired some time ago.
func (f *floor) completed(t *testing.T, id string, completed, expired time.Duration) store.Key {
	t.Helper()
	key := dedupe.Key("orders", "default", id)
	_, err := f.Commit(t.Context(), []store.Write{store.Set(key, dedupe.Record{
		Queue: "orders", Tenant: "default", EventID: id, Status: dedupe.Completed, PayloadHash: "sha256:00", LeaseToken: "t",
		CreatedAt: f.now.Add(-completed), ProcessedAt: f.now.Add(-completed), ExpireAt: f.now.Add(-expired),
	}.Fields())})
	require.NoError(t, err)
	return key
}

func TestAPruneTakesNoRecordThatCountsStill(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		completed, expired time.Duration
		want               dedupe.Pruned
	}{
		"old and expired":                        {2 * time.Hour, time.Minute, dedupe.Pruned{Removed: 1}},
		"old, expiring now":                      {2 * time.Hour, 0, dedupe.Pruned{Removed: 1}},
		"old, expiring in a moment":              {2 * time.Hour, -time.Microsecond, dedupe.Pruned{Remembered: 1}},
		"completed at that very time":            {time.Hour, time.Minute, dedupe.Pruned{}},
		"completed since, and expired all along": {time.Minute, time.Second, dedupe.Pruned{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFloor(t)
			key := f.completed(t, "e1", test.completed, test.expired)
			got, next, err := dedupe.Prune(t.Context(), f.faults, dedupe.Page{Before: f.now.Add(-time.Hour), Now: f.now, Limit: 10})
			require.NoError(t, err)
			require.Empty(t, next)
			require.Equal(t, test.want, got)
			_, err = f.Get(t.Context(), key)
			require.Equal(t, test.want.Removed == 1, errors.Is(err, store.ErrNotFound))
		})
	}
}

func TestAPruneLeavesWhatIsWrittenAnewAndTakesTheRest(t *testing.T) {
	t.Parallel()
	f := newFloor(t)
	anew := f.completed(t, "e2", 2*time.Hour, time.Hour)
	for _, id := range []string{"e1", "e3"} {
		f.completed(t, id, 2*time.Hour, time.Hour)
	}
	doc, err := f.Get(t.Context(), anew)
	require.NoError(t, err)
	doc.Fields["expire_at"] = f.now.Add(time.Hour)
	got, _, err := dedupe.Prune(t.Context(), revived{f.faults, store.Set(anew, doc.Fields)}, dedupe.Page{Before: f.now.Add(-time.Hour), Now: f.now, Limit: 10})
	require.NoError(t, err)
	require.Equal(t, dedupe.Pruned{Removed: 2}, got)
	_, err = f.Get(t.Context(), anew)
	require.NoError(t, err)
}

func TestAPruneThatFailsIsAnErrorAndCanBeAskedForAgain(t *testing.T) {
	t.Parallel()
	f := newFloor(t)
	f.completed(t, "e1", 2*time.Hour, time.Hour)
	prune := func() (dedupe.Pruned, error) {
		got, _, err := dedupe.Prune(t.Context(), f.faults, dedupe.Page{Before: f.now.Add(-time.Hour), Now: f.now, Limit: 10})
		return got, err
	}
	f.faults.FailReads(1)
	_, err := prune()
	require.ErrorIs(t, err, storetest.ErrFault)
	f.faults.FailBefore(1)
	got, err := prune()
	require.ErrorIs(t, err, storetest.ErrFault)
	require.Zero(t, got.Removed)
	f.faults.FailAfter(1) // it happens, and nobody learns of it
	_, err = prune()
	require.ErrorIs(t, err, storetest.ErrFault)
	got, err = prune()
	require.NoError(t, err)
	require.Equal(t, dedupe.Pruned{}, got)
}

func TestThePartsOfTheTimeIndexAreAboutAsLarge(t *testing.T) {
	t.Parallel()
	var parts [dedupe.Shards]int
	for i := range 8000 {
		parts[dedupe.Shard("orders", "default", fmt.Sprint(502113004410990001+i))]++
	}
	for _, records := range parts {
		require.InDelta(t, 1000, records, 200)
	}
}
