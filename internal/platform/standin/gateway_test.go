package standin_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/internal/filetest"
	"billhook/internal/platform/standin"
)

func newGateway(t *testing.T) *standin.Gateway {
	t.Helper()
	g := filetest.Must(standin.NewGateway(standin.ServiceConfig{
		Secrets: []string{receiverSecret}, Tolerance: time.Minute, Now: func() time.Time { return start },
	}))(t)
	t.Cleanup(g.Close)
	return g
}

func payment(id, subscription string) string {
	return `{"event_id":"` + id + `","action":"renewal","subscription_id":"` + subscription +
		`","payload":{"subscription_id":"` + subscription + `","amount":"9.99","currency":"EUR"}}`
}

func refund(id, payment string) string {
	return `{"event_id":"` + id + `","action":"refund","payment_id":"` + payment + `"}`
}

// order sends an order, or looks one up if body is empty. It returns the status of the answer, 0 if that was
// cut off, and its member status.
func order(t *testing.T, g http.Handler, path, id, body string) (status int, says string) {
	t.Helper()
	request := signed(t, http.MethodPost, path, body, start)
	if body == "" {
		request = signed(t, http.MethodGet, path+"/"+id, "", start)
	}
	request.Header.Set("Idempotency-Key", id)
	status, answer := serveOnce(g, request)
	var said struct {
		PaymentID string `json:"payment_id"`
		Status    string `json:"status"`
	}
	if json.Unmarshal([]byte(answer), &said) != nil || said.PaymentID == "" {
		return status, ""
	}
	return status, said.Status
}

func TestTheGatewayCarriesOutAKeyOnceAndRefusesAnotherOrderUnderIt(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	body := payment("key-1", "sub-1")
	for range 3 {
		status, says := order(t, g, standin.PaymentsPath, "key-1", body)
		require.Equal(t, []any{http.StatusOK, "succeeded"}, []any{status, says})
	}
	for was, is := range map[string]string{
		`"subscription_id":"sub-1"`: `"subscription_id":"sub-2"`, "9.99": "1.00", "EUR": "USD",
		"renewal": "upgrade", `"action"`: `"tenant":"acme","action"`,
	} {
		status, says := order(t, g, standin.PaymentsPath, "key-1", strings.Replace(body, was, is, 1))
		require.Equal(t, []any{http.StatusUnprocessableEntity, ""}, []any{status, says}, is)
	}
	require.Equal(t, 1, g.CarriedOut("key-1"))
	require.Len(t, g.Orders(), 1)
	_, answer := serveOnce(g, signed(t, http.MethodGet, standin.PaymentsPath+"/key-1", "", start))
	require.JSONEq(t, `{"payment_id":"`+g.Orders()[0].PaymentID+`","subscription_id":"sub-1","amount":"9.99",`+
		`"currency":"EUR","status":"succeeded"}`, answer)
	status, _ := order(t, g, standin.RefundsPath, "key-1", "")
	require.Equal(t, http.StatusNotFound, status, "refunds are another service")

	for _, id := range []string{"r-1", "r-2", "r-1"} {
		status, _ = order(t, g, standin.RefundsPath, id, refund(id, "pay-1"))
		require.Equal(t, http.StatusOK, status)
	}
	require.Equal(t, 2, g.Refunded("pay-1"), "two keys are two refunds")
}

// behaved is a row of testdata/services.yaml, which says what each member is.
type behaved struct {
	What, Of string
	Mode     standin.Mode
	Steps    []struct {
		Do, ID, Of, Says string
		Status, Carried  int
	}
}

func TestTheGatewayBehavesAsItsModeSays(t *testing.T) {
	t.Parallel()
	for _, test := range readServices(t).Gateway {
		g := newGateway(t)
		g.Close() // or a hanging request would last until the end
		require.NoError(t, g.Behave(test.Of, test.Mode, 1))
		for _, step := range test.Steps {
			path, body := standin.PaymentsPath, ""
			switch step.Do {
			case "pay":
				body = payment(step.ID, step.Of)
			case "refund":
				path, body = standin.RefundsPath, refund(step.ID, step.Of)
			}
			status, says := order(t, g, path, step.ID, body)
			require.Equal(t, []any{step.Status, step.Says, step.Carried},
				[]any{status, says, g.CarriedOut(step.ID)}, test.What)
		}
	}
}

// The receiver's test has the other mistakes: it reads a post in the same way.
func TestTheGatewayRefusesUnsignedAndIncompleteOrders(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	status, _ := serveOnce(g, signed(t, http.MethodPost, standin.PaymentsPath, payment("evt-1", "s"),
		start.Add(-2*time.Minute)))
	require.Equal(t, http.StatusUnauthorized, status)
	status, _ = order(t, g, standin.RefundsPath, "r-1", `{"event_id":"r-1","action":"refund"}`)
	require.Equal(t, http.StatusUnprocessableEntity, status, "a refund without a payment")
	require.Empty(t, g.Orders())
}

func TestTheGatewaysModesAndOrdersHaveRoutes(t *testing.T) {
	t.Parallel()
	before := newGateway(t).Before(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusTeapot)
	}))
	status, _ := unsigned(t, before, http.MethodPost, "/gateway/behave", `{"mode":"fail","times":1}`)
	require.Equal(t, http.StatusNoContent, status)
	for _, want := range []int{http.StatusServiceUnavailable, http.StatusOK} {
		status, _ = order(t, before, standin.PaymentsPath, "evt-1", payment("evt-1", "sub-1"))
		require.Equal(t, want, status)
	}
	_, answer := unsigned(t, before, http.MethodGet, "/gateway/orders", "")
	require.Contains(t, answer, `"event_id":"evt-1"`)
	status, _ = unsigned(t, before, http.MethodPost, "/v1/payment-processing", "{}")
	require.Equal(t, http.StatusTeapot, status, "another service's path is left to that service")
}
