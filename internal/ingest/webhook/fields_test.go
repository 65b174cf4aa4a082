package webhook_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/contract"
	"billhook/internal/ingest/webhook"
	"billhook/internal/ingest/webhook/samples"
)

// requireTaken sends the webhook, checks that it was accepted and that its line and the
// metrics tell what was left out of it, in any order, and returns what was published.
func requireTaken(t *testing.T, d *door, r *http.Request, dropped []string, secret string) contract.Message {
	t.Helper()
	source := r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]
	w := d.send(r)
	require.Equal(t, http.StatusAccepted, w.Code, "%s", w.Body)
	require.Len(t, d.broker.all(), 1)
	requireNothingLeaks(t, d, w, secret)
	got := d.broker.all()[0].message
	if secret != "" {
		require.NotContains(t, string(got.Data), secret)
		require.NotContains(t, fmt.Sprint(got.Attributes, got.OrderingKey), secret)
	}
	var line struct {
		Dropped []string `json:"dropped"`
	}
	require.NoError(t, json.Unmarshal([]byte(d.log.String()), &line))
	require.ElementsMatch(t, dropped, line.Dropped)
	metrics := d.scrape(t)
	require.Equal(t, len(dropped), strings.Count(metrics, "\nbillhook_webhook_dropped_fields_total{"))
	for _, one := range dropped {
		field, rule, _ := strings.Cut(one, ": ")
		require.Contains(t, metrics, fmt.Sprintf("billhook_webhook_dropped_fields_total{field=%q,rule=%q,source=%q} 1", field, rule, source))
	}
	return got
}

func paid(t testing.TB, m contract.Message) *contract.PayNow {
	t.Helper()
	body, err := contracts(t).Decode(contract.PayNowV1, m.Data)
	require.NoError(t, err)
	require.NoError(t, body.Validate())
	require.NoError(t, body.CheckAttributes(m.Attributes))
	return payNowOf(t, m.Data)
}

// payNowOf reads a body that was published.
func payNowOf(t testing.TB, data []byte) *contract.PayNow {
	t.Helper()
	body, err := contracts(t).Decode(contract.PayNowV1, data)
	require.NoError(t, err)
	m, err := contract.As[*contract.PayNow](body)
	require.NoError(t, err)
	return m
}

// contracts are those of the shipped catalog.
func contracts(t testing.TB) *contract.Set {
	t.Helper()
	shipped, err := loaded()
	require.NoError(t, err)
	return shipped.Contracts
}

const (
	uidPath  = "body.checkout.metadata.uid"
	customer = "502113004410990003"
	oneLine  = `{"product_id":"411486491630370501","price":1000,"quantity":2}`
)

func TestAnOddUidIsLeftOutAndTheCustomerStandsIn(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ uid, rule, secret string }{
		"an e-mail address": {`"mette.lindqvist@example.com"`, "uid", "mette"},
		"a card's number":   {`"4111111111111111"`, "card", "4111111111111111"},
		"an object":         {`{"id":"mette"}`, "uid", "mette"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := open(t, nil)
			got := requireTaken(t, d, payNow(t, spoil(t, `"`+samples.UID+`"`, test.uid)), []string{uidPath + ": " + test.rule}, test.secret)
			require.Equal(t, customer, got.OrderingKey)
			require.Equal(t, customer, got.Attributes["ordering_key"])
			require.Equal(t, customer, got.Attributes["paynow_customer_id"])
			require.NotContains(t, got.Attributes, "uid")
			require.Equal(t, "2000", got.Attributes["points"])
		})
	}
}

// What identity providers call their users: Auth0, Google through it, Firebase, Cognito.
func TestTheUidsOfIdentityProvidersAreOrderingKeys(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ uid, want string }{
		"Firebase's": {`"Zk3uQm0aBcD4eFgH5iJkL6mNoPq8"`, "Zk3uQm0aBcD4eFgH5iJkL6mNoPq8"},
		"Cognito's":  {`"eu-west-1:7f3a6f0e-6c1f-4b0c-9b7e-0d2c5a4b1e11"`, "eu-west-1:7f3a6f0e-6c1f-4b0c-9b7e-0d2c5a4b1e11"},
		"a number's digits, which no float holds": {`9007199254740993`, "9007199254740993"},
		"nothing": {`0`, "0"},
		"Facebook's by Auth0, with a card's digits": {`"facebook|4539148803436467"`, "facebook|4539148803436467"},
		"SAML's by Auth0":             {`"samlp|acme|00u1abcd"`, "samlp|acme|00u1abcd"},
		"one that begins with a line": {`"_ce3d2948b4cf20146dee0a0b3dd6f69b6cf86f62d7"`, "_ce3d2948b4cf20146dee0a0b3dd6f69b6cf86f62d7"},
		"18 digits in quotes":         {`"700000000000000300"`, "700000000000000300"},
		"escaped where need not be":   {`"\u0061uth0-1"`, "auth0-1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := open(t, nil)
			got := requireTaken(t, d, payNow(t, spoil(t, `"`+samples.UID+`"`, test.uid)), nil, "")
			require.Equal(t, test.want, got.Attributes["uid"])
			require.Equal(t, test.want, got.Attributes["ordering_key"])
			require.Equal(t, test.want, got.OrderingKey)
			paid(t, got)
		})
	}
}

func TestAUidOfTheDirectoryStandsInForOneThatIsOdd(t *testing.T) {
	t.Parallel()
	d := open(t, func(c *webhook.Config) { c.Customers = people{uids: map[string]string{customer: "user-1"}} })
	got := requireTaken(t, d, payNow(t, spoil(t, samples.UID, "user 12")), []string{uidPath + ": uid"}, "user 12")
	require.Equal(t, "user-1", got.OrderingKey)
}

// An order is what its lines say. What else is odd about it is no reason to lose it.
func TestAnOrderIsTakenWhateverElseIsOddAboutIt(t *testing.T) {
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
	for name, test := range map[string]struct {
		body    []byte
		want    contract.Order
		dropped []string
		secret  string
	}{
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
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := open(t, nil)
			got := requireTaken(t, d, payNow(t, test.body), test.dropped, test.secret)
			body := paid(t, got)
			require.Equal(t, &test.want, body.Data.Order)
			require.Equal(t, "2026-03-02T10:01:00Z", body.Timestamp)
			require.Equal(t, samples.UID, got.OrderingKey)
			require.Equal(t, "2000", got.Attributes["points"])
		})
	}
	for name, test := range map[string]struct{ times, want string }{
		"a time that is none":             {`"completed_at":"2026-13-42T10:01:00Z"`, received},
		"a time that is a number":         {`"completed_at":1772445660`, received},
		"a time that is none, and a next": {`"completed_at":"today","created_at":"2026-03-02T10:00:00Z"`, "2026-03-02T10:00:00Z"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := open(t, nil)
			got := requireTaken(t, d, payNow(t, spoil(t, `"completed_at":"2026-03-02T10:01:00Z"`, test.times)), []string{"body.completed_at: timestamp"}, "today")
			require.Equal(t, test.want, paid(t, got).Timestamp)
		})
	}
	t.Run("checkout and metadata that are none", func(t *testing.T) {
		t.Parallel()
		const metadata = `{"metadata":{"uid":"` + samples.UID + `"}}`
		for value, dropped := range map[string]string{`"mette"`: "body.checkout: object", `{"metadata":["mette"]}`: "body.checkout.metadata: object"} {
			got := requireTaken(t, open(t, nil), payNow(t, spoil(t, metadata, value)), []string{dropped}, "mette")
			require.Equal(t, customer, got.OrderingKey)
		}
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

// What the effect needs is never left out: neither what an order is made of, nor what
// would make a refund of a part one of the whole.
func TestWhatTheEffectNeedsRefuses(t *testing.T) {
	t.Parallel()
	refund := func(members string) string {
		return `{"event_type":"ON_REFUND","event_id":"5","body":{"id":"6","order_id":"7","status":"completed",` + members + `}}`
	}
	for name, test := range map[string]struct{ body, path, secret string }{
		"a refund's amount with a fraction":    {refund(`"currency":"USD","amount":5.5`), "body.amount", "5.5"},
		"a refund's amount that is empty":      {refund(`"currency":"USD","amount":""`), "body.amount", ""},
		"a refunded part in words":             {refund(`"currency":"USD","amount":2000,"store_refund_amount":"five"`), "body.store_refund_amount", "five"},
		"a refunded part below 0":              {refund(`"currency":"USD","amount":2000,"store_refund_amount":-7319`), "body.store_refund_amount", "7319"},
		"a refund in no currency":              {refund(`"amount":2000`), "body.currency", ""},
		"a refund in an odd currency":          {refund(`"currency":"dollars","amount":2000`), "body.currency", "dollars"},
		"a refund in a currency nobody issues": {refund(`"currency":"QQQ","amount":2000`), "body.currency", "QQQ"},
		"a refund whose status is a sentence":  {strings.Replace(refund(`"currency":"USD","amount":2000`), `"completed"`, `"Mette took it back"`, 1), "body.status", "Mette"},
		"a refund of no order":                 {strings.Replace(refund(`"amount":2000,"currency":"USD"`), `"order_id":"7"`, `"order_id":"#7"`, 1), "body.order_id", "#7"},
		"a chargeback of no order":             {`{"event_type":"ON_CHARGEBACK","event_id":"5","body":{"id":"6","order_id":"a b"}}`, "body.order_id", "a b"},
		"a subscription without a good id":     {`{"event_type":"ON_SUBSCRIPTION_RENEWED","event_id":"5","body":{"id":"a b"}}`, "body.id", "a b"},
		"a trial without an id":                {`{"event_type":"ON_TRIAL_ACTIVATED","event_id":"5","body":{"customer_id":"8"}}`, "body.id", ""},
		"an order whose id is an address":      {strings.Replace(order, `"502113004410990002"`, `"203.0.113.77"`, 1), "body.id", "203.0.113.77"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := open(t, nil)
			p := requireProblem(t, d, d.send(payNow(t, []byte(test.body))), http.StatusUnprocessableEntity, "contract_broken", test.secret)
			require.Equal(t, test.path, p.Violations[0].Path)
			metrics := d.scrape(t)
			require.NotContains(t, metrics, "\nbillhook_webhook_dropped_fields_total{", "nothing was taken")
		})
	}
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

func TestASubscriptionIsToldWithWhatIsGood(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		sample, old, replacement string
		dropped                  []string
		lacks                    func(*contract.Subscription)
	}{
		"a total without a currency": {samples.SubscriptionRenewed, `"currency": "EUR"`, `"no_currency": "EUR"`, []string{"body.total_amount: needs_currency"},
			func(s *contract.Subscription) { s.Total, s.Currency = "", "" }},
		"a cycle below 0": {samples.SubscriptionRenewed, `"billing_cycle_sequence": 2`, `"billing_cycle_sequence": -7319`, []string{"body.billing_cycle_sequence: min=0"},
			func(s *contract.Subscription) { s.Cycle = 0 }},
		"a cycle beyond all": {samples.SubscriptionRenewed, `"billing_cycle_sequence": 2`, `"billing_cycle_sequence": 7319000`, []string{"body.billing_cycle_sequence: max=1000000"},
			func(s *contract.Subscription) { s.Cycle = 0 }},
		"half a cycle": {samples.SubscriptionRenewed, `"billing_cycle_sequence": 2`, `"billing_cycle_sequence": 7319.5`, []string{"body.billing_cycle_sequence: integer"},
			func(s *contract.Subscription) { s.Cycle = 0 }},
		"a product that is an address": {samples.TrialActivated, `"product_id": "411486491630370502"`, `"product_id": "mette.lindqvist@example.com"`, []string{"body.product_id: id"},
			func(s *contract.Subscription) { s.ProductID = "" }},
		"a status that is a sentence": {samples.TrialActivated, `"status": "active"`, `"status": "Mette has left"`, []string{"body.status: code"},
			func(s *contract.Subscription) { s.Status = "" }},
		"an end that is no time": {samples.TrialActivated, `"ends_at": "2026-03-09T10:00:00Z"`, `"ends_at": "2026-13-42T10:00:00Z"`, []string{"body.ends_at: timestamp"},
			func(s *contract.Subscription) { s.PeriodEnd = "" }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			good := string(samples.Read(test.sample, samples.Event{}))
			require.Contains(t, good, test.old)
			want := paid(t, requireTaken(t, open(t, nil), payNow(t, []byte(good)), nil, ""))
			test.lacks(want.Data.Subscription)
			d := open(t, nil)
			got := paid(t, requireTaken(t, d, payNow(t, []byte(strings.Replace(good, test.old, test.replacement, 1))), test.dropped, "7319"))
			require.Equal(t, want, got)
			require.NotContains(t, d.log.String(), "ette")
		})
	}
}

// The contract's own bodies, from a provider: the tags say what is optional. A producer
// inside the house is told of all of it.
func TestTheContractsOptionalFieldsAreLeftOutOfAProvidersBodyAlone(t *testing.T) {
	t.Parallel()
	const (
		order = `{"eventId":"e1","eventType":"order.paid","timestamp":"2026-03-02T10:15:00Z","data":{"order":{"id":"o1","prettyId":"BH-1","customerId":"c1",` +
			`"currency":"USD","total":"20.00","items":[{"productId":"411486491630370501","quantity":2,"price":"10.00"}]}}}`
		refund = `{"eventId":"e2","eventType":"order.refunded","timestamp":"2026-03-02T10:15:00Z","data":{"order":{"id":"o1","currency":"USD"},` +
			`"refund":{"id":"r1","amount":"20.00"}}}`
		renewed = `{"eventId":"e3","eventType":"subscription.renewed","timestamp":"2026-03-02T10:15:00Z","data":{"subscription":{"id":"s1",` +
			`"currency":"EUR","total":"9.99","cycle":2}}}`
		envelope = `{"id":"e4","action":"renewal","created_at":"2026-03-02T10:15:00Z","attempts":0,"max_attempts":3,"payload":{"subscription_id":"s1",` +
			`"uid":"u1","currency":"EUR","amount":"9.99","cycle":2}}`
	)
	for name, test := range map[string]struct {
		body, old, replacement string
		dropped                []string
		path                   string // of the violation, where it is refused
	}{
		"a pretty id with a mark":             {order, `"BH-1"`, `"#1001"`, []string{"data.order.prettyId: id"}, ""},
		"a currency nobody issues":            {order, `"USD"`, `"QQQ"`, []string{"data.order.currency: currency", "data.order.total: needs_currency", "data.order.items[].price: needs_currency"}, ""},
		"a refund that is none":               {order, `"data":{`, `"data":{"refund":"all",`, nil, "data.refund"},
		"items that are none":                 {order, `[{"productId":"411486491630370501","quantity":2,"price":"10.00"}]`, `"two"`, nil, "data.order.items"},
		"a refund's amount, wrongly spelt":    {refund, `"20.00"`, `"20.0"`, nil, "data.refund.amount"},
		"a refund that is a word":             {refund, `{"id":"r1","amount":"20.00"}`, `"all"`, nil, "data.refund"},
		"a refund with an odd id":             {refund, `"r1"`, `"#1"`, []string{"data.refund.id: id"}, ""},
		"a refund nobody can reckon":          {refund, `"USD"`, `"QQQ"`, nil, "data.order.currency"},
		"a refund in no currency":             {refund, `"USD"`, `"usd"`, nil, "data.refund.amount"},
		"a refund of an order that is odd":    {refund, `"o1"`, `"#123"`, nil, "data.order.id"},
		"a cycle below 0":                     {renewed, `"cycle":2`, `"cycle":-2`, []string{"data.subscription.cycle: min=0"}, ""},
		"a subscription's odd currency":       {renewed, `"EUR"`, `"QQQ"`, []string{"data.subscription.currency: currency", "data.subscription.total: needs_currency"}, ""},
		"an order it is not about":            {renewed, `"data":{`, `"data":{"order":"mette",`, []string{"data.order: object"}, ""},
		"an envelope's odd uid":               {envelope, `"u1"`, `"mette@example.com"`, []string{"payload.uid: uid"}, ""},
		"an envelope's cycle below 0":         {envelope, `"cycle":2`, `"cycle":-2`, []string{"payload.cycle: min=0"}, ""},
		"an envelope's amount, wrongly spelt": {envelope, `"9.99"`, `"9.990"`, nil, "payload.amount"},
		"an envelope's odd currency":          {envelope, `"EUR"`, `"euro"`, nil, "payload.currency"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, 1, strings.Count(test.body, test.old))
			body := []byte(strings.Replace(test.body, test.old, test.replacement, 1))
			d := open(t, told)
			if r := generic(t, "/webhooks/generic", body); test.dropped == nil {
				p := requireProblem(t, d, d.send(r), http.StatusUnprocessableEntity, "contract_broken", "mette")
				require.Equal(t, test.path, p.Violations[0].Path)
			} else {
				got := requireTaken(t, d, r, test.dropped, "mette")
				m, err := contracts(t).Decode(got.Attributes["contract"], got.Data)
				require.NoError(t, err)
				require.NoError(t, m.Validate())
			}
			to := queue
			if test.body == envelope {
				to = updates
			}
			d = open(t, nil)
			p := requireProblem(t, d, d.send(generic(t, "/queues/"+to+"/messages", body)), http.StatusUnprocessableEntity, "contract_broken", "mette")
			require.NotEmpty(t, p.Violations)
		})
	}
}

func TestAUidThatIsANumberIsTakenFromAProviderAlone(t *testing.T) {
	t.Parallel()
	const envelope = `{"id":"e1","action":"renewal","created_at":"2026-03-02T10:00:00Z","attempts":0,"payload":{"subscription_id":"s1","uid":12345}}`
	got := requireTaken(t, open(t, told), generic(t, "/webhooks/generic", []byte(envelope)), nil, "")
	require.Contains(t, string(got.Data), `"uid":"12345"`)
	d := open(t, nil)
	p := requireProblem(t, d, d.send(generic(t, "/queues/"+updates+"/messages", []byte(envelope))), http.StatusUnprocessableEntity, "contract_broken", "")
	require.Equal(t, "payload.uid", p.Violations[0].Path)
}

func TestAProducerIsToldOfEachMemberTheContractDoesNotKnow(t *testing.T) {
	t.Parallel()
	renewal := string(goldens(t, contract.EnvelopeV1)["renewal.json"])
	own := string(goldens(t, contract.PayNowV1)["order_paid.json"])
	within := func(body, parent, member string) string {
		if parent == "" {
			return strings.Replace(body, "{", "{"+member+",", 1)
		}
		require.Contains(t, body, `"`+parent+`": {`)
		return strings.Replace(body, `"`+parent+`": {`, `"`+parent+`": {`+member+`,`, 1)
	}
	for name, test := range map[string]struct {
		path, body string
		paths      []string
		secret     string
	}{
		"in the payload":           {updates, within(renewal, "payload", `"plan_name":"mette"`), []string{"payload.plan_name"}, "mette"},
		"at the top":               {updates, within(renewal, "", `"note":"mette"`), []string{"note"}, "mette"},
		"in both":                  {updates, within(within(renewal, "payload", `"a":1`), "", `"b":null`), []string{"b", "payload.a"}, ""},
		"a name with an address":   {updates, within(renewal, "payload", `"mette@example.com":1`), []string{"payload.?"}, "mette"},
		"in a raw object":          {updates, `{"action":"renewal","subscription_id":"s1","sku":"mette"}`, []string{"payload.sku"}, "mette"},
		"the contract's other one": {queue, within(own, "", `"action":"renewal"`), []string{"action"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := open(t, nil)
			p := requireProblem(t, d, d.send(generic(t, "/queues/"+test.path+"/messages", []byte(test.body))), http.StatusUnprocessableEntity, "contract_broken", test.secret)
			var paths []string
			for _, v := range p.Violations {
				require.Equal(t, "unknown", v.Rule)
				paths = append(paths, v.Path)
			}
			require.Equal(t, test.paths, paths)
		})
	}
}

// Two forms of the same catalog: a uid that is trusted from another place.
func TestTheUidIsReadWhereTheCatalogSays(t *testing.T) {
	t.Parallel()
	d := open(t, source("paynow", func(s *catalog.Source) { s.UIDMetadataKey = "" }))
	got := requireTaken(t, d, payNow(t, spoil(t, samples.UID, "user 12")), nil, "user 12")
	require.Equal(t, customer, got.OrderingKey, "what is not trusted is not looked at")
}

// The answer tells the sender to send again. The log tells the operator what to mend.
func TestAnUnconfirmedPublishNamesItsCauseInTheLogAlone(t *testing.T) {
	t.Parallel()
	for cause, err := range map[string]error{"topic_missing": contract.ErrTopicMissing, "unknown": errDown} {
		t.Run(cause, func(t *testing.T) {
			t.Parallel()
			d := open(t, nil)
			d.broker.errors = []error{fmt.Errorf("publish to %s: %w: %w", queue, err, errDown)}
			w := d.send(payNow(t, []byte(order)))
			requireProblem(t, d, w, http.StatusServiceUnavailable, "publish_unconfirmed", "down")
			require.NotContains(t, w.Body.String(), cause)
			require.Contains(t, d.log.String(), `"cause":"`+cause+`"`)
			metrics := d.scrape(t)
			require.Contains(t, metrics, fmt.Sprintf("billhook_webhook_unconfirmed_total{cause=%q,queue=%q} 1", cause, queue))
		})
	}
	d := open(t, nil)
	require.Equal(t, http.StatusAccepted, d.send(payNow(t, []byte(order))).Code)
	require.NotContains(t, d.log.String(), `"cause"`)
}
