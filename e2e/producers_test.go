package e2e_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/e2e"
	"billhook/internal/console/ops"
	"billhook/internal/contract"
	"billhook/internal/dedupe"
	"billhook/internal/platform/signature"
)

// signed posts a body to a path of the door for producers.
func (s *stack) signed(t *testing.T, path, body string) e2e.Answer {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.webhookURL+path, bytes.NewReader([]byte(body)))
	require.NoError(t, err)
	request.Header.Set("Content-Type", "application/json")
	signer, err := signature.NewSigner(signature.Generic, e2e.Secret)
	require.NoError(t, err)
	for name, value := range signer.SignFor(request.URL.RequestURI(), "", []byte(body), time.Now()) {
		request.Header.Set(name, value)
	}
	answer, err := e2e.Do(request)
	require.NoError(t, err)
	return answer
}

// signedGet asks the webhook service for a path, with a producer's signature, and returns the answer's body.
func (s *stack) signedGet(t *testing.T, path string, status int) string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.webhookURL+path, http.NoBody)
	require.NoError(t, err)
	signer, err := signature.NewSigner(signature.Generic, e2e.Secret)
	require.NoError(t, err)
	for name, value := range signer.SignFor(request.URL.RequestURI(), "", nil, time.Now()) {
		request.Header.Set(name, value)
	}
	answer, err := e2e.Do(request)
	require.NoError(t, err)
	require.Equal(t, status, answer.Status, answer.Body)
	return answer.Body
}

// listed: a list with one bad message, sent twice as its producer's retry would. It has a message
// that was tried before elsewhere, and raw ones from before there were envelopes.
func listed(t *testing.T, s *stack) {
	subscription := s.newSubscription().SubscriptionID
	tried := fmt.Sprintf("moved-%s", subscription)
	body := fmt.Sprintf(`{"messages":[
		{"message":{"id":%q,"action":"initial","attempts":2,"payload":{"subscription_id":%q}}},
		{"message":{"action":"renewal","payload":{"subscription_id":%q,"note":"Ilse Brandvold"}}},
		{"message":{"action":"renewal","subscription_id":%q,"occurred_at":"2026-03-02T10:15:00"}},
		{"message":{"subscription_id":%q},"routing_key":"cancellation"}]}`, tried, subscription, subscription, subscription, subscription)
	var ids [2][]string
	for i := range ids {
		answer := s.signed(t, "/queues/q:pay:subscription_update/messages", body)
		require.Equal(t, http.StatusOK, answer.Status, answer.Body)
		require.NotContains(t, answer.Body, "Ilse")
		var got struct {
			Results []struct {
				Status  int    `json:"status"`
				EventID string `json:"event_id"`
			} `json:"results"`
		}
		require.NoError(t, json.Unmarshal([]byte(answer.Body), &got))
		require.Len(t, got.Results, 4)
		for n, r := range got.Results {
			require.Equal(t, n != 1, r.Status == http.StatusAccepted, answer.Body)
			if n != 1 {
				ids[i] = append(ids[i], r.EventID)
			}
		}
	}
	require.Equal(t, ids[0], ids[1], "what is sent again is the same event")
	require.Equal(t, tried, ids[0][0])
	var actions []string
	for _, id := range ids[0] {
		s.until(t, id, "processed")
		s.until(t, id, "duplicate")
		require.Equal(t, 1, s.service.Applied(id))
	}
	for _, d := range s.service.Deliveries() {
		if slices.Contains(ids[0], d.EventID) {
			actions = append(actions, d.Action)
		}
	}
	require.Equal(t, []string{"initial", "renewal", "cancellation"}, actions, "in order")
	doc, err := s.store.Get(t.Context(), dedupe.Key("pay-subscription-update", dedupe.DefaultTenant, tried))
	require.NoError(t, err)
	record, err := dedupe.FromDocument(doc)
	require.NoError(t, err)
	require.Equal(t, int64(3), record.Attempts, "the attempts that it had elsewhere count")
}

// byKey: two messages of one idempotency key are one event of each billing queue, with one call of the service.
// It is found by the key, and another payload under the key is a conflict.
func byKey(t *testing.T, s *stack) {
	c, err := catalog.Load("")
	require.NoError(t, err)
	queues := 0
	for _, q := range c.Queues {
		if q.Contract != contract.EnvelopeV1 {
			continue
		}
		queues++
		eventType := slices.Sorted(maps.Keys(q.Handlers))[0]
		t.Run(q.ID, func(t *testing.T) {
			t.Parallel()
			key := "key-" + s.newSubscription().SubscriptionID
			send := func(id, status string) e2e.Answer {
				return s.signed(t, "/queues/"+q.ID+"/messages", fmt.Sprintf(
					`{"id":%q,"action":%q,"idempotency_key":%q,"payload":{"subscription_id":%q,"payment_id":%q,"status":%q}}`,
					id, eventType, key, key+"-s", key+"-p", status))
			}
			answer := send(key+"-first", "open")
			require.Equal(t, []any{http.StatusAccepted, key}, []any{answer.Status, answer.EventID}, answer.Body)
			s.until(t, key, "processed")
			require.Equal(t, key, send(key+"-second", "open").EventID)
			s.until(t, key, "duplicate")
			require.Equal(t, 1, s.service.Applied(key)+s.gateway.CarriedOut(key))

			require.Equal(t, key, send(key+"-third", "closed").EventID)
			item := s.letter(t, q.ID, key)
			require.Equal(t, "payload_conflict", item.Reason)
			// The conflict is remembered once its dead letter is confirmed, which may be kept before.
			var story ops.Event
			require.Eventually(t, func() bool {
				story = ops.Event{}
				s.ask(t, http.MethodGet, "/v1/ops/events/"+key, nil, &story)
				return len(story.Conflicts) == 1
			}, patience, pollInterval)
			require.Equal(t, []any{key, key, dedupe.Completed}, []any{story.EventID, story.IdempotencyKey, story.Status})
			require.Len(t, story.DeadLetters, 1)
		})
	}
	require.Equal(t, 6, queues)
}

// TestAJobOfCloudSchedulerSendsByATokenForItsQueueAlone, the same body at every run.
func TestAJobOfCloudSchedulerSendsByATokenForItsQueueAlone(t *testing.T) {
	t.Parallel()
	s := startEmbedded(t)
	const path = "/queues/events-normal/messages"
	job := fmt.Sprintf("invoices-%d", s.seq.Add(1))
	body := fmt.Sprintf(`{"type":"invoice_generation","version":1,"data":{"subscription_id":%q}}`, job)
	run := func(to, tokenFor, at string) e2e.Answer {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.webhookURL+to, bytes.NewReader([]byte(body)))
		require.NoError(t, err)
		token, err := s.accountToken(tokenFor, "scheduler")
		require.NoError(t, err)
		for name, value := range map[string]string{
			"Content-Type": "application/json", "Authorization": "Bearer " + token, "X-CloudScheduler-JobName": job, "X-CloudScheduler-ScheduleTime": at,
		} {
			request.Header.Set(name, value)
		}
		answer, err := e2e.Do(request)
		require.NoError(t, err)
		return answer
	}
	for _, at := range []string{"2026-03-01T06:00:00Z", "2026-03-01T06:00:00Z", "2026-04-01T06:00:00Z"} {
		answer := run(path, path, at)
		require.Equal(t, http.StatusAccepted, answer.Status, answer.Body)
		require.Equal(t, job+"-"+at, answer.EventID)
	}
	for _, at := range []string{"2026-03-01T06:00:00Z", "2026-04-01T06:00:00Z"} {
		s.until(t, job+"-"+at, "processed")
		require.Equal(t, 1, s.service.Applied(job+"-"+at))
	}
	s.until(t, job+"-2026-03-01T06:00:00Z", "duplicate")
	const money = "/queues/pay-refund-initiation/messages"
	require.Equal(t, "account_not_allowed", run(money, money, "2026-03-01T06:00:00Z").Code)
	require.Equal(t, "token_invalid", run(path, money, "2026-03-01T06:00:00Z").Code)
}
