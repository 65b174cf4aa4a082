package e2e_test

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/e2e"
	"billhook/internal/apps/ledger"
	"billhook/internal/contract"
	"billhook/internal/platform/signature"
)

// replaceOnce returns the webhook with one text replaced, which must occur.
func replaceOnce(t *testing.T, body []byte, old, replacement string) []byte {
	t.Helper()
	require.Equal(t, 1, strings.Count(string(body), old), "%s must be in the body once", old)
	return []byte(strings.Replace(string(body), old, replacement, 1))
}

// line waits for the log line of the event's webhook, which follows the answer.
func (s *stack) line(t *testing.T, eventID string) (found string) {
	t.Helper()
	require.Eventually(t, func() bool {
		for _, line := range strings.Split(s.log.Text(), "\n") {
			if strings.Contains(line, `"message":"webhook"`) && strings.Contains(line, `"event_id":"`+eventID+`"`) {
				found = line
			}
		}
		return found != ""
	}, patience, pollInterval, "no line of the webhook of %s", eventID)
	return found
}

// oddUids sends paid orders with every kind of uid, and checks the credited accounts.
func oddUids(t *testing.T, s *stack) {
	for name, test := range map[string]struct{ uid, user string }{
		"Auth0's":              {`"auth0|5f7c%s"`, "auth0|5f7c%s"},
		"Google's by Auth0":    {`"google-oauth2|10%s"`, "google-oauth2|10%s"},
		"Cognito's":            {`"eu-west-1:7f3a6f0e-6c1f-4b0c-9b7e-%s"`, "eu-west-1:7f3a6f0e-6c1f-4b0c-9b7e-%s"},
		"a number's digits":    {`%s`, "%s"},
		"an e-mail address":    {`"ilse.brandvold%s@example.org"`, ""},
		"two words":            {`"user %s"`, ""},
		"a word of JSON":       {`true`, ""},
		"a list":               {`["%s"]`, ""},
		"a number below 0":     {`-%s`, ""},
		"a number with a tail": {`%s.5`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			o := s.newOrder()
			digits := "8" + o.EventID[7:]
			of := func(format string) string {
				if strings.Contains(format, "%s") {
					return fmt.Sprintf(format, digits)
				}
				return format
			}
			answer := s.accepted(t, replaceOnce(t, o.JSON(), `"`+o.UID+`"`, of(test.uid)))
			s.until(t, o.EventID, "processed")
			account, key := ledger.CustomerPoints(o.CustomerID), o.CustomerID
			if test.user != "" {
				account, key = ledger.UserPoints(of(test.user)), of(test.user)
				require.NotContains(t, s.line(t, o.EventID), `"dropped"`)
			} else {
				require.Contains(t, s.line(t, o.EventID), `"dropped":["body.checkout.metadata.uid: uid"]`)
			}
			require.Equal(t, key, answer.OrderingKey)
			require.Equal(t, int64(2000), s.balance(t, account))
		})
	}
}

// oddFields sends a paid order that is unusual in every optional field.
func oddFields(t *testing.T, s *stack) {
	o := s.newOrder()
	body := replaceOnce(t, o.JSON(), `"body":{`, `"body":{"pretty_id":"#1001","checkout_id":"ch/123","amount":"free","billing_cycle_sequence":1.5,"ends_at":"never",`)
	body = replaceOnce(t, body, `"created_at":"2026-03-02T10:00:00Z"`, `"created_at":"2025-01-10 11:58:00"`)
	body = replaceOnce(t, body, `"completed_at":"2026-03-02T10:01:00Z"`, `"completed_at":1772445660`)
	answer := s.accepted(t, body)
	require.Equal(t, o.UID, answer.OrderingKey)
	s.until(t, o.EventID, "processed")
	require.Equal(t, int64(2000), s.balance(t, ledger.UserPoints(o.UID)))
	line := s.line(t, o.EventID)
	for _, dropped := range []string{"body.pretty_id: id", "body.created_at: timestamp", "body.completed_at: timestamp"} {
		require.Contains(t, line, `"`+dropped+`"`)
	}
	for _, unread := range []string{"checkout_id", "amount", "billing_cycle_sequence", "ends_at"} {
		require.NotContains(t, line, unread, "an order has none: it was not looked at")
	}
}

// oddMoney sends a discounted order with a malformed total. Its prices add up to more than was
// paid, so the share of a refund is unknown, and the refund becomes a dead letter.
func oddMoney(t *testing.T, s *stack) {
	o := s.newOrder()
	s.accepted(t, replaceOnce(t, o.JSON(), `"total_amount":2000,"type"`, `"total_amount":"10.00","type"`))
	s.until(t, o.EventID, "processed")
	require.Equal(t, int64(2000), s.balance(t, ledger.UserPoints(o.UID)))
	r := e2e.Refund{EventID: o.EventID + "1", RefundID: o.EventID + "9", OrderID: o.OrderID, CustomerID: o.CustomerID, Amount: 500, Paid: 1000}

	for _, amount := range []string{`"store_refund_amount":"500"`, `"store_refund_amount":5.5`, `"store_refund_amount":-500`, `"store_refund_amount":[500]`} {
		refused := s.send(t, replaceOnce(t, r.JSON(), `"store_refund_amount":500`, amount))
		require.Equal(t, http.StatusUnprocessableEntity, refused.Status)
		require.Contains(t, refused.Body, `"path":"body.store_refund_amount"`)
	}
	s.accepted(t, r.JSON())
	s.until(t, r.EventID, "dead_lettered")
	require.Equal(t, int64(2000), s.balance(t, ledger.UserPoints(o.UID)), "its share of the order is unknown")
	letters := s.lettersOf(t, r.EventID)
	require.Len(t, letters, 1)
	require.Equal(t, "order_total_unknown", letters[0].Attributes["dead_letter_reason"])
}

// requiredFields sends webhooks without the fields that their effect needs.
func requiredFields(t *testing.T, s *stack) {
	o := s.newOrder()
	for path, body := range map[string][]byte{
		"body.lines[0].quantity":   replaceOnce(t, o.JSON(), `"quantity":2`, `"quantity":"2"`),
		"body.lines[0].product_id": replaceOnce(t, o.JSON(), `"product_id":"`+points+`"`, `"product_id":"#1"`),
		"body.id":                  replaceOnce(t, o.JSON(), `"id":"`+o.OrderID+`","lines"`, `"id":"a b","lines"`),
	} {
		refused := s.send(t, body)
		require.Equal(t, http.StatusUnprocessableEntity, refused.Status, refused.Body)
		require.Contains(t, refused.Body, `"path":"`+path+`"`)
	}
	s.accepted(t, o.JSON())
	s.until(t, o.EventID, "processed")
	require.Equal(t, int64(2000), s.balance(t, ledger.UserPoints(o.UID)))
}

// unknownMembers sends members that the contract does not know from inside the house.
func unknownMembers(t *testing.T, s *stack) {
	subscription := s.newSubscription().SubscriptionID
	enqueue := func(member string) e2e.Answer {
		body := fmt.Appendf(nil, `{"id":"named-%s","action":"initial","created_at":"2026-03-01T12:00:00Z","attempts":0,"payload":{"subscription_id":%q%s}}`,
			subscription, subscription, member)
		signer, err := signature.NewSigner(signature.Generic, e2e.Secret)
		require.NoError(t, err)
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.webhookURL+"/queues/pay-subscription-update/messages", bytes.NewReader(body))
		require.NoError(t, err)
		request.Header.Set("Content-Type", "application/json")
		for name, value := range signer.Sign("", body, time.Now()) {
			request.Header.Set(name, value)
		}
		answer, err := e2e.Do(request)
		require.NoError(t, err)
		return answer
	}
	refused := enqueue(`,"plan_name":"gold","customer_email":"ilse.brandvold@example.org","Ilse Brandvold":true`)
	require.Equal(t, http.StatusUnprocessableEntity, refused.Status)
	for _, path := range []string{"payload.plan_name", "payload.customer_email", "payload.?"} {
		require.Contains(t, refused.Body, `{"path":"`+path+`","rule":"unknown"}`)
	}
	requireNothingPersonal(t, refused.Body)
	answer := enqueue("")
	require.Equal(t, http.StatusAccepted, answer.Status, answer.Body)
	s.until(t, answer.EventID, "processed")
	require.Equal(t, 1, s.service.Applied(answer.EventID))
}

// TestAQueueThatDoesNotRunTakesNothing: no producer is told that its message was taken, and no topic
// keeps one for a queue that nobody works for.
func TestAQueueThatDoesNotRunTakesNothing(t *testing.T) {
	t.Parallel()
	running := []string{e2e.Queue, "pay-subscription-update"}
	s := startEmbeddedOf(t, shortWaits(t), running...)
	c, err := catalog.Load("")
	require.NoError(t, err)
	var off int
	for _, q := range c.Queues {
		message := contract.Message{Data: []byte(`{}`), Attributes: map[string]string{"event_id": "e1"}}
		if slices.Contains(running, q.ID) {
			_, err := s.publish(t.Context(), q.Topic(), message)
			require.NoError(t, err, q.ID)
			continue
		}
		off++
		_, err := s.publish(t.Context(), q.Topic(), message)
		require.ErrorIs(t, err, contract.ErrTopicMissing, q.ID)
		for path, code := range map[string]string{"/queues/" + q.ID: "queue_unknown", "/topics/" + q.Topic(): "topic_unknown"} {
			answer := s.signed(t, path+"/messages", `{"subscription_id":"off"}`)
			require.Equal(t, http.StatusNotFound, answer.Status, path)
			require.Equal(t, code, answer.Code, path)
		}
	}
	require.Equal(t, len(c.Queues)-len(running), off)

	o := s.newOrder() // its points need no queue of orders
	o.ShopOrder = "order-of-nobody"
	s.accepted(t, o.JSON())
	require.Empty(t, s.ends(t, e2e.Queue, o.EventID).Emitted)
	s.until(t, o.EventID, "processed")
}

// unconfirmed shuts the broker: the sender is told to try again, and the log has the cause.
func unconfirmed(t *testing.T, s *stack) {
	o := s.newOrder()
	s.brokerDown(true)
	answer := s.send(t, o.JSON())
	s.brokerDown(false)
	require.Equal(t, http.StatusServiceUnavailable, answer.Status)
	require.NotContains(t, answer.Body, "cause")
	require.Contains(t, s.line(t, o.EventID), `"cause":"broker_unavailable"`)
	require.Eventually(t, func() bool { return s.send(t, o.JSON()).Status == http.StatusAccepted }, patience, 100*time.Millisecond)
	s.until(t, o.EventID, "processed")
}
