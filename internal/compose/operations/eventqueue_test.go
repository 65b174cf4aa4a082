package operations_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/contract"
	"billhook/internal/dedupe"
	"billhook/internal/filetest"
	"billhook/internal/inspect/deadletters"
	"billhook/internal/inspect/events"
	"billhook/internal/inspect/queues"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/platform/audit"
	"billhook/internal/platform/backlog"
	"billhook/internal/platform/store"
)

// compatible sends a request to the event queue's API, and reads the answer's data, or returns the refusal's
// code.
func (r *rig) compatible(t *testing.T, method, path string, data any) (code string) {
	t.Helper()
	got := r.send(t, method, "/api/v1/events/"+path, "")
	var answer struct {
		Success bool            `json:"success"`
		Data    json.RawMessage `json:"data"`
		Error   string          `json:"error"`
	}
	require.NoError(t, json.Unmarshal(got.Body.Bytes(), &answer))
	require.Equal(t, got.Code == http.StatusOK, answer.Success)
	if answer.Success && data != nil {
		require.NoError(t, json.Unmarshal(answer.Data, data))
	}
	return answer.Error
}

func TestStatsOfTheEventQueueCountEachEventOnce(t *testing.T) {
	t.Parallel()
	type happening = func(r *rig, id string)
	recorded := func(status dedupe.Status) happening {
		return func(r *rig, id string) { r.commit(t, own(created("orders", id, status, 0))) }
	}
	kept := func(due time.Time, timer bool) happening {
		return func(r *rig, id string) { r.put(t, "orders", "", id, due, timer) }
	}
	emitted := func(r *rig, id string) { r.emitted(t, "orders", id) }
	buried := func(r *rig, id string) { r.bury(t, declared.Queues[0], id, id, "{}") }
	failed, later := recorded(dedupe.Failed), at.Add(time.Hour)
	events := []struct {
		name            string
		orders, refunds int64 // messages of the event in the broker
		happens         []happening
		counted         string // empty: nowhere
	}{
		{"waits in the broker", 1, 0, nil, "pending"},
		{"waits on a paused queue", 0, 1, nil, "pending"},
		{"waits behind another of its key", 0, 0, []happening{kept(time.Time{}, false)}, "pending"},
		{"is committed and not yet published", 0, 0, []happening{emitted}, "pending"},
		{"is a timer of an order or has a time of delivery", 0, 0, []happening{kept(later, true)}, ""},
		{"failed, and its message is kept", 0, 0, []happening{failed, kept(later, false)}, "failed"},
		{"failed, and the broker has its message", 1, 0, []happening{failed}, "failed"},
		{"is in processing", 1, 0, []happening{recorded(dedupe.Processing)}, "processing"},
		{"is completed", 0, 0, []happening{recorded(dedupe.Completed)}, "completed"},
		{"is dead", 0, 0, []happening{recorded(dedupe.DeadLettered), buried}, "deadLetter"},
	}
	stats := func(r *rig, orders, refunds int64) (counted map[string]any) {
		require.NoError(t, backlog.Write(t.Context(), r.store, at,
			map[string]backlog.Held{"orders": {Messages: orders}, "refunds": {Messages: refunds}}))
		r.compatible(t, http.MethodGet, "stats", &counted)
		return counted
	}
	empty := func() map[string]any {
		return map[string]any{"pending": 0., "processing": 0., "completed": 0., "failed": 0., "deadLetter": 0.}
	}
	together, all, orders, refunds := open(t), empty(), int64(0), int64(0)
	require.Equal(t, empty(), stats(together, 0, 0), "the answer of the API's documentation")
	for i, event := range events {
		alone, want := open(t), empty()
		for _, happens := range event.happens {
			happens(alone, fmt.Sprint("e", i))
			happens(together, fmt.Sprint("e", i))
		}
		if orders, refunds = orders+event.orders, refunds+event.refunds; event.counted != "" {
			want[event.counted] = 1.
			all[event.counted] = all[event.counted].(float64) + 1
		}
		require.Equal(t, want, stats(alone, event.orders, event.refunds), event.name)
	}
	require.Equal(t, all, stats(together, orders, refunds))
	// An old count of the broker is ignored: its messages are unknown then, and no number is below 0.
	require.NoError(t, backlog.Write(t.Context(), together.store, at.Add(-backlog.GoodFor-time.Second),
		map[string]backlog.Held{"orders": {Messages: 9}}))
	var blind queues.Stats
	together.compatible(t, http.MethodGet, "stats", &blind)
	require.Equal(t, queues.Stats{Processing: 1, Completed: 1, Failed: 2, DeadLetter: 1, AtLeast: true}, blind)
}

func TestDeadLetterOfTheEventQueueIsListedAndRetried(t *testing.T) {
	t.Parallel()
	r := open(t)
	for _, id := range []string{"d1", "d2", "twice"} {
		r.bury(t, declared.Queues[0], id, id, `{"eventId":"`+id+`"}`)
	}
	own := r.bury(t, declared.Queues[1], "twice", "twice", `{"eventId":"twice"}`)
	reads := 0
	r.store.OnRead = func(read func() error) error { reads++; return read() }
	var listed []queues.DeadEvent
	r.compatible(t, http.MethodGet, "dead-letter", &listed)
	require.Len(t, listed, 4)
	require.Equal(t, 1, reads, "a list costs one query for any number of queues")
	for _, dead := range listed {
		require.Equal(t,
			[]any{"order.paid", "dead_letter", "unknown_product", int64(5), len(`{"eventId":""}`) + len(dead.EventID)},
			[]any{dead.Type, dead.Status, dead.Error, dead.Attempts, dead.PayloadBytes})
	}
	for id, want := range map[string]string{
		"d1": "", own: "", "nothing": "dead_letter_unknown", "a b": "dead_letter_unknown",
	} {
		var done queues.Retried
		require.Equal(t, want, r.compatible(t, http.MethodPost, "dead-letter/"+id+"/retry", &done), id)
		require.Equal(t, want == "", done.Replayed)
	}
	require.Equal(t, "dead_letter_unknown", r.compatible(t, http.MethodPost, "dead-letter/d1/retry", nil),
		"it was replayed")
	r.bury(t, declared.Queues[1], "d2", "d2", "{}")
	require.Equal(t, "id_needed", r.compatible(t, http.MethodPost, "dead-letter/d2/retry", nil))
	cost := func() int {
		reads = 0
		require.Empty(t, r.compatible(t, http.MethodPost, "dead-letter/twice/retry", nil))
		return reads
	}
	before := cost()
	for i := range 230 { // more than two pages
		r.commit(t, inStore(dead("orders", fmt.Sprint("other", i), "r", 0)))
	}
	r.bury(t, declared.Queues[0], "twice", "again", "{}")
	require.Equal(t, before, cost(), "a retry reads its dead letter alone")
}

func TestCleanupByDaysRemovesExpiredDocuments(t *testing.T) {
	t.Parallel()
	r := open(t)
	done := func(id string, age int, expires time.Duration) {
		old := record("orders", "default", id)
		old.ProcessedAt, old.ExpireAt = at.AddDate(0, 0, -age), at.Add(expires)
		r.commit(t, own(old))
	}
	cleans := func(query string, deleted int) {
		t.Helper()
		var cleaned queues.CleanedDays
		require.Empty(t, r.compatible(t, http.MethodDelete, "cleanup"+query, &cleaned))
		require.Equal(t, queues.CleanedDays{Deleted: deleted, Remembered: 1}, cleaned)
	}
	done("c0", 1, -time.Hour)
	done("c1", 8, -time.Hour)
	done("c2", 9, time.Hour) // still remembered
	cleans("?olderThanDays=7", 1)
	cleans("", 0)                    // 7 days are the event queue's own
	for i := range store.MaxWrites { // with the one that stays, more than a page
		done(fmt.Sprint("many", i), 8, -time.Hour)
	}
	cleans("", store.MaxWrites)
	require.Equal(t, "olderThanDays_invalid", r.compatible(t, http.MethodDelete, "cleanup?olderThanDays=0", nil))
}

// exact is a payload with numbers that no float holds, and an unusual order of members.
const exact = `{"z":12345678901234567890.1234567890,"a":1e400,"b":[0.10]}`

// looked are the audit's entries about reading a payload.
func (r *rig) looked(t *testing.T, subject string) []audit.Entry {
	t.Helper()
	return filetest.Must(audit.Subject{Kind: events.PayloadKind, ID: subject}.All(t.Context(), r.store))(t)
}

func TestPayloadIsShownUnchangedForAReason(t *testing.T) {
	t.Parallel()
	r := open(t)
	letter := r.bury(t, declared.Queues[0], "e1", "101", exact)
	paths := map[string]string{
		"dead-letters/" + letter + "/payload": letter, "events/e1/payload?queue=q:orders": "e1",
	}
	for path := range paths {
		for _, why := range []string{`{"why":" "}`, `{}`, `{"why":"for ilse@example.org"}`} {
			answer := r.send(t, http.MethodPost, "/v1/ops/"+path, why)
			require.Equal(t, http.StatusUnprocessableEntity, answer.Code, why)
			require.NotContains(t, answer.Body.String(), "1234567890")
		}
		require.Equal(t, http.StatusMethodNotAllowed, r.send(t, http.MethodGet, "/v1/ops/"+path, "").Code,
			"reading a payload writes to the audit, so it is no GET")
		r.store.OnCommit = func(context.Context, []store.Write, func() error) error {
			return errors.New("no answer")
		}
		answer := r.send(t, http.MethodPost, "/v1/ops/"+path, `{"why":"OPS-7"}`)
		r.store.OnCommit = nil
		require.Equal(t, http.StatusServiceUnavailable, answer.Code,
			"no payload is shown without an entry in the audit")
		require.NotContains(t, answer.Body.String(), "1234567890")
	}
	for path, subject := range paths {
		require.Empty(t, r.looked(t, subject))
		require.Contains(t, r.does(t, http.MethodPost, "/v1/ops/"+path, `{"why":"OPS-7"}`, nil),
			exact[1:len(exact)-1])
		looked := r.looked(t, subject)
		require.Len(t, looked, 1)
		require.Equal(t, []string{"look", "local:ada", "OPS-7"},
			[]string{looked[0].Action, looked[0].Who, looked[0].Why})
		require.Equal(t, []any{"e1", "orders", []any{letter}},
			[]any{looked[0].After["event_id"], looked[0].After["queue"], looked[0].After["dead_letters"]})
	}
	for _, path := range []string{"dead-letters/" + letter, "events/e1", "dead-letters?queue=orders"} {
		require.NotContains(t, r.get(t, path, nil), "12345678901234567890", path)
	}
	require.NotContains(t, r.log.String(), "12345678901234567890")
	for i := range 12 {
		r.bury(t, declared.Queues[0], "e2", strings.Repeat("7", i+1), "{}")
	}
	var payload events.Payload
	r.does(t, http.MethodPost, "/v1/ops/events/e2/payload", `{"why":"OPS-7"}`, &payload)
	require.Len(t, payload.Items, 10)
	require.True(t, payload.More)
}

func TestDeadLetterShowsTheLaterEventsOfItsKey(t *testing.T) {
	t.Parallel()
	after := func(id string, status dedupe.Status, change func(*dedupe.Record)) dedupe.Record {
		r := record("orders", "default", id)
		r.Status, r.CreatedAt, r.PublishedAt = status, at.Add(time.Minute), at.Add(time.Second)
		if change != nil {
			change(&r)
		}
		return r
	}
	var hundred []dedupe.Record
	for i := range 101 {
		hundred = append(hundred, after(fmt.Sprint("e", i), dedupe.Completed, nil))
	}
	type row struct {
		letter func(*deadletter.Item)
		events []dedupe.Record
		kept   int
		want   *deadletters.Later
	}
	filetest.Each(t, map[string]row{
		"nothing": {want: &deadletters.Later{}},
		"each kind of event": {
			events: []dedupe.Record{
				after("e1", dedupe.Completed, nil), after("e2", dedupe.Completed, nil),
				after("e3", dedupe.DeadLettered, nil), after("e4", dedupe.Processing, nil),
				after("e5", dedupe.Failed, nil), after("e6", dedupe.Failed, func(r *dedupe.Record) {
					r.DelayTicket = "1-1"
				}),
			}, kept: 1, want: &deadletters.Later{Done: 2, Dead: 1, Waiting: 3},
		},
		"of another key, tenant or queue, before it, or itself": {events: []dedupe.Record{
			after("e1", dedupe.Completed, func(r *dedupe.Record) { r.OrderingKey = "u2" }),
			after("e2", dedupe.Completed, func(r *dedupe.Record) { r.Tenant = "acme" }),
			after("e3", dedupe.Completed, func(r *dedupe.Record) { r.Queue = "refunds" }),
			after("e4", dedupe.Completed, func(r *dedupe.Record) { r.PublishedAt = at }),
			after("e-d1", dedupe.DeadLettered, nil),
		}, want: &deadletters.Later{}},
		"more than are read":         {events: hundred, want: &deadletters.Later{Done: 100, More: true}},
		"more kept than are counted": {kept: 101, want: &deadletters.Later{Waiting: 100, More: true}},
		"it has no key":              {letter: func(i *deadletter.Item) { i.OrderingKey = "" }},
		"its key keeps no order": {
			letter: func(i *deadletter.Item) { i.OrderingKey = contract.UnknownOrderingKey },
		},
		"its queue keeps no order": {letter: func(i *deadletter.Item) { i.Queue = "refunds" }},
		"it is not open":           {letter: func(i *deadletter.Item) { i.State = deadletter.Discarded }},
	}, func(t *testing.T, test row) {
		r, item := open(t), dead("orders", "d1", "unknown_product", 0)
		if test.letter != nil {
			test.letter(&item)
		}
		for _, event := range test.events {
			r.commit(t, own(event))
		}
		for i := range test.kept {
			r.put(t, "orders", "u1", fmt.Sprint("kept-", i), time.Time{}, false)
		}
		of := deadletters.Reads{}
		of.Store, of.Catalog = r.store,
			&catalog.Catalog{Queues: []catalog.Queue{{ID: "orders", OrderingKey: []string{"uid"}}, {ID: "refunds"}}}
		require.Equal(t, test.want, filetest.Must(of.Later(t.Context(), item))(t))
	})
}
