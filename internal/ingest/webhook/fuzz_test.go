package webhook_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/contract"
	"billhook/internal/ingest/webhook"
	"billhook/internal/ingest/webhook/samples"
	"billhook/internal/ingest/webhook/webhooktest"
)

// unlimited takes the rate limit off every source.
func unlimited(c *webhook.Config) {
	for name := range c.Catalog.Sources {
		source(name, func(s *catalog.Source) { s.RatePerSecond = 0 })(c)
	}
}

// kept are the paths whose values may leave, for PayNow's bodies and the contract's.
var kept = map[string]bool{
	"event_id": true, "event_type": true, "body.id": true, "body.order_id": true, "body.pretty_id": true,
	"body.customer.id": true, "body.customer_id": true, "body.lines[].product_id": true, "body.checkout.metadata.uid": true,
	"eventId": true, "eventType": true, "data.order.id": true, "data.order.prettyId": true, "data.order.customerId": true,
	"data.order.items[].productId": true, "data.refund.id": true,
	"body.product_id": true, "body.checkout_id": true, "body.status": true,
	"data.subscription.id": true, "data.subscription.customerId": true, "data.subscription.productId": true,
	"data.subscription.checkoutId": true, "data.subscription.status": true,
	"id": true, "action": true, "correlation_id": true, "idempotency_key": true,
	"payload.event_id": true, "payload.event_type": true, "payload.subscription_id": true, "payload.payment_id": true,
	"payload.order_id": true, "payload.customer_id": true, "payload.uid": true, "payload.product_id": true, "payload.status": true,
}

// visit collects the strings at the paths that may leave: a number's digits are a uid. A
// producer is told the name of a member that it made up.
func visit(path string, value any, out *strings.Builder) {
	switch value := value.(type) {
	case map[string]any:
		for name, member := range value {
			out.WriteString(name + "\n")
			visit(strings.TrimPrefix(path+"."+name, "."), member, out)
		}
	case []any:
		for _, element := range value {
			visit(path+"[]", element, out)
		}
	case json.Number:
		visit(path, value.String(), out)
	case string:
		if kept[path] {
			out.WriteString(value + "\n")
		}
	}
}

// FuzzWebhook sends signed bodies of any content to every entrance. A sender that
// knows the secret can still not crash the door, nor get through it what the
// contract does not name.
func FuzzWebhook(f *testing.F) {
	for _, name := range samples.Names() {
		f.Add(samples.Read(name, samples.Event{}))
	}
	for _, format := range []string{contract.PayNowV1, contract.EnvelopeV1} {
		bodies := goldens(f, format)
		for _, name := range slices.Sorted(maps.Keys(bodies)) { // a seed is known by its number
			f.Add(bodies[name])
		}
	}
	for _, body := range []string{
		order, ``, `{}`, `[]`, `null`, `"x"`, `{"event_id":"5","event_type":"ON_REFUND","body":[]}`, `{"action":"a","payload":{}}`,
		`{"event_id":"5","event_id":"6"}`, "\xff", strings.Repeat("[", 20_000), strings.Replace(order, `"quantity":2`, `"quantity":9007199254740991`, 1),
	} {
		f.Add([]byte(body))
	}
	f.Add(webhooktest.Order(8 << 10))
	d := open(f, func(c *webhook.Config) {
		told(c)
		unlimited(c)
	})
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, r := range []*http.Request{
			payNow(t, body), generic(t, "/webhooks/generic", body), generic(t, "/queues/paynow-events/messages", body),
			generic(t, "/queues/"+updates+"/messages", body),
		} {
			d.broker.got = nil
			d.log.Reset()
			w := d.send(r)
			require.Less(t, w.Code, http.StatusInternalServerError, "%s", w.Body)
			if w.Code != http.StatusAccepted {
				require.Empty(t, d.broker.got, "nothing is published unless the answer is 202")
			} else {
				require.Len(t, d.broker.got, 1)
			}
			var document any
			var named strings.Builder
			numbers := json.NewDecoder(bytes.NewReader(body))
			numbers.UseNumber()
			if numbers.Decode(&document) == nil {
				visit("", document, &named)
			}
			out := w.Body.String() + d.log.String()
			for _, got := range d.broker.got {
				m, err := contracts(t).Decode(got.message.Attributes["contract"], got.message.Data)
				require.NoError(t, err)
				require.NoError(t, m.Validate())
				require.NoError(t, m.CheckAttributes(got.message.Attributes))
				require.NoError(t, got.message.Check())
				again, err := m.Append(nil)
				require.NoError(t, err)
				require.True(t, bytes.Equal(got.message.Data, again))
				out += string(got.message.Data)
				for _, value := range got.message.Attributes {
					out += "\n" + value
				}
			}
			for _, value := range samples.Personal {
				// The fuzzer may move a name into an id, where it has the shape of one.
				if strings.ContainsAny(value, "@+ ") || !strings.Contains(named.String(), value) {
					require.NotContains(t, out, value)
				}
			}
		}
	})
}

// odd is an order whose optional fields, and those that an order has not, are to be filled in.
const odd = `{"event_type":"ON_ORDER_COMPLETED","event_id":"5","body":{"id":"6","customer":%s,"customer_id":%s,"checkout":%s,"pretty_id":%s,"currency":%s,` +
	`"total_amount":%s,"completed_at":%s,"created_at":%s,"amount":%s,"checkout_id":%s,"billing_cycle_sequence":%s,"status":%s,` +
	`"lines":[{"product_id":"411486491630370501","price":%s,"quantity":2}]}}`

// FuzzOptionalFields fills any JSON into some of the fields of an order that its effect
// does not need. The order stays what it is: accepted, and worth its points.
func FuzzOptionalFields(f *testing.F) {
	good := []string{
		`{"id":"8"}`, `"9"`, `{"metadata":{"uid":"u1"}}`, `"BH-1"`, `"USD"`, `2000`, `"2026-03-02T10:01:00Z"`, `"2026-03-02T10:00:00Z"`, `null`, `null`, `null`, `null`, `1000`,
	}
	for i, value := range []string{
		`"#1001"`, `"ch/123"`, `1.5`, `-1`, `1e400`, `{"id":"mette@example.com"}`, `{"id":7}`, `{"metadata":{"uid":12345}}`, `{"metadata":{"uid":"auth0|5f7c"}}`, `{"metadata":[]}`, `[]`,
		`true`, `""`, `"QQQ"`, `"2025-01-10 11:58:00"`, `9223372036854775808`, `4111111111111111`, `"203.0.113.77"`, `{"metadata":{"uid":"\u0000"}}`,
	} {
		f.Add(uint16(1<<(i%len(good))), []byte(value))
		f.Add(uint16(1<<len(good)-1), []byte(value))
	}
	d := open(f, unlimited)
	f.Fuzz(func(t *testing.T, places uint16, value []byte) {
		if !jsontext.Value(value).IsValid() || bytes.Count(value, []byte{'['})+bytes.Count(value, []byte{'{'}) > 50 || len(value) > 4096 {
			t.Skip("the whole body would be refused")
		}
		value = bytes.TrimSpace(value)
		filled := make([]any, len(good))
		for i := range good {
			if filled[i] = good[i]; places&(1<<i) != 0 {
				filled[i] = string(value)
			}
		}
		d.broker.got = nil
		d.log.Reset()
		w := d.send(payNow(t, fmt.Appendf(nil, odd, filled...)))
		require.Equal(t, http.StatusAccepted, w.Code, "%s", w.Body)
		got := d.broker.got[0].message
		m := paid(t, got)
		require.Equal(t, "6", m.Data.Order.ID)
		require.Len(t, m.Data.Order.Items, 1)
		require.Equal(t, "411486491630370501", m.Data.Order.Items[0].ProductID)
		require.EqualValues(t, 2, m.Data.Order.Items[0].Quantity)
		require.Equal(t, "2000", got.Attributes["points"])
		// What it cost is what it says it cost, or nobody knows.
		if places&(1<<5) == 0 {
			require.Contains(t, []string{"", "20.00", "2000", "2.000", "0.2000", "200.0"}, m.Data.Order.Total)
		}
		if m.Data.Order.Total == "" && filled[5] != "null" && filled[5] != `""` {
			require.Empty(t, m.Data.Order.Items[0].Price, "the sum of the prices is not what was paid")
		}
	})
}
