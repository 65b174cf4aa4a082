package e2e_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/e2e"
	"billhook/internal/apps/endpoints"
	"billhook/internal/console/ops"
	"billhook/internal/dedupe"
	"billhook/internal/pipeline/handler"
	"billhook/internal/platform/signature"
	"billhook/internal/platform/store"
)

const deliveries = "events-low"

// partner is the receiver of a third party.
type partner struct {
	url string

	mu       sync.Mutex
	statuses []int // of the next answers; then 204
	got      []received
}

type received struct {
	header http.Header
	body   []byte
	at     time.Time
}

func newPartner(t *testing.T) *partner {
	t.Helper()
	p := &partner{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		p.got = append(p.got, received{r.Header.Clone(), body, time.Now()})
		status := http.StatusNoContent
		if len(p.statuses) > 0 {
			status, p.statuses = p.statuses[0], p.statuses[1:]
		}
		w.WriteHeader(status)
	}))
	t.Cleanup(server.Close)
	p.url = server.URL + "/hooks"
	return p
}

func (p *partner) answers(statuses ...int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.statuses = statuses
}

// of returns what the partner was sent of an event, or under a webhook-id.
func (p *partner) of(id string) (found []received) {
	p.mu.Lock()
	defer p.mu.Unlock()
	key := handler.CalleeKey(deliveries, dedupe.DefaultTenant, id)
	for _, r := range p.got {
		if sent := r.header.Get("Webhook-Id"); sent == id || sent == key {
			found = append(found, r)
		}
	}
	return found
}

// verified checks a request as a receiver does whose clock is ahead.
func (r received) verified(t *testing.T, secret string, body []byte, ahead time.Duration) error {
	t.Helper()
	verifier, err := signature.NewVerifier(signature.Standard, []string{secret}, 5*time.Minute, func() time.Time { return r.at.Add(ahead) })
	require.NoError(t, err)
	return verifier.Verify(r.header.Values, body)
}

func (s *stack) register(t *testing.T, p *partner, events ...string) endpoints.Secret {
	t.Helper()
	var added endpoints.Secret
	s.ask(t, http.MethodPost, "/v1/ops/endpoints", ops.AddEndpoint{
		New: endpoints.New{URL: p.url, Events: events}, Change: endpoints.Change{Why: "a partner signed up"},
	}, &added)
	return added
}

// notify has a producer ask that an endpoint be told of something, and returns the event's id.
func (s *stack) notify(t *testing.T, endpoint, eventType string) string {
	t.Helper()
	id := fmt.Sprint("notify-", s.seq.Add(1))
	s.notifyAgain(t, id, endpoint, eventType)
	return id
}

func (s *stack) notifyAgain(t *testing.T, id, endpoint, eventType string) {
	t.Helper()
	body := fmt.Appendf(nil, `{"id":%q,"type":"webhook_delivery","timestamp":"2026-03-01T12:00:00Z","version":1,"data":{"endpoint_id":%q,"event_type":%q,"subject_id":"sub-7"}}`, id, endpoint, eventType)
	signer, err := signature.NewSigner(signature.Generic, e2e.Secret)
	require.NoError(t, err)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.webhookURL+"/queues/"+deliveries+"/messages", bytes.NewReader(body))
	require.NoError(t, err)
	request.Header.Set("Content-Type", "application/json")
	for name, value := range signer.Sign("", body, time.Now()) {
		request.Header.Set(name, value)
	}
	answer, err := e2e.Do(request)
	require.NoError(t, err)
	require.Equal(t, http.StatusAccepted, answer.Status, answer.Body)
}

// result is what the record of a completed delivery says.
func (s *stack) result(t *testing.T, id string) dedupe.Record {
	t.Helper()
	s.until(t, id, "processed")
	doc, err := s.store.Get(t.Context(), dedupe.Key(deliveries, dedupe.DefaultTenant, id))
	require.NoError(t, err)
	record, err := dedupe.FromDocument(doc)
	require.NoError(t, err)
	require.Equal(t, dedupe.Completed, record.Status)
	return record
}

func endpointTold(t *testing.T, s *stack) {
	p := newPartner(t)
	added := s.register(t, p, "subscription.#")
	id := s.notify(t, added.ID, "subscription.renewed")
	require.Equal(t, endpoints.Delivered, s.result(t, id).Result)
	got := p.of(id)
	require.Len(t, got, 1)
	require.JSONEq(t, `{"type":"subscription.renewed","timestamp":"2026-03-01T12:00:00Z","data":{"id":"sub-7"}}`, string(got[0].body))
	require.NoError(t, got[0].verified(t, added.Secret, got[0].body, 0))
	require.ErrorIs(t, got[0].verified(t, endpoints.NewSecret(), got[0].body, 0), signature.ErrSignature)
	require.ErrorIs(t, got[0].verified(t, added.Secret, []byte(`{}`), 0), signature.ErrSignature)
	require.ErrorIs(t, got[0].verified(t, added.Secret, got[0].body, 6*time.Minute), signature.ErrTooOld)
	require.ErrorIs(t, got[0].verified(t, added.Secret, got[0].body, -6*time.Minute), signature.ErrTooNew)

	s.notifyAgain(t, id, added.ID, "subscription.renewed")
	s.until(t, id, "duplicate")
	require.Len(t, p.of(id), 1)
	other := s.notify(t, added.ID, "invoice.paid")
	require.Equal(t, endpoints.Filtered, s.result(t, other).Result)
	require.Empty(t, p.of(other))
	nobody := s.notify(t, "nobody", "invoice.paid")
	require.Equal(t, endpoints.EndpointUnknown, s.result(t, nobody).Result)

	var rotated endpoints.Secret
	s.ask(t, http.MethodPost, "/v1/ops/endpoints/"+added.ID+"/rotate", endpoints.Change{Why: "it may have leaked"}, &rotated)
	later := s.notify(t, added.ID, "subscription.renewed")
	s.result(t, later)
	for _, secret := range []string{added.Secret, rotated.Secret} {
		require.NoError(t, p.of(later)[0].verified(t, secret, p.of(later)[0].body, 0), "both secrets sign")
	}
	var tested endpoints.Tested
	s.ask(t, http.MethodPost, "/v1/ops/endpoints/"+added.ID+"/test", nil, &tested)
	require.True(t, tested.Delivered)
	require.Contains(t, string(p.of(tested.WebhookID)[0].body), `"type":"endpoint.test"`)
	require.NotContains(t, s.log.Text(), "whsec_")
}

func endpointFails(t *testing.T, s *stack) {
	p := newPartner(t)
	added := s.register(t, p)
	p.answers(http.StatusServiceUnavailable)
	id := s.notify(t, added.ID, "invoice.paid")
	s.result(t, id)
	got := p.of(id)
	require.Len(t, got, 2)
	require.Equal(t, got[0].body, got[1].body, "every attempt says the same, under the same id")
	var e endpoints.Endpoint
	s.ask(t, http.MethodGet, "/v1/ops/endpoints/"+added.ID, nil, &e)
	require.Zero(t, e.FailingSince, "the success has cleared it")

	p.answers(http.StatusNotFound)
	refused := s.notify(t, added.ID, "invoice.paid")
	require.Equal(t, "callee_refused_404", s.until(t, refused, "dead_lettered")[0].Reason)
	s.ask(t, http.MethodGet, "/v1/ops/endpoints/"+added.ID, nil, &e)
	require.NotZero(t, e.FailingSince)

	p.answers(503, 503, 503, 503, 503)
	exhausted := s.notify(t, added.ID, "invoice.paid")
	all := s.until(t, exhausted, "dead_lettered")
	require.Equal(t, "callee_failed_503", all[len(all)-1].Reason)
	require.Len(t, p.of(exhausted), 5)
	var failing ops.List[endpoints.Endpoint]
	s.ask(t, http.MethodGet, "/v1/ops/endpoints?state=failing", nil, &failing)
	require.Len(t, failing.Items, 1)
	require.Equal(t, added.ID, failing.Items[0].ID)
}

func endpointGone(t *testing.T, s *stack) {
	p := newPartner(t)
	added := s.register(t, p)
	p.answers(http.StatusGone)
	id := s.notify(t, added.ID, "invoice.paid")
	record := s.result(t, id)
	require.Equal(t, endpoints.EndpointDisabled, record.Result)
	require.Len(t, record.Emitted, 1, "others are told")
	require.Eventually(t, func() bool {
		waiting, err := s.store.Query(t.Context(), store.Query{Collection: "outbox", Equal: map[string]any{"event_id": id}, Limit: 1})
		require.NoError(t, err)
		return len(waiting.Documents) == 0
	}, patience, pollInterval)
	var e endpoints.Endpoint
	s.ask(t, http.MethodGet, "/v1/ops/endpoints/"+added.ID, nil, &e)
	require.Equal(t, endpoints.Disabled, e.State)
	require.Equal(t, endpoints.Gone, e.Reason)
	next := s.notify(t, added.ID, "invoice.paid")
	require.Equal(t, endpoints.EndpointDisabled, s.result(t, next).Result)
	require.Empty(t, p.of(next))
	s.ask(t, http.MethodPost, "/v1/ops/endpoints/"+added.ID+"/enable", endpoints.Change{Why: "it is back"}, &e)
	last := s.notify(t, added.ID, "invoice.paid")
	require.Equal(t, endpoints.Delivered, s.result(t, last).Result)
}
