package webhook_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/internal/contract"
	"billhook/internal/contract/money"
	"billhook/internal/ingest/webhook/samples"
	"billhook/internal/ingest/webhook/webhooktest"
)

func TestSamplesLeaveAsTheContractSays(t *testing.T) {
	t.Parallel()
	attributes := func(eventID, eventType, key string, more map[string]string) map[string]string {
		all := map[string]string{
			"contract": "paynow.v1", "event_id": eventID, "event_type": eventType, "ordering_key": key,
			"order_id": samples.OrderID, "correlation_id": samples.OrderID, "first_published_at": "2026-03-02T10:02:03.45Z", "door_received_at": "2026-03-02T10:02:03.45Z",
		}
		maps.Copy(all, more)
		return all
	}
	// What is said of a subscription or a trial has no order.
	period := func(eventID, eventType, id, key string, more map[string]string) map[string]string {
		all := attributes(eventID, eventType, key, map[string]string{"correlation_id": id, "paynow_customer_id": samples.CustomerID})
		delete(all, "order_id")
		maps.Copy(all, more)
		return all
	}
	bought := map[string]string{"uid": samples.UID}
	tests := []struct {
		name       string
		sample     string
		body       string
		attributes map[string]string
		key        string // the real ordering key
	}{
		{
			"an order with known products carries uid and points", samples.OrderCompleted,
			`{"eventId":"502113004410990001","eventType":"order.paid","timestamp":"2026-03-02T10:01:00Z","data":{"order":{"id":"502113004410990002","customerId":"502113004410990003","currency":"USD","total":"20.00","items":[{"productId":"411486491630370501","quantity":2,"price":"10.00"}]}}}`,
			attributes("502113004410990001", "order.paid", samples.UID, map[string]string{"paynow_customer_id": samples.CustomerID, "uid": samples.UID, "points": "2000"}),
			samples.UID,
		},
		{
			"an order with an unknown product carries no points, and is ordered by customer", samples.UnknownProduct,
			`{"eventId":"502113004410990005","eventType":"order.paid","timestamp":"2026-03-02T10:01:00Z","data":{"order":{"id":"502113004410990002","customerId":"502113004410990003","currency":"USD","total":"15.00","items":[{"productId":"411486491630370501","quantity":1,"price":"10.00"},{"productId":"502113004410000777","quantity":1,"price":"5.00"}]}}}`,
			attributes("502113004410990005", "order.paid", samples.CustomerID, map[string]string{"paynow_customer_id": samples.CustomerID}),
			samples.CustomerID,
		},
		{
			"a refund names its order and all that was given back", samples.Refund,
			`{"eventId":"502113004410990011","eventType":"order.refunded","timestamp":"2026-03-03T09:02:00Z","data":{"order":{"id":"502113004410990002","customerId":"502113004410990003","currency":"USD"},"refund":{"id":"502113004410990021","amount":"20.00"}}}`,
			attributes("502113004410990011", "order.refunded", samples.CustomerID, map[string]string{"paynow_customer_id": samples.CustomerID}),
			samples.CustomerID,
		},
		{
			"a partial refund names the part that was given back", samples.RefundPartial,
			`{"eventId":"502113004410990012","eventType":"order.refunded","timestamp":"2026-03-03T09:02:00Z","data":{"order":{"id":"502113004410990002","customerId":"502113004410990003","currency":"USD"},"refund":{"id":"502113004410990021","amount":"5.00"}}}`,
			attributes("502113004410990012", "order.refunded", samples.CustomerID, map[string]string{"paynow_customer_id": samples.CustomerID}),
			samples.CustomerID,
		},
		{
			"a chargeback of nobody we know has no real ordering key", samples.Chargeback,
			`{"eventId":"502113004410990013","eventType":"order.chargeback","timestamp":"2026-03-20T14:45:00Z","data":{"order":{"id":"502113004410990002","currency":"USD"}}}`,
			attributes("502113004410990013", "order.chargeback", "unknown", nil),
			"",
		},
		{
			"a subscription is active from when it says", samples.SubscriptionActivated,
			`{"eventId":"502113004410990016","eventType":"subscription.activated","timestamp":"2026-03-02T10:00:05Z","data":{"subscription":{"id":"502113004410990041","customerId":"502113004410990003","productId":"411486491630370502","checkoutId":"502113004410000300","status":"active","currency":"EUR","total":"9.99","cycle":1,"periodStart":"2026-03-02T10:00:00Z","periodEnd":"2026-04-02T10:00:00Z"}}}`,
			period("502113004410990016", "subscription.activated", samples.SubscriptionID, samples.UID, bought), samples.UID,
		},
		{
			"a subscription is renewed with its new period", samples.SubscriptionRenewed,
			`{"eventId":"502113004410990014","eventType":"subscription.renewed","timestamp":"2026-04-02T10:00:00Z","data":{"subscription":{"id":"502113004410990041","customerId":"502113004410990003","productId":"411486491630370502","checkoutId":"502113004410000300","status":"active","currency":"EUR","total":"9.99","cycle":2,"periodStart":"2026-04-02T10:00:00Z","periodEnd":"2026-05-02T10:00:00Z"}}}`,
			period("502113004410990014", "subscription.renewed", samples.SubscriptionID, samples.UID, bought), samples.UID,
		},
		{
			"a subscription is canceled before its period ends", samples.SubscriptionCanceled,
			`{"eventId":"502113004410990017","eventType":"subscription.canceled","timestamp":"2026-04-20T18:30:00Z","data":{"subscription":{"id":"502113004410990041","customerId":"502113004410990003","productId":"411486491630370502","checkoutId":"502113004410000300","status":"canceled","currency":"EUR","total":"9.99","cycle":2,"periodStart":"2026-04-02T10:00:00Z","periodEnd":"2026-05-02T10:00:00Z"}}}`,
			period("502113004410990017", "subscription.canceled", samples.SubscriptionID, samples.UID, bought), samples.UID,
		},
		{
			"a trial has no price, and its customer has no uid", samples.TrialActivated,
			`{"eventId":"502113004410990015","eventType":"trial.activated","timestamp":"2026-03-02T10:00:00Z","data":{"subscription":{"id":"502113004410990042","customerId":"502113004410990003","productId":"411486491630370502","checkoutId":"502113004410000300","status":"active","periodStart":"2026-03-02T10:00:00Z","periodEnd":"2026-03-09T10:00:00Z"}}}`,
			period("502113004410990015", "trial.activated", samples.TrialID, samples.CustomerID, nil), samples.CustomerID,
		},
		{
			"a trial is completed when it ends", samples.TrialCompleted,
			`{"eventId":"502113004410990018","eventType":"trial.completed","timestamp":"2026-03-09T10:00:00Z","data":{"subscription":{"id":"502113004410990042","customerId":"502113004410990003","productId":"411486491630370502","checkoutId":"502113004410000300","status":"completed","periodStart":"2026-03-02T10:00:00Z","periodEnd":"2026-03-09T10:00:00Z"}}}`,
			period("502113004410990018", "trial.completed", samples.TrialID, samples.CustomerID, nil), samples.CustomerID,
		},
		{
			"a trial is canceled when it says", samples.TrialCanceled,
			`{"eventId":"502113004410990019","eventType":"trial.canceled","timestamp":"2026-03-05T07:30:00Z","data":{"subscription":{"id":"502113004410990042","customerId":"502113004410990003","productId":"411486491630370502","checkoutId":"502113004410000300","status":"canceled","periodStart":"2026-03-02T10:00:00Z","periodEnd":"2026-03-09T10:00:00Z"}}}`,
			period("502113004410990019", "trial.canceled", samples.TrialID, samples.CustomerID, nil), samples.CustomerID,
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			d := open(t, nil)
			w := d.send(payNow(t, samples.Read(test.sample, samples.Event{})))
			require.Equal(t, http.StatusAccepted, w.Code, "%s", w.Body)
			require.Equal(t, "application/json", w.Header().Get("Content-Type"))
			require.JSONEq(t, fmt.Sprintf(`{"event_id":%q,"queue":"paynow-events","message_id":"1","ordering_key":%q}`,
				test.attributes["event_id"], test.attributes["ordering_key"]), w.Body.String())
			require.Len(t, d.broker.all(), 1)
			got := d.broker.all()[0]
			require.Equal(t, queue, got.topic)
			require.Equal(t, test.body, string(got.message.Data))
			require.Equal(t, test.attributes, got.message.Attributes)
			require.Equal(t, test.key, got.message.OrderingKey)
			requireNothingLeaks(t, d, w, "")

			paid(t, got.message)
			require.NoError(t, got.message.Check())

			require.Equal(t, 1, strings.Count(d.log.String(), "\n"), "one line per webhook")
			var line map[string]any
			require.NoError(t, json.Unmarshal([]byte(d.log.String()), &line))
			require.Equal(t, test.attributes["event_id"], line["event_id"])
			require.Equal(t, queue, line["queue"])
			require.InDelta(t, http.StatusAccepted, line["status"], 0)
		})
	}
}

func TestAnEventWithoutAQueueIsVerifiedAndIgnored(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, body, eventID, reason string
	}{
		{"a paused subscription", strings.Replace(string(samples.Read(samples.SubscriptionRenewed, samples.Event{})), "_RENEWED", "_PAUSED", 1), "502113004410990014", "no_queue"},
		{"an extended trial", strings.Replace(string(samples.Read(samples.TrialActivated, samples.Event{})), "_ACTIVATED", "_EXTENDED", 1), "502113004410990015", "no_queue"},
		{"a type that is new", `{"event_type":"ON_SOMETHING_NEW","event_id":"77"}`, "77", "no_queue"},
		{"odd content that would break the contract", `{"event_type":"ON_PAYOUT","event_id":"77","body":{"id":{"x":1},"currency":5,"lines":"none","amount":"ilse.brandvold@example.org"}}`, "77", "no_queue"},
		{"a body that is null", `{"event_type":"ON_PAYOUT","event_id":"77","body":null}`, "77", "no_queue"},
		{"a refund that was canceled", strings.Replace(string(samples.Read(samples.Refund, samples.Event{})), `"status": "completed"`, `"status": "canceled"`, 1), "502113004410990011", "refund_not_completed"},
		{"a refund that failed", strings.Replace(string(samples.Read(samples.Refund, samples.Event{})), `"status": "completed"`, `"status": "failed"`, 1), "502113004410990011", "refund_not_completed"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			d := open(t, nil)
			w := d.send(payNow(t, []byte(test.body)))
			require.Equal(t, http.StatusOK, w.Code, "%s", w.Body)
			require.Equal(t, "application/json", w.Header().Get("Content-Type"))
			require.JSONEq(t, fmt.Sprintf(`{"event_id":%q,"ignored":true,"reason":%q}`, test.eventID, test.reason), w.Body.String())
			require.Empty(t, d.broker.all())
			requireNothingLeaks(t, d, w, "")
			require.Contains(t, d.scrape(t), fmt.Sprintf(`billhook_webhooks_total{reason=%q,source="paynow",status="200"} 1`, test.reason), "it is counted")
		})
	}
}

func TestABodyThatCannotBeMappedIsRefusedByItsPathAndRepeatsNothing(t *testing.T) {
	t.Parallel()
	const (
		malformed = "body_malformed"
		broken    = "contract_broken"
		bad, no   = http.StatusBadRequest, http.StatusUnprocessableEntity
	)
	quantity := func(q string) []byte { return spoil(t, `"quantity":2`, `"quantity":`+q) }
	eventID := func(id string) []byte { return spoil(t, `"event_id":"502113004410990001"`, `"event_id":`+id) }
	tests := []struct {
		name   string
		body   []byte
		status int
		code   string
		path   string // of a violation, where there is to be one
		secret string // must not be repeated
	}{
		{"no body", nil, bad, malformed, "", ""},
		{"cut off in the middle", []byte(order[:len(order)/2]), bad, malformed, "", ""},
		{"an array", []byte(`["mette"]`), no, broken, "", "mette"},
		{"null", []byte(`null`), no, broken, "", ""},
		{"an empty object", []byte(`{}`), no, broken, "event_id", ""},
		{"no event type", []byte(`{"event_id":"5"}`), no, broken, "event_type", ""},
		{"a body that is a string", []byte(`{"event_type":"ON_REFUND","event_id":"5","body":"mette"}`), no, broken, "body", "mette"},
		{"a body that is null", []byte(`{"event_type":"ON_REFUND","event_id":"5","body":null}`), no, broken, "body.order_id", ""},
		{"no body member", []byte(`{"event_type":"ON_ORDER_COMPLETED","event_id":"5"}`), no, broken, "body.id", ""},
		{"lines that are an object", spoil(t, `[{"product_id":"411486491630370501","price":1000,"quantity":2}]`, `{"a":"mette"}`), no, broken, "body.lines", "mette"},
		{"no lines", spoil(t, `[{"product_id":"411486491630370501","price":1000,"quantity":2}]`, `[]`), no, broken, "body.lines", ""},
		{"a line without a product", spoil(t, `"product_id":"411486491630370501",`, ``), no, broken, "body.lines[0].product_id", ""},
		{"a name twice that is dropped", spoil(t, `"name":"Ilse Brandvold"`, `"name":"mette","name":"metta"`), bad, malformed, "", "mett"},
		{"invalid UTF-8 in a field that is dropped", spoil(t, `Ilse Brandvold`, "mette\xc3\x28"), bad, malformed, "", "mette"},
		{"objects a hundred thousand deep in a field that is dropped", spoil(t, `"name":"Ilse Brandvold"`, `"name":`+strings.Repeat(`{"a":`, 100_000)+"1"+strings.Repeat("}", 100_000)), bad, malformed, "", ""},
		{"a quantity of 0", quantity("0"), no, broken, "body.lines[0].quantity", ""},
		{"no quantity", spoil(t, `,"quantity":2`, ``), no, broken, "body.lines[0].quantity", ""},
		{"a quantity one above the largest", quantity("9007199254740992"), no, broken, "body.lines[0].quantity", "9007199254740992"},
		{"a quantity whose points do not fit beside those before it", spoil(t, `{"product_id":"411486491630370501","price":1000,"quantity":2}`, strings.TrimSuffix(strings.Repeat(`{"product_id":"411486491630370501","price":0,"quantity":9007199254740991},`, 3), ",")), no, broken, "body.lines[1].quantity", "9007199254740991"},
		{"an event id with a slash", eventID(`"a/../b"`), no, broken, "event_id", "a/../b"},
		{"an empty event id", eventID(`""`), no, broken, "event_id", ""},
		{"an order id that is a card number", spoil(t, `"502113004410990002"`, `"4539148803436467"`), no, broken, "body.id", "4539148803436467"},
		{"an event type that is a sentence", spoil(t, `"ON_ORDER_COMPLETED"`, `"Mette has paid"`), no, broken, "event_type", "Mette"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			d := open(t, nil)
			p := requireProblem(t, d, d.send(payNow(t, test.body)), test.status, test.code, test.secret)
			if test.code == broken {
				require.NotEmpty(t, p.Violations)
			}
			if test.path != "" {
				var paths []string
				for _, v := range p.Violations {
					require.NotEmpty(t, v.Rule)
					paths = append(paths, v.Path)
				}
				require.Contains(t, paths, test.path)
			}
		})
	}
}

func TestBoundariesThatAreStillAccepted(t *testing.T) {
	t.Parallel()
	const line = `{"product_id":"411486491630370501","price":1000,"quantity":2}`
	most := `{"product_id":"411486491630370501","price":0,"quantity":9007199254740991}`
	tests := []struct {
		name   string
		body   []byte
		points string
	}{
		{"the largest quantity, whose points just fit", spoil(t, line, most), "9007199254740991000"},
		{"points that do not fit beside a product that is unknown, which the worker refuses", spoil(t, line, most+","+most+`,{"product_id":"777","price":0,"quantity":1}`), ""},
		{"a price of nothing", spoil(t, `"price":1000`, `"price":0`), "2000"},
		{"a price that is null", spoil(t, `"price":1000`, `"price":null`), "2000"},
		{"the largest price", spoil(t, `"price":1000`, fmt.Sprint(`"price":`, money.Max)), "2000"},
		{"exactly 1 MiB", append([]byte(order), bytes.Repeat([]byte(" "), 1<<20-len(order))...), "2000"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			points, ok := requireTaken(t, open(t, nil), payNow(t, test.body), nil, "").Attributes["points"]
			require.Equal(t, test.points, points)
			require.Equal(t, test.points != "", ok, "an empty attribute is not sent")
		})
	}
}

func TestAmountsHaveTheDigitsOfTheirCurrency(t *testing.T) {
	t.Parallel()
	for currency, want := range map[string]string{"USD": "10.00", "JPY": "1000", "KWD": "1.000"} {
		t.Run(currency, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, want, toldOf(t, string(spoil(t, `"USD"`, `"`+currency+`"`))).Data.Order.Items[0].Price)
		})
	}
}

func TestTheTimeIsTheLatestThatTheEventTellsOfItself(t *testing.T) {
	t.Parallel()
	const times = `"created_at":"2026-03-01T00:00:01Z","pending_at":"2026-03-01T00:00:02Z","approved_at":"2026-03-01T00:00:03Z","completed_at":"2026-03-01T00:00:04Z"`
	for name, test := range map[string]struct{ eventType, times, want string }{
		"completed":                              {"ON_REFUND", times, "2026-03-01T00:00:04Z"},
		"approved":                               {"ON_REFUND", strings.Replace(times, "completed_at", "x", 1), "2026-03-01T00:00:03Z"},
		"pending":                                {"ON_REFUND", `"created_at":"2026-03-01T00:00:01Z","pending_at":"2026-03-01T00:00:02Z"`, "2026-03-01T00:00:02Z"},
		"created":                                {"ON_REFUND", `"created_at":"2026-03-01T00:00:01Z"`, "2026-03-01T00:00:01Z"},
		"a chargeback that was opened":           {"ON_CHARGEBACK", `"chargeback_at":"2026-03-01T00:00:05Z"`, "2026-03-01T00:00:05Z"},
		"its end, which says only when it began": {"ON_CHARGEBACK_CLOSED", `"chargeback_at":"2026-03-01T00:00:05Z"`, "2026-03-02T10:02:03Z"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			body := fmt.Sprintf(`{"event_type":%q,"event_id":"5","body":{"id":"6","order_id":"7",%s}}`, test.eventType, test.times)
			require.Equal(t, test.want, toldOf(t, body).Timestamp)
		})
	}
}

func TestAnOrdersCustomerIsReadInEitherPlace(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ customer, want string }{
		"inside the customer":                  {`"customer":{"id":"8"}`, "8"},
		"beside it":                            {`"customer_id":"9"`, "9"},
		"in both, where the customer's counts": {`"customer":{"id":"8"},"customer_id":"9"`, "8"},
		"nowhere":                              {`"customer":null`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			body := `{"event_type":"ON_CHARGEBACK","event_id":"5","body":{"id":"6","order_id":"7","pretty_id":"BH-1042",` + test.customer + `}}`
			require.Equal(t, &contract.Order{ID: "7", PrettyID: "BH-1042", CustomerID: test.want}, toldOf(t, body).Data.Order)
		})
	}
}

func TestAnEventWithoutATimeHasThatOfItsReceipt(t *testing.T) {
	t.Parallel()
	for sample, times := range map[string][]string{
		samples.OrderCompleted:        {"completed_at", "created_at"},
		samples.SubscriptionActivated: {"active_at"},
		samples.SubscriptionRenewed:   {"current_period_start"},
		samples.SubscriptionCanceled:  {"canceled_at"},
		samples.TrialActivated:        {"starts_at"},
		samples.TrialCompleted:        {"ends_at"},
		samples.TrialCanceled:         {"canceled_at"},
	} {
		t.Run(sample, func(t *testing.T) {
			t.Parallel()
			body := string(samples.Read(sample, samples.Event{}))
			for _, name := range times {
				require.Contains(t, body, `"`+name+`"`)
				body = strings.ReplaceAll(body, `"`+name+`"`, `"not_`+name+`"`)
			}
			require.Equal(t, "2026-03-02T10:02:03Z", toldOf(t, body).Timestamp)
		})
	}
}

func TestWhatWasGivenBackIsTheSmallerAmount(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ amounts, want string }{
		"the part that was refunded":         {`"amount": 2000, "store_refund_amount": 500`, "5.00"},
		"not more than was paid":             {`"amount": 500, "store_refund_amount": 2000`, "5.00"},
		"the payment, where it says no part": {`"amount": 2000`, "20.00"},
		"the payment, for a part of nothing": {`"amount": 2000, "store_refund_amount": 0`, "20.00"},
		"the part of a payment of nothing":   {`"amount": 0, "store_refund_amount": 500`, "5.00"},
		"all of it, where nothing is said":   {`"x": 0`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			body := `{"event_type":"ON_REFUND","event_id":"5","body":{"id":"6","order_id":"7","currency":"USD",` + test.amounts + `}}`
			require.Equal(t, test.want, toldOf(t, body).Data.Refund.Amount)
		})
	}
}

func TestAnOrderOfAlmostAMebibyteIsMinimizedWhole(t *testing.T) {
	t.Parallel()
	d := open(t, nil)
	w := d.send(payNow(t, webhooktest.Order(1<<20-4096)))
	require.Equal(t, http.StatusAccepted, w.Code, "%s", w.Body)
	for _, value := range samples.Personal {
		require.NotContains(t, string(d.broker.all()[0].message.Data), value)
	}
	requireNothingLeaks(t, d, w, "")
}
