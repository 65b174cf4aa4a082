package pages_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/dedupe"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/pipeline/rates"
	"billhook/internal/platform/store"
)

// The data of the benchmark.
const (
	manyEvents  = 1_000_000
	manyLetters = 10_000
)

// fillMany stores events of all queues, a million in all, a few of which have failed, dead letters, and
// the counts of a worker for each hour and day that is kept.
func fillMany(b *testing.B, to store.Store, queues []catalog.Queue) {
	b.Helper()
	var writes []store.Write
	commit := func(more store.Write) {
		if writes = append(writes, more); len(writes) == store.MaxWrites {
			_, err := to.Commit(b.Context(), writes)
			require.NoError(b, err)
			writes = nil
		}
	}
	for i := range manyEvents {
		r := dedupe.Record{
			Queue: queues[i%len(queues)].ID, Tenant: "default", EventID: fmt.Sprint("e", i), EventType: "order.paid", Status: dedupe.Completed, PayloadHash: "sha256:00",
			Attempts: 1, Result: "credited", CorrelationID: fmt.Sprint("c", i), OrderingKey: fmt.Sprint("u", i%5000), MessageID: fmt.Sprint(i),
			CreatedAt: noon.Add(-time.Duration(i) * time.Second), UpdatedAt: noon, ExpireAt: noon.Add(720 * time.Hour),
		}
		switch {
		case i%97 < 2:
			r.Status = dedupe.DeadLettered
		case i%97 == 2:
			r.Status = dedupe.Failed
		}
		commit(store.Create(dedupe.Key(r.Queue, r.Tenant, r.EventID), r.Fields()))
	}
	for i := range manyLetters {
		q := queues[i%len(queues)]
		item := deadletter.Item{Queue: q.ID, State: deadletter.Open, Reason: fmt.Sprint("reason_", i%7), EventID: fmt.Sprint("e", i), Kept: noon.Add(-time.Duration(i) * time.Second), DeadLettered: noon, Expires: noon.Add(720 * time.Hour)}
		commit(store.Create(store.Key{Collection: deadletter.Collection, ID: fmt.Sprintf("%08x", uint32(i)*2654435761)}, store.Encode(&item)))
	}
	counts := map[string]any{}
	for _, q := range queues {
		counts[q.ID] = store.Encode(&rates.Counts{In: 100, Processed: 98, Dead: 1, Failed: 1})
	}
	for shard := range rates.Shards {
		for i := range 30 {
			commit(store.Set(store.Key{Collection: rates.Hours, ID: fmt.Sprintf("%s-%d", noon.Add(-time.Duration(i)*time.Hour).Format("2006010215"), shard)}, map[string]any{"queues": counts}))
			commit(store.Set(store.Key{Collection: rates.Days, ID: fmt.Sprintf("%s-%d", noon.AddDate(0, 0, -i).Format("20060102"), shard)}, map[string]any{"queues": counts}))
		}
	}
	_, err := to.Commit(b.Context(), writes)
	require.NoError(b, err)
}

// BenchmarkPagesAtAMillionEvents looks at pages over a million events and ten thousand dead letters on the
// embedded store. The first look, which makes the indexes, is not in the numbers.
func BenchmarkPagesAtAMillionEvents(b *testing.B) {
	s := openShop(b, partner{})
	c, err := catalog.Load("")
	require.NoError(b, err)
	fillMany(b, s.store, c.Queues)
	for name, path := range map[string]string{
		"overview": "/ops/", "queue": "/ops/queues/" + c.Queues[0].ID, "dead letters": "/ops/dead-letters", "dead letters of a queue": "/ops/dead-letters?queue=" + c.Queues[0].ID,
		"replay": "/ops/dead-letters/replay?queue=" + c.Queues[0].ID, "operations": "/ops/operations",
	} {
		b.Run(name, func(b *testing.B) {
			answer := s.ask(b, path, nil)
			for answer.Code == http.StatusServiceUnavailable { // it makes the indexes
				answer = s.ask(b, path, nil)
			}
			require.Equal(b, http.StatusOK, answer.Code)
			b.ResetTimer()
			for b.Loop() {
				require.Equal(b, http.StatusOK, s.ask(b, path, nil).Code)
			}
			b.ReportMetric(float64(answer.Body.Len()), "bytes/page")
		})
	}
}
