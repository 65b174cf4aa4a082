package webhook_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/contract"
	"billhook/internal/contract/money"
	"billhook/internal/ingest/webhook"
	"billhook/internal/ingest/webhook/samples"
	"billhook/internal/ingest/webhook/webhooktest"
)

var update = flag.Bool("update", false, "write testdata/samples.json anew")

func TestEachSampleIsPublishedAsRecorded(t *testing.T) {
	t.Parallel()
	type message struct {
		Data        json.RawMessage   `json:"data"`
		Attributes  map[string]string `json:"attributes"`
		OrderingKey string            `json:"ordering_key"`
	}
	all := map[string]message{}
	for _, sample := range samples.Names() {
		d := open(t, nil)
		got := requireTaken(t, d, payNow(t, samples.Read(sample, samples.Event{})), nil, "")
		paid(t, got)
		require.NoError(t, got.Check())
		require.Equal(t, queue, d.broker.all()[0].topic)
		require.Equal(t, 1, strings.Count(d.log.String(), "\n"), "one line per webhook")
		require.Contains(t, d.log.String(), fmt.Sprintf(`"event_id":%q`, got.Attributes["event_id"]))
		all[sample] = message{got.Data, got.Attributes, got.OrderingKey}
	}
	have, err := json.MarshalIndent(all, "", "  ")
	require.NoError(t, err)
	if *update {
		require.NoError(t, os.WriteFile("testdata/samples.json", have, 0o644))
	}
	want, err := os.ReadFile("testdata/samples.json")
	require.NoError(t, err)
	require.Equal(t, string(want), string(have), "run: go test ./internal/ingest/webhook -update")
}

func TestAnEventThatNoQueueWantsIsVerifiedAndIgnored(t *testing.T) {
	t.Parallel()
	sample := func(name, old, replacement string) string {
		return strings.Replace(string(samples.Read(name, samples.Event{})), old, replacement, 1)
	}
	type row struct{ generic, body, eventID, reason string }
	each(t, map[string]row{
		"a paused subscription":      {"", sample(samples.SubscriptionRenewed, "_RENEWED", "_PAUSED"), "502113004410990014", "no_queue"},
		"a type that is new":         {"", `{"event_type":"ON_SOMETHING_NEW","event_id":"77"}`, "77", "no_queue"},
		"content of another kind":    {"", `{"event_type":"ON_PAYOUT","event_id":"77","body":{"id":{"x":1},"amount":"ilse.brandvold@example.org"}}`, "77", "no_queue"},
		"a body that is null":        {"", `{"event_type":"ON_PAYOUT","event_id":"77","body":null}`, "77", "no_queue"},
		"a refund that was canceled": {"", sample(samples.Refund, `"status": "completed"`, `"status": "canceled"`), "502113004410990011", "refund_not_completed"},
		"a refund that failed":       {"", sample(samples.Refund, `"status": "completed"`, `"status": "failed"`), "502113004410990011", "refund_not_completed"},
		"an event of the contract's": {"generic", `{"eventId":"5","eventType":"payout.sent","timestamp":"2026-03-02T10:00:00Z","data":{}}`, "5", "no_queue"},
		"an envelope":                {"generic", `{"id":"5","action":"payout","created_at":"2026-03-02T10:00:00Z","attempts":0,"payload":{}}`, "5", "no_queue"},
	}, func(t *testing.T, test row) {
		d, r, from := open(t, nil), payNow(t, []byte(test.body)), "paynow"
		if test.generic != "" {
			r, from = generic(t, "/webhooks/generic", []byte(test.body)), "generic"
		}
		w := d.send(r)
		require.Equal(t, http.StatusOK, w.Code, "%s", w.Body)
		require.Equal(t, "application/json", w.Header().Get("Content-Type"))
		require.JSONEq(t, fmt.Sprintf(`{"event_id":%q,"ignored":true,"reason":%q}`, test.eventID, test.reason), w.Body.String())
		require.Empty(t, d.broker.all())
		requireNothingLeaks(t, d, w, "")
		require.Contains(t, d.scrape(t), fmt.Sprintf(`billhook_webhooks_total{reason=%q,source=%q,status="200"} 1`, test.reason, from), "it is counted")
	})
}

// refundOf is a refund with these members.
func refundOf(members string) string {
	return `{"event_type":"ON_REFUND","event_id":"5","body":{"id":"6","order_id":"7","status":"completed",` + members + `}}`
}

func TestABoundaryIsStillAccepted(t *testing.T) {
	t.Parallel()
	most := `{"product_id":"411486491630370501","price":0,"quantity":9007199254740991}`
	type row struct {
		body   []byte
		points string
	}
	each(t, map[string]row{
		"the largest quantity":                             {spoil(t, oneLine, most), "9007199254740991000"},
		"points that do not fit beside an unknown product": {spoil(t, oneLine, most+","+most+`,{"product_id":"777","price":0,"quantity":1}`), ""},
		"a price of nothing":                               {spoil(t, `"price":1000`, `"price":0`), "2000"},
		"a price that is null":                             {spoil(t, `"price":1000`, `"price":null`), "2000"},
		"the largest price":                                {spoil(t, `"price":1000`, fmt.Sprint(`"price":`, money.Max)), "2000"},
		"exactly 1 MiB":                                    {append([]byte(order), bytes.Repeat([]byte(" "), 1<<20-len(order))...), "2000"},
		"almost a mebibyte of lines":                       {webhooktest.Order(1<<20 - 4096), "2030000"},
	}, func(t *testing.T, test row) {
		points, ok := requireTaken(t, open(t, nil), payNow(t, test.body), nil, "").Attributes["points"]
		require.Equal(t, test.points, points)
		require.Equal(t, test.points != "", ok, "an empty attribute is not sent")
	})
}

func TestAnEventIsMappedIntoTheContract(t *testing.T) {
	t.Parallel()
	const received = "2026-03-02T10:02:03Z"
	const times = `"created_at":"2026-03-01T00:00:01Z","pending_at":"2026-03-01T00:00:02Z","approved_at":"2026-03-01T00:00:03Z","completed_at":"2026-03-01T00:00:04Z"`
	at := func(m *contract.PayNow) string { return m.Timestamp }
	price := func(m *contract.PayNow) string { return m.Data.Order.Items[0].Price }
	back := func(m *contract.PayNow) string { return m.Data.Refund.Amount }
	who := func(m *contract.PayNow) string { return m.Data.Order.PrettyID + m.Data.Order.CustomerID }
	in := func(currency string) string { return string(spoil(t, `"USD"`, `"`+currency+`"`)) }
	chargeback := func(members string) string {
		return `{"event_type":"ON_CHARGEBACK","event_id":"5","body":{"id":"6","order_id":"7","pretty_id":"BH-",` + members + `}}`
	}
	without := func(sample string, names ...string) string {
		body := string(samples.Read(sample, samples.Event{}))
		for _, name := range names {
			require.Contains(t, body, `"`+name+`"`)
			body = strings.ReplaceAll(body, `"`+name+`"`, `"not_`+name+`"`)
		}
		return body
	}
	type row struct {
		body string
		of   func(*contract.PayNow) string
		want string
	}
	each(t, map[string]row{
		"an amount of two digits":                    {in("USD"), price, "10.00"},
		"of none":                                    {in("JPY"), price, "1000"},
		"of three":                                   {in("KWD"), price, "1.000"},
		"the time when it was completed":             {refundOf(times), at, "2026-03-01T00:00:04Z"},
		"approved":                                   {refundOf(strings.Replace(times, "completed_at", "x", 1)), at, "2026-03-01T00:00:03Z"},
		"pending":                                    {refundOf(`"created_at":"2026-03-01T00:00:01Z","pending_at":"2026-03-01T00:00:02Z"`), at, "2026-03-01T00:00:02Z"},
		"created":                                    {refundOf(`"created_at":"2026-03-01T00:00:01Z"`), at, "2026-03-01T00:00:01Z"},
		"a chargeback that was opened":               {chargeback(`"chargeback_at":"2026-03-01T00:00:05Z"`), at, "2026-03-01T00:00:05Z"},
		"its end, which says only when it began":     {strings.Replace(chargeback(`"chargeback_at":"2026-03-01T00:00:05Z"`), "CHARGEBACK", "CHARGEBACK_CLOSED", 1), at, received},
		"an order without a time":                    {without(samples.OrderCompleted, "completed_at", "created_at"), at, received},
		"a subscription that began at no time":       {without(samples.SubscriptionActivated, "active_at"), at, received},
		"a renewal without a period":                 {without(samples.SubscriptionRenewed, "current_period_start"), at, received},
		"a cancellation at no time":                  {without(samples.SubscriptionCanceled, "canceled_at"), at, received},
		"a trial that began at no time":              {without(samples.TrialActivated, "starts_at"), at, received},
		"a trial that ended at no time":              {without(samples.TrialCompleted, "ends_at"), at, received},
		"a trial that was canceled at no time":       {without(samples.TrialCanceled, "canceled_at"), at, received},
		"a customer of its own":                      {chargeback(`"customer":{"id":"8"}`), who, "BH-8"},
		"a customer's id beside it":                  {chargeback(`"customer_id":"9"`), who, "BH-9"},
		"both, of which the customer's counts":       {chargeback(`"customer":{"id":"8"},"customer_id":"9"`), who, "BH-8"},
		"no customer":                                {chargeback(`"customer":null`), who, "BH-"},
		"the part that was given back":               {refundOf(`"currency":"USD","amount": 2000, "store_refund_amount": 500`), back, "5.00"},
		"not more than was paid":                     {refundOf(`"currency":"USD","amount": 500, "store_refund_amount": 2000`), back, "5.00"},
		"the payment, where it says no part":         {refundOf(`"currency":"USD","amount": 2000`), back, "20.00"},
		"the payment, for a part of nothing":         {refundOf(`"currency":"USD","amount": 2000, "store_refund_amount": 0`), back, "20.00"},
		"the part of a payment of nothing":           {refundOf(`"currency":"USD","amount": 0, "store_refund_amount": 500`), back, "5.00"},
		"all that was paid, where it says no amount": {refundOf(`"currency":"USD"`), back, ""},
	}, func(t *testing.T, test row) {
		got := taken(t, open(t, nil), payNow(t, []byte(test.body))).broker.all()[0].message
		require.Equal(t, test.want, test.of(payNowOf(t, got.Data)))
	})
}

// The metadata of a checkout are what a shop wrote into it: the user's id, by which providers of identity call them, and
// the shop's own order. What is bad of it is left out, for the buyer has paid.
func TestTheMetadataOfTheCheckoutNameTheUserAndTheShopsOrder(t *testing.T) {
	t.Parallel()
	const whole = `{"metadata":{"uid":"` + samples.UID + `"}}`
	const shop = "body.checkout.metadata.order_id"
	uid := func(value string) string { return `{"metadata":{"uid":` + value + `}}` }
	shops := func(value string) string {
		return `{"metadata":{"order_id":` + value + `,"uid":"` + samples.UID + `"}}`
	}
	type row struct {
		checkout, dropped, secret string
		config                    func(*webhook.Config)
		key, shopOrder            string
	}
	trusting := func(change func(*catalog.Source)) func(*webhook.Config) { return source("paynow", change) }
	each(t, map[string]row{
		"Cognito's": {uid(`"eu-west-1:7f3a6f0e-6c1f-4b0c-9b7e-0d2c5a4b1e11"`), "", "", nil, "eu-west-1:7f3a6f0e-6c1f-4b0c-9b7e-0d2c5a4b1e11", ""},
		"a number's digits, which no float holds": {uid(`9007199254740993`), "", "", nil, "9007199254740993", ""},
		"nothing": {uid(`0`), "", "", nil, "0", ""},
		"Facebook's by Auth0, with a card's digits": {uid(`"facebook|4539148803436467"`), "", "", nil, "facebook|4539148803436467", ""},
		"SAML's by Auth0":             {uid(`"samlp|acme|00u1abcd"`), "", "", nil, "samlp|acme|00u1abcd", ""},
		"one that begins with a line": {uid(`"_ce3d2948b4cf20146dee0a0b3dd6f69b6cf86f62d7"`), "", "", nil, "_ce3d2948b4cf20146dee0a0b3dd6f69b6cf86f62d7", ""},
		"escaped where need not be":   {uid(`"\u0061uth0-1"`), "", "", nil, "auth0-1", ""},
		"an e-mail address":           {uid(`"mette.lindqvist@example.com"`), uidPath + ": uid", "mette", nil, customer, ""},
		"a card's number":             {uid(`"4111111111111111"`), uidPath + ": card", "4111111111111111", nil, customer, ""},
		"an object":                   {uid(`{"id":"mette"}`), uidPath + ": uid", "mette", nil, customer, ""},
		"a bad one, where the directory has one": {uid(`"user 12"`), uidPath + ": uid", "user 12", func(c *webhook.Config) {
			c.Customers = people{uids: map[string]string{customer: "user-1"}}
		}, "user-1", ""},
		"a good one, where the directory has another": {whole, "", "", func(c *webhook.Config) {
			c.Customers = people{uids: map[string]string{customer: "user-1"}}
		}, samples.UID, ""},
		"one that is not trusted":        {uid(`"user 12"`), "", "user 12", trusting(func(s *catalog.Source) { s.UIDMetadataKey = "" }), customer, ""},
		"a checkout that is none":        {`"mette"`, "body.checkout: object", "mette", nil, customer, ""},
		"metadata that are none":         {`{"metadata":["mette"]}`, "body.checkout.metadata: object", "mette", nil, customer, ""},
		"an order's UUID":                {shops(`"0d0e7a5e-2f6f-4d53-9f0a-3a6d0f4c9b11"`), "", "", nil, samples.UID, "0d0e7a5e-2f6f-4d53-9f0a-3a6d0f4c9b11"},
		"an order's id that is escaped":  {shops(`"\u0063art-7"`), "", "", nil, samples.UID, "cart-7"},
		"an order that is a number":      {shops(`1007`), shop + ": id", "1007", nil, samples.UID, ""},
		"an order that is an object":     {shops(`{"id":"mette"}`), shop + ": id", "mette", nil, samples.UID, ""},
		"an order that is an address":    {shops(`"mette.lindqvist@example.com"`), shop + ": id", "mette", nil, samples.UID, ""},
		"an order with a NUL":            {shops(`"mette\u0000"`), shop + ": id", "mette", nil, samples.UID, ""},
		"no order":                       {shops(`""`), "", "", nil, samples.UID, ""},
		"an order that is not asked for": {shops(`"cart-7"`), "", "cart-7", trusting(func(s *catalog.Source) { s.OrderIDMetadataKey = "" }), samples.UID, ""},
		"neither that is asked for": {shops(`"cart-7"`), "", "cart-7", trusting(func(s *catalog.Source) {
			s.OrderIDMetadataKey, s.UIDMetadataKey = "", ""
		}), customer, ""},
	}, func(t *testing.T, test row) {
		var dropped []string
		if test.dropped != "" {
			dropped = []string{test.dropped}
		}
		got := requireTaken(t, open(t, test.config), payNow(t, spoil(t, whole, test.checkout)), dropped, test.secret)
		require.Equal(t, test.key, got.OrderingKey)
		require.Equal(t, test.key, got.Attributes["ordering_key"])
		require.Equal(t, customer, got.Attributes["paynow_customer_id"])
		if test.key == customer {
			require.NotContains(t, got.Attributes, "uid")
		} else {
			require.Equal(t, test.key, got.Attributes["uid"])
		}
		require.Equal(t, test.key == "user-1", got.Attributes["uid_source"] == "customer")
		require.Equal(t, test.shopOrder, got.Attributes["shop_order_id"])
		require.Equal(t, "502113004410990002", got.Attributes["order_id"], "the payment provider's own")
		if test.shopOrder != "" {
			require.NotContains(t, string(got.Data), test.shopOrder)
		}
		require.Equal(t, "2000", got.Attributes["points"])
		paid(t, got)
	})
	refund := refundOf(`"customer":{"id":"502113004410990003"},"checkout":{"metadata":{"order_id":"cart-7"}}`)
	got := requireTaken(t, open(t, nil), payNow(t, []byte(refund)), nil, "cart-7")
	require.NotContains(t, got.Attributes, "shop_order_id", "only an order that was paid names the shop's")
}

// An order is what its lines say. What else is odd about it is no reason to lose it.
func TestWhatTheEffectOfAnOrderDoesNotNeedIsLeftOut(t *testing.T) {
	t.Parallel()
	price := func(p string) []byte { return spoil(t, `"price":1000`, `"price":`+p) }
	total := func(amount string) []byte { return spoil(t, `"total_amount":2000`, `"total_amount":`+amount) }
	add := func(member string) []byte { return spoil(t, `"currency":"USD"`, `"currency":"USD",`+member) }
	whole := contract.Order{ID: "502113004410990002", CustomerID: customer, Currency: "USD", Total: "20.00",
		Items: []contract.Item{{ProductID: "411486491630370501", Quantity: 2, Price: "10.00"}}}
	with := func(change func(*contract.Order)) contract.Order {
		o := whole
		o.Items = append([]contract.Item(nil), whole.Items...)
		change(&o)
		return o
	}
	// A total that was left out takes the prices along: without one the worker adds them up,
	// and this order may have been discounted.
	unpriced := with(func(o *contract.Order) { o.Total, o.Items[0].Price = "", "" })
	uncosted := with(func(o *contract.Order) { o.Total, o.Items[0].Price, o.Currency = "", "", "" })
	pieces := with(func(o *contract.Order) { o.Items[0].Price = "" })
	nobody := with(func(o *contract.Order) { o.CustomerID = "" })
	const totalPath, pricePath, currency = "body.total_amount", "body.lines[].price", "body.currency"
	received := "2026-03-02T10:02:03Z"
	type row struct {
		body    []byte
		want    contract.Order
		dropped []string
		secret  string
	}
	each(t, map[string]row{
		"a pretty id with a mark":                   {add(`"pretty_id":"#1001"`), whole, []string{"body.pretty_id: id"}, "#1001"},
		"a pretty id that is an IP":                 {add(`"pretty_id":"203.0.113.77"`), whole, []string{"body.pretty_id: ip"}, "203.0.113.77"},
		"members that only others have":             {add(`"checkout_id":"ch/123","amount":"free","billing_cycle_sequence":1.5,"status":"Paid by Mette"`), whole, nil, "Mette"},
		"a period that is not read":                 {add(`"current_period_start":"soon","starts_at":5,"ends_at":[],"product_id":"a b","order_id":{}`), whole, nil, "soon"},
		"made at an odd time":                       {add(`"created_at":"2025-01-10 11:58:00"`), whole, []string{"body.created_at: timestamp"}, "11:58"},
		"a total with a fraction":                   {total(`20.5`), unpriced, []string{totalPath + ": integer", pricePath + ": needs_total"}, "20.5"},
		"a total that is a card's":                  {total(`4539148803436467`), unpriced, []string{totalPath + ": integer", pricePath + ": needs_total"}, "4539148803436467"},
		"a price with a fraction":                   {price(`10.5`), pieces, []string{pricePath + ": integer"}, "10.5"},
		"a price below 0":                           {price(`-7319`), pieces, []string{pricePath + ": negative"}, "7319"},
		"a total beyond what an amount may be":      {total(`1000000000000001`), unpriced, []string{totalPath + ": amount", pricePath + ": needs_total"}, "10000000000000"},
		"a price beyond what an amount may be":      {price(`1000000000000001`), pieces, []string{pricePath + ": amount"}, "10000000000000"},
		"a currency nobody issues":                  {spoil(t, `"USD"`, `"QQQ"`), uncosted, []string{currency + ": currency", totalPath + ": needs_currency", pricePath + ": needs_currency"}, "QQQ"},
		"a currency in lower case":                  {spoil(t, `"USD"`, `"usd"`), uncosted, []string{currency + ": currency", totalPath + ": needs_currency", pricePath + ": needs_currency"}, "usd"},
		"no currency":                               {spoil(t, `"currency":"USD",`, ``), uncosted, []string{totalPath + ": needs_currency", pricePath + ": needs_currency"}, ""},
		"a customer that is a string":               {spoil(t, `{"id":"502113004410990003","name":"Ilse Brandvold"}`, `"mette"`), nobody, []string{"body.customer: object"}, "mette"},
		"a customer that is an e-mail address":      {spoil(t, `"502113004410990003"`, `"mette.lindqvist@example.com"`), nobody, []string{"body.customer.id: id"}, "mette"},
		"a customer that stands in the other place": {spoil(t, `{"id":"502113004410990003","name":"Ilse Brandvold"}`, `{"id":"a b"},"customer_id":"502113004410990003"`), whole, []string{"body.customer.id: id"}, ""},
	}, func(t *testing.T, test row) {
		got := requireTaken(t, open(t, nil), payNow(t, test.body), test.dropped, test.secret)
		body := paid(t, got)
		require.Equal(t, &test.want, body.Data.Order)
		require.Equal(t, "2026-03-02T10:01:00Z", body.Timestamp)
		require.Equal(t, samples.UID, got.OrderingKey)
		require.Equal(t, "2000", got.Attributes["points"])
	})
	each(t, map[string]struct{ times, want string }{
		"a time that is none":             {`"completed_at":"2026-13-42T10:01:00Z"`, received},
		"a time that is a number":         {`"completed_at":1772445660`, received},
		"a time that is none, and a next": {`"completed_at":"today","created_at":"2026-03-02T10:00:00Z"`, "2026-03-02T10:00:00Z"},
	}, func(t *testing.T, test struct{ times, want string }) {
		body := spoil(t, `"completed_at":"2026-03-02T10:01:00Z"`, test.times)
		got := requireTaken(t, open(t, nil), payNow(t, body), []string{"body.completed_at: timestamp"}, "today")
		require.Equal(t, test.want, paid(t, got).Timestamp)
	})
}

// Nobody knows whose it is: the worker makes a dead letter of it, which somebody sees.
func TestAnOrderOfNobodyIsStillTaken(t *testing.T) {
	t.Parallel()
	body := strings.Replace(string(spoil(t, samples.UID, "user 12")), `"id":"`+customer+`"`, `"id":"mette@example.com"`, 1)
	got := requireTaken(t, open(t, nil), payNow(t, []byte(body)), []string{uidPath + ": uid", "body.customer.id: id"}, "mette")
	require.Empty(t, got.OrderingKey)
	require.Equal(t, contract.UnknownOrderingKey, got.Attributes["ordering_key"])
}

func TestWhatIsLeftOutOfThousandsOfLinesIsAShortLine(t *testing.T) {
	t.Parallel()
	line := strings.Replace(oneLine, "1000", "-7319", 1)
	lines := strings.TrimSuffix(strings.Repeat(line+","+strings.Replace(oneLine, "1000", `"7319"`, 1)+",", 1000), ",")
	got := requireTaken(t, open(t, nil), payNow(t, spoil(t, oneLine, lines)), []string{"body.lines[].price: integer", "body.lines[].price: negative"}, "7319")
	require.Len(t, paid(t, got).Data.Order.Items, 2000)
}

func TestARefundOfTheWholeOrderNeedsNoCurrency(t *testing.T) {
	t.Parallel()
	for _, currency := range []string{"QQQ", "dollars"} {
		body := `{"event_type":"ON_REFUND","event_id":"5","body":{"id":"a b","order_id":"7","currency":"` + currency + `","completed_at":"now","pending_at":"2026-03-02T09:00:00Z"}}`
		got := requireTaken(t, open(t, nil), payNow(t, []byte(body)), []string{"body.currency: currency", "body.id: id", "body.completed_at: timestamp"}, currency)
		m := paid(t, got)
		require.Equal(t, contract.PayNowData{Order: &contract.Order{ID: "7"}}, m.Data)
		require.Equal(t, "2026-03-02T09:00:00Z", m.Timestamp)
	}
}

func TestASubscriptionIsPublishedWithWhatIsGood(t *testing.T) {
	t.Parallel()
	const cycle, cyclePath = `"billing_cycle_sequence": 2`, "body.billing_cycle_sequence: "
	noCycle := func(s *contract.Subscription) { s.Cycle = 0 }
	type row struct {
		sample, old, replacement, dropped string
		lacks                             func(*contract.Subscription)
	}
	each(t, map[string]row{
		"a total without a currency": {samples.SubscriptionRenewed, `"currency": "EUR"`, `"no_currency": "EUR"`, "body.total_amount: needs_currency",
			func(s *contract.Subscription) { s.Total, s.Currency = "", "" }},
		"a cycle below 0":    {samples.SubscriptionRenewed, cycle, `"billing_cycle_sequence": -7319`, cyclePath + "min=0", noCycle},
		"a cycle beyond all": {samples.SubscriptionRenewed, cycle, `"billing_cycle_sequence": 7319000`, cyclePath + "max=1000000", noCycle},
		"half a cycle":       {samples.SubscriptionRenewed, cycle, `"billing_cycle_sequence": 7319.5`, cyclePath + "integer", noCycle},
		"a product that is an address": {samples.TrialActivated, `"product_id": "411486491630370502"`, `"product_id": "mette.lindqvist@example.com"`, "body.product_id: id",
			func(s *contract.Subscription) { s.ProductID = "" }},
		"a status that is a sentence": {samples.TrialActivated, `"status": "active"`, `"status": "Mette has left"`, "body.status: code",
			func(s *contract.Subscription) { s.Status = "" }},
		"an end that is no time": {samples.TrialActivated, `"ends_at": "2026-03-09T10:00:00Z"`, `"ends_at": "2026-13-42T10:00:00Z"`, "body.ends_at: timestamp",
			func(s *contract.Subscription) { s.PeriodEnd = "" }},
	}, func(t *testing.T, test row) {
		good := string(samples.Read(test.sample, samples.Event{}))
		require.Contains(t, good, test.old)
		want := paid(t, requireTaken(t, open(t, nil), payNow(t, []byte(good)), nil, ""))
		test.lacks(want.Data.Subscription)
		d, bad := open(t, nil), strings.Replace(good, test.old, test.replacement, 1)
		require.Equal(t, want, paid(t, requireTaken(t, d, payNow(t, []byte(bad)), []string{test.dropped}, "7319")))
		require.NotContains(t, d.log.String(), "ette")
	})
}
