package webhook_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/contract"
	"billhook/internal/webhook"
	"billhook/internal/webhook/samples"
	"billhook/internal/webhook/webhooktest"
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

// visit collects the strings at the paths that may leave.
func visit(path string, value any, out *strings.Builder) {
	switch value := value.(type) {
	case map[string]any:
		for name, member := range value {
			visit(strings.TrimPrefix(path+"."+name, "."), member, out)
		}
	case []any:
		for _, element := range value {
			visit(path+"[]", element, out)
		}
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
			if json.Unmarshal(body, &document) == nil {
				visit("", document, &named)
			}
			out := w.Body.String() + d.log.String()
			for _, got := range d.broker.got {
				m, err := contract.Decode(got.message.Attributes["contract"], got.message.Data)
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
