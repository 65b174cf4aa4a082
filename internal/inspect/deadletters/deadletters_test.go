package deadletters_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/filetest"
	"billhook/internal/inspect/bulk"
	"billhook/internal/inspect/bulk/bulktest"
	"billhook/internal/inspect/deadletters"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/pipeline/dryrun"
	"billhook/internal/platform/store/storetest"
)

var (
	dead   = time.Date(2026, 3, 2, 10, 0, 0, 0, time.UTC)
	orders = bulk.Filter{Queue: "orders"}
)

type rig struct {
	deadletters.Reads
	counter *storetest.Counter
	now     time.Time
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{now: dead}
	r.counter = &storetest.Counter{Store: storetest.Open(t)}
	r.Store, r.Now = r.counter, func() time.Time { return r.now }
	r.Catalog = &catalog.Catalog{
		Queues: []catalog.Queue{{ID: "orders", DeadLetter: catalog.DeadLetter{Retention: 14 * 24 * time.Hour}}},
	}
	r.Operator = &bulk.Operator{Store: r.Store, Catalog: r.Catalog, Now: r.Now}
	r.Worker = func(map[string]string) (dryrun.Worker, error) { return nil, dryrun.ErrNoQueue }
	return r
}

func TestADeadLetterSaysInASentenceWhatHappenedAndWhatToDo(t *testing.T) {
	t.Parallel()
	died := time.Date(2026, 11, 23, 14, 5, 6, 0, time.UTC)
	for want, kept := range map[string]deadletters.Kept{
		"The subscription service answered 503 five times; Billhook gave up on 2026-11-23 at 14:05 UTC.": {
			Target: "subscription-service",
			Item:   deadletter.Item{Death: deadletter.Death{Reason: "callee_failed_503", Attempts: 5}},
		},
		"The ledger service could not be reached 12 times; Billhook gave up on 2026-11-23 at 14:05 UTC.": {
			Target: "ledger",
			Item:   deadletter.Item{Death: deadletter.Death{Reason: "callee_unreachable", Attempts: 12}},
		},
		"The product hat is not known here; Billhook gave up on 2026-11-23 at 14:05 UTC.": {
			Item: deadletter.Item{Death: deadletter.Death{Reason: "unknown_product", Attempts: 1}, Detail: "hat"},
		},
		"It could not be handled: odd; Billhook gave up on 2026-11-23 at 14:05 UTC.": {
			Item: deadletter.Item{Death: deadletter.Death{Reason: "odd", Attempts: 3}},
		},
	} {
		kept.DeadLettered, kept.State = died, deadletter.Open
		require.Equal(t, want, kept.Happened())
		require.Contains(t, kept.ToDo(), "eplay it")
		kept.State = deadletter.Discarded
		require.Empty(t, kept.ToDo(), "nothing is to be done")
	}
}

func TestSummariesNameWhatThereIs(t *testing.T) {
	t.Parallel()
	for want, got := range map[string]fmt.Stringer{
		"b 3, none 1, a 1": deadletters.Counts{"a": 1, "b": 3, "": 1},
		"1 done, 0 dead-lettered, 2 waiting, and more": deadletters.Later{Done: 1, Waiting: 2, More: true},
	} {
		require.Equal(t, want, got.String())
	}
	require.Equal(t, []string{"There are more than 9 of r."},
		deadletters.Reason{Reason: "r", Count: 9, More: true}.Notes())
	require.Equal(t, []string{"3 of orders have other reasons."},
		deadletters.Reason{Queue: "orders", Others: true, Count: 3}.Notes())
}

func (r *rig) many(t *testing.T, items int, change func(n int, i *deadletter.Item)) {
	t.Helper()
	bulktest.Many(t, r.Store, r.Catalog.Queues[0], dead, items, change)
	r.now = dead.Add(24 * time.Hour)
}

func TestAPreviewCountsAllAndReadsTheNewestOnly(t *testing.T) {
	t.Parallel()
	type row struct {
		items, expired int
		filter         bulk.Filter
		total, looked  int
		reads          int64
	}
	filetest.Each(t, map[string]row{
		"all":               {2_300, 0, orders, 2_300, 500, 3 + 5*100},
		"those of a reason": {2_300, 0, bulk.Filter{Queue: "orders", Reason: "other"}, 230, 230, 230 + 3},
		"those of a span": {
			2_300, 0, bulk.Filter{Queue: "orders", Since: dead.Add(2_250 * time.Second)}, 50, 50, 51,
		},
		"without what has expired":  {2_300, 30, orders, 2_270, 500, 3 + 5*100},
		"of a reason, none expired": {2_300, 30, bulk.Filter{Queue: "orders", Reason: "other"}, 227, 227, 230 + 3},
		"none":                      {10, 10, orders, 0, 0, 1},
	}, func(t *testing.T, test row) {
		r := newRig(t)
		r.many(t, test.items, func(n int, i *deadletter.Item) {
			if n%10 == 0 {
				i.Reason = "other"
			}
		})
		r.now = dead.Add(r.Catalog.Queues[0].DeadLetter.Retention + time.Duration(test.expired-1)*time.Second)
		r.counter.Reads.Store(0)
		preview := filetest.Must(r.Preview(t.Context(), test.filter))(t)
		require.Equal(t, []int{test.total, test.looked}, []int{preview.Total, preview.Looked})
		require.LessOrEqual(t, r.counter.Reads.Load(), test.reads)
		require.Len(t, preview.Items, min(test.total, 20))
	})
}

func TestReasonsAreCountedWithoutReadingThemAll(t *testing.T) {
	t.Parallel()
	type row struct {
		items  int
		reason func(n int) string
		want   map[string]int64
		reads  int64
	}
	filetest.Each(t, map[string]row{
		"one": {1_500, func(int) string { return "a" }, map[string]int64{"a": 1_500}, 2 + 20 + 2},
		"two that alternate": {
			1_500, func(n int) string { return string(rune('a' + n%2)) },
			map[string]int64{"a": 750, "b": 750},
			2 + 20 + 2,
		},
		"one that has long passed goes under others": {
			1_500, func(n int) string { return string(rune('b' - n/800)) },
			map[string]int64{"a": 700, "": 800},
			2 + 20 + 1,
		},
		"the rare go under others": {1_500, func(n int) string {
			if n%500 == 1 {
				return fmt.Sprint("rare-", n)
			}
			return "a"
		}, map[string]int64{"a": 1_497, "": 3}, 2 + 20 + 2},
		"none": {0, nil, map[string]int64{}, 1},
	}, func(t *testing.T, test row) {
		r := newRig(t)
		r.many(t, test.items, func(n int, i *deadletter.Item) { i.Reason = test.reason(n) })
		r.now = dead.Add(time.Duration(test.items) * time.Second)
		r.counter.Reads.Store(0)
		found := filetest.Must(deadletters.Reasons(t.Context(), r.Operator, orders))(t)
		got := map[string]int64{}
		for i, r := range found {
			require.Equal(t, []any{"orders", r.Reason == "", false}, []any{r.Queue, r.Others, r.More})
			require.True(t, i == 0 || r.Others || r.Count <= found[i-1].Count, "the most frequent first")
			got[r.Reason] = r.Count
		}
		require.Equal(t, test.want, got)
		require.LessOrEqual(t, r.counter.Reads.Load(), test.reads)
		standing := filetest.Must(deadletter.Look(t.Context(), r.Store, r.Catalog.Queues[0], r.now))(t)
		require.EqualValues(t, test.items, standing.Open)
		require.Equal(t, time.Duration(test.items)*time.Second, standing.Age(r.now).Truncate(time.Second),
			"since the oldest is kept")
	})
}

func TestAPreviewCountsReasonsKeysAndWhatAReplayPassesBy(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.many(t, 5, func(n int, i *deadletter.Item) {
		i.OrderingKey = fmt.Sprint("u", n%2)
		switch n {
		case 3:
			i.Reason, i.Omitted = "attempts_exhausted", 1<<20
		case 4:
			i.ReplayCount = bulk.MaxReplays
		}
	})
	p := filetest.Must(r.Preview(t.Context(), orders))(t)
	require.Equal(t, deadletters.Counts{"unknown_product": 4, "attempts_exhausted": 1}, p.ByReason)
	require.Equal(t, []any{2, 1, 1, dead, dead.Add(4 * time.Second)},
		[]any{p.Keys, p.Looping, p.Omitted, p.Oldest, p.Newest})
	require.Equal(t, []any{"00004", "The catalog runs no queue of that name or alias."},
		[]any{p.Items[0].ID, p.Items[0].Unknown}, "the newest first")
}
