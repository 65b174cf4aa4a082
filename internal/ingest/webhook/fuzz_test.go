package webhook_test

import (
	"bytes"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"

	"billhook/catalog/catalogtest"
	"billhook/internal/contract"
	"billhook/internal/filetest"
	"billhook/internal/ingest/webhook"
	"billhook/internal/ingest/webhook/samples"
	"billhook/internal/ingest/webhook/webhooktest"
	"billhook/internal/pii"
)

func requireWhole(t *testing.T, m contract.Message) contract.Body {
	t.Helper()
	body := filetest.Must(loaded().Contracts.Decode(m.Attributes["contract"], m.Data))(t)
	require.NoError(t, body.Validate())
	require.NoError(t, body.CheckAttributes(m.Attributes))
	require.NoError(t, m.Check())
	// Each member keeps its rule, and no detector finds anything in it.
	require.Equal(t, string(m.Data), string(filetest.Must(body.Contract().Projection().Append(nil, m.Data))(t)))
	return body
}

// FuzzWebhook: a sender that knows the secret can neither crash the service nor publish undeclared members.
func FuzzWebhook(f *testing.F) {
	for _, name := range samples.Names() {
		f.Add(samples.Read(name, samples.Event{}))
	}
	for _, format := range []string{contract.PaymentV1, contract.EnvelopeV1} {
		bodies := goldens(f, format)
		for _, name := range slices.Sorted(maps.Keys(bodies)) { // seeds have numbers, so their order is fixed
			f.Add(bodies[name])
		}
	}
	for _, body := range []string{
		order, ``, `{}`, `[]`, `null`, `"x"`, `{"event_id":"5","event_type":"ON_REFUND","body":[]}`,
		`{"action":"a","payload":{}}`,
		`{"event_id":"5","event_id":"6"}`, "\xff", strings.Repeat("[", 20_000),
		strings.Replace(order, `"quantity":2`, `"quantity":9007199254740991`, 1),
		renewed, shipped, `{"message":` + shipped + `,"deliver_at":"2026-03-04T10:00:00"}`,
		`{"messages":[` + of("o1", "e1") + `,{"message":` + renewed + `}]}`,
		`{"messages":[]}`, `{"messages":{}}`, `{"message":null}`, `{"data":{}}`,
		`{"type":1,"data":{"order_id":"o1"}}`, `{"id":"","type":"order.shipped","order_id":"o1"}`,
	} {
		f.Add([]byte(body))
	}
	f.Add(webhooktest.Order(8 << 10))
	eachSample(f, func(_, _, body string) { f.Add([]byte(body)) })
	d := open(f, func(c *webhook.Config) {
		provided(c)
		lenient(c)
		unlimited(c)
	})
	declared, refunded := catalogtest.Shipped(), []byte(filetest.Read(f, readSamples, "refund.created.json"))
	f.Add([]byte(filetest.Read(f, readSamples, "read", "payment_intent.json")))
	f.Fuzz(func(t *testing.T, body []byte) {
		// As an answer of a provider's API.
		if trial, err := webhook.Try(declared, declared.Providers["stripe"], webhook.Beside(refunded, body),
			func() time.Time { return fixed }); err == nil {
			m := filetest.Must(declared.Contracts.Decode(contract.PaymentV1, trial.Message))(t)
			require.NoError(t, m.Validate())
			require.True(t, trial.UID == "" || pii.UID.Valid(trial.UID), trial.UID)
		}
		requests := []*http.Request{
			generic(t, "/webhooks/generic", body), generic(t, "/queues/paynow-events/messages", body),
			generic(t, toUpdates, body), generic(t, toOrders, body), generic(t, onOrders, body),
		}
		for provider := range senders {
			requests = append(requests, sentBy(t, provider, paynowSecret, string(body), fixed))
		}
		for _, r := range requests {
			d.broker.got = nil
			d.log.Reset()
			w := d.send(r)
			require.Less(t, w.Code, http.StatusInternalServerError, "%s", w.Body)
			accepted := strings.Count(w.Body.String(), `"status":202`) // in a list
			if w.Code == http.StatusAccepted {
				accepted = 1
			}
			require.Len(t, d.broker.got, accepted, "only accepted messages are published")
			for _, got := range d.broker.got {
				m := requireWhole(t, got.message)
				again := filetest.Must(m.Append(nil))(t)
				require.True(t, bytes.Equal(got.message.Data, again))
			}
			out := d.out(w)
			for _, value := range samples.Personal {
				// the fuzzer may move others into an id, whose shape they have
				if strings.ContainsAny(value, "@+ ") {
					require.NotContains(t, out, value)
				}
			}
		}
	})
}

const odd = `{"event_type":"ON_ORDER_COMPLETED","event_id":"5","body":{"id":"6","customer":%s,` +
	`"customer_id":%s,"checkout":%s,"pretty_id":%s,"currency":%s,` +
	`"total_amount":%s,"completed_at":%s,"created_at":%s,"amount":%s,"checkout_id":%s,` +
	`"billing_cycle_sequence":%s,"status":%s,` +
	`"lines":[{"product_id":"411486491630370501","price":%s,"quantity":2}]}}`

// FuzzOptionalFields: bad values of optional fields change neither that an order is accepted nor its points.
func FuzzOptionalFields(f *testing.F) {
	good := []string{
		`{"id":"8"}`, `"9"`, `{"metadata":{"uid":"u1","order_id":"cart-7"}}`, `"BH-1"`, `"USD"`, `2000`,
		`"2026-03-02T10:01:00Z"`, `"2026-03-02T10:00:00Z"`, `null`, `null`, `null`, `null`, `1000`,
	}
	for i, value := range []string{
		`"#1001"`, `"ch/123"`, `1.5`, `-1`, `1e400`, `{"id":"mette@example.com"}`, `{"id":7}`,
		`{"metadata":{"uid":12345}}`, `{"metadata":{"uid":"auth0|5f7c"}}`, `{"metadata":[]}`, `[]`,
		`true`, `""`, `"QQQ"`, `"2025-01-10 11:58:00"`, `9223372036854775808`, `4111111111111111`,
		`"203.0.113.77"`, `{"metadata":{"uid":"\u0000"}}`, `{"metadata":{"order_id":"+47 73 59 00 00"}}`,
		`{"metadata":{"order_id":"no9386011117947"}}`, `{"metadata":{"order_id":"x-4111111111111111"}}`,
	} {
		f.Add(uint16(1<<(i%len(good))), []byte(value))
		f.Add(uint16(1<<len(good)-1), []byte(value))
	}
	d := open(f, unlimited)
	f.Fuzz(func(t *testing.T, places uint16, value []byte) {
		if !jsontext.Value(value).IsValid() || bytes.Count(value, []byte{'['})+bytes.Count(value, []byte{'{'}) >
			50 || len(value) > 4096 {
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
		shops := got.Attributes["shop_order_id"]
		require.True(t, shops == "" || pii.ID.Valid(shops), shops)
		// The total is the one of the body, or none.
		if places&(1<<5) == 0 {
			require.Contains(t, []string{"", "20.00", "2000", "2.000", "0.2000", "200.0"}, m.Data.Order.Total)
		}
		if m.Data.Order.Total == "" && filled[5] != "null" && filled[5] != `""` {
			require.Empty(t, m.Data.Order.Items[0].Price, "the sum of the prices is not the total")
		}
	})
}
