package standin_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/internal/platform/standin"
)

func newGateway(t *testing.T) *standin.Gateway {
	t.Helper()
	g, err := standin.NewGateway(standin.GatewayConfig{Secrets: []string{receiverSecret}, Tolerance: time.Minute, Now: func() time.Time { return start }})
	require.NoError(t, err)
	t.Cleanup(g.Close)
	return g
}

func payment(id, subscription string) string {
	return `{"event_id":"` + id + `","action":"renewal","subscription_id":"` + subscription + `","payload":{"subscription_id":"` + subscription + `","amount":"9.99","currency":"EUR"}}`
}

func refund(id, payment string) string {
	return `{"event_id":"` + id + `","action":"refund","payment_id":"` + payment + `"}`
}

// order sends an order, and returns the status of the answer and its member status; 0: cut off.
func order(t *testing.T, g http.Handler, path, id, body string) (status int, says string) {
	t.Helper()
	request := signed(t, http.MethodPost, path, body, start)
	request.Header.Set("Idempotency-Key", id)
	status, answer, _ := serveOnce(g, request)
	return status, saysOf(answer)
}

func saysOf(answer string) string {
	var said struct {
		PaymentID string `json:"payment_id"`
		Status    string `json:"status"`
	}
	if json.Unmarshal([]byte(answer), &said) != nil || said.PaymentID == "" {
		return ""
	}
	return said.Status
}

func askAbout(t *testing.T, g http.Handler, path, id string) (status int, says string) {
	t.Helper()
	status, answer, _ := serveOnce(g, signed(t, http.MethodGet, path+"/"+id, "", start))
	return status, saysOf(answer)
}

func TestTheGatewayCarriesOutAKeyOnce(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	for range 3 {
		status, says := order(t, g, standin.PaymentsPath, "evt-1", payment("evt-1", "sub-1"))
		require.Equal(t, http.StatusOK, status)
		require.Equal(t, "succeeded", says)
	}
	require.Equal(t, 1, g.CarriedOut("evt-1"))
	orders := g.Orders()
	require.Len(t, orders, 1)
	require.Equal(t, []string{"renewal", "sub-1", "9.99", "EUR"}, []string{orders[0].Action, orders[0].SubscriptionID, orders[0].Amount, orders[0].Currency})
	status, says := askAbout(t, g, standin.PaymentsPath, "evt-1")
	require.Equal(t, []any{http.StatusOK, "succeeded"}, []any{status, says})
	status, _ = askAbout(t, g, standin.RefundsPath, "evt-1")
	require.Equal(t, http.StatusNotFound, status, "refunds are another service")

	for _, id := range []string{"r-1", "r-2", "r-1"} {
		status, _ = order(t, g, standin.RefundsPath, id, refund(id, "pay-1"))
		require.Equal(t, http.StatusOK, status)
	}
	require.Equal(t, 2, g.Refunded("pay-1"), "it protects nobody from asking under two keys")
}

func TestTheGatewayRefusesAnotherOrderUnderAKey(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	status, _ := order(t, g, standin.PaymentsPath, "key-1", payment("key-1", "sub-1"))
	require.Equal(t, http.StatusOK, status)
	for name, another := range map[string]string{
		"a subscription": payment("key-1", "sub-2"),
		"an amount":      strings.Replace(payment("key-1", "sub-1"), "9.99", "1.00", 1),
		"a currency":     strings.Replace(payment("key-1", "sub-1"), "EUR", "USD", 1),
		"an action":      strings.Replace(payment("key-1", "sub-1"), "renewal", "upgrade", 1),
		"a tenant":       strings.Replace(payment("key-1", "sub-1"), `"action"`, `"tenant":"acme","action"`, 1),
	} {
		status, says := order(t, g, standin.PaymentsPath, "key-1", another)
		require.Equal(t, []any{http.StatusUnprocessableEntity, ""}, []any{status, says}, name)
	}
	require.Equal(t, 1, g.CarriedOut("key-1"))
	_, answer, _ := serveOnce(g, signed(t, http.MethodGet, standin.PaymentsPath+"/key-1", "", start))
	require.JSONEq(t, `{"payment_id":"`+g.Orders()[0].PaymentID+`","subscription_id":"sub-1","amount":"9.99","currency":"EUR","status":"succeeded"}`, answer)
}

func TestTheGatewayDoesWhatItIsTold(t *testing.T) {
	t.Parallel()
	for act, test := range map[standin.Act]struct {
		status        int // 0: cut off
		says          string
		carried       int // by the order alone
		known         string
		again, twice  int // the status of its repetition, and how often it was carried out then
		repeatedSays  string
		hangsUntilEnd bool
	}{
		standin.DeclineOrder: {200, "declined", 0, "declined", 200, 0, "declined", false},
		standin.FailOrder:    {503, "", 0, "", 200, 1, "succeeded", false},
		standin.LoseAnswer:   {0, "", 1, "succeeded", 200, 1, "succeeded", false},
		standin.ForgetOrder:  {200, "succeeded", 1, "", 200, 2, "succeeded", false},
		standin.HangOrder:    {0, "", 0, "", 0, 0, "", true},
	} {
		t.Run(string(act), func(t *testing.T) {
			t.Parallel()
			g := newGateway(t)
			if test.hangsUntilEnd {
				g.Close()
			}
			require.NoError(t, g.Tell(act, 1, ""))
			status, says := order(t, g, standin.PaymentsPath, "evt-1", payment("evt-1", "sub-1"))
			require.Equal(t, []any{test.status, test.says, test.carried}, []any{status, says, g.CarriedOut("evt-1")})
			_, says = askAbout(t, g, standin.PaymentsPath, "evt-1")
			require.Equal(t, test.known, says)
			if test.hangsUntilEnd {
				return
			}
			status, says = order(t, g, standin.PaymentsPath, "evt-1", payment("evt-1", "sub-1"))
			require.Equal(t, []any{test.again, test.repeatedSays, test.twice}, []any{status, says, g.CarriedOut("evt-1")})
		})
	}
}

func TestTheGatewayIsToldByAPaymentOrASubscription(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	require.NoError(t, g.Tell(standin.FailOrder, 1, "pay-2"))
	require.NoError(t, g.Tell(standin.DeclineOrder, 1, "sub-3"))
	for _, step := range []struct {
		path, id, body string
		status         int
		says           string
	}{
		{standin.RefundsPath, "r-1", refund("r-1", "pay-1"), 200, "succeeded"},
		{standin.RefundsPath, "r-2", refund("r-2", "pay-2"), 503, ""},
		{standin.RefundsPath, "r-2", refund("r-2", "pay-2"), 200, "succeeded"},
		{standin.PaymentsPath, "e-3", payment("e-3", "sub-3"), 200, "declined"},
		{standin.PaymentsPath, "e-4", payment("e-4", "sub-3"), 200, "succeeded"},
		{standin.PaymentsPath, "e-5", payment("e-5", "decline-5"), 200, "declined"},
		{standin.PaymentsPath, "e-6", payment("e-6", "fail-6"), 503, ""},
		{standin.RefundsPath, "r-7", refund("r-7", "lose-7"), 0, ""},
	} {
		status, says := order(t, g, step.path, step.id, step.body)
		require.Equal(t, []any{step.status, step.says}, []any{status, says}, step.id)
	}
	require.Equal(t, 1, g.Refunded("lose-7"))
}

func TestTheGatewayTakesNoOrderThatItCannotTrust(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	for name, test := range map[string]struct {
		at        time.Time
		key, body string
		status    int
	}{
		"a stale time":        {start.Add(-2 * time.Minute), "evt-1", payment("evt-1", "s"), http.StatusUnauthorized},
		"a time to come":      {start.Add(2 * time.Minute), "evt-1", payment("evt-1", "s"), http.StatusUnauthorized},
		"another key":         {start, "evt-2", payment("evt-1", "s"), http.StatusUnprocessableEntity},
		"no JSON":             {start, "evt-1", "{", http.StatusBadRequest},
		"no event":            {start, "", `{"action":"renewal"}`, http.StatusUnprocessableEntity},
		"more than a request": {start, "evt-1", strings.Repeat(" ", 300<<10), http.StatusRequestEntityTooLarge},
	} {
		request := signed(t, http.MethodPost, standin.PaymentsPath, test.body, test.at)
		request.Header.Set("Idempotency-Key", test.key)
		status, _, _ := serveOnce(g, request)
		require.Equal(t, test.status, status, name)
	}
	unsigned := signed(t, http.MethodPost, standin.PaymentsPath, payment("evt-1", "s"), start)
	unsigned.Header.Set("X-Webhook-Signature", strings.Repeat("0", 64))
	status, _, _ := serveOnce(g, unsigned)
	require.Equal(t, http.StatusUnauthorized, status)
	status, _ = order(t, g, standin.RefundsPath, "r-1", `{"event_id":"r-1","action":"refund"}`)
	require.Equal(t, http.StatusUnprocessableEntity, status, "a refund of nothing")
	require.Empty(t, g.Orders())
}

func TestTheGatewayIsToldAndLookedAtOverHTTP(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	before := g.Before(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }))
	for body, want := range map[string]int{
		`{"act":"fail","times":1}`: http.StatusNoContent, `{"act":"burn","times":1}`: http.StatusUnprocessableEntity,
		`{"act":"fail","times":0}`: http.StatusUnprocessableEntity, `{"mode":"fail"}`: http.StatusBadRequest,
	} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "/gateway/tell", strings.NewReader(body))
		require.NoError(t, err)
		status, _, _ := serveOnce(before, request)
		require.Equal(t, want, status, body)
	}
	status, _ := order(t, before, standin.PaymentsPath, "evt-1", payment("evt-1", "sub-1"))
	require.Equal(t, http.StatusServiceUnavailable, status)
	status, _ = order(t, before, standin.PaymentsPath, "evt-1", payment("evt-1", "sub-1"))
	require.Equal(t, http.StatusOK, status)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "/gateway/orders", nil)
	require.NoError(t, err)
	_, answer, _ := serveOnce(before, request)
	require.Contains(t, answer, `"event_id":"evt-1"`)
	status, _ = order(t, before, "/v1/payment-processing", "evt-1", "{}")
	require.Equal(t, http.StatusTeapot, status, "what is not the gateway's is another's")
	_, err = standin.NewGateway(standin.GatewayConfig{})
	require.Error(t, err)
}
