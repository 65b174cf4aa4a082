package e2e_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/e2e"
	"billhook/internal/apps/payments"
	"billhook/internal/console/ops"
	"billhook/internal/dedupe"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/pipeline/handler"
	"billhook/internal/platform/signature"
	"billhook/internal/platform/standin"
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

// produce puts an envelope on a queue, by its alias, through the door for producers. It returns the
// envelope's id.
func (s *stack) produce(t *testing.T, queue, action, payload, more string) (id string) {
	t.Helper()
	id = fmt.Sprintf("%s-%d", action, s.seq.Add(1))
	s.enqueue(t, queue, id, action, payload, more)
	return id
}

func (s *stack) enqueue(t *testing.T, queue, id, action, payload, more string) {
	t.Helper()
	body := fmt.Appendf(nil, `{"id":%q,"action":%q,"created_at":"2026-03-01T12:00:00Z","attempts":0,%s"payload":%s}`, id, action, more, payload)
	answer := s.signed(t, "/queues/"+queue+"/messages", string(body))
	require.Equal(t, http.StatusAccepted, answer.Status, answer.Body)
	require.Equal(t, id, answer.EventID)
}

// order is the gateway's order of an event.
func (s *stack) order(t *testing.T, eventID string) standin.Order {
	t.Helper()
	for _, o := range s.gateway.Orders() {
		if o.EventID == eventID {
			return o
		}
	}
	require.Fail(t, "the gateway has no order", eventID)
	return standin.Order{}
}

// emits are the ids of the messages that an event of a queue has emitted.
func (s *stack) emits(t *testing.T, queue, eventID string) []string {
	t.Helper()
	s.until(t, eventID, "processed")
	record, _ := s.recordOf(t, queue, dedupe.DefaultTenant, eventID)
	return handler.EmittedIDs(record.Emitted)
}

// as calls the worker's ops API for a person, and returns the status.
func (s *stack) as(t *testing.T, who, method, path string, question, answer any) int {
	t.Helper()
	body, err := json.Marshal(question)
	require.NoError(t, err)
	request, err := http.NewRequestWithContext(t.Context(), method, s.workerURL+path, bytes.NewReader(body))
	require.NoError(t, err)
	request.Header.Set("X-Operator", who)
	got, err := e2e.Do(request)
	require.NoError(t, err)
	if got.Status < 300 && answer != nil {
		require.NoError(t, json.Unmarshal([]byte(got.Body), answer))
	}
	return got.Status
}

// trialPaid: trial creation, payment, webhook, status (billing-queues, section 15), and the refund of
// the payment (section 7.1).
func trialPaid(t *testing.T, s *stack) {
	subscription := s.newSubscription().SubscriptionID
	payload := fmt.Sprintf(`{"subscription_id":%q,"amount":"1.00","currency":"EUR"}`, subscription)
	trial := s.produce(t, "q:sub:trial_payment", "trial", payload, fmt.Sprintf(`"correlation_id":%q,`, subscription))
	emitted := s.emits(t, "sub-trial-payment", trial)
	require.Len(t, emitted, 2)
	for _, id := range emitted {
		s.until(t, id, "processed")
	}
	require.Equal(t, 1, s.gateway.CarriedOut(trial))
	require.Equal(t, 1, s.service.Applied(emitted[0]))
	require.Equal(t, "trial", s.deliveriesOf(emitted[0])[0].Action)
	require.Equal(t, subscription, s.deliveriesOf(emitted[0])[0].SubscriptionID)
	paid, back := s.order(t, trial), s.order(t, emitted[1])
	require.Equal(t, []string{"refund", paid.PaymentID, "1.00", "EUR"}, []string{back.Action, back.PaymentID, back.Amount, back.Currency})
	require.Equal(t, 1, s.gateway.Refunded(paid.PaymentID))

	var story ops.List[ops.Line]
	require.Equal(t, http.StatusOK, s.as(t, "ada", http.MethodGet, "/v1/ops/events?correlation_id="+subscription, nil, &story))
	require.Len(t, story.Items, 3, "the payment, the update and the refund are one story")
	for _, line := range story.Items {
		require.Equal(t, dedupe.Completed, line.Status)
	}
	var refund payments.Refund
	require.Equal(t, http.StatusOK, s.as(t, "ada", http.MethodGet, "/v1/ops/refunds/"+paid.PaymentID, nil, &refund))
	require.Equal(t, []string{string(payments.Refunded), emitted[1], subscription}, []string{string(refund.State), refund.EventID, refund.SubscriptionID})

	s.enqueue(t, "q:sub:trial_payment", trial, "trial", payload, "")
	s.until(t, trial, "duplicate")
	require.Equal(t, 1, s.gateway.CarriedOut(trial))
}

// renewalStarted: the renewal path through the queue of payments to start (section 15). The gateway
// fails once, then carries the payment out and loses its answer: it is asked, and not told again.
func renewalStarted(t *testing.T, s *stack) {
	subscription := s.newSubscription().SubscriptionID
	require.NoError(t, s.gateway.Tell(standin.FailOrder, 1, subscription))
	require.NoError(t, s.gateway.Tell(standin.LoseAnswer, 1, subscription))
	renewal := s.produce(t, "q:sub:payment_initiation", "renewal", fmt.Sprintf(`{"subscription_id":%q,"amount":"9.99","currency":"EUR","cycle":2}`, subscription), "")
	deliveries := s.until(t, renewal, "processed")
	require.Equal(t, 3, deliveries[len(deliveries)-1].Attempt)
	require.Equal(t, 1, s.gateway.CarriedOut(renewal))
	emitted := s.emits(t, "sub-payment-initiation", renewal)
	require.Len(t, emitted, 1)
	s.until(t, emitted[0], "processed")
	require.Equal(t, 1, s.service.Applied(emitted[0]))
	require.Equal(t, "renewal", s.deliveriesOf(emitted[0])[0].Action)
}

// fourEyes: the dead letter of a refund is replayed by two persons, and by no one alone.
func fourEyes(t *testing.T, s *stack) {
	payment := "p-" + s.newSubscription().EventID
	require.NoError(t, s.gateway.Tell(standin.FailOrder, 2, payment))
	refund := s.produce(t, "q:pay:refund_initiation", "refund", fmt.Sprintf(`{"payment_id":%q}`, payment), `"max_attempts":2,`)
	deliveries := s.until(t, refund, "dead_lettered")
	require.Equal(t, "callee_failed_503", deliveries[len(deliveries)-1].Reason)
	item := s.letter(t, "q:pay:refund_initiation", refund)
	require.Equal(t, []string{"callee_failed_503", `attempts_exhausted: type "urn:billhook:problem:told", code "told", title "Service Unavailable"`}, []string{item.Reason, item.Detail},
		"the cause comes first, and what the gateway says of it is kept")
	var waiting payments.Refund
	require.Equal(t, http.StatusOK, s.as(t, "ada", http.MethodGet, "/v1/ops/refunds/"+payment, nil, &waiting))
	require.Equal(t, payments.UnderWay, waiting.State, "what is reserved stays so, for the replay")

	var op deadletter.Operation
	require.Equal(t, http.StatusCreated, s.as(t, "ada", http.MethodPost, "/v1/ops/dead-letters/replay", ops.Request{
		Filter: deadletter.Filter{Queue: item.Queue, Item: item.ID}, Why: "the gateway is back", Expect: 1,
	}, &op))
	require.Equal(t, deadletter.Waiting, op.Progress)
	path := "/v1/ops/operations/" + op.ID
	require.Equal(t, http.StatusUnprocessableEntity, s.as(t, "ada", http.MethodPost, path+"/approve", ops.Approval{Why: "checked", Expect: 1}, nil), "nobody approves what is their own")
	s.as(t, "ada", http.MethodPost, path+"/run", struct{}{}, nil)
	require.Equal(t, http.StatusOK, s.as(t, "ada", http.MethodGet, path, nil, &op))
	require.Equal(t, deadletter.Waiting, op.Progress, "it does not run before it is approved")
	require.Zero(t, s.gateway.Refunded(payment))

	// She sees which payment the gateway would be asked to refund, and approves that.
	var preview ops.Preview
	require.Eventually(t, func() bool { // a preview has a second for its trials
		preview = ops.Preview{}
		return s.as(t, "grace", http.MethodGet, path+"/preview", nil, &preview) == http.StatusOK && preview.Items[0].Trial != nil
	}, patience, pollInterval)
	require.Equal(t, 1, preview.Total)
	require.Contains(t, string(preview.Items[0].Trial.Calls[0].Body), payment)
	require.Equal(t, http.StatusOK, s.as(t, "grace", http.MethodPost, path+"/approve", ops.Approval{Why: "checked with the gateway", Expect: preview.Total}, &op))
	require.Equal(t, "checked with the gateway", op.ApprovedWhy)
	require.Equal(t, []string{"local:ada", "local:grace"}, []string{op.Who, op.ApprovedBy})
	require.Equal(t, http.StatusOK, s.as(t, "grace", http.MethodPost, path+"/run", struct{}{}, &op))
	require.Equal(t, deadletter.Finished, op.Progress)
	s.until(t, refund, "processed")
	require.Equal(t, 1, s.gateway.Refunded(payment))
	require.Equal(t, http.StatusOK, s.as(t, "ada", http.MethodGet, "/v1/ops/refunds/"+payment, nil, &waiting))
	require.Equal(t, payments.Refunded, waiting.State)
}
