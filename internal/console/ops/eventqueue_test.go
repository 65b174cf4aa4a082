package ops_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/console/ops"
	"billhook/internal/contract"
	"billhook/internal/dedupe"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/pipeline/lane"
	"billhook/internal/platform/backlog"
	"billhook/internal/platform/store"
)

// wrapped is an answer of the event queue's API.
type wrapped[T any] struct {
	Success bool   `json:"success"`
	Data    T      `json:"data"`
	Error   string `json:"error"`
}

type deadEvent struct {
	ID, EventID, Queue, Type, Priority, Status, Error string
	Attempts, MaxAttempts, PayloadBytes               int
}

func (r *rig) buryIn(t *testing.T, queue catalog.Queue, id string, died time.Time) {
	t.Helper()
	queue.DeadLetter.Retention = time.Hour
	_, err := deadletter.Keep(t.Context(), r.store, queue, contract.Message{Data: []byte(`{"eventId":"` + id + `"}`), Attributes: map[string]string{
		"event_id": id, "event_type": "order.paid", "dead_letter_reason": "attempts_exhausted", "dead_letter_status": "422",
		"source_message_id": id, "delivery_attempts": "5", "dead_lettered_at": died.Format(time.RFC3339),
	}}, id, at)
	require.NoError(t, err)
}

// do sends a request without a body.
func (r *rig) do(t *testing.T, method, path string, into any) int {
	t.Helper()
	return r.ask(t, path, func(request *http.Request) { request.Method = method }, into).Code
}

// stats asks for the event queue's numbers.
func (r *rig) stats(t *testing.T) map[string]any {
	t.Helper()
	var answer wrapped[map[string]any]
	require.Equal(t, http.StatusOK, r.do(t, http.MethodGet, "/api/v1/events/stats", &answer))
	require.True(t, answer.Success)
	return answer.Data
}

// keeps has the lanes keep a message of an event's queue.
func (r *rig) keeps(t *testing.T, event string, due time.Time, timer bool) {
	t.Helper()
	l, err := lane.Open(t.Context(), r.store, lane.Name{Queue: "orders", Message: event})
	require.NoError(t, err)
	_, writes, err := l.Put(lane.Waiting{Topic: "orders", Message: contract.Message{Data: []byte(`{}`)}, Tenant: "default", EventID: event, Due: due, Timer: timer}, at)
	require.NoError(t, err)
	r.commit(t, writes...)
}

func TestTheEventQueuesStatsCountEachEventOnce(t *testing.T) {
	t.Parallel()
	recorded := func(id string, status dedupe.Status) func(*testing.T, *rig) {
		return func(t *testing.T, r *rig) { t.Helper(); r.commit(t, own(created("orders", id, status, 0))) }
	}
	kept := func(id string, due time.Time, timer bool) func(*testing.T, *rig) {
		return func(t *testing.T, r *rig) { t.Helper(); r.keeps(t, id, due, timer) }
	}
	events := []struct {
		name            string
		orders, refunds int64 // what the event has in the broker
		state           []func(*testing.T, *rig)
		counted         string // empty: nowhere
	}{
		{name: "waits in the broker", orders: 1, counted: "pending"},
		{name: "waits on a paused queue", refunds: 1, counted: "pending"},
		{name: "waits behind another of its key", state: []func(*testing.T, *rig){kept("behind", time.Time{}, false)}, counted: "pending"},
		{name: "is committed and not yet published", state: []func(*testing.T, *rig){func(t *testing.T, r *rig) {
			t.Helper()
			batch := lane.NewBatch(at)
			batch.Add("orders", "emitted", contract.Message{Data: []byte(`{}`)}, lane.Source{Queue: "orders"})
			r.commit(t, batch.Writes()...)
		}}, counted: "pending"},
		{name: "is a timer of an order or has a time of delivery", state: []func(*testing.T, *rig){kept("timer", at.Add(time.Hour), true)}},
		{name: "failed, and its message is kept", state: []func(*testing.T, *rig){recorded("kept", dedupe.Failed), kept("kept", at.Add(time.Minute), false)}, counted: "failed"},
		{name: "failed, and the broker has its message", orders: 1, state: []func(*testing.T, *rig){recorded("nacked", dedupe.Failed)}, counted: "failed"},
		{name: "is in processing", orders: 1, state: []func(*testing.T, *rig){recorded("runs", dedupe.Processing)}, counted: "processing"},
		{name: "is completed", state: []func(*testing.T, *rig){recorded("done", dedupe.Completed)}, counted: "completed"},
		{name: "is dead", state: []func(*testing.T, *rig){recorded("dead", dedupe.DeadLettered), func(t *testing.T, r *rig) { t.Helper(); r.buryIn(t, queues.Queues[0], "dead", at) }}, counted: "deadLetter"},
	}
	inBroker := func(t *testing.T, r *rig, orders, refunds int64) {
		t.Helper()
		require.NoError(t, backlog.Write(t.Context(), r.store, at, map[string]backlog.Held{"orders": {Messages: orders}, "refunds": {Messages: refunds}}))
	}
	empty := func() map[string]any {
		return map[string]any{"pending": 0., "processing": 0., "completed": 0., "failed": 0., "deadLetter": 0.}
	}
	r, all, orders, refunds := open(t), empty(), int64(0), int64(0)
	inBroker(t, r, 0, 0)
	require.Equal(t, empty(), r.stats(t), "the answer that the document shows")
	for _, event := range events {
		t.Run(event.name, func(t *testing.T) {
			t.Parallel()
			alone, want := open(t), empty()
			inBroker(t, alone, event.orders, event.refunds)
			for _, happens := range event.state {
				happens(t, alone)
			}
			if event.counted != "" {
				want[event.counted] = 1.
			}
			require.Equal(t, want, alone.stats(t))
		})
		for _, happens := range event.state {
			happens(t, r)
		}
		if orders, refunds = orders+event.orders, refunds+event.refunds; event.counted != "" {
			all[event.counted] = all[event.counted].(float64) + 1
		}
	}
	inBroker(t, r, orders, refunds)
	require.Equal(t, all, r.stats(t))

	// An old count of the broker is none: how much a queue that runs has there is not known, and nothing is below zero.
	require.NoError(t, backlog.Write(t.Context(), r.store, at.Add(-backlog.GoodFor-time.Second), map[string]backlog.Held{"orders": {Messages: 9}}))
	running := &catalog.Catalog{Queues: []catalog.Queue{{ID: "orders", Enabled: true}, {ID: "refunds"}}}
	blind, err := ops.Reads{Store: r.store, Catalog: running, Now: func() time.Time { return at }}.Stats(t.Context())
	require.NoError(t, err)
	require.Equal(t, ops.Stats{Processing: 1, Completed: 1, Failed: 2, DeadLetter: 1, AtLeast: true}, blind)
}

func TestTheEventQueuesDeadLettersAreThoseOfAllQueues(t *testing.T) {
	t.Parallel()
	r := open(t)
	for i := range 3 {
		r.buryIn(t, queues.Queues[i%2], fmt.Sprint("d", i), at)
	}
	var all, two wrapped[[]deadEvent]
	listed := r.ask(t, "/api/v1/events/dead-letter", nil, &all)
	require.Len(t, all.Data, 3)
	require.NotContains(t, listed.Body.String(), `\"eventId\"`, "a payload is for somebody who says why")
	reads := 0
	r.store.OnRead = func(read func() error) error { reads++; return read() }
	require.Equal(t, http.StatusOK, r.do(t, http.MethodGet, "/api/v1/events/dead-letter?limit=2", &two))
	require.Len(t, two.Data, 2)
	require.Equal(t, 1, reads, "a list costs one query, however many queues there are")
	for _, dead := range all.Data {
		payload := `{"eventId":"` + dead.EventID + `"}`
		require.Equal(t, len(payload), dead.PayloadBytes)
		shown := r.post(t, "/v1/ops/dead-letters/"+dead.ID+"/payload", map[string]string{"why": "OPS-7"}, "ada")
		require.Contains(t, shown.Body.String(), payload)
		require.Equal(t, []any{"order.paid", "dead_letter", "attempts_exhausted", 5}, []any{dead.Type, dead.Status, dead.Error, dead.Attempts})
	}
}

func TestADeadLetterIsRetriedByItsEventIDOrByItsOwn(t *testing.T) {
	t.Parallel()
	r := open(t)
	r.buryIn(t, queues.Queues[0], "d1", at)
	r.buryIn(t, queues.Queues[0], "d2", at)
	r.buryIn(t, queues.Queues[0], "twice", at)
	r.buryIn(t, queues.Queues[1], "twice", at)
	var all wrapped[[]deadEvent]
	r.do(t, http.MethodGet, "/api/v1/events/dead-letter", &all)
	ids := map[string]string{}
	for _, dead := range all.Data {
		ids[dead.Queue+dead.EventID] = dead.ID
	}
	type retried struct {
		Queue, Progress string
		Replayed        bool
	}
	for _, id := range []string{"d1", ids["ordersd2"], ids["refundstwice"]} {
		var done wrapped[retried]
		require.Equal(t, http.StatusOK, r.do(t, http.MethodPost, "/api/v1/events/dead-letter/"+id+"/retry", &done), id)
		require.True(t, done.Success)
		require.True(t, done.Data.Replayed)
		require.Equal(t, string(deadletter.Finished), done.Data.Progress)
	}
	var refused wrapped[retried]
	require.Equal(t, http.StatusNotFound, r.do(t, http.MethodPost, "/api/v1/events/dead-letter/d1/retry", &refused), "it was replayed")
	require.False(t, refused.Success)
	require.Equal(t, "dead_letter_unknown", refused.Error)

	r.buryIn(t, queues.Queues[1], "thrice", at)
	r.buryIn(t, queues.Queues[0], "thrice", at)
	require.Equal(t, http.StatusConflict, r.do(t, http.MethodPost, "/api/v1/events/dead-letter/thrice/retry", &refused))
	require.Equal(t, "id_needed", refused.Error)
}

func TestARetryReadsItsDeadLetterAlone(t *testing.T) {
	t.Parallel()
	cost := func(others int) (reads int) {
		r := open(t)
		for i := range others {
			r.buryIn(t, queues.Queues[0], fmt.Sprint("other", i), at)
		}
		r.buryIn(t, queues.Queues[0], "d1", at)
		r.store.OnRead = func(read func() error) error { reads++; return read() }
		require.Equal(t, http.StatusOK, r.do(t, http.MethodPost, "/api/v1/events/dead-letter/d1/retry", nil))
		return reads
	}
	require.Equal(t, cost(0), cost(230), "230 others are more than two pages")
}

func TestACleanupByDaysRemovesWhatHasExpired(t *testing.T) {
	t.Parallel()
	r := open(t)
	for i, age := range []int{1, 8, 9} {
		old := record("orders", "default", fmt.Sprint("c", i))
		old.ProcessedAt = at.AddDate(0, 0, -age)
		old.ExpireAt = at.Add(-time.Hour)
		if i == 2 {
			old.ExpireAt = at.Add(time.Hour) // still remembered
		}
		r.commit(t, own(old))
	}
	var cleaned wrapped[map[string]any]
	require.Equal(t, http.StatusOK, r.do(t, http.MethodDelete, "/api/v1/events/cleanup?olderThanDays=7", &cleaned))
	require.Equal(t, map[string]any{"deleted": 1.0, "remembered": 1.0}, cleaned.Data)
	require.Equal(t, http.StatusOK, r.do(t, http.MethodDelete, "/api/v1/events/cleanup", &cleaned), "7 days are the event queue's own")
	require.Equal(t, map[string]any{"deleted": 0.0, "remembered": 1.0}, cleaned.Data)
	for i := range store.MaxWrites { // with the one that stays more than a page
		old := record("orders", "default", fmt.Sprint("many", i))
		old.ProcessedAt, old.ExpireAt = at.AddDate(0, 0, -8), at.Add(-time.Hour)
		r.commit(t, own(old))
	}
	require.Equal(t, http.StatusOK, r.do(t, http.MethodDelete, "/api/v1/events/cleanup", &cleaned))
	require.Equal(t, map[string]any{"deleted": float64(store.MaxWrites), "remembered": 1.0}, cleaned.Data)
	for _, bad := range []string{"0", "-7", "week", "3661", ""} {
		require.Equal(t, http.StatusBadRequest, r.do(t, http.MethodDelete, "/api/v1/events/cleanup?olderThanDays="+bad, &cleaned), bad)
		require.False(t, cleaned.Success)
	}
}

func TestTheEventQueuesAPIIsClosedToStrangers(t *testing.T) {
	t.Parallel()
	r := open(t)
	for _, call := range []string{"GET stats", "GET dead-letter", "POST dead-letter/d1/retry", "DELETE cleanup"} {
		method, path, _ := strings.Cut(call, " ")
		code := r.ask(t, "/api/v1/events/"+path, func(request *http.Request) {
			request.Method, request.RemoteAddr = method, "192.0.2.7:1"
		}, nil).Code
		require.Equal(t, http.StatusUnauthorized, code, call)
	}
}
