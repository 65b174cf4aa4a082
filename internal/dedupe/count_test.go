package dedupe_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/internal/dedupe"
	"billhook/internal/dedupe/dedupetest"
	"billhook/internal/platform/store"
)

// TestAnAttemptIsCountedBeforeItRuns: what the record says of it is what is known if its
// worker dies, and no more once it has ended.
func TestAnAttemptIsCountedBeforeItRuns(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		// end is what becomes of the attempt.
		end      func(*testing.T, *bench, *dedupe.Run)
		status   dedupe.Status
		attempts int
		last     string
	}{
		"and its worker dies": {func(*testing.T, *bench, *dedupe.Run) {}, dedupe.Failed, 2, dedupe.Begun},
		"and succeeds": {func(t *testing.T, _ *bench, run *dedupe.Run) {
			t.Helper()
			seen, err := dedupetest.Effect(t.Context(), run, event(), false, credit)
			require.NoError(t, err)
			require.Equal(t, dedupe.Own, seen)
		}, dedupe.Completed, 2, ""},
		"and fails": {func(t *testing.T, b *bench, run *dedupe.Run) {
			t.Helper()
			seen, err := run.Conclude(t.Context(), dedupe.Ending{Status: dedupe.Failed, Reason: "handler_error", Next: b.once.Now()})
			require.NoError(t, err)
			require.Equal(t, dedupe.Counted, seen)
		}, dedupe.Failed, 2, "handler_error"},
		"and is no attempt after all": {func(t *testing.T, b *bench, run *dedupe.Run) {
			t.Helper()
			for _, want := range []dedupe.Seen{dedupe.Counted, dedupe.Fresh} { // once
				seen, err := run.Uncount(t.Context(), "contention")
				require.NoError(t, err)
				require.Equal(t, want, seen)
			}
			_, commits := b.trips()
			require.Equal(t, 1, commits)
		}, dedupe.Failed, 1, "contention"},
		"and cannot succeed": {func(t *testing.T, _ *bench, run *dedupe.Run) {
			t.Helper()
			seen, err := run.Look(t.Context())
			require.NoError(t, err)
			require.Equal(t, dedupe.Fresh, seen, "its own count is in nobody's way")
			seen, err = run.Conclude(t.Context(), dedupe.Ending{Status: dedupe.DeadLettered, Reason: "refused"})
			require.NoError(t, err)
			require.Equal(t, dedupe.Gone, seen)
		}, dedupe.DeadLettered, 2, "refused"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench()
			first := b.begin("A")
			_, err := first.Conclude(t.Context(), dedupe.Ending{Status: dedupe.Failed, Reason: "handler_error", Next: b.once.Now()})
			require.NoError(t, err)
			run := b.begin("A")
			seen, err := run.Look(t.Context())
			require.NoError(t, err)
			require.Equal(t, dedupe.Fresh, seen)
			seen, err = run.Count(t.Context())
			require.NoError(t, err)
			require.Equal(t, dedupe.Counted, seen)
			require.Equal(t, 2, run.Attempt())
			counted := b.record(t)
			require.Equal(t, []any{dedupe.Failed, int64(2), dedupe.Begun}, []any{counted.Status, counted.Attempts, counted.LastError})
			require.True(t, counted.NextRetryAt.IsZero(), "whoever comes next need not wait")
			b.trips()
			test.end(t, b, run)
			record := b.record(t)
			require.Equal(t, test.status, record.Status)
			require.EqualValues(t, test.attempts, record.Attempts)
			require.Equal(t, test.last, record.LastError)
		})
	}
}

func TestWhatACountMeetsStands(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		// other is what happens to the record before the count.
		other func(*testing.T, *bench)
		want  dedupe.Seen
	}{
		"a success": {func(t *testing.T, b *bench) {
			t.Helper()
			_, err := dedupetest.Effect(t.Context(), b.begin("A"), event(), false, credit)
			require.NoError(t, err)
		}, dedupe.Done},
		"another payload": {func(t *testing.T, b *bench) {
			t.Helper()
			_, err := dedupetest.Effect(t.Context(), b.begin("B"), event(), false, credit)
			require.NoError(t, err)
		}, dedupe.Differs},
		"another count": {func(t *testing.T, b *bench) {
			t.Helper()
			_, err := b.begin("A").Count(t.Context())
			require.NoError(t, err)
		}, dedupe.Fresh},
		"a failure that is to wait": {func(t *testing.T, b *bench) {
			t.Helper()
			_, err := b.begin("A").Conclude(t.Context(), dedupe.Ending{Status: dedupe.Failed, Reason: "handler_error", Next: b.once.Now().Add(time.Minute)})
			require.NoError(t, err)
		}, dedupe.Early},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench()
			run := b.begin("A")
			test.other(t, b)
			before := b.record(t)
			seen, err := run.Count(t.Context())
			require.NoError(t, err)
			require.Equal(t, test.want, seen)
			require.Equal(t, before, b.record(t))
			if seen == dedupe.Fresh {
				seen, err = run.Count(t.Context())
				require.NoError(t, err)
				require.Equal(t, dedupe.Counted, seen, "decided again")
				require.EqualValues(t, 2, b.record(t).Attempts, "each of two that may have run")
			}
		})
	}
}

// shelf is where a kept message stands.
var shelf = store.Key{Collection: "shelf", ID: "x"}

// waitsFor is an event that has failed, is due in an hour, and waits with the broker.
func waitsFor(t *testing.T, f *floor) (*dedupe.Run, dedupe.Record) {
	t.Helper()
	_, err := f.begin("e1").Conclude(t.Context(), dedupe.Ending{Status: dedupe.Failed, Reason: "handler_error", Next: f.now.Add(time.Hour)})
	require.NoError(t, err)
	run := f.begin("e1")
	seen, err := run.Look(t.Context())
	require.NoError(t, err)
	require.Equal(t, dedupe.Early, seen)
	require.Equal(t, f.now.Add(time.Hour), run.Due())
	return run, f.record(t, "e1")
}

func TestAPostponementIsRefusedWhereAnythingHasChanged(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		other func(*testing.T, *floor)
		want  dedupe.Seen
		err   bool
		there bool // the kept message
	}{
		"another copy is kept": {func(t *testing.T, f *floor) {
			t.Helper()
			other := f.begin("e1")
			_, err := other.Look(t.Context())
			require.NoError(t, err)
			_, err = other.Conclude(t.Context(), dedupe.Ending{Kept: dedupe.Kept{Ticket: "2-2"}})
			require.NoError(t, err)
		}, dedupe.Waiting, false, false},
		"its lane is another": {func(t *testing.T, f *floor) {
			t.Helper()
			_, err := f.faults.Commit(t.Context(), []store.Write{store.Create(shelf, nil)})
			require.NoError(t, err)
		}, dedupe.Early, false, true},
		"the store does not take it":             {func(_ *testing.T, f *floor) { f.faults.FailBefore(1) }, 0, true, false},
		"the store takes it and does not say so": {func(_ *testing.T, f *floor) { f.faults.FailAfter(1) }, 0, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFloor(t)
			run, before := waitsFor(t, f)
			test.other(t, f)
			seen, err := run.Conclude(t.Context(), dedupe.Ending{Kept: dedupe.Kept{Ticket: "1-1", Writes: []store.Write{store.Create(shelf, nil)}}})
			require.Equal(t, test.err, err != nil)
			require.Equal(t, test.want, seen)
			_, err = f.faults.Get(t.Context(), shelf)
			require.Equal(t, test.there, err == nil)
			record := f.record(t, "e1")
			require.Equal(t, before.Attempts, record.Attempts)
			require.Equal(t, before.NextRetryAt, record.NextRetryAt)
		})
	}
}

// TestAKeptMessageIsWaitedForByItsOtherCopies: the copy with the ticket is the one to
// be handled, and any other until its time has come.
func TestAKeptMessageIsWaitedForByItsOtherCopies(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(*testing.T, *floor) dedupe.Seen{
		"after a failure": func(t *testing.T, f *floor) dedupe.Seen {
			t.Helper()
			run := f.begin("e1")
			seen, err := run.Conclude(t.Context(), dedupe.Ending{Status: dedupe.Failed, Reason: "handler_error", Next: f.now.Add(time.Hour), Kept: dedupe.Kept{Ticket: "1-1", Writes: []store.Write{store.Create(shelf, map[string]any{"a": "b"})}}})
			require.NoError(t, err)
			return seen
		},
		"after a lease": func(t *testing.T, f *floor) dedupe.Seen {
			t.Helper()
			run := f.claim(t, "e1", false)
			seen, err := run.Conclude(t.Context(), dedupe.Ending{Status: dedupe.Failed, Reason: "handler_error", Next: f.now.Add(time.Hour), Kept: dedupe.Kept{Ticket: "1-1", Writes: []store.Write{store.Create(shelf, map[string]any{"a": "b"})}}})
			require.NoError(t, err)
			return seen
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFloor(t)
			require.Equal(t, dedupe.Counted, fail(t, f))
			_, err := f.faults.Get(t.Context(), shelf)
			require.NoError(t, err, "kept with the record")
			record := f.record(t, "e1")
			require.Equal(t, "1-1", record.DelayTicket)
			require.EqualValues(t, 1, record.Attempts)
			look := func(ticket string) dedupe.Seen {
				run := f.once.Begin(dedupe.Key("q", dedupe.DefaultTenant, "e1"), dedupe.Record{
					Queue: record.Queue, Tenant: record.Tenant, EventID: "e1", PayloadHash: record.PayloadHash, DelayTicket: ticket,
				}, time.Hour)
				seen, err := run.Look(t.Context())
				require.NoError(t, err)
				return seen
			}
			require.Equal(t, dedupe.Waiting, look(""))
			require.Equal(t, dedupe.Waiting, look("1-0"))
			require.Equal(t, dedupe.Early, look("1-1"), "no other copy waits, and its time has not come")
			f.now = f.now.Add(time.Hour)
			require.Equal(t, dedupe.Fresh, look(""), "its time has come")
		})
	}
}
