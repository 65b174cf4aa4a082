package webhook_test

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/internal/ingest/webhook"
	"billhook/internal/platform/signature"
)

// issued knows tokens by what they say: audience and account.
type issued struct{ keysGone bool }

func (i issued) Account(_ context.Context, audience, authorization string) (email, invalid string, err error) {
	if i.keysGone {
		return "", "", errors.New("no keys")
	}
	for _, email := range []string{"jobs@shop.example", "other@shop.example"} {
		if authorization == "Bearer "+audience+" "+email {
			return email, "", nil
		}
	}
	return "", "audience", nil
}

func accounts(of webhook.Tokens) func(*webhook.Config) {
	return func(c *webhook.Config) {
		producing()(c)
		c.Accounts = webhook.Accounts{Tokens: of, Audience: "https://hooks.example", Emails: map[string]string{"scheduler": "Jobs@shop.example"}}
	}
}

const (
	invoices = "/queues/events-normal/messages"
	invoice  = `{"type":"invoice_generation","version":1,"data":{"subscription_id":"s1"}}`
)

func TestAnAccountSendsByATokenForThePathThatTheCatalogAllowsIt(t *testing.T) {
	t.Parallel()
	const jobs, other = " jobs@shop.example", " other@shop.example"
	for name, test := range map[string]struct {
		path, token string
		tokens      issued
		status      int
		code        string
	}{
		"to a queue of its own":            {invoices, "https://hooks.example" + invoices + jobs, issued{}, http.StatusAccepted, ""},
		"to a topic of its own":            {"/topics/notifications/messages", "https://hooks.example/topics/notifications/messages" + jobs, issued{}, http.StatusUnprocessableEntity, "contract_broken"},
		"by another name of its queue":     {"/queues/event_queue:normal/messages", "https://hooks.example/queues/event_queue:normal/messages" + jobs, issued{}, http.StatusAccepted, ""},
		"to another queue":                 {"/queues/events-high/messages", "https://hooks.example/queues/events-high/messages" + jobs, issued{}, http.StatusForbidden, "account_not_allowed"},
		"to the topic of nobody's":         {"/topics/orders/messages", "https://hooks.example/topics/orders/messages" + jobs, issued{}, http.StatusForbidden, "account_not_allowed"},
		"to a queue that moves money":      {"/queues/pay-refund-initiation/messages", "https://hooks.example/queues/pay-refund-initiation/messages" + jobs, issued{}, http.StatusForbidden, "account_not_allowed"},
		"as an account that nobody named":  {invoices, "https://hooks.example" + invoices + other, issued{}, http.StatusForbidden, "account_not_allowed"},
		"with the token of another queue":  {invoices, "https://hooks.example/queues/events-low/messages" + jobs, issued{}, http.StatusUnauthorized, "token_invalid"},
		"with the token of another server": {invoices, "https://worker.example" + invoices + jobs, issued{}, http.StatusUnauthorized, "token_invalid"},
		"while the keys cannot be fetched": {invoices, "https://hooks.example" + invoices + jobs, issued{keysGone: true}, http.StatusServiceUnavailable, "token_unchecked"},
		"to a provider's address":          {"/webhooks/generic", "https://hooks.example/webhooks/generic" + jobs, issued{}, http.StatusUnauthorized, "signature_missing"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := open(t, accounts(test.tokens))
			r := request(t, test.path, bytes.NewReader([]byte(invoice)))
			r.Header.Set("Authorization", "Bearer "+test.token)
			w := d.send(r)
			if test.code == "" {
				require.Equal(t, test.status, w.Code, w.Body)
				require.Contains(t, d.log.String(), `"account":"scheduler"`)
				return
			}
			requireProblem(t, d, w, test.status, test.code, "")
		})
	}
}

func TestWithoutAccountsATokenIsNoSignature(t *testing.T) {
	t.Parallel()
	d := open(t, producing())
	r := request(t, invoices, bytes.NewReader([]byte(invoice)))
	r.Header.Set("Authorization", "Bearer anything")
	requireProblem(t, d, d.send(r), http.StatusUnauthorized, "signature_missing", "")
}

func TestASignatureCountsWhereThereIsATokenToo(t *testing.T) {
	t.Parallel()
	d := open(t, accounts(issued{}))
	r := request(t, invoices, bytes.NewReader([]byte(invoice)))
	sign(t, r, signature.Generic, "another-secret-of-more-than-24-bytes", []byte(invoice), fixed)
	r.Header.Set("Authorization", "Bearer https://hooks.example"+invoices+" jobs@shop.example")
	requireProblem(t, d, d.send(r), http.StatusUnauthorized, "signature_mismatch", "")
}

// TestEachRunOfAJobIsAnEventOfItsOwn: a job sends the same bytes at every run.
func TestEachRunOfAJobIsAnEventOfItsOwn(t *testing.T) {
	t.Parallel()
	d := open(t, accounts(issued{}))
	run := func(body, at string, token bool) {
		t.Helper()
		r := request(t, invoices, bytes.NewReader([]byte(body)))
		if token {
			r.Header.Set("Authorization", "Bearer https://hooks.example"+invoices+" jobs@shop.example")
		} else {
			sign(t, r, signature.Generic, genericSecret, []byte(body), fixed)
		}
		r.Header.Set("X-CloudScheduler-JobName", "invoices")
		r.Header.Set("X-CloudScheduler-ScheduleTime", at)
		require.Less(t, d.send(r).Code, 300)
	}
	run(invoice, "2026-03-02T10:00:00Z", true)
	run(invoice, "2026-03-02T10:00:00Z", true) // again, since nobody saw the answer
	run(invoice, "2026-03-02T11:00:00.5+01:00", true)
	run(invoice, "2026-03-03T10:00:00Z", true)
	run(`{"messages":[{"message":`+invoice+`},{"message":`+invoice+`}]}`, "2026-03-04T10:00:00Z", true)
	run(`{"id":"own","type":"invoice_generation","version":1,"data":{"subscription_id":"s1"}}`, "2026-03-05T10:00:00Z", true)
	run(`{"id":"signed","type":"invoice_generation","version":1,"data":{"subscription_id":"s1"}}`, "2026-03-05T10:00:00Z", false)
	ids, first := map[string]int{}, d.broker.all()[0].message.Data
	for _, m := range d.broker.all() {
		ids[m.message.Attributes["event_id"]]++
	}
	require.Equal(t, map[string]int{
		"invoices-2026-03-02T10:00:00Z": 3, "invoices-2026-03-03T10:00:00Z": 1, "invoices-2026-03-04T10:00:00Z": 1, "invoices-2026-03-04T10:00:00Z-2": 1, "own": 1, "signed": 1,
	}, ids)
	require.Equal(t, string(first), string(d.broker.all()[1].message.Data), "the same event, byte for byte")
}
