package dedupetest

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"billhook/internal/dedupe"
	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
)

// begun is when the first of the listed records was created.
var begun = time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)

// one in a hundred has failed; ten are of one moment.
func listed(i int) dedupe.Record {
	status := dedupe.Completed
	if i%100 == 0 {
		status = dedupe.Failed
	}
	at := begun.Add(time.Duration(i/10) * time.Millisecond)
	return dedupe.Record{
		Identity: dedupe.Identity{
			Queue: fmt.Sprint("queue-", i%3), Tenant: dedupe.DefaultTenant, EventID: fmt.Sprintf("e%07d", i),
			EventType:   "order.paid",
			PayloadHash: "sha256:00", CorrelationID: fmt.Sprint("c", i/7),
		},
		Status: status, Tries: dedupe.Tries{Attempts: 1, LeaseToken: "t"},
		Times: dedupe.Times{CreatedAt: at, UpdatedAt: at, ExpireAt: at.AddDate(0, 0, 30)},
	}
}

// RunList writes so many records, lists them, and counts what the database reads for each page. A
// page costs the same however many there are. open returns an empty store.
func RunList(t *testing.T, records int, open func(t testing.TB) store.Store) {
	t.Helper()
	// An emulator has no index: it looks at all records, one query after the other, and a call may
	// take longer there than it is given.
	var one sync.Mutex
	patient := &storetest.Faults{Store: open(t), OnRead: func(do func() error) (err error) {
		one.Lock()
		defer one.Unlock()
		for range 5 {
			if err = do(); err == nil {
				return nil
			}
		}
		return err
	}}
	db := &storetest.Counter{Store: patient}
	var group errgroup.Group
	group.SetLimit(2)
	const atOnce = 250
	for first := 0; first < records; first += atOnce {
		group.Go(func() (err error) {
			var writes []store.Write
			for i := first; i < min(first+atOnce, records); i++ {
				r := listed(i)
				writes = append(writes, store.Set(dedupe.Key(r.Queue, r.Tenant, r.EventID), r.Fields()))
			}
			for range 5 { // an emulator on a busy machine lets a call wait too long
				if _, err = db.Commit(t.Context(), writes); err == nil {
					return nil
				}
			}
			return err
		})
	}
	require.NoError(t, group.Wait())
	newest := begun.Add(time.Duration((records-1)/10) * time.Millisecond)
	for name, test := range map[string]struct {
		of dedupe.Listing
		// every is how far apart the records are that it has: each, or one in so many.
		every int
	}{
		"all":        {dedupe.Listing{}, 1},
		"of a queue": {dedupe.Listing{Equal: map[string]any{"queue": fmt.Sprint("queue-", (records-1)%3)}}, 3},
		"that have failed": {
			dedupe.Listing{Equal: map[string]any{"status": "FAILED"}}, 100,
		},
		"of a queue, failed": {
			dedupe.Listing{Equal: map[string]any{"queue": "queue-0", "status": "FAILED"}}, 300,
		},
		"of a type and a queue": {
			dedupe.Listing{Equal: map[string]any{"queue": "queue-0", "event_type": "order.paid"}}, 3,
		},
		"of a span": {
			dedupe.Listing{Since: newest.Add(-100 * time.Millisecond), Until: newest.Add(-50 * time.Millisecond)}, 1,
		},
		"of an event": {dedupe.Listing{Equal: map[string]any{"event_id": "e0000007"}}, records},
		"of an event, of a queue": {
			dedupe.Listing{Equal: store.Equals("event_id", "e0000007", "queue", "queue-1")}, records,
		},
		"of an event, failed": {dedupe.Listing{Equal: store.Equals("event_id", "e0000007", "status", "FAILED")}, 0},
		"of a correlation id": {dedupe.Listing{Equal: map[string]any{"correlation_id": "c1"}}, 0},
		"of nothing":          {dedupe.Listing{Equal: map[string]any{"queue": "nobody"}}, 0},
		"of a time without events": {
			dedupe.Listing{Since: newest.Add(time.Hour)}, 0,
		},
	} {
		of, seen := test.of, map[string]bool{}
		of.Limit = 1
		newestOne, _, err := dedupe.List(t.Context(), db, of) // the embedded store makes its indexes
		require.NoError(t, err, name)
		require.True(t, test.every == 0 || len(newestOne) == 1, name)
		var before dedupe.Record
		for pages := range 4 {
			of.Limit = []int{dedupe.MaxListed, 1, 50, 7}[pages]
			reads, began := db.Reads.Load(), time.Now()
			page, last, err := dedupe.List(t.Context(), db, of)
			took := time.Since(began)
			require.NoError(t, err, name)
			read := db.Reads.Load() - reads
			require.LessOrEqual(t, read, int64(dedupe.Shards*min(of.Limit, of.Limit/4+6)), name)
			if pages == 0 {
				t.Logf("%s: %d of %d records, %d reads, %d ms", name, len(page), records, read, took.Milliseconds())
			}
			if test.every > 0 && !last.IsZero() {
				require.Len(t, page, of.Limit, name)
				// As many as the page has are no further apart than what it selects.
				span := page[0].CreatedAt.Sub(page[len(page)-1].CreatedAt)
				require.LessOrEqual(t, span, time.Duration(len(page)*test.every/10+1)*time.Millisecond, name)
			}
			for _, r := range page {
				require.False(t, seen[r.EventID], "%s: %s comes twice", name, r.EventID)
				seen[r.EventID] = true
				require.True(t, before.EventID == "" || !r.CreatedAt.After(before.CreatedAt), name)
				before = r
			}
			if of.After = last; last.IsZero() {
				break
			}
		}
		switch name {
		case "all":
			require.True(t, seen[listed(records-1).EventID], "the last is on the first page")
			require.Len(t, seen, dedupe.MaxListed+1+50+7, "each page is full")
		case "of an event", "of an event, of a queue":
			require.Len(t, seen, 1)
		case "of a correlation id":
			require.Len(t, seen, 7)
		case "of nothing", "of a time without events", "of an event, failed":
			require.Empty(t, seen)
		default:
			require.NotEmpty(t, seen, name)
		}
	}
}
