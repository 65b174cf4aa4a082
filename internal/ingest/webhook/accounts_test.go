package webhook_test

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/internal/ingest/webhook"
	"billhook/internal/platform/signature"
)

// issued knows tokens that are their audience and account.
type issued struct{ noKeys bool }

func (i issued) Account(
	_ context.Context, audience, authorization string,
) (email, invalid string, err error) {
	if i.noKeys {
		return "", "", errDown
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
		c.Accounts = webhook.Accounts{
			Tokens: of, Audience: "https://hooks.example", Emails: map[string]string{"scheduler": "Jobs@shop.example"},
		}
	}
}

const (
	invoices = "/queues/events-normal/messages"
	invoice  = `{"type":"invoice_generation","version":1,"data":{"subscription_id":"s1"}}`
)

func TestAccountSendsWithATokenForAPathThatTheCatalogAllows(t *testing.T) {
	t.Parallel()
	for _, test := range requests(t).Accounts {
		change := configurations[test.Config]
		if change == nil {
			change = accounts(issued{noKeys: test.Config == "keys_gone"})
		}
		d, r := open(t, change), request(t, test.Path, strings.NewReader(invoice))
		r.Header.Set("Authorization", "Bearer "+test.Destination+" "+test.Account)
		if test.Secret != "" {
			sign(t, r, test.Path, signature.Generic, test.Secret, []byte(invoice))
		}
		if test.Code == "" {
			require.Contains(t, accepted(t, d, r).log.String(), `"account":"scheduler"`)
			continue
		}
		requireProblem(t, d, d.send(r), test.Status, test.Code, "")
	}
}

// A job of Cloud Scheduler sends the same body at each run.
func TestEachRunOfAJobIsItsOwnEvent(t *testing.T) {
	t.Parallel()
	d := open(t, accounts(issued{}))
	run := func(body, at string, token bool) {
		t.Helper()
		r := request(t, invoices, bytes.NewReader([]byte(body)))
		if token {
			r.Header.Set("Authorization", "Bearer https://hooks.example"+invoices+" jobs@shop.example")
		} else {
			sign(t, r, invoices, signature.Generic, genericSecret, []byte(body))
		}
		r.Header.Set("X-CloudScheduler-JobName", "invoices")
		r.Header.Set("X-CloudScheduler-ScheduleTime", at)
		require.Less(t, d.send(r).Code, 300)
	}
	run(invoice, "2026-03-02T10:00:00Z", true)
	run(invoice, "2026-03-02T10:00:00Z", true) // again, since the answer was lost
	run(invoice, "2026-03-02T11:00:00.5+01:00", true)
	run(invoice, "2026-03-03T10:00:00Z", true)
	run(`{"messages":[{"message":`+invoice+`},{"message":`+invoice+`}]}`, "2026-03-04T10:00:00Z", true)
	run(`{"id":"own","type":"invoice_generation","version":1,"data":{"subscription_id":"s1"}}`,
		"2026-03-05T10:00:00Z", true)
	run(`{"id":"signed","type":"invoice_generation","version":1,"data":{"subscription_id":"s1"}}`,
		"2026-03-05T10:00:00Z", false)
	ids, first := map[string]int{}, d.broker.all()[0].message.Data
	for _, m := range d.broker.all() {
		ids[m.message.Attributes["event_id"]]++
	}
	require.Equal(t, map[string]int{
		"invoices-2026-03-02T10:00:00Z": 3, "invoices-2026-03-03T10:00:00Z": 1, "invoices-2026-03-04T10:00:00Z": 1,
		"invoices-2026-03-04T10:00:00Z-2": 1, "own": 1, "signed": 1,
	}, ids)
	require.Equal(t, string(first), string(d.broker.all()[1].message.Data), "the same event, byte for byte")
}
