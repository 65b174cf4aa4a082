package worker_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/apps/payments"
	"billhook/internal/compose/worker"
	"billhook/internal/contract"
	"billhook/internal/dedupe"
	"billhook/internal/pipeline/delivery"
	"billhook/internal/platform/standin"
)

const signingSecret = "the-deliveries-secret-of-24-bytes"

// till is a worker with a gateway, for which no time passes.
type till struct {
	worker http.Handler
	config worker.Config
	broker *shelf
}

// paying is a worker whose gateway is at the handler.
func paying(t *testing.T, at http.Handler) till {
	t.Helper()
	server := httptest.NewServer(at)
	t.Cleanup(server.Close)
	p, now := till{broker: &shelf{}}, time.Now()
	p.config = config(t, func(c *worker.Config) { c.Publisher, c.Now = p.broker, func() time.Time { return now } })
	targets, err := delivery.Open(p.config.Catalog, "", func(catalog.Target) (string, []string) { return server.URL, []string{signingSecret} }, time.Now)
	require.NoError(t, err)
	t.Cleanup(targets.Close)
	p.config.Targets = targets
	p.worker, err = worker.New(p.config)
	require.NoError(t, err)
	return p
}

func (p till) record(t *testing.T, queue catalog.Queue, id string) dedupe.Record {
	t.Helper()
	doc, err := p.config.Store.Get(t.Context(), dedupe.Key(queue.ID, dedupe.DefaultTenant, id))
	require.NoError(t, err)
	record, err := dedupe.FromDocument(doc)
	require.NoError(t, err)
	return record
}

func standInGateway(t *testing.T) *standin.Gateway {
	t.Helper()
	g, err := standin.NewGateway(standin.GatewayConfig{Secrets: []string{signingSecret}, Tolerance: time.Minute})
	require.NoError(t, err)
	t.Cleanup(g.Close)
	return g
}

func asks(id, action string, payload contract.Payload) contract.Body {
	return contract.Of(&contract.Envelope{ID: id, Action: action, CreatedAt: "2026-03-02T10:15:00Z", Payload: payload})
}

func TestThePaymentsQueuesAskTheGatewayAndTellTheOutcome(t *testing.T) {
	t.Parallel()
	g := standInGateway(t)
	p := paying(t, g)
	for id, test := range map[string]struct {
		handler, action string
		payload         contract.Payload
		result          string
		emitted         int
	}{
		"a-payment":        {"payments.initiate", "renewal", contract.Payload{SubscriptionID: "s-1", Amount: "9.99", Currency: "EUR"}, payments.Paid, 1},
		"a-declined-one":   {"payments.initiate", "upgrade", contract.Payload{SubscriptionID: "decline-2"}, payments.Declined, 1},
		"a-trial":          {"payments.initiate_trial", "trial", contract.Payload{SubscriptionID: "s-3"}, payments.Paid, 2},
		"a-declined-trial": {"payments.initiate_trial", "trial", contract.Payload{SubscriptionID: "decline-4"}, payments.Declined, 1},
		"a-refund":         {"refunds.initiate", "refund", contract.Payload{PaymentID: "pay-5"}, string(payments.Refunded), 0},
	} {
		q, ok := p.config.Catalog.HandledBy(test.handler)
		require.True(t, ok)
		for range 2 {
			require.Less(t, posted(t, p.worker, q.PushPath(), asks(id, test.action, test.payload)), 300, id)
		}
		record := p.record(t, q, id)
		require.Equal(t, dedupe.Completed, record.Status, id)
		require.Equal(t, test.result, record.Result, id)
		require.Len(t, record.Emitted, test.emitted, id)
	}
	require.Equal(t, 1, g.CarriedOut("a-payment"))
	require.Equal(t, 1, g.Refunded("pay-5"))
	found, err := payments.FindRefund(t.Context(), p.config.Store, "default", "pay-5")
	require.NoError(t, err)
	require.Equal(t, payments.Refunded, found.State)
}

// One status decides each: what is asked of the gateway, and what its answers are taken for.
func TestWhatTheGatewaysStatusesMean(t *testing.T) {
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
			p := paying(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
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
			q, _ := p.config.Catalog.HandledBy(name)
			posted(t, p.worker, q.PushPath(), ask)
			record := p.record(t, q, "r-1")
			require.Equal(t, test.status, record.Status)
			require.Contains(t, []string{record.Result, record.LastError}, test.says)
		})
	}
}
