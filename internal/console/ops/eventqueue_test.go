package ops_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/internal/console/ops"
	"billhook/internal/dedupe"
	"billhook/internal/platform/backlog"
	"billhook/internal/platform/store"
)

// asks sends a request to the event queue's API, and reads the data of its answer, or returns the code of its refusal.
func (r *rig) asks(t *testing.T, method, path string, data any) (code string) {
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

func TestTheEventQueuesStatsCountEachEventOnce(t *testing.T) {
	t.Parallel()
	recorded := func(r *rig, id string, status dedupe.Status) { r.commit(t, own(created("orders", id, status, 0))) }
	events := []struct {
		name            string
		orders, refunds int64 // what the event has in the broker
		happens         func(*rig)
		counted         string // empty: nowhere
	}{
		{"waits in the broker", 1, 0, nil, "pending"},
		{"waits on a paused queue", 0, 1, nil, "pending"},
		{"waits behind another of its key", 0, 0, func(r *rig) { r.put(t, "orders", "", "behind", time.Time{}, false) }, "pending"},
		{"is committed and not yet published", 0, 0, func(r *rig) { r.emitted(t, "orders", "emitted") }, "pending"},
		{"is a timer of an order or has a time of delivery", 0, 0, func(r *rig) { r.put(t, "orders", "", "timer", at.Add(time.Hour), true) }, ""},
		{"failed, and its message is kept", 0, 0, func(r *rig) {
			recorded(r, "kept", dedupe.Failed)
			r.put(t, "orders", "", "kept", at.Add(time.Minute), false)
		}, "failed"},
		{"failed, and the broker has its message", 1, 0, func(r *rig) { recorded(r, "nacked", dedupe.Failed) }, "failed"},
		{"is in processing", 1, 0, func(r *rig) { recorded(r, "runs", dedupe.Processing) }, "processing"},
		{"is completed", 0, 0, func(r *rig) { recorded(r, "done", dedupe.Completed) }, "completed"},
		{"is dead", 0, 0, func(r *rig) {
			recorded(r, "dead", dedupe.DeadLettered)
			r.bury(t, queues.Queues[0], "dead", "dead", "{}")
		}, "deadLetter"},
	}
	stats := func(r *rig, orders, refunds int64) (counted map[string]any) {
		require.NoError(t, backlog.Write(t.Context(), r.store, at, map[string]backlog.Held{"orders": {Messages: orders}, "refunds": {Messages: refunds}}))
		r.asks(t, http.MethodGet, "stats", &counted)
		return counted
	}
	empty := func() map[string]any {
		return map[string]any{"pending": 0., "processing": 0., "completed": 0., "failed": 0., "deadLetter": 0.}
	}
	together, all, orders, refunds := open(t), empty(), int64(0), int64(0)
	require.Equal(t, empty(), stats(together, 0, 0), "the answer that the document shows")
	for _, event := range events {
		alone, want := open(t), empty()
		for _, r := range []*rig{alone, together} {
			if event.happens != nil {
				event.happens(r)
			}
		}
		if orders, refunds = orders+event.orders, refunds+event.refunds; event.counted != "" {
			want[event.counted] = 1.
			all[event.counted] = all[event.counted].(float64) + 1
		}
		require.Equal(t, want, stats(alone, event.orders, event.refunds), event.name)
	}
	require.Equal(t, all, stats(together, orders, refunds))
	// An old count of the broker is none: how much a queue that runs has there is not known, and nothing is below zero.
	require.NoError(t, backlog.Write(t.Context(), together.store, at.Add(-backlog.GoodFor-time.Second), map[string]backlog.Held{"orders": {Messages: 9}}))
	var blind ops.Stats
	together.asks(t, http.MethodGet, "stats", &blind)
	require.Equal(t, ops.Stats{Processing: 1, Completed: 1, Failed: 2, DeadLetter: 1, AtLeast: true}, blind)
}

func TestADeadLetterOfTheEventQueueIsListedAndRetried(t *testing.T) {
	t.Parallel()
	r := open(t)
	for _, id := range []string{"d1", "d2", "twice"} {
		r.bury(t, queues.Queues[0], id, id, `{"eventId":"`+id+`"}`)
	}
	own := r.bury(t, queues.Queues[1], "twice", "twice", `{"eventId":"twice"}`)
	reads := 0
	r.store.OnRead = func(read func() error) error { reads++; return read() }
	var listed []ops.DeadEvent
	r.asks(t, http.MethodGet, "dead-letter", &listed)
	require.Len(t, listed, 4)
	require.Equal(t, 1, reads, "a list costs one query, however many queues there are")
	for _, dead := range listed {
		require.Equal(t, []any{"order.paid", "dead_letter", "unknown_product", int64(5), len(`{"eventId":""}`) + len(dead.EventID)},
			[]any{dead.Type, dead.Status, dead.Error, dead.Attempts, dead.PayloadBytes})
	}
	for id, want := range map[string]string{"d1": "", own: "", "nothing": "dead_letter_unknown", "a b": "dead_letter_unknown"} {
		var done ops.Retried
		require.Equal(t, want, r.asks(t, http.MethodPost, "dead-letter/"+id+"/retry", &done), id)
		require.Equal(t, want == "", done.Replayed)
	}
	require.Equal(t, "dead_letter_unknown", r.asks(t, http.MethodPost, "dead-letter/d1/retry", nil), "it was replayed")
	r.bury(t, queues.Queues[1], "d2", "d2", "{}")
	require.Equal(t, "id_needed", r.asks(t, http.MethodPost, "dead-letter/d2/retry", nil))
	cost := func() int {
		reads = 0
		require.Empty(t, r.asks(t, http.MethodPost, "dead-letter/twice/retry", nil))
		return reads
	}
	before := cost()
	for i := range 230 { // more than two pages
		r.commit(t, inStore(dead("orders", fmt.Sprint("other", i), "r", 0)))
	}
	r.bury(t, queues.Queues[0], "twice", "again", "{}")
	require.Equal(t, before, cost(), "a retry reads its dead letter alone")
}

func TestACleanupByDaysRemovesWhatHasExpired(t *testing.T) {
	t.Parallel()
	r := open(t)
	done := func(id string, age int, expires time.Duration) {
		old := record("orders", "default", id)
		old.ProcessedAt, old.ExpireAt = at.AddDate(0, 0, -age), at.Add(expires)
		r.commit(t, own(old))
	}
	cleans := func(query string, deleted int) {
		t.Helper()
		var cleaned ops.CleanedDays
		require.Empty(t, r.asks(t, http.MethodDelete, "cleanup"+query, &cleaned))
		require.Equal(t, ops.CleanedDays{Deleted: deleted, Remembered: 1}, cleaned)
	}
	done("c0", 1, -time.Hour)
	done("c1", 8, -time.Hour)
	done("c2", 9, time.Hour) // still remembered
	cleans("?olderThanDays=7", 1)
	cleans("", 0)                    // 7 days are the event queue's own
	for i := range store.MaxWrites { // with the one that stays more than a page
		done(fmt.Sprint("many", i), 8, -time.Hour)
	}
	cleans("", store.MaxWrites)
	for bad, code := range map[string]string{"0": "olderThanDays_invalid", "-7": "olderThanDays_invalid", "week": "olderThanDays_invalid", "3661": "olderThanDays_invalid", "": "parameter_invalid"} {
		require.Equal(t, code, r.asks(t, http.MethodDelete, "cleanup?olderThanDays="+bad, nil), bad)
	}
}
