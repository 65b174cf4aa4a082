package worker_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/internal/apps/payments"
	"billhook/internal/compose/worker"
	"billhook/internal/contract"
	"billhook/internal/dedupe"
)

// paying is a worker whose gateway is at the handler, and for which no time passes.
func paying(t *testing.T, at http.Handler) (*worker.Worker, worker.Config) {
	t.Helper()
	server := httptest.NewServer(at)
	t.Cleanup(server.Close)
	now := time.Now()
	c := config(t, func(c *worker.Config) {
		c.Now, c.Targets = func() time.Time { return now }, postedTo(t, c.Catalog, server.URL)
	})
	w, err := worker.New(c)
	require.NoError(t, err)
	return w, c
}

func asks(id, action string, payload contract.Payload) contract.Body {
	return contract.Of(&contract.Envelope{ID: id, Action: action, CreatedAt: "2026-03-02T10:15:00Z", Payload: payload})
}

// One status decides each: what is asked of the gateway, and what its answers are taken for.
func TestStatusOfTheGatewayDecidesThePayment(t *testing.T) {
	t.Parallel()
	const succeeded = `{"payment_id":"pay-1","subscription_id":"s-1","status":"succeeded"}`
	const declined = `{"payment_id":"pay-1","status":"declined"}`
	type answer struct {
		status int
		body   string
	}
	for name, test := range map[string]struct {
		post, get answer
		status    dedupe.Status
		says      string // the record's result or last error
	}{
		"it has the order already":               {answer{409, ""}, answer{200, succeeded}, dedupe.Completed, "refunded"},
		"it has the payment already":             {answer{409, ""}, answer{200, succeeded}, dedupe.Completed, payments.Paid},
		"it contradicts":                         {answer{409, ""}, answer{404, ""}, dedupe.DeadLettered, "callee_refused_409"},
		"it contradicts, and cannot be asked":    {answer{409, ""}, answer{405, ""}, dedupe.Failed, "callee_unclear_405"},
		"it refuses":                             {answer{422, succeeded}, answer{404, ""}, dedupe.DeadLettered, "callee_refused_422"},
		"it refuses, and yet has done it":        {answer{422, ""}, answer{200, succeeded}, dedupe.Completed, "refunded"},
		"it refuses, and the question too":       {answer{422, ""}, answer{403, ""}, dedupe.Failed, "callee_unauthorized_403"},
		"it fails":                               {answer{500, succeeded}, answer{404, ""}, dedupe.Failed, "callee_failed_500"},
		"it says more than anybody reads":        {answer{200, succeeded + strings.Repeat(" ", payments.MaxAnswer)}, answer{404, ""}, dedupe.Failed, "callee_answer_too_long"},
		"it declines":                            {answer{200, declined}, answer{200, declined}, dedupe.DeadLettered, "refund_declined"},
		"it says nothing":                        {answer{204, ""}, answer{404, ""}, dedupe.Failed, "gateway_answer_unreadable"},
		"it sends the order somewhere else":      {answer{307, ""}, answer{404, ""}, dedupe.DeadLettered, "callee_redirects_307"},
		"it refuses, and the question redirects": {answer{422, ""}, answer{302, ""}, dedupe.Failed, "callee_unclear_302"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, c := paying(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				a := test.post
				if r.Method == http.MethodGet {
					a = test.get
				}
				w.WriteHeader(a.status)
				if a.body != "" {
					_, _ = w.Write([]byte(a.body))
				}
			}))
			name, ask := "refunds.initiate", asks("r-1", "refund", contract.Payload{PaymentID: "pay-1"})
			if strings.HasPrefix(test.says, payments.Paid) {
				name, ask = "payments.initiate", asks("r-1", "renewal", contract.Payload{SubscriptionID: "s-1"})
			}
			q, _ := c.Catalog.HandledBy(name)
			posted(t, p, q.PushPath(), ask)
			doc, err := c.Store.Get(t.Context(), dedupe.Key(q.ID, dedupe.DefaultTenant, "r-1"))
			require.NoError(t, err)
			record, err := dedupe.FromDocument(doc)
			require.NoError(t, err)
			require.Equal(t, test.status, record.Status)
			require.Contains(t, []string{record.Result, record.LastError}, test.says)
		})
	}
}
