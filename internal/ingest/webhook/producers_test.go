package webhook_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/contract"
	"billhook/internal/ingest/webhook"
	"billhook/internal/platform/signature"
)

// producing serves the queues of which producers inside the house send the most. Notifications
// and analytics are unordered, and on shared topics.
func producing(change ...func(*catalog.Queue)) func(*webhook.Config) {
	return func(c *webhook.Config) {
		c.Catalog = new(*c.Catalog)
		c.Catalog.Queues = slices.Clone(c.Catalog.Queues)
		for i := range c.Catalog.Queues {
			q := &c.Catalog.Queues[i]
			if slices.Contains([]string{"orders-process", "notifications-send", "search-index", updates, "events-high", "fis-ingestion"}, q.ID) {
				q.Enabled = true
			}
			for _, f := range change {
				f(q)
			}
		}
	}
}

const (
	toUpdates = "/queues/" + updates + "/messages"
	toOrders  = "/queues/orders-process/messages"
	onOrders  = "/topics/orders/messages"
	renewed   = `{"action":"renewal","subscription_id":"s1","period_end":"2026-05-02T10:15:00"}`
	shipped   = `{"type":"order.shipped","version":1,"data":{"order_id":"o1"}}`
)

// TestAMessageSignedForOneQueueIsNotTakenAtAnother: an upgrade of a plan is, byte for byte, an upgrade that is paid.
func TestAMessageSignedForOneQueueIsNotTakenAtAnother(t *testing.T) {
	t.Parallel()
	upgrade := []byte(`{"id":"u1","action":"upgrade","payload":{"subscription_id":"s1","payment_id":"p1","amount":"9.99","currency":"EUR"}}`)
	signer, err := signature.NewSigner(signature.Generic, genericSecret)
	require.NoError(t, err)
	for _, test := range requests(t).Signed {
		d, r := open(t, producing()), request(t, test.Path, bytes.NewReader(upgrade))
		for header, value := range signer.SignFor(test.Destination, "", upgrade, fixed) {
			r.Header.Set(header, value)
		}
		if test.Code == "" {
			taken(t, d, r)
			continue
		}
		requireProblem(t, d, d.send(r), http.StatusUnauthorized, test.Code, "")
	}
}

func TestAMessageThatIsSentAgainIsTheSameEvent(t *testing.T) {
	t.Parallel()
	d := open(t, producing())
	for _, body := range []string{renewed, renewed, `{"message":` + renewed + `}`, `{"messages":[{"message":` + renewed + `}]}`} {
		require.Less(t, d.send(generic(t, toUpdates, []byte(body))).Code, 300)
	}
	require.Len(t, d.broker.all(), 4)
	for _, got := range d.broker.all() {
		require.Equal(t, d.broker.all()[0].message.Attributes["event_id"], got.message.Attributes["event_id"])
	}
}

func TestAnOrderHasAsManyItemsAsItsHandlerTakes(t *testing.T) {
	t.Parallel()
	order := func(items int) string {
		return `{"type":"order.created","version":1,"data":{"order_id":"o1","items":[` +
			strings.TrimSuffix(strings.Repeat(`{"product_id":"p1","quantity":1},`, items), ",") + `]}}`
	}
	taken(t, open(t, producing()), generic(t, toOrders, []byte(order(100))))
	submission{Path: toOrders, Body: order(101), Code: broken, Where: "data.items", Rule: "max=100"}.check(t, producing())
}

// declaring has a catalog that declares one type of message with these members.
func declaring(t *testing.T, eventType string, members ...contract.Member) func(*webhook.Config) {
	t.Helper()
	members = append(members, contract.Member{Name: "order_id", Shape: "id", Required: true})
	contracts, err := contract.NewSet(contract.Formats, []contract.Declaration{{Format: contract.MessageV1, Type: eventType, Version: 1, Members: members}})
	require.NoError(t, err)
	return func(c *webhook.Config) {
		producing()(c)
		c.Catalog.Contracts = contracts
	}
}

// A source may be let send more than Pub/Sub takes in one message.
func TestAMessageAboveWhatPubSubTakesIsRefusedAloneAndCountsForNoRate(t *testing.T) {
	t.Parallel()
	parts, row := contract.Member{Name: "parts"}, ""
	for i := range 32 {
		name := fmt.Sprint("p", i)
		parts.List = append(parts.List, contract.Member{Name: name, Shape: "code"})
		row += fmt.Sprintf(",%q:%q", name, strings.Repeat("p", 64))
	}
	huge := `{"id":"huge","type":"order.shipped","version":1,"data":{"order_id":"o1","parts":[` + strings.Repeat("{"+row[1:]+"},", 4999) + "{}]}}"
	require.Greater(t, len(huge), contract.MaxMessageBytes)
	declared := declaring(t, "order.shipped", parts)
	roomy := func(c *webhook.Config) {
		declared(c)
		source("generic", func(s *catalog.Source) { s.MaxBodyBytes, s.RatePerSecond, s.Burst = 16<<20, 1, 2 })(c)
	}
	d := open(t, roomy)
	answer := d.list(t, toOrders, of("o1", "e1"), `{"message":`+huge+`}`, of("o1", "e2"))
	require.Equal(t, []string{"202", "422message_limit", "202"}, answer.codes(), "it holds up nothing, and takes nothing of the rate")
	require.Len(t, d.broker.all(), 2)
	answer = d.list(t, toOrders, of("o2", "e3"))
	require.Equal(t, []string{"429rate_limited"}, answer.codes(), "each of a list counts for the rate")
	require.Equal(t, 1, answer.Results[0].RetryAfter)
	d = open(t, roomy)
	w := d.send(generic(t, toOrders, []byte(huge)))
	requireProblem(t, d, w, http.StatusUnprocessableEntity, "message_limit", "")
	require.Contains(t, w.Body.String(), "10000000 bytes")
}

func TestAMessageThatCannotWaitInADocumentIsNotAskedToWait(t *testing.T) {
	t.Parallel()
	declared := declaring(t, "order.created", contract.Member{Name: "items", List: []contract.Member{{Name: "product_id", Shape: "id"}}})
	items := strings.TrimSuffix(strings.Repeat(fmt.Sprintf(`{"product_id":"%0110d"},`, 1), 5000), ",")
	message := `{"message":{"type":"order.created","version":1,"data":{"order_id":"o1","items":[` + items + `]}},`
	submission{Path: toOrders, Body: message + `"deliver_at":"2026-03-04T10:00:00Z"}`, Code: broken, Where: "deliver_at", Rule: "too_large_to_wait"}.check(t, declared)
	taken(t, open(t, declared), generic(t, toOrders, []byte(message+`"tenant":"t1"}`)))
}

// issued knows tokens by what they say: audience and account.
type issued struct{ keysGone bool }

func (i issued) Account(_ context.Context, audience, authorization string) (email, invalid string, err error) {
	if i.keysGone {
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
		c.Accounts = webhook.Accounts{Tokens: of, Audience: "https://hooks.example", Emails: map[string]string{"scheduler": "Jobs@shop.example"}}
	}
}

const (
	invoices = "/queues/events-normal/messages"
	invoice  = `{"type":"invoice_generation","version":1,"data":{"subscription_id":"s1"}}`
)

func TestAnAccountSendsByATokenForThePathThatTheCatalogAllowsIt(t *testing.T) {
	t.Parallel()
	for _, test := range requests(t).Accounts {
		change := configurations[test.Config]
		if change == nil {
			change = accounts(issued{keysGone: test.Config == "keys_gone"})
		}
		d, r := open(t, change), request(t, test.Path, strings.NewReader(invoice))
		r.Header.Set("Authorization", "Bearer "+test.Destination+" "+test.Account)
		if test.Secret != "" {
			sign(t, r, signature.Generic, test.Secret, []byte(invoice), fixed)
		}
		if test.Code == "" {
			require.Contains(t, taken(t, d, r).log.String(), `"account":"scheduler"`)
			continue
		}
		requireProblem(t, d, d.send(r), test.Status, test.Code, "")
	}
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
