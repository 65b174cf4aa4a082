package ops_test

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"billhook/internal/console/ops"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/platform/audit"
	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
)

// dead is a dead letter of a queue that was kept that long before now.
func dead(queue, id, reason string, ago time.Duration) deadletter.Item {
	kept := at.Add(-ago)
	return deadletter.Item{
		ID: id, Queue: queue, State: deadletter.Open, Reason: reason, EventType: "order.paid", EventID: "e-" + id, OrderingKey: "u1",
		FirstPublished: kept, DeadLettered: kept, Kept: kept, Expires: kept.Add(30 * 24 * time.Hour),
	}
}

func inStore(i deadletter.Item) store.Write { return store.Create(i.Key(), store.Encode(&i)) }

// known are so many dead letters, a second apart, of three queues, two reasons and two states. The first is the newest.
func (r *rig) known(t *testing.T, letters int) {
	t.Helper()
	var writes []store.Write
	for i := range letters {
		one := dead([]string{"orders", "refunds", "orders"}[i%3], fmt.Sprintf("d%04d", (i*7919)%10_000), []string{"r", "unknown_product"}[i%2], time.Duration(i)*time.Second)
		if i%5 == 4 {
			one.State = deadletter.Discarded
		}
		writes = append(writes, inStore(one))
	}
	for some := range slices.Chunk(writes, store.MaxWrites) {
		r.commit(t, some...)
	}
}

func TestAPageOfDeadLettersCostsWhatItReturns(t *testing.T) {
	t.Parallel()
	for _, letters := range []int{10, 1_500} {
		t.Run(fmt.Sprint(letters, " letters"), func(t *testing.T) {
			t.Parallel()
			r := open(t)
			r.known(t, letters)
			db := &storetest.Counter{Store: r.store}
			r.over(db)
			for _, query := range []string{
				"queue=orders&limit=5", "queue=orders&state=all&limit=5", "queue=refunds&state=discarded&limit=5", "queue=orders&reason=r&limit=5", "queue=orders&type=order.paid&key=u1&limit=5",
				"queue=orders&event_id=e-d0000", "queue=orders&since=9s", "queue=orders&since=8s&until=2s&reason=r",
				fmt.Sprintf("queue=orders&since=%ds&until=%ds&limit=5", letters, letters-9),
				"queue=orders&until=" + at.Add(-time.Duration(letters)*time.Second).Format(time.RFC3339), "queue=orders&key=nobody",
			} {
				before := db.Reads.Load()
				var page ops.DeadLetters
				require.Equal(t, http.StatusOK, r.ask(t, "/v1/ops/dead-letters?"+query, nil, &page).Code, query)
				require.LessOrEqual(t, db.Reads.Load()-before, int64(len(page.Items)+1), query)
				require.True(t, slices.IsSortedFunc(page.Items, func(a, b deadletter.Item) int { return b.Kept.Compare(a.Kept) }), query)
				require.Equal(t, strings.Contains(query, "until=20") || strings.Contains(query, "nobody"), len(page.Items) == 0, query)
			}
			before := db.Reads.Load()
			var preview deadletter.Preview
			require.Equal(t, http.StatusOK, r.ask(t, "/v1/ops/dead-letters/preview?queue=orders&since=9s", nil, &preview).Code)
			require.NotZero(t, preview.Total)
			require.LessOrEqual(t, db.Reads.Load()-before, int64(preview.Total+3), "one look for what has expired, a count, and the letters")
		})
	}
}

func TestPagesOfDeadLettersShowEachOnceTheNewestFirst(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(check *rapid.T) {
		r := open(t)
		var stood []deadletter.Item
		kept := 0
		keep := func() {
			one := dead("orders", fmt.Sprintf("d%02d", (kept*37)%100), "r", time.Duration(rapid.IntRange(0, 6).Draw(check, "ago"))*time.Hour)
			if kept++; rapid.IntRange(0, 4).Draw(check, "expired") == 0 {
				one.Expires = at
			}
			r.commit(check, inStore(one))
			stood = append(stood, one)
		}
		for range rapid.IntRange(0, 30).Draw(check, "letters") {
			keep()
		}
		query, since := "", 24*time.Hour
		if rapid.Bool().Draw(check, "since") {
			since = time.Duration(rapid.IntRange(1, 6).Draw(check, "hours")) * time.Hour
			query = fmt.Sprintf("since=%s&", since)
		}
		stands := slices.DeleteFunc(slices.Clone(stood), func(i deadletter.Item) bool {
			return i.Kept.Before(at.Add(-since)) || !at.Before(i.Expires)
		})
		slices.SortFunc(stands, func(a, b deadletter.Item) int { return cmp.Or(b.Kept.Compare(a.Kept), cmp.Compare(b.ID, a.ID)) })
		var want, got []string
		for _, i := range stands {
			want = append(want, i.ID)
		}
		shown := map[string]int{}
		for token := ""; ; {
			var page ops.DeadLetters
			// The queue may go by another name on another page.
			name := rapid.SampledFrom([]string{"orders", "q:orders"}).Draw(check, "name")
			path := fmt.Sprintf("/v1/ops/dead-letters?queue=%s&%slimit=%d%s", name, query, rapid.IntRange(1, 12).Draw(check, "limit"), token)
			require.Equal(check, http.StatusOK, r.ask(check, path, nil, &page).Code)
			for _, i := range page.Items {
				shown[i.ID]++
				if slices.Contains(want, i.ID) {
					got = append(got, i.ID)
				}
			}
			if page.Next == "" {
				break
			}
			token = "&page=" + url.QueryEscape(page.Next)
			if rapid.Bool().Draw(check, "writes meanwhile") {
				keep()
			}
		}
		require.Equal(check, want, got)
		for id, times := range shown {
			require.Equal(check, 1, times, id)
		}
	})
}

func TestOperationsAreListedTheNewestFirstAndCostWhatAPageReturns(t *testing.T) {
	t.Parallel()
	for _, operations := range []int{10, 1_500} {
		t.Run(fmt.Sprint(operations, " operations"), func(t *testing.T) {
			t.Parallel()
			r := open(t)
			var writes []store.Write
			for i := range operations {
				op := deadletter.Operation{
					Kind: deadletter.Replay, Filter: deadletter.Filter{Queue: "orders"}, Who: "ilse", Rate: 50,
					Progress: []deadletter.Progress{deadletter.Finished, deadletter.Running}[i%2], CreatedAt: at.Add(-time.Duration(i/3) * time.Minute),
				}
				writes = append(writes, store.Create(store.Key{Collection: audit.Collection, ID: fmt.Sprintf("%04d", (i*7919)%10_000)}, store.Encode(&op)))
				entry, err := audit.Entry{Kind: "customer", Subject: fmt.Sprint("c", i), Action: "link", Who: "ada", Why: "w", At: at}.Write("r")
				require.NoError(t, err)
				writes = append(writes, entry)
			}
			for some := range slices.Chunk(writes, store.MaxWrites) {
				r.commit(t, some...)
			}
			db := &storetest.Counter{Store: r.store}
			r.over(db)
			for query, want := range map[string]int{"?limit=7": operations, "?limit=7&progress=running": operations / 2} {
				seen, path, before := map[string]bool{}, query, deadletter.Operation{CreatedAt: at.Add(time.Hour)}
				for {
					reads := db.Reads.Load()
					var page ops.List[deadletter.Operation]
					require.Equal(t, http.StatusOK, r.ask(t, "/v1/ops/operations"+path, nil, &page).Code)
					require.LessOrEqual(t, db.Reads.Load()-reads, int64(max(1, len(page.Items))), path)
					for _, op := range page.Items {
						require.False(t, seen[op.ID], op.ID)
						require.Positive(t, cmp.Or(before.CreatedAt.Compare(op.CreatedAt), cmp.Compare(before.ID, op.ID)))
						seen[op.ID], before = true, op
					}
					if page.Next == "" {
						break
					}
					path = query + "&page=" + url.QueryEscape(page.Next)
				}
				require.Len(t, seen, want, query)
			}
		})
	}
}
