package browser

import (
	"context"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/e2e"
	"billhook/internal/compose/devstack"
	"billhook/internal/filetest"
	"billhook/internal/inspect/events"
	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
	"billhook/internal/platform/telemetry"
	"billhook/internal/retry"
)

// shop is a Billhook on the stand-ins, in this process, whose pages are tested.
type shop struct {
	*devstack.Stack
	catalog *catalog.Catalog
	// faults is the store as the services see it.
	faults *storetest.Faults
}

// openShop starts an empty Billhook. Only reversals keep the waits of the catalog, so that something waits.
func openShop(t *testing.T) *shop {
	t.Helper()
	s := &shop{faults: &storetest.Faults{}, catalog: filetest.Must(catalog.Load(""))(t)}
	soon := retry.Policy{Base: 200 * time.Millisecond, Max: 200 * time.Millisecond}
	for i := range s.catalog.Queues {
		s.catalog.Queues[i].Backoff = soon
		for eventType, h := range s.catalog.Queues[i].Handlers {
			if h.Name != "points.reverse" {
				h.Backoff = soon
			}
			s.catalog.Queues[i].Handlers[eventType] = h
		}
	}
	s.Stack = filetest.Must(devstack.Start(context.WithoutCancel(t.Context()), devstack.Config{
		Catalog: s.catalog, ProjectID: "pages", Log: telemetry.NewLogger(io.Discard, nil),
		Secrets:     map[string][]string{"paynow": {e2e.Secret}, catalog.Producers: {e2e.Secret}},
		WebhookPort: "0", WorkerPort: "0", ServicePort: "0", StorePath: filepath.Join(t.TempDir(), "store.db"),
		WrapStore: func(inner store.Store) store.Store { s.faults.Store = inner; return s.faults },
	}))(t)
	t.Cleanup(func() {
		s.faults.Down(false)
		_ = s.Close() // it may interrupt requests
	})
	return s
}

// queueOf is the queue that takes an event type and keeps records. Names of queues are in the catalog alone.
func (s *shop) queueOf(eventType string) catalog.Queue {
	i := slices.IndexFunc(s.catalog.Queues, func(q catalog.Queue) bool {
		_, takes := q.Handler(eventType)
		return takes && q.Enabled && q.Remembers()
	})
	return s.catalog.Queues[i] // the types are constants
}

// post sends a body to the producers' address of a queue, which accepts it.
func (s *shop) post(t *testing.T, q catalog.Queue, body []byte) {
	t.Helper()
	to := "/queues/" + q.ID
	if q.SharedTopic != "" {
		to = "/topics/" + q.SharedTopic
	}
	answer := filetest.Must(e2e.Produce(t.Context(), s.WebhookURL, to, body))(t)
	require.Less(t, answer.Status, http.StatusMultipleChoices, "%s: %s", q.ID, answer.Code)
}

// put sends a message of an event type to its queue, in the queue's format.
func (s *shop) put(t *testing.T, id, eventType string, data members, more members) {
	t.Helper()
	const at = "2026-03-01T12:00:00Z"
	q, message := s.queueOf(eventType),
		members{"id": id, "type": eventType, "version": 1, "timestamp": at, "data": data}
	if q.Contract == "envelope.v1" {
		message = members{"id": id, "action": eventType, "created_at": at, "payload": data}
	}
	maps.Copy(message, more)
	s.post(t, q, filetest.Must(json.Marshal(message))(t))
}

type members = map[string]any

// send sends a webhook as PayNow does.
func (s *shop) send(t *testing.T, body []byte) {
	t.Helper()
	send := func() (e2e.Answer, error) { return e2e.Send(t.Context(), s.WebhookURL, body) }
	require.NoError(t, filetest.ErrorOf(e2e.UntilAccepted(t.Context(), send)))
}

// as calls the API as somebody, and succeeds. The answer may be nil.
func (s *shop) as(t *testing.T, who, method, path string, question, answer any) {
	t.Helper()
	got := filetest.Must(e2e.Ask(t.Context(), s.WorkerURL, who, method, path, question))(t)
	require.Less(t, got.Status, http.StatusMultipleChoices, "%s %s: %s", method, path, got.Body)
	if answer != nil {
		require.NoError(t, json.Unmarshal([]byte(got.Body), answer))
	}
}

// get reads from the API.
func (s *shop) get(t *testing.T, path string, answer any) {
	t.Helper()
	s.as(t, "", http.MethodGet, path, nil, answer)
}

// until waits until the API's answer meets a condition.
func until[T any](t *testing.T, s *shop, path string, met func(T) bool) (answer T) {
	t.Helper()
	require.Eventually(t, func() bool {
		got, err := e2e.Ask(t.Context(), s.WorkerURL, "", http.MethodGet, path, nil)
		answer = *new(T)
		read := err == nil && got.Status == http.StatusOK && json.Unmarshal([]byte(got.Body), &answer) == nil
		return read && met(answer)
	}, 2*patience, 50*time.Millisecond, "%s", path)
	return answer
}

// story waits until an event has one of some statuses.
func (s *shop) story(t *testing.T, id string, statuses ...string) {
	t.Helper()
	of := func(e events.Event) bool { return slices.Contains(statuses, string(e.Status)) }
	until(t, s, "/v1/ops/events/"+id, of)
}

// ended waits until events have ended, processed or not.
func (s *shop) ended(t *testing.T, ids ...string) {
	t.Helper()
	for _, id := range ids {
		s.story(t, id, "COMPLETED", "DEAD_LETTERED")
	}
}
