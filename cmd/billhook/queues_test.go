package main

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/console/ops"
	"billhook/internal/dedupe"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/pipeline/rates"
	"billhook/internal/platform/backlog"
	"billhook/internal/platform/standin"
	"billhook/internal/platform/store"
	"billhook/internal/retry"
)

const opsToken = "0123456789abcdef01234567"

// serveEvents serves a worker's ops API over a store with a few hundred events. operators are
// the X-Operator headers that arrive.
func serveEvents(t *testing.T) (address string, operators func() []string) {
	t.Helper()
	db, err := standin.OpenTemporaryStore(filepath.Join(t.TempDir(), "store.db"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	at := time.Date(2026, 3, 2, 10, 15, 0, 0, time.UTC)
	var writes []store.Write
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
	died := deadletter.Item{Queue: "orders", State: deadletter.Open, Reason: "product_unknown", Kept: at.Add(-90 * time.Minute)}
	writes = append(writes,
		store.Create(store.Key{Collection: "outboxKeys", ID: "lane-1"}, map[string]any{"due_at": at.Add(time.Second), "oldest_at": at.Add(-time.Minute)}),
		store.Create(store.Key{Collection: "deadLetters", ID: "d1"}, store.Encode(&died)),
		store.Create(store.Key{Collection: "deadLetters", ID: "d2"}, map[string]any{"queue": "refunds", "state": "open", "kept_at": at.Add(-5 * time.Hour)}))
	_, err = db.Commit(t.Context(), writes)
	require.NoError(t, err)
	var mu sync.Mutex
	var seen []string
	router := chi.NewRouter()
	router.Use(func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			seen = append(seen, r.Header.Get("X-Operator"))
			mu.Unlock()
			next.ServeHTTP(w, r)
		})
	})
	require.NoError(t, backlog.Write(t.Context(), db, at, map[string]backlog.Held{"orders": {Messages: 12, Oldest: at.Add(-90 * time.Second)}, "clicks": {Messages: 3}}))
	counted := rates.NewRecorder(rates.Config{
		Store: db, Now: func() time.Time { return at }, Self: rates.Service{Instance: "i1"},
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
	(&ops.API{
		Log: slog.New(slog.DiscardHandler), Access: ops.Access{Tokens: []string{opsToken}}, Operator: &deadletter.Operator{Store: db, Now: func() time.Time { return at }},
		Reads: ops.Reads{Store: db, Now: func() time.Time { return at }, Catalog: &catalog.Catalog{Targets: map[string]catalog.Target{"ledger": {Name: "ledger"}}, Queues: []catalog.Queue{
			{ID: "orders", Alias: "q:orders", Enabled: true, MaxBacklog: catalog.MaxBacklog{Messages: 10_000}, Handlers: map[string]catalog.Handler{"order.paid": {Post: catalog.Post{Target: "ledger"}}}}, {ID: "clicks", Enabled: true, DeadLetter: catalog.DeadLetter{Drop: true}},
			{ID: "refunds", DeadLetter: catalog.DeadLetter{AlertAbove: 5, OldestAlert: 4 * time.Hour}},
		}}},
	}).Routes(router)
	server := httptest.NewServer(router)
	t.Cleanup(server.Close)
	return server.URL, func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(seen)
	}
}

// say runs the program and returns its output.
func say(t *testing.T, environment map[string]string, args ...string) (string, error) {
	t.Helper()
	var out strings.Builder
	err := run(t.Context(), args, func(name string) string { return environment[name] }, &out)
	return out.String(), err
}

func TestTheJobLogIsPrinted(t *testing.T) {
	t.Parallel()
	worker, operators := serveEvents(t)
	environment := map[string]string{"OPS_TOKEN": opsToken, "OPS_OPERATOR": "ada", "COLUMNS": "200"}
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"the failed ones": {[]string{"events", "ls", "--status", "failed", "--server", worker}, `
CREATED               QUEUE   EVENT  TYPE        STATUS  ATTEMPTS  RESULT
2026-03-02T10:08:00Z  orders  e007   order.paid  FAILED  1         order_not_seen
`},
		"the newest, and that there are more": {[]string{"events", "ls", "--queue", "q:orders", "--since", "10m", "--limit", "2", "--server", worker}, `
There may be more; raise --limit.
`},
		"what a message was made from": {[]string{"events", "show", "e007", "--server", worker}, `
e007  FAILED
  queue           orders
  type            order.paid
  reason          order_not_seen
  attempts        1
  idempotency key payment-7
  payload         sha256:00
  created         2026-03-02T10:08:00Z
`},
		"no event": {[]string{"events", "ls", "--correlation", "c9", "--server", worker}, `
No event matches.

Beside these, or not yet among them, there wait
  12       in the broker, orders for 1m30s
  3        in the broker, clicks
`},
		"what waits of one queue alone": {[]string{"events", "ls", "--queue", "refunds", "--server", worker}, `
No event matches.

Nothing waits in the broker, delayed, in the outbox, in a replay or for approval.
`},
		"the queues": {[]string{"queues", "--server", worker}, `
QUEUE    WAITING                          IN/H  OUT/H  FAILURES  PROCESSING  COMPLETED  FAILED  DEAD-LETTERED  OPEN           OLDEST           STATE  ALIAS
orders   12 of 10000 in broker for 1m30s  5     4      50 %      0           249        1       0              1 (alert > 0)  1h30m            ALERT  q:orders
clicks   3 in broker                      0     0      -         0           0          0       0              dropped        -                on     -
refunds  -                                0     0      -         0           0          0       0              1 (alert > 5)  5h (alert > 4h)  ALERT  -

orders: the breaker of target ledger is half-open in instance i1 since 2026-03-02T10:14:00Z

The outbox holds messages of 1 keys, the oldest since 1m.
`},
		"one queue": {[]string{"queues", "show", "q:orders", "--server", worker}, `
Waiting: 12 of 10000 in broker for 1m30s
Dead letters: 1 (alert > 0), the oldest 1h30m
  1  product_unknown
Last hour, about: 5 in, 2 processed, 1 ended otherwise, 1 dead-lettered, 1 attempts failed and follow again; 50 % of the attempts failed.

Target ledger: breaker half-open in 1 of 1 instances, the first since 2026-03-02T10:14:00Z
  Answers since the beginning of the hour before: none 1
TARGET  AT                    ANSWER  CODE                TOOK
ledger  2026-03-02T10:15:00Z  none    callee_unreachable  20 ms

Newest events:
CREATED               QUEUE   EVENT  TYPE        STATUS     ATTEMPTS  RESULT
2026-03-02T10:15:00Z  orders  e000   order.paid  COMPLETED  1         credited
`},
		"the rates of hours": {[]string{"queues", "rates", "--server", worker}, `
QUEUE   HOUR (UTC)        IN  PROCESSED  OTHER  DEAD  FAILED  FAILURES
orders  2026-03-02 10:00  5   2          1      1     1       50 %
`},
		"the rates of days": {[]string{"queues", "rates", "orders", "--days", "2", "--server", worker}, `
QUEUE   DAY (UTC)   IN  PROCESSED  OTHER  DEAD  FAILED  FAILURES
orders  2026-03-02  5   2          1      1     1       50 %
`},
		"no rates": {[]string{"queues", "rates", "clicks", "--server", worker}, `
Nothing was delivered.
`},
		"the outbox": {[]string{"outbox", "--server", worker}, `
LANE    WAITS  SINCE                 RELAYED NEXT
lane-1  1m     2026-03-02T10:14:00Z  2026-03-02T10:15:01Z
`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, err := say(t, environment, test.args...)
			require.NoError(t, err)
			require.Contains(t, "\n"+out, test.want)
			require.NotContains(t, operators(), "", "each request says who asks")
		})
	}
}

func TestPagesAreFollowedUpToTheLimit(t *testing.T) {
	t.Parallel()
	worker, _ := serveEvents(t)
	environment := map[string]string{"OPS_TOKEN": opsToken}
	for limit, want := range map[string]int{"1": 1, "200": 200, "210": 210, "1000": 250} {
		out, err := say(t, environment, "events", "ls", "--json", "--limit", limit, "--server", worker)
		require.NoError(t, err)
		var list ops.List[ops.Line]
		require.NoError(t, json.Unmarshal([]byte(out), &list), "one document")
		require.Len(t, list.Items, want)
		require.Equal(t, want < 250, list.Next != "")
		ids := map[string]bool{}
		for _, line := range list.Items {
			ids[line.EventID] = true
		}
		require.Len(t, ids, want)
	}
	for _, args := range [][]string{{"queues"}, {"outbox"}, {"events", "show", "e007"}} {
		out, err := say(t, environment, append(args, "--json", "--server", worker)...)
		require.NoError(t, err)
		require.True(t, json.Valid([]byte(out)), out)
	}
}

func TestARefusalSaysWhatToDo(t *testing.T) {
	t.Parallel()
	worker, _ := serveEvents(t)
	for name, test := range map[string]struct {
		token string
		args  []string
		want  string
	}{
		"no token":          {"", []string{"queues"}, "OPS_TOKEN"},
		"another token":     {"x", []string{"outbox"}, "not accepted"},
		"an unknown queue":  {opsToken, []string{"events", "ls", "--queue", "nobody"}, "queue_unknown"},
		"an unknown status": {opsToken, []string{"events", "ls", "--status", "done"}, "DEAD_LETTERED"},
		"the wrong way":     {opsToken, []string{"events", "ls", "--since", "1h", "--until", "2h"}, "before until"},
		"a limit of none":   {opsToken, []string{"events", "ls", "--limit", "0"}, "--limit"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, err := say(t, map[string]string{"OPS_TOKEN": test.token}, append(test.args, "--server", worker)...)
			require.ErrorContains(t, err, test.want)
			require.Empty(t, out)
		})
	}
}
