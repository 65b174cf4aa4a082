package main

import (
	"context"
	"log/slog"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/apps/payments"
	"billhook/internal/console/ops"
	"billhook/internal/contract"
	"billhook/internal/pipeline/handler"
	"billhook/internal/platform/standin"
)

// vague is a gateway that says nothing clear of one payment, and declines pay-2.
type vague string

func (v vague) Do(_ context.Context, _ string, order []byte) ([]byte, error) {
	if strings.Contains(string(order), string(v)) {
		return []byte(`{"payment_id":"","status":"succeeded"}`), nil
	}
	return []byte(`{"payment_id":"pay-2","status":"declined"}`), nil
}

func (vague) Request(string, []byte) handler.Call { return handler.Call{} }

func (vague) Reconcile(context.Context, string) ([]byte, bool, error) { return nil, false, nil }

func TestRefundsAreLookedAtFromATerminal(t *testing.T) {
	t.Parallel()
	db, err := standin.OpenTemporaryStore(filepath.Join(t.TempDir(), "store.db"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	at := func() time.Time { return time.Date(2026, 3, 2, 10, 15, 0, 0, time.UTC) }
	refunds := payments.Refunds{Gateway: vague("pay-1"), Store: db, Now: at, RememberFor: time.Hour}.Leased().Leased()
	for payment, amount := range map[string]string{"pay-1": "9.99", "pay-2": ""} {
		payload := contract.Payload{PaymentID: payment, Amount: amount}
		if amount != "" {
			payload.Currency = "EUR"
		}
		_, _ = refunds.Do(t.Context(), handler.Event{Queue: "q", Tenant: "default", ID: "r-" + payment, Type: "refund", Attempt: 1, Body: contract.Of(&contract.Envelope{
			ID: "r-" + payment, Action: "refund", CreatedAt: "2026-03-02T10:15:00Z", Payload: payload,
		})}) // what became of it is what the test asks for
	}
	router := chi.NewRouter()
	(&ops.API{
		Reads: ops.Reads{Store: db, Now: at, Catalog: &catalog.Catalog{}}, Log: slog.New(slog.DiscardHandler), Access: ops.Access{Tokens: []string{opsToken}},
	}).Routes(router)
	server := httptest.NewServer(router)
	t.Cleanup(server.Close)
	for _, step := range []struct{ arguments, want, fails string }{
		{"refunds ls", "PAYMENT  STATE      REASON  AMOUNT    SINCE                 SETTLED  QUEUE  EVENT\npay-1    under_way  -       9.99 EUR  2026-03-02T10:15:00Z  -        q      r-pay-1\n", ""},
		{"refunds ls --state refused --wide", "2026-03-02T10:15:00Z  2026-03-02T10:15:00Z  q      r-pay-2\n", ""},
		{"refunds ls --state all --limit 1", "There are more", ""},
		{"refunds show pay-2", "refund_declined", ""},
		{"refunds show pay-2 --json", `"state": "refused"`, ""},
		{"refunds show pay-3", "", "refund_unknown"},
		{"refunds show pay-2 --tenant shop", "", "refund_unknown"},
		{"refunds ls --state gone", "", "none of under_way, refunded, refused, all"},
	} {
		var out strings.Builder
		root, err := commands(func(name string) string { return map[string]string{"OPS_TOKEN": opsToken}[name] }, &out)
		require.NoError(t, err)
		root.SetArgs(append(strings.Fields(step.arguments), "--server", server.URL))
		err = root.ExecuteContext(t.Context())
		if step.fails != "" {
			require.ErrorContains(t, err, step.fails, step.arguments)
			continue
		}
		require.NoError(t, err, step.arguments)
		require.Contains(t, out.String(), step.want, step.arguments)
	}
}
