package e2e_test

import (
	"bytes"
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/e2e"
	"billhook/internal/apps/customers"
	"billhook/internal/apps/ledger"
	"billhook/internal/contract"
	"billhook/internal/ingest/webhook/samples"
)

// keyOf returns the ordering key of the published event.
func (s *stack) keyOf(t *testing.T, eventID string) string {
	t.Helper()
	for _, m := range s.published(t) {
		if m.Attributes[contract.AttrEventID] == eventID {
			return m.OrderingKey
		}
	}
	require.Fail(t, "the event was not published", eventID)
	return ""
}

// customerKeeps: PayNow's refunds, chargebacks and subscriptions name the customer alone. After
// an order that named customer and uid, they follow it under its uid.
func customerKeeps(t *testing.T, s *stack) {
	o := s.newOrder()
	s.accepted(t, o.JSON())
	s.until(t, o.EventID, "processed")
	require.Equal(t, o.UID, s.keyOf(t, o.EventID))

	part := e2e.Refund{EventID: o.EventID + "1", RefundID: "1", OrderID: o.OrderID, CustomerID: o.CustomerID, Amount: 500, Paid: o.Total()}
	require.Equal(t, o.UID, s.accepted(t, part.JSON()).OrderingKey, "the refund travels under the order's key")
	require.Equal(t, o.UID, s.keyOf(t, part.EventID))
	s.until(t, part.EventID, "processed")
	require.Equal(t, int64(1500), s.balance(t, ledger.UserPoints(o.UID)))

	renewal := samples.Event{EventID: o.EventID + "2", SubscriptionID: o.EventID + "4", CustomerID: o.CustomerID}
	body := bytes.ReplaceAll(samples.Read(samples.SubscriptionRenewed, renewal), []byte(samples.UID), nil)
	require.Equal(t, o.UID, s.accepted(t, body).OrderingKey)
	s.until(t, renewal.EventID, "processed")

	chargeback := samples.Event{EventID: o.EventID + "3", OrderID: o.OrderID}
	body = samples.Read(samples.Chargeback, chargeback)
	named := bytes.Replace(body, []byte(`"customer": null`), fmt.Appendf(nil, `"customer": {"id": %q}`, o.CustomerID), 1)
	require.NotEqual(t, body, named)
	require.Equal(t, o.UID, s.accepted(t, named).OrderingKey)
	s.until(t, chargeback.EventID, "processed")
	require.Zero(t, s.balance(t, ledger.UserPoints(o.UID)))

	var state customers.State
	s.ask(t, http.MethodGet, "/v1/ops/customers/"+o.CustomerID, nil, &state)
	require.Equal(t, o.UID, state.UID)
	require.Equal(t, o.EventID, state.TaughtBy)
}
