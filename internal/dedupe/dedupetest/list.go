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

// listed is record number i: one in a hundred has failed, and ten have the same time.
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

// patient repeats reads, one at a time: an emulator has no index, so a query reads all records there and may
// take longer than its limit.
func patient(s store.Store) store.Store {
	var one sync.Mutex
	return &storetest.Faults{Store: s, OnRead: func(do func() error) (err error) {
		one.Lock()
		defer one.Unlock()
		for range 5 {
			if err = do(); err == nil {
				return nil
			}
		}
		return err
	}}
}

func writeListed(t *testing.T, db store.Store, records int) {
	t.Helper()
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
			for range 5 { // an emulator on a busy machine is slow
				if _, err = db.Commit(t.Context(), writes); err == nil {
					return nil
				}
			}
			return err
		})
	}
	require.NoError(t, group.Wait())
}

// full is how many records four full pages have; some means any number but 0.
const (
	full = dedupe.MaxListed + 1 + 50 + 7
	some = -1
)

// listing is a request that one in every so many records matches; want is how many records four pages list.
type listing struct {
	of          dedupe.Listing
	every, want int
}

func listings(records int, newest time.Time) map[string]listing {
	span := dedupe.Listing{
		Since: newest.Add(-100 * time.Millisecond), Until: newest.Add(-50 * time.Millisecond),
	}
	of := func(pairs ...string) dedupe.Listing { return dedupe.Listing{Equal: store.Equals(pairs...)} }
	return map[string]listing{
		"all records":              {dedupe.Listing{}, 1, full},
		"a queue":                  {of("queue", fmt.Sprint("queue-", (records-1)%3)), 3, some},
		"failed ones":              {of("status", "FAILED"), 100, some},
		"failed ones of a queue":   {of("queue", "queue-0", "status", "FAILED"), 300, some},
		"a type in a queue":        {of("queue", "queue-0", "event_type", "order.paid"), 3, some},
		"a span of time":           {span, 1, some},
		"an event":                 {of("event_id", "e0000007"), records, 1},
		"an event in a queue":      {of("event_id", "e0000007", "queue", "queue-1"), records, 1},
		"an event that has failed": {of("event_id", "e0000007", "status", "FAILED"), 0, 0},
		"a correlation id":         {of("correlation_id", "c1"), 0, 7},
		"an unknown queue":         {of("queue", "nobody"), 0, 0},
		"a time without events":    {dedupe.Listing{Since: newest.Add(time.Hour)}, 0, 0},
	}
}

// RunList writes so many records, lists them, and counts the documents that the database reads for each page:
// they must not depend on the number of records. open returns an empty store.
func RunList(t *testing.T, records int, open func(t testing.TB) store.Store) {
	t.Helper()
	db := &storetest.Counter{Store: patient(open(t))}
	writeListed(t, db, records)
	newest := listed(records - 1)
	for name, test := range listings(records, newest.CreatedAt) {
		of := test.of
		of.Limit = 1
		first, _, err := dedupe.List(t.Context(), db, of) // the embedded store makes its indexes
		require.NoError(t, err, name)
		require.True(t, test.every == 0 || len(first) == 1, name)
		seen := test.read(t, name, db)
		if test.want == some {
			require.NotEmpty(t, seen, name)
		} else {
			require.Len(t, seen, test.want, name)
		}
		require.True(t, test.want != full || seen[newest.EventID], "the newest is among all")
	}
}

// read reads four pages of different limits, and returns the ids of their events.
func (l listing) read(t *testing.T, name string, db *storetest.Counter) map[string]bool {
	t.Helper()
	of, seen := l.of, map[string]bool{}
	var before dedupe.Record
	for _, of.Limit = range []int{dedupe.MaxListed, 1, 50, 7} {
		reads, began := db.Reads.Load(), time.Now()
		page, last, err := dedupe.List(t.Context(), db, of)
		took := time.Since(began)
		require.NoError(t, err, name)
		read := db.Reads.Load() - reads
		require.LessOrEqual(t, read, int64(dedupe.Shards*min(of.Limit, of.Limit/4+6)), name)
		if of.After.IsZero() {
			t.Logf("%s: %d records, %d reads, %d ms", name, len(page), read, took.Milliseconds())
		}
		if l.every > 0 && !last.IsZero() {
			require.Len(t, page, of.Limit, name)
			// The records of a page are as close in time as the matching records are.
			span := page[0].CreatedAt.Sub(page[len(page)-1].CreatedAt)
			require.LessOrEqual(t, span, time.Duration(len(page)*l.every/10+1)*time.Millisecond, name)
		}
		for _, r := range page {
			require.False(t, seen[r.EventID], "%s: %s is listed twice", name, r.EventID)
			seen[r.EventID] = true
			require.True(t, before.EventID == "" || !r.CreatedAt.After(before.CreatedAt), name)
			before = r
		}
		if of.After = last; last.IsZero() {
			break
		}
	}
	return seen
}
