package worker_test

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/internal/contract"
	"billhook/internal/platform/store/storetest"
)

// morning is when messages are published whose time does not matter.
var morning = time.Date(2026, 3, 2, 10, 15, 0, 0, time.UTC)

// pushOf is the request with which Pub/Sub delivers a message.
func pushOf(t require.TestingT, path, messageID string, at time.Time, m contract.Message) *http.Request {
	body, err := json.Marshal(map[string]any{
		"message": map[string]any{
			"data": m.Data, "attributes": m.Attributes, "orderingKey": m.OrderingKey, "messageId": messageID, "publishTime": at.Format(time.RFC3339Nano),
		},
		"subscription": "projects/p/subscriptions/s",
	})
	require.NoError(t, err)
	return httptest.NewRequestWithContext(context.Background(), http.MethodPost, path, bytes.NewReader(body))
}

// pushed delivers a message as Pub/Sub does, and returns the answer's status, outcome and reason.
func pushed(t require.TestingT, w http.Handler, path, messageID string, at time.Time, m contract.Message) (code int, outcome, reason string) {
	recorder := httptest.NewRecorder()
	w.ServeHTTP(recorder, pushOf(t, path, messageID, at, m))
	var answer struct{ Outcome, Reason string }
	if recorder.Code != http.StatusNoContent {
		require.NoError(t, json.Unmarshal(recorder.Body.Bytes(), &answer), recorder.Body)
	}
	return recorder.Code, answer.Outcome, answer.Reason
}

// posted delivers a body as Pub/Sub does, and returns the answer's status.
func posted(t require.TestingT, w http.Handler, path string, body contract.Body) int {
	data, err := body.Append(nil)
	require.NoError(t, err)
	id, eventType := body.Identity()
	code, _, _ := pushed(t, w, path, "m-"+id, morning, contract.Message{Data: data, Attributes: map[string]string{
		"event_id": id, "event_type": eventType, "ordering_key": "key-" + id,
	}})
	return code
}

// asked is the answer to an operator on this machine.
func asked(w http.Handler, method, path, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequestWithContext(context.Background(), method, path, strings.NewReader(body))
	r.RemoteAddr, r.Host = "127.0.0.1:4711", "127.0.0.1:8081"
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("X-Operator", "ada")
	answer := httptest.NewRecorder()
	w.ServeHTTP(answer, r)
	return answer
}

// answered fills into with what the worker's API answers.
func answered(t require.TestingT, w http.Handler, path string, into any) {
	answer := asked(w, http.MethodGet, path, "")
	require.Equal(t, http.StatusOK, answer.Code, "%s: %s", path, answer.Body)
	require.NoError(t, json.Unmarshal(answer.Body.Bytes(), into), answer.Body.String())
}

// spent are the reads and the commits of what is done, and the documents that these have written.
func spent(counter *storetest.Counter, do func()) []int64 {
	reads, commits, documents := counter.Gets.Load()+counter.Queries.Load(), counter.Commits.Load(), counter.Written.Load()
	do()
	return []int64{counter.Gets.Load() + counter.Queries.Load() - reads, counter.Commits.Load() - commits, counter.Written.Load() - documents}
}
