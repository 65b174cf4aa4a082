package main

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/compose/operations"
	"billhook/internal/console"
	"billhook/internal/console/ops"
	"billhook/internal/dedupe"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/pipeline/rates"
	"billhook/internal/platform/backlog"
	"billhook/internal/platform/store"
	"billhook/internal/retry"
)

// serveEvents serves a worker's ops API over a store with a few hundred events, of which one has failed.
func serveEvents(t *testing.T) (address string) {
	t.Helper()
	db, at := openStore(t), time.Date(2026, 3, 2, 10, 15, 0, 0, time.UTC)
	now := func() time.Time { return at }
	died := deadletter.Item{Queue: "orders", State: deadletter.Open, Reason: "product_unknown", Kept: at.Add(-90 * time.Minute)}
	writes := []store.Write{
		store.Create(store.Key{Collection: "outboxKeys", ID: "lane-1"}, map[string]any{"due_at": at.Add(time.Second), "oldest_at": at.Add(-time.Minute)}),
		store.Create(store.Key{Collection: "deadLetters", ID: "d1"}, store.Encode(&died)),
		store.Create(store.Key{Collection: "deadLetters", ID: "d2"}, map[string]any{"queue": "refunds", "state": "open", "kept_at": at.Add(-5 * time.Hour)}),
	}
	for i := range 250 {
		r := dedupe.Record{
			Queue: "orders", Tenant: "default", EventID: fmt.Sprintf("e%03d", i), EventType: "order.paid", Status: dedupe.Completed,
			PayloadHash: "sha256:00", LeaseToken: "t", Result: "credited", Attempts: 1, CreatedAt: at.Add(-time.Duration(i) * time.Minute),
		}
		if i == 7 {
			r.Status, r.Result, r.LastError, r.IdempotencyKey = dedupe.Failed, "", "order_not_seen", "payment-7"
		}
		writes = append(writes, store.Create(dedupe.Key(r.Queue, r.Tenant, r.EventID), r.Fields()))
	}
	commit(t, db, writes...)
	require.NoError(t, backlog.Write(t.Context(), db, at, map[string]backlog.Held{"orders": {Messages: 12, Oldest: at.Add(-90 * time.Second)}, "clicks": {Messages: 3}}))
	counted := rates.NewRecorder(rates.Config{
		Store: db, Now: now, Self: rates.Service{Instance: "i1"},
		Breakers: func() []rates.Breaker {
			return []rates.Breaker{{Target: "ledger", State: "half_open", Since: at.Add(-time.Minute)}}
		},
	})
	for _, outcome := range []retry.Outcome{retry.Processed, retry.Processed, retry.Duplicate, retry.Retry, retry.DeadLettered} {
		counted.Arrived("orders")
		counted.Ended("orders", outcome, 1)
	}
	counted.Answered("ledger", 0, "callee_unreachable", 20*time.Millisecond)
	require.NoError(t, counted.Flush(t.Context()))
	posts := map[string]catalog.Handler{"order.paid": {Post: catalog.Post{Target: "ledger"}}}
	reads := ops.Reads{Store: db, Now: now, Catalog: &catalog.Catalog{Targets: map[string]catalog.Target{"ledger": {Name: "ledger"}}, Queues: []catalog.Queue{
		{ID: "orders", Alias: "q:orders", Enabled: true, MaxBacklog: catalog.MaxBacklog{Messages: 10_000}, Handlers: posts},
		{ID: "clicks", Enabled: true, DeadLetter: catalog.DeadLetter{Drop: true}},
		{ID: "refunds", DeadLetter: catalog.DeadLetter{AlertAbove: 5, OldestAlert: 4 * time.Hour}},
	}}}
	return serveAPI(t, &ops.API{
		Reads:      reads,
		Operations: operations.All(operations.Apps{Reads: reads, Letters: &deadletter.Operator{Store: db, Now: now}}),
	})
}

func TestQueuesAndEventsArePrinted(t *testing.T) {
	t.Parallel()
	play(t, asAda, serveEvents(t), []step{
		{line: "events ls --status failed", want: "EVENT QUEUE STATUS RECORDED TYPE ATTEMPTS RESULT REASON NEXT ATTEMPT\ne007 orders FAILED 2026-03-02T10:08:00Z order.paid 1 - order_not_seen -\n"},
		{line: "events ls --queue q:orders --since 10m --limit 2", want: "\nThere are more; raise --limit.\n"},
		{line: "events show e007", want: "EVENT e007\n…REASON order_not_seen\n…IDEMPOTENCY KEY payment-7\n…It has failed, after 1 attempt: order_not_seen. It is tried again.\n"},
		{line: "events ls --correlation-id c9", want: "No event is in this list."},
		{line: "events ls --since 1h --until 2h", fails: "before until"},
		{line: "events ls --queue ordesr", fails: "queue_unknown"},
		{line: "queues ls --wide", want: `
QUEUE STATE ALIAS EVENTS DEAD LETTERS WAITING LAST HOUR
orders alert q:orders 249 COMPLETED, 1 FAILED 1, the oldest for 1h 30m 12 in the broker for 1m 30s 5 in, 4 out, 50 % failed
clicks ok - - none kept 3 in the broker -
refunds alert - - 1, the oldest for 5h broker not counted -
orders: dead letters: 1, the oldest since 2026-03-02T08:45:00Z; alert over 0; the breaker of target ledger is half-open in instance i1 since 2026-03-02T10:14:00Z; 50 % of the attempts failed in the last hour
refunds: dead letters: 1, the oldest since 2026-03-02T05:15:00Z; alert over 5 or 4h
2 of 3 queues need you.
The outbox holds messages of 1 keys, the oldest for 1m.
`},
		{line: "queues show q:orders", want: "12 in the broker for 1m 30s…orders product_unknown 1…ledger: breaker half-open in 1 of 1 instances, the first since 2026-03-02T10:14:00Z; " +
			"answers since the beginning of the hour before: none 1; the last: callee_unreachable in 20 ms…The broker holds 12 of at most 10000 messages.\n" +
			"Last hour: about 5 in, 2 processed, 1 ended otherwise, 1 dead-lettered, 1 attempts failed and follow again; 50 % of the attempts failed.\n"},
		{line: "queues rates", want: "\nQUEUE IN PROCESSED OTHERWISE DEAD-LETTERED FAILED OUT % FAILED\norders 5 2 1 1 1 4 50\n"},
		{line: "queues rates --queue orders --days 2", want: "\n2026-03-02: about 5 in, 2 processed, 1 ended otherwise, 1 dead-lettered, 1 attempts failed"},
		{line: "outbox ls", want: "\nLANE PUBLISHED NEXT SINCE WAITS\nlane-1 2026-03-02T10:15:01Z 2026-03-02T10:14:00Z 1m\n"},
	})
}

func TestPagesAreFollowedUpToTheLimit(t *testing.T) {
	t.Parallel()
	worker := serveEvents(t)
	for limit, want := range map[string]int{"1": 1, "200": 200, "210": 210, "1000": 250, "0": 250} {
		out, err := say(t, asAda, "events", "ls", "--json", "--limit", limit, "--server", worker)
		require.NoError(t, err)
		var list console.List[ops.Line]
		require.NoError(t, json.Unmarshal([]byte(out), &list), "one document")
		require.Equal(t, want < 250, list.Next != "")
		ids := map[string]bool{}
		for _, line := range list.Items {
			ids[line.EventID] = true
		}
		require.Len(t, ids, want)
	}
}
