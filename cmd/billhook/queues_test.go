package main

import (
	"cmp"
	"encoding/json"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/compose/operations"
	"billhook/internal/console"
	"billhook/internal/dedupe"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/pipeline/events"
	"billhook/internal/pipeline/rates"
	"billhook/internal/platform/backlog"
	"billhook/internal/platform/store"
	"billhook/internal/retry"
)

func TestQueuesAndEventsArePrinted(t *testing.T) {
	t.Parallel()
	db, at := openStore(t), time.Date(2026, 3, 2, 10, 15, 0, 0, time.UTC)
	now := func() time.Time { return at }
	died := deadletter.Item{Queue: "orders", State: deadletter.Open, Reason: "product_unknown", Kept: at.Add(-90 * time.Minute), Expires: at.Add(time.Hour)}
	event := dedupe.Record{
		Queue: "orders", Tenant: "default", EventID: "e007", EventType: "order.paid", Status: dedupe.Failed, PayloadHash: "sha256:00",
		LeaseToken: "t", LastError: "order_not_seen", IdempotencyKey: "payment-7", Attempts: 1, CreatedAt: at.Add(-7 * time.Minute),
	}
	commit(t, db,
		store.Create(store.Key{Collection: "deadLetters", ID: "d1"}, store.Encode(&died)),
		store.Create(store.Key{Collection: "deadLetters", ID: "d2"}, map[string]any{"queue": "refunds", "state": "open", "kept_at": at.Add(-5 * time.Hour), "expire_at": at.Add(time.Hour)}),
		store.Create(dedupe.Key(event.Queue, event.Tenant, event.EventID), event.Fields()),
	)
	require.NoError(t, backlog.Write(t.Context(), db, at, map[string]backlog.Held{"orders": {Messages: 12, Oldest: at.Add(-90 * time.Second)}, "clicks": {Messages: 3}}))
	counted := rates.NewRecorder(rates.Config{Store: db, Now: now, Self: rates.Service{Instance: "i1"}, Breakers: func() []rates.Breaker { return nil }})
	for _, outcome := range []retry.Outcome{retry.Processed, retry.Processed, retry.Duplicate, retry.Retry, retry.DeadLettered} {
		counted.Arrived("orders")
		counted.Ended("orders", outcome, 1)
	}
	require.NoError(t, counted.Flush(t.Context()))
	reads := events.Reads{Store: db, Now: now, Catalog: &catalog.Catalog{Queues: []catalog.Queue{
		{ID: "orders", Alias: "q:orders", Enabled: true, MaxBacklog: catalog.MaxBacklog{Messages: 10_000}},
		{ID: "clicks", Enabled: true, DeadLetter: catalog.DeadLetter{Drop: true}},
		{ID: "refunds", DeadLetter: catalog.DeadLetter{AlertAbove: 5, OldestAlert: 4 * time.Hour}},
	}}}
	play(t, asAda, serveAPI(t, operations.Apps{Reads: reads, Letters: &deadletter.Operator{Store: db, Now: now}}), []step{
		{line: "events ls --status failed", want: "EVENT QUEUE STATUS RECORDED TYPE ATTEMPTS RESULT REASON NEXT ATTEMPT\ne007 orders FAILED 2026-03-02T10:08:00Z order.paid 1 - order_not_seen -\n"},
		{line: "events show e007", want: "EVENT e007\n…REASON order_not_seen\n…IDEMPOTENCY KEY payment-7\n…It has failed, after 1 attempt: order_not_seen. It is tried again.\n"},
		{line: "events ls --correlation-id c9", want: "No event is in this list."},
		{line: "events ls --queue ordesr", fails: "queue_unknown"},
		{line: "queues ls --wide", want: `
QUEUE STATE ALIAS DEAD LETTERS WAITING LAST HOUR
orders alert q:orders 1, the oldest for 1h 30m 12 in the broker for 1m 30s 5 in, 4 out, 50 % failed
clicks ok - none kept 3 in the broker -
refunds alert - 1, the oldest for 5h broker not counted -
orders: dead letters: 1, the oldest since 2026-03-02T08:45:00Z; alert over 0; 50 % of the attempts failed in the last hour
refunds: dead letters: 1, the oldest since 2026-03-02T05:15:00Z; alert over 5 or 4h
2 of 3 queues need you.
`},
		{line: "queues show q:orders", want: "12 in the broker for 1m 30s…orders product_unknown 1…The broker holds 12 of at most 10000 messages.\n" +
			"Last hour: about 5 in, 2 processed, 1 ended otherwise, 1 dead-lettered, 1 attempts failed and follow again; 50 % of the attempts failed.\n"},
	})
}

func TestPagesAreFollowedUpToTheLimit(t *testing.T) {
	t.Parallel()
	worker := listen(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		first, _ := strconv.Atoi(r.URL.Query().Get("page"))
		most, err := strconv.Atoi(cmp.Or(r.URL.Query().Get("limit"), "50"))
		assert.NoError(t, err)
		var page console.List[events.Line]
		for n := first; n < min(first+min(most, 100), 250); n++ {
			page.Items, page.Next = append(page.Items, events.Line{EventID: strconv.Itoa(n)}), strconv.Itoa(n+1)
		}
		if page.Next == "250" {
			page.Next = ""
		}
		assert.NoError(t, json.NewEncoder(w).Encode(page))
	}))
	for limit, want := range map[string]int{"1": 1, "200": 200, "210": 210, "1000": 250, "0": 250} {
		out, err := say(t, asAda, "events", "ls", "--json", "--limit", limit, "--server", worker)
		require.NoError(t, err)
		var list console.List[events.Line]
		require.NoError(t, json.Unmarshal([]byte(out), &list), "one document")
		require.Equal(t, want < 250, list.Next != "")
		require.Len(t, list.Items, want)
		for n, line := range list.Items {
			require.Equal(t, strconv.Itoa(n), line.EventID)
		}
	}
}
