package e2e_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/internal/dedupe"
	"billhook/internal/platform/standin"
)

// ofTenant enqueues an envelope for a tenant.
func (s *stack) ofTenant(t *testing.T, queue, tenant, id, action, payload string) {
	t.Helper()
	answer := s.signed(t, "/queues/"+queue+"/messages", fmt.Sprintf(
		`{"tenant":%q,"message":{"id":%q,"action":%q,"created_at":"2026-03-01T12:00:00Z","payload":%s}}`, tenant, id, action, payload))
	require.Equal(t, http.StatusAccepted, answer.Status, answer.Body)
}

// oneIDForAll: an id is unique in its queue and tenant alone. Three payments under one id are three payments at
// the gateway, each is told of by itself, and the trial gets its own money back.
func oneIDForAll(t *testing.T, s *stack) {
	id := "same-" + s.newSubscription().EventID
	for _, p := range []struct{ queue, tenant, action, subscription, amount string }{
		{"sub-payment-initiation", dedupe.DefaultTenant, "renewal", id + "-a", "9.99"},
		{"sub-payment-initiation", "acme", "renewal", id + "-b", "19.99"},
		{"sub-trial-payment", dedupe.DefaultTenant, "trial", id + "-c", "1.00"},
	} {
		s.ofTenant(t, p.queue, p.tenant, id, p.action, fmt.Sprintf(`{"subscription_id":%q,"amount":%q,"currency":"EUR"}`, p.subscription, p.amount))
		record := s.endsOf(t, p.queue, p.tenant, id)
		require.Equal(t, []any{dedupe.Completed, "paid"}, []any{record.Status, record.Result}, p.subscription)
		var paid []standin.Order
		for _, o := range s.gateway.Orders() {
			if o.Path == standin.PaymentsPath && o.SubscriptionID == p.subscription {
				paid = append(paid, o)
			}
		}
		require.Len(t, paid, 1, "%s has a payment of its own", p.subscription)
		require.Equal(t, []any{p.amount, 1}, []any{paid[0].Amount, paid[0].Times})

		update := s.endsOf(t, "pay-subscription-update", p.tenant, record.Emitted[0].EventID)
		require.Equal(t, []any{dedupe.Completed, "delivered"}, []any{update.Status, update.Result}, p.subscription)
		require.Equal(t, []string{"succeeded"}, s.toldOf(p.subscription))
		refunded := 0
		if p.action == "trial" {
			refunded = 1
			refund := s.endsOf(t, "pay-refund-initiation", p.tenant, record.Emitted[1].EventID)
			require.Equal(t, dedupe.Completed, refund.Status)
		}
		require.Equal(t, refunded, s.gateway.Refunded(paid[0].PaymentID), "of %s", p.subscription)
	}
}

// toldOf are the statuses that deliveries about a subscription said which were applied.
func (s *stack) toldOf(subscription string) (statuses []string) {
	for _, d := range s.service.Deliveries() {
		if d.SubscriptionID == subscription && d.Outcome == standin.Applied {
			statuses = append(statuses, d.Status)
		}
	}
	return statuses
}
