package ops_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/contract"
	"billhook/internal/deadletter"
	"billhook/internal/dedupe"
	"billhook/internal/lane"
	"billhook/internal/store"
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

func TestTheEventQueuesStatsCountEventsOfAllQueues(t *testing.T) {
	t.Parallel()
	r := open(t)
	var none wrapped[map[string]int]
	require.Equal(t, http.StatusOK, r.do(t, http.MethodGet, "/api/v1/events/stats", &none))
	require.True(t, none.Success)
	require.Equal(t, map[string]int{"pending": 0, "processing": 0, "completed": 0, "failed": 0, "deadLetter": 0}, none.Data, "the answer that the document shows")

	for i, status := range []dedupe.Status{dedupe.Processing, dedupe.Completed, dedupe.Completed, dedupe.Failed, dedupe.Failed, dedupe.Failed} {
		of := record([]string{"orders", "refunds"}[i%2], "default", fmt.Sprint("s", i))
		of.Status = status
		r.commit(t, own(of))
	}
	r.buryIn(t, queues.Queues[0], "d1", at)
	r.buryIn(t, queues.Queues[1], "d2", at)
	r.commit(t, store.Create(store.Key{Collection: lane.Delayed.Entries(), ID: "a"}, map[string]any{}), store.Create(store.Key{Collection: lane.Outbox.Entries(), ID: "b"}, map[string]any{}))
	var some wrapped[map[string]int]
	require.Equal(t, http.StatusOK, r.do(t, http.MethodGet, "/api/v1/events/stats", &some))
	require.Equal(t, map[string]int{"pending": 2, "processing": 1, "completed": 2, "failed": 3, "deadLetter": 2}, some.Data)
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
