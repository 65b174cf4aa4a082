package ops_test

import (
	"cmp"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"billhook/internal/console/ops"
	"billhook/internal/dedupe"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/pipeline/handler"
	"billhook/internal/pipeline/lane"
	"billhook/internal/platform/backlog"
	"billhook/internal/platform/store"
)

// created is a record of an event that was created that long before now.
func created(queue, id string, status dedupe.Status, ago time.Duration) dedupe.Record {
	r := record(queue, "default", id)
	r.Status, r.CreatedAt = status, at.Add(-ago)
	return r
}

// all follows the pages of a list to its end and returns the ids, and how many pages that took.
func (r *rig) all(t require.TestingT, path string) (ids []string, pages int) {
	ask := path
	for {
		var page ops.List[ops.Line]
		r.ask(t, ask, nil, &page)
		for _, line := range page.Items {
			ids = append(ids, line.EventID)
		}
		if pages++; page.Next == "" {
			return ids, pages
		}
		require.Less(t, pages, 1000)
		ask = path + "&page=" + url.QueryEscape(page.Next)
	}
}

func TestTheJobLogIsFiltered(t *testing.T) {
	t.Parallel()
	r := open(t)
	other := created("refunds", "e4", dedupe.Completed, time.Minute)
	other.EventType, other.CorrelationID, other.OrderingKey = "refund.made", "c4", "u4"
	r.commit(t,
		own(created("orders", "e1", dedupe.Completed, 0)), own(created("orders", "e2", dedupe.Failed, 2*time.Hour)),
		own(created("orders", "e3", dedupe.Completed, 30*time.Hour)), own(other), own(created("orders", "e5", dedupe.DeadLettered, 40*24*time.Hour)),
		own(created("orders", "e6", dedupe.Completed, 24*time.Hour)), own(created("orders", "e7", dedupe.Completed, 24*time.Hour+time.Microsecond)))
	for query, want := range map[string][]string{
		"":                                    {"e1", "e4", "e2", "e6", "e7", "e3", "e5"},
		"queue=orders":                        {"e1", "e2", "e6", "e7", "e3", "e5"},
		"queue=q:orders":                      {"e1", "e2", "e6", "e7", "e3", "e5"},
		"queue=refunds":                       {"e4"},
		"status=FAILED":                       {"e2"},
		"status=failed":                       {"e2"},
		"queue=orders&status=COMPLETED":       {"e1", "e6", "e7", "e3"},
		"type=refund.made":                    {"e4"},
		"correlation_id=c4":                   {"e4"},
		"key=u4":                              {"e4"},
		"event_id=e5":                         {"e5"},
		"event_id=e5&since=1h":                nil,
		"correlation_id=c1":                   {"e1", "e2", "e6", "e7", "e3", "e5"},
		"since=24h":                           {"e1", "e4", "e2", "e6"},
		"since=31h":                           {"e1", "e4", "e2", "e6", "e7", "e3"},
		"since=60d":                           {"e1", "e4", "e2", "e6", "e7", "e3", "e5"},
		"since=30m":                           {"e1", "e4"},
		"since=2026-03-02T10:14:00Z":          {"e1", "e4"},
		"since=2026-03-02T10:14:00.000001Z":   {"e1"},
		"since=2026-03-02T11:14:00%2B01:00":   {"e1", "e4"},
		"until=1m":                            {"e2", "e6", "e7", "e3", "e5"},
		"since=3h&until=2026-03-02T10:00:00Z": {"e2"},
		"until=39d&since=41d":                 {"e5"},
	} {
		t.Run(query, func(t *testing.T) {
			t.Parallel()
			for _, limit := range []string{"1", "2", "200"} {
				got, _ := r.all(t, "/v1/ops/events?"+strings.TrimPrefix(query+"&limit="+limit, "&"))
				require.Equal(t, want, got)
			}
		})
	}
}

func TestALineOfTheJobLog(t *testing.T) {
	t.Parallel()
	r := open(t)
	r.commit(t, own(record("orders", "default", "e1")))
	got := r.ask(t, "/v1/ops/events", nil, nil)
	require.Equal(t, http.StatusOK, got.Code)
	require.JSONEq(t, `{"items": [{
		"event_id": "e1", "event_type": "order.paid", "action": "order.paid", "queue": "orders", "tenant": "default", "status": "COMPLETED", "attempts": 2,
		"result": "credited", "reason": "", "correlation_id": "c1", "idempotency_key": "p1", "ordering_key": "u1", "message_id": "17",
		"created_at": "2026-03-02T10:15:00Z", "updated_at": "2026-03-02T10:15:01Z", "processed_at": "2026-03-02T10:15:01Z"
	}], "next": ""}`, got.Body.String())
	require.JSONEq(t, `{"items": [], "next": ""}`, r.ask(t, "/v1/ops/events?status=FAILED", nil, nil).Body.String())
}

func TestTheLastOfManyOrdersIsTheFirstLine(t *testing.T) {
	t.Parallel()
	r := open(t)
	const orders = 121
	for i := range orders { // one each second
		r.commit(t, own(created("orders", fmt.Sprintf("e%03d", i+1), dedupe.Completed, time.Duration(orders-1-i)*time.Second)))
	}
	newest := func(query string) (ids []string) {
		var page ops.List[ops.Line]
		r.ask(t, "/v1/ops/events?"+query, nil, &page)
		for _, line := range page.Items {
			ids = append(ids, line.EventID)
		}
		return ids
	}
	first := newest("")
	require.Len(t, first, 50)
	require.Equal(t, []string{"e121", "e120", "e119"}, first[:3])
	require.Equal(t, "e072", first[49])
	require.Equal(t, []string{"e121", "e120", "e119"}, newest("since=2s"))
	require.Equal(t, []string{"e121"}, newest("limit=1&queue=orders&status=COMPLETED"))
}

// Whatever is in the log, however it is paged, and whatever is written meanwhile: what stood there
// when the first page was read comes once, the newest first, also where many are of one moment.
func TestPagesShowEachEventOnce(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(check *rapid.T) {
		r := open(t)
		written := 0
		write := func(oldest time.Duration) dedupe.Record {
			one := created("orders", fmt.Sprintf("e%03d", written), dedupe.Completed, time.Duration(rapid.Int64Range(0, 6).Draw(check, "ago"))*oldest/6)
			written++
			r.commit(t, own(one))
			return one
		}
		var stood []dedupe.Record
		for range rapid.IntRange(0, 40).Draw(check, "events") {
			stood = append(stood, write(30*time.Hour))
		}
		query, since := "", time.Duration(0)
		if rapid.Bool().Draw(check, "since") {
			since = 5 * time.Hour * time.Duration(rapid.IntRange(1, 6).Draw(check, "hours"))
			query = fmt.Sprintf("since=%s&", since)
			stood = slices.DeleteFunc(stood, func(one dedupe.Record) bool { return one.CreatedAt.Before(at.Add(-since)) })
		}
		slices.SortFunc(stood, func(a, b dedupe.Record) int {
			key := func(one dedupe.Record) string { return dedupe.Key(one.Queue, one.Tenant, one.EventID).ID }
			return cmp.Or(b.CreatedAt.Compare(a.CreatedAt), strings.Compare(key(b), key(a)))
		})
		var got []string
		shown := map[string]int{}
		for token := ""; ; {
			var page ops.List[ops.Line]
			r.ask(check, fmt.Sprintf("/v1/ops/events?%slimit=%d%s", query, rapid.IntRange(1, 20).Draw(check, "limit"), token), nil, &page)
			for _, line := range page.Items {
				shown[line.EventID]++
				if slices.ContainsFunc(stood, func(one dedupe.Record) bool { return one.EventID == line.EventID }) {
					got = append(got, line.EventID)
				}
			}
			if page.Next == "" {
				break
			}
			token = "&page=" + url.QueryEscape(page.Next)
			if rapid.Bool().Draw(check, "writes meanwhile") {
				write(30 * time.Hour)
			}
		}
		var want []string
		for _, one := range stood {
			want = append(want, one.EventID)
		}
		require.Equal(check, want, got)
		for id, times := range shown {
			require.Equal(check, 1, times, id)
		}
	})
}

func TestWrongFiltersAreRefusedWithWhatToDo(t *testing.T) {
	t.Parallel()
	r := open(t)
	token := func(parts ...string) string {
		return base64.RawURLEncoding.EncodeToString([]byte(strings.Join(parts, "|")))
	}
	for path, code := range map[string]string{
		"/v1/ops/events?queue=nobody":                           "queue_unknown",
		"/v1/ops/events?status=DONE":                            "status_unknown",
		"/v1/ops/events?since=yesterday":                        "since_invalid",
		"/v1/ops/events?since=-1h":                              "since_invalid",
		"/v1/ops/events?since=0d":                               "since_invalid",
		"/v1/ops/events?since=99999999999d":                     "since_invalid",
		"/v1/ops/events?since=4000d":                            "since_invalid",
		"/v1/ops/events?since=1h&until=2h":                      "since_invalid",
		"/v1/ops/events?until=x":                                "until_invalid",
		"/v1/ops/events?event_id=ilse@example.org":              "event_id_invalid",
		"/v1/ops/events?correlation_id=a%2Fb":                   "correlation_id_invalid",
		"/v1/ops/events?type=a%00b":                             "type_invalid",
		"/v1/ops/events?limit=0":                                "limit_invalid",
		"/v1/ops/events?limit=201":                              "limit_invalid",
		"/v1/ops/events?limit=many":                             "limit_invalid",
		"/v1/ops/events?statuss=FAILED":                         "parameter_unknown",
		"/v1/ops/events?status=":                                "parameter_invalid",
		"/v1/ops/events?status=FAILED&status=COMPLETED":         "parameter_invalid",
		"/v1/ops/events?status=%zz":                             "query_invalid",
		"/v1/ops/events?page=x":                                 "page_invalid",
		"/v1/ops/events?page=" + token("a", "1", "2", "h", "i"): "page_invalid",
		"/v1/ops/events?page=" + strings.Repeat("A", 10_000):    "page_invalid",
		"/v1/ops/queues?queue=orders":                           "parameter_unknown",
		"/v1/ops/outbox?limit=1000":                             "limit_invalid",
	} {
		t.Run(path[:min(len(path), 60)], func(t *testing.T) {
			t.Parallel()
			var problem struct{ Code, Detail string }
			got := r.ask(t, path, nil, &problem)
			require.Equal(t, http.StatusBadRequest, got.Code)
			require.Equal(t, code, problem.Code)
			require.NotEmpty(t, problem.Detail)
			require.NotContains(t, got.Body.String(), "ilse")
		})
	}
}

func TestAPageTokenGoesWithItsListAndItsFilters(t *testing.T) {
	t.Parallel()
	r := open(t)
	r.commit(t, own(created("orders", "e1", dedupe.Completed, 0)), own(created("orders", "e2", dedupe.Completed, time.Hour)))
	var page ops.List[ops.Line]
	r.ask(t, "/v1/ops/events?queue=orders&limit=1", nil, &page)
	require.NotEmpty(t, page.Next)
	require.Equal(t, http.StatusOK, r.ask(t, "/v1/ops/events?queue=orders&limit=7&page="+page.Next, nil, nil).Code, "the limit may change")
	raw, err := base64.RawURLEncoding.DecodeString(page.Next)
	require.NoError(t, err)
	forged := func(part int, value string) string {
		parts := strings.SplitN(string(raw), "|", 5)
		parts[part] = value
		return "/v1/ops/events?queue=orders&page=" + base64.RawURLEncoding.EncodeToString([]byte(strings.Join(parts, "|")))
	}
	var spanned ops.List[ops.Line]
	r.ask(t, "/v1/ops/events?queue=orders&since=36h&limit=1", nil, &spanned)
	within, err := base64.RawURLEncoding.DecodeString(spanned.Next)
	require.NoError(t, err)
	parts := strings.SplitN(string(within), "|", 5)
	require.Len(t, parts, 5, "there is a second page")
	parts[3] = "0"
	for name, path := range map[string]string{
		"a time before its span":   "/v1/ops/events?queue=orders&since=36h&page=" + base64.RawURLEncoding.EncodeToString([]byte(strings.Join(parts, "|"))),
		"another queue":            "/v1/ops/events?queue=refunds&page=" + page.Next,
		"no queue":                 "/v1/ops/events?page=" + page.Next,
		"another time":             "/v1/ops/events?queue=orders&since=2h&page=" + page.Next,
		"a longer one":             "/v1/ops/events?queue=orders&page=" + page.Next + "AAAA",
		"half of it":               "/v1/ops/events?queue=orders&page=" + page.Next[:len(page.Next)/2],
		"no time":                  forged(3, fmt.Sprint(time.Time{}.UnixMicro())),
		"a time that is none":      forged(3, "soon"),
		"a time beyond all":        forged(3, fmt.Sprint(math.MaxInt64)),
		"a span that nobody asked": forged(1, "0"),
		"an end that nobody asked": forged(2, "0"),
		"an end that is none":      forged(2, "soon"),
		"an id that is none":       forged(4, "a/b"),
		"no id":                    forged(4, ""),
		"the hand of another list": forged(0, "0000000000000000"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var problem struct{ Code string }
			require.Equal(t, http.StatusBadRequest, r.ask(t, path, nil, &problem).Code)
			require.Equal(t, "page_invalid", problem.Code)
		})
	}
	audit := "/v1/ops/audit?page=" + page.Next
	require.Equal(t, http.StatusBadRequest, r.ask(t, audit, nil, nil).Code)
}

// stocks makes a request for /v1/ops/stock/hat one for a change that is done.
func stocks(request *http.Request) {
	request.Method, request.Body = http.MethodPut, io.NopCloser(strings.NewReader(`{"available":1,"why":"mended"}`))
}

// recorder keeps the queries that pass through it.
type recorder struct {
	store.Store
	mu      sync.Mutex
	queries []store.Query
}

func (s *recorder) Query(ctx context.Context, q store.Query) (store.Page, error) {
	s.mu.Lock()
	s.queries = append(s.queries, q)
	s.mu.Unlock()
	return s.Store.Query(ctx, q)
}

// composite names the composite index that a query needs in production, or nothing. An
// emulator needs none, so that a missing one would show there alone. Equality filters
// are merged from the single-field indexes, in the order of the ids, a range over which
// is at the end of each; a range over a field is served by that field's own.
//
// Those of what is the newest are terraform's to check, which knows how they merge.
func composite(q store.Query) []string {
	if q.Due == nil || len(q.Equal) == 0 {
		return nil
	}
	return append(slices.Sorted(maps.Keys(q.Equal)), q.Due.Field)
}

func TestNoQueryNeedsAnotherCompositeIndexAndEachIsBounded(t *testing.T) {
	t.Parallel()
	require.Equal(t, []string{"queue", "due_at"}, composite(store.Query{Equal: map[string]any{"queue": "q"}, Due: &store.Due{Field: "due_at"}}))
	for path, most := range map[string]int{
		"/v1/ops/queues": 2*(4+2) + 3 + 5 + 1, // of each queue its statuses and its dead letters; the outbox, the backlogs, the places in which nothing waits, and the rates
		"/v1/ops/outbox": 1,
		"/v1/ops/events": dedupe.Shards,
		"/v1/ops/events?queue=orders&status=COMPLETED&type=order.paid&event_id=e1&correlation_id=c1&since=31d": dedupe.Shards,
		"/v1/ops/events?event_id=e1":              dedupe.Shards,
		"/v1/ops/events/e1":                       9,     // and one that it has emitted, with its dead letters, and what it has moved
		"/v1/ops/events/e1?queue=orders&tenant=t": 6 + 1, // and the pauses, where it is unknown
		"/v1/ops/accounts/points:user:u1":         1,
	} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			r := open(t)
			told := record("orders", "default", "e1")
			told.Emitted = []handler.Emitted{{EventID: "first"}}
			r.commit(t, own(told), waitingLane("l1", time.Hour), letter("d1", "orders", "open", 0), letter("d2", "refunds", "open", 0))
			seen := &recorder{Store: r.store}
			r.over(seen)
			require.NotEqual(t, http.StatusBadRequest, r.ask(t, path, nil, nil).Code)
			require.LessOrEqual(t, len(seen.queries), most)
			stored := told.Fields()
			for _, q := range seen.queries {
				require.NoError(t, store.CheckQuery(q))
				if index := composite(q); index != nil {
					require.Equal(t, []string{"queue", "state", "kept_at"}, index, "terraform makes no other")
					require.Equal(t, deadletter.Collection, q.Collection)
				}
				for field := range q.Equal {
					if q.Collection == dedupe.Collection {
						require.Contains(t, stored, field, "a filter on a field that no record has finds nothing")
					}
				}
			}
		})
	}
}

func waitingLane(id string, waits time.Duration) store.Write {
	return store.Create(store.Key{Collection: lane.Outbox.Lanes(), ID: id}, map[string]any{"newest": "x", "due_at": at.Add(time.Second), "oldest_at": at.Add(-waits)})
}

func letter(id, queue, state string, waits time.Duration) store.Write {
	return store.Create(store.Key{Collection: deadletter.Collection, ID: id}, map[string]any{"queue": queue, "state": state, "kept_at": at.Add(-waits)})
}

func TestQueuesSayWhereTheyStand(t *testing.T) {
	t.Parallel()
	r := open(t)
	r.commit(t, own(created("orders", "e1", dedupe.Completed, 0)), own(created("orders", "e2", dedupe.Completed, 0)),
		own(created("orders", "e3", dedupe.Failed, 0)), own(created("refunds", "e4", dedupe.Processing, 0)),
		letter("d1", "orders", "open", time.Minute), letter("d2", "orders", "open", 2*time.Minute),
		letter("d3", "orders", "replayed", time.Hour), letter("d4", "refunds", "discarded", time.Hour), waitingLane("l1", time.Minute), waitingLane("l2", time.Hour))
	none := `{"count": 0, "more": false}`
	waits := func(replayed string) string {
		return `"waiting": {"unacknowledged": null, "oldest_unacked_seconds": null, "delayed": ` + none +
			`, "outbox": ` + none + `, "in_replay": ` + replayed + `, "for_approval": ` + none + `}, "breakers": [],
				"last_hour": {"in": 0, "out": 0, "processed": 0, "other": 0, "dead": 0, "failed": 0, "failure_percent": 0},`
	}
	require.JSONEq(t, `{"items": [
		{"id": "orders", "alias": "q:orders", "enabled": false, `+waits(`{"count": 1, "more": false}`)+`
			"events": {"PROCESSING": `+none+`, "COMPLETED": {"count": 2, "more": false}, "FAILED": {"count": 1, "more": false}, "DEAD_LETTERED": `+none+`},
			"dead_letters": {"count": 2, "more": false, "alert_above": 0, "oldest_at": "2026-03-02T10:13:00Z", "oldest_seconds": 120,
				"oldest_alert_seconds": 0, "alert": true, "dropped": false}},
		{"id": "refunds", "alias": "", "enabled": false, `+waits(none)+`
			"events": {"PROCESSING": {"count": 1, "more": false}, "COMPLETED": `+none+`, "FAILED": `+none+`, "DEAD_LETTERED": `+none+`},
			"dead_letters": {"count": 0, "more": false, "alert_above": 2, "oldest_seconds": 0, "oldest_alert_seconds": 14400, "alert": false, "dropped": false}}
	], "next": "", "outbox": {"lanes": {"count": 2, "more": false}, "oldest_at": "2026-03-02T09:15:00Z", "oldest_seconds": 3600},
		"books": {"seals": 0, "entries": 0, "unsealed": 0, "accounts": 0, "found": 0}}`,
		r.ask(t, "/v1/ops/queues", nil, nil).Body.String())
}

func TestABacklogIsShownWhileItIsKnown(t *testing.T) {
	t.Parallel()
	r := open(t)
	backlogs := func() (orders, refunds *ops.Backlog) {
		var got ops.Queues
		r.ask(t, "/v1/ops/queues", nil, &got)
		return got.Items[0].Backlog, got.Items[1].Backlog
	}
	require.NoError(t, backlog.Write(t.Context(), r.store, at.Add(-backlog.GoodFor), map[string]backlog.Held{"orders": {Messages: 7}}))
	orders, refunds := backlogs()
	require.Equal(t, &ops.Backlog{Messages: 7, CountedAt: at.Add(-backlog.GoodFor)}, orders)
	require.Nil(t, refunds, "of a queue that was not counted nothing is known")
	require.NoError(t, backlog.Write(t.Context(), r.store, at.Add(-backlog.GoodFor-time.Second), map[string]backlog.Held{"orders": {Messages: 7}}))
	orders, _ = backlogs()
	require.Nil(t, orders)
}

func TestTheOldestDeadLetterAlertsThoughTheyAreFew(t *testing.T) {
	t.Parallel()
	r := open(t)
	depth := func() ops.Depth {
		var got ops.Queues
		r.ask(t, "/v1/ops/queues", nil, &got)
		return got.Items[1].DeadLetters
	}
	r.commit(t, letter("d1", "refunds", "open", 4*time.Hour))
	require.EqualValues(t, 14400, depth().OldestSeconds)
	require.False(t, depth().Alert, "it may wait for as long as that")
	r.commit(t, letter("d2", "refunds", "open", 4*time.Hour+time.Second))
	require.EqualValues(t, 14401, depth().OldestSeconds)
	require.True(t, depth().Alert)
}

// many answers every count with as much as it was asked to count.
type many struct{ store.Store }

func (s many) Query(ctx context.Context, q store.Query) (store.Page, error) {
	if q.Count {
		return store.Page{Count: int64(q.Limit)}, nil
	}
	return s.Store.Query(ctx, q)
}

func TestCountingEndsSomewhere(t *testing.T) {
	t.Parallel()
	r := open(t)
	r.over(many{r.store})
	var got ops.Queues
	r.ask(t, "/v1/ops/queues", nil, &got)
	require.Equal(t, ops.Count{Count: 10_000, More: true}, got.Items[0].Events[dedupe.Completed])
	require.Equal(t, ops.Count{Count: 10_000, More: true}, got.Items[0].DeadLetters.Count)
	require.True(t, got.Items[0].DeadLetters.Alert)
}

func TestTheOutboxShowsWhatWaitsLongest(t *testing.T) {
	t.Parallel()
	r := open(t)
	r.commit(t, waitingLane("l1", time.Minute), waitingLane("l2", time.Hour), waitingLane("l3", time.Second))
	require.JSONEq(t, `{"items": [
		{"id": "l2", "due_at": "2026-03-02T10:15:01Z", "oldest_at": "2026-03-02T09:15:00Z", "waits_seconds": 3600},
		{"id": "l1", "due_at": "2026-03-02T10:15:01Z", "oldest_at": "2026-03-02T10:14:00Z", "waits_seconds": 60}
	], "next": "", "more": true}`, r.ask(t, "/v1/ops/outbox?limit=2", nil, nil).Body.String())
	require.JSONEq(t, `{"items": [], "next": "", "more": false}`, open(t).ask(t, "/v1/ops/outbox", nil, nil).Body.String())
}

func TestTheJobLogOfAStoreThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	r := open(t)
	r.commit(t, own(record("orders", "default", "e1")))
	r.store.Down(true)
	for _, path := range []string{"/v1/ops/queues", "/v1/ops/outbox", "/v1/ops/events", "/v1/ops/events?event_id=e1"} {
		require.Equal(t, http.StatusServiceUnavailable, r.ask(t, path, nil, nil).Code, path)
	}
	require.Equal(t, http.StatusServiceUnavailable, r.do(t, http.MethodDelete, "/api/v1/events/cleanup", nil))
}

func TestAnotherSiteChangesNothing(t *testing.T) {
	t.Parallel()
	r := open(t)
	got := r.ask(t, "/v1/ops/stock/hat", func(request *http.Request) {
		stocks(request)
		request.Header.Set("Sec-Fetch-Site", "cross-site")
	}, nil)
	require.Equal(t, http.StatusForbidden, got.Code)
	require.Contains(t, got.Body.String(), "cross_origin")
}

// Whatever a token says, it is refused, or answered with what the filters allow.
func FuzzPageTokens(f *testing.F) {
	r := newRig(f, ops.Access{OpenOnLoopback: true})
	r.commit(f, own(created("orders", "e1", dedupe.Completed, 0)), own(created("orders", "e2", dedupe.Completed, time.Hour)), own(created("refunds", "e3", dedupe.Completed, 0)))
	const path = "/v1/ops/events?queue=orders&limit=1"
	var page ops.List[ops.Line]
	r.ask(f, path, nil, &page)
	raw, err := base64.RawURLEncoding.DecodeString(page.Next)
	require.NoError(f, err)
	hand, place, _ := strings.Cut(string(raw), "|")
	for _, seed := range []string{"", place, "|||", "0|0|0|id", "0|9223372036854775807|1772446500000000|", "-9223372036854775808|9223372036854775807|1772446500000000|id"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, place string) {
		token := base64.RawURLEncoding.EncodeToString([]byte(hand + "|" + place))
		var page ops.List[ops.Line]
		switch got := r.ask(t, path+"&page="+token, nil, &page); got.Code {
		case http.StatusOK:
			for _, line := range page.Items {
				require.Equal(t, "orders", line.Queue)
			}
		default:
			require.Equal(t, http.StatusBadRequest, got.Code)
		}
	})
}
