package webhook_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/contract"
	"billhook/internal/ingest/webhook"
)

// What is refused is told by its path and rule. Neither the answer nor the log repeats it.
const (
	malformed   = "body_malformed"
	broken      = "contract_broken"
	unsupported = "contract_unsupported"
)

var statusOf = map[string]int{malformed: http.StatusBadRequest, broken: 422, unsupported: 422, "queue_unknown": 404}

// bad is a body that is not taken: by which code, with which violation, and what of it must not be repeated.
type bad struct{ path, body, code, where, rule, secret string }

func (b bad) check(t *testing.T, change func(*webhook.Config)) {
	t.Helper()
	d, r := open(t, change), payNow(t, []byte(b.body))
	if b.path != "" {
		r = generic(t, b.path, []byte(b.body))
	}
	p := requireProblem(t, d, d.send(r), statusOf[b.code], b.code, b.secret)
	require.Equal(t, b.code == broken, len(p.Violations) > 0)
	if b.where != "" {
		require.Equal(t, b.where, p.Violations[0].Path)
	}
	if b.rule != "" {
		require.Equal(t, b.rule, p.Violations[0].Rule)
	}
	require.NotContains(t, d.scrape(t), "\nbillhook_webhook_dropped_fields_total{", "nothing was taken")
}

func TestABodyOfPayNowsThatCannotBeMappedIsRefused(t *testing.T) {
	t.Parallel()
	with := func(old, replacement string) string { return string(spoil(t, old, replacement)) }
	quantity := func(q string) string { return with(`"quantity":2`, `"quantity":`+q) }
	eventID := func(id string) string { return with(`"event_id":"502113004410990001"`, `"event_id":`+id) }
	refund := func(old, replacement string) string {
		return strings.Replace(refundOf(`"currency":"USD","amount":2000`), old, replacement, 1)
	}
	event := func(name, body string) string {
		return `{"event_type":"ON_` + name + `","event_id":"5","body":` + body + `}`
	}
	const tooMuch = `{"product_id":"411486491630370501","price":0,"quantity":9007199254740991}`
	for name, test := range map[string]bad{
		"no body":                             {code: malformed},
		"cut off in the middle":               {body: order[:len(order)/2], code: malformed},
		"a name twice in what is dropped":     {body: with(`"name":"Ilse Brandvold"`, `"name":"mette","name":"metta"`), code: malformed, secret: "mett"},
		"invalid UTF-8 in what is dropped":    {body: with(`Ilse Brandvold`, "mette\xc3\x28"), code: malformed, secret: "mette"},
		"100,000 deep in what is dropped":     {body: with(`"Ilse Brandvold"`, strings.Repeat(`{"a":`, 100_000)+"1"+strings.Repeat("}", 100_000)), code: malformed},
		"an array":                            {body: `["mette"]`, code: broken, secret: "mette"},
		"null":                                {body: `null`, code: broken},
		"an empty object":                     {body: `{}`, code: broken, where: "event_id"},
		"no event type":                       {body: `{"event_id":"5"}`, code: broken, where: "event_type"},
		"an event type that is a sentence":    {body: with(`"ON_ORDER_COMPLETED"`, `"Mette has paid"`), code: broken, where: "event_type", secret: "Mette"},
		"an event id with a slash":            {body: eventID(`"a/../b"`), code: broken, where: "event_id", secret: "a/../b"},
		"an empty event id":                   {body: eventID(`""`), code: broken, where: "event_id"},
		"a body that is a string":             {body: event("REFUND", `"mette"`), code: broken, where: "body", secret: "mette"},
		"a body that is null":                 {body: event("REFUND", `null`), code: broken, where: "body.order_id"},
		"no body member":                      {body: `{"event_type":"ON_ORDER_COMPLETED","event_id":"5"}`, code: broken, where: "body.id"},
		"lines that are an object":            {body: with(`[`+oneLine+`]`, `{"a":"mette"}`), code: broken, where: "body.lines", secret: "mette"},
		"no lines":                            {body: with(oneLine, ``), code: broken, where: "body.lines"},
		"a line without a product":            {body: with(`"product_id":"411486491630370501",`, ``), code: broken, where: "body.lines[0].product_id"},
		"a quantity of 0":                     {body: quantity("0"), code: broken, where: "body.lines[0].quantity"},
		"no quantity":                         {body: with(`,"quantity":2`, ``), code: broken, where: "body.lines[0].quantity"},
		"a quantity above the largest":        {body: quantity("9007199254740992"), code: broken, where: "body.lines[0].quantity", secret: "9007199254740992"},
		"points that do not fit an account":   {body: with(oneLine, tooMuch+","+tooMuch+","+tooMuch), code: broken, where: "body.lines[1].quantity", secret: "9007199254740991"},
		"an order's id that is a card's":      {body: with(`"502113004410990002"`, `"4539148803436467"`), code: broken, where: "body.id", secret: "4539148803436467"},
		"an order's id that is an address":    {body: with(`"502113004410990002"`, `"203.0.113.77"`), code: broken, where: "body.id", secret: "203.0.113.77"},
		"a refund's amount with a fraction":   {body: refund("2000", "5.5"), code: broken, where: "body.amount", secret: "5.5"},
		"a refund's amount that is empty":     {body: refund("2000", `""`), code: broken, where: "body.amount"},
		"a refund's amount below 0":           {body: refund("2000", `-7319`), code: broken, where: "body.amount", rule: "negative", secret: "7319"},
		"a refunded part in words":            {body: refund("2000", `2000,"store_refund_amount":"five"`), code: broken, where: "body.store_refund_amount", secret: "five"},
		"a refunded part below 0":             {body: refund("2000", `2000,"store_refund_amount":-7319`), code: broken, where: "body.store_refund_amount", rule: "negative", secret: "7319"},
		"a refund in no currency":             {body: refund(`"currency":"USD",`, ""), code: broken, where: "body.currency"},
		"a refund in an odd currency":         {body: refund("USD", "dollars"), code: broken, where: "body.currency", secret: "dollars"},
		"a refund in a currency of nobody's":  {body: refund("USD", "QQQ"), code: broken, where: "body.currency", secret: "QQQ"},
		"a refund whose status is a sentence": {body: refund("completed", "Mette took it back"), code: broken, where: "body.status", secret: "Mette"},
		"a refund of no order":                {body: refund(`"order_id":"7"`, `"order_id":"#7"`), code: broken, where: "body.order_id", secret: "#7"},
		"a chargeback of no order":            {body: event("CHARGEBACK", `{"id":"6","order_id":"a b"}`), code: broken, where: "body.order_id", secret: "a b"},
		"a subscription without a good id":    {body: event("SUBSCRIPTION_RENEWED", `{"id":"a b"}`), code: broken, where: "body.id", secret: "a b"},
		"a trial without an id":               {body: event("TRIAL_ACTIVATED", `{"customer_id":"8"}`), code: broken, where: "body.id"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test.check(t, nil)
		})
	}
}

func TestAProducersMistakesAreNamed(t *testing.T) {
	t.Parallel()
	const inside, enveloped, provided = "/queues/paynow-events/messages", toUpdates, "/webhooks/generic"
	const email = "/topics/notifications/messages"
	const welcome = `{"message":{"type":"notification.email.order_confirmed","version":1,"data":{"user_id":"u1"}},"deliver_at":"2026-03-03T10:02:04Z"}`
	own := string(goldens(t, contract.PayNowV1)["order_paid.json"])
	renewal := string(goldens(t, contract.EnvelopeV1)["renewal.json"])
	created := string(goldens(t, contract.MessageV1)["order.created.json"])
	in := func(body, old, replacement string) string {
		require.Contains(t, body, old)
		return strings.Replace(body, old, replacement, 1)
	}
	payload := func(member string) string { return in(renewal, `"payload": {`, `"payload": {`+member+`,`) }
	with := func(asked string) string { return `{"message":` + shipped + `,` + asked + `}` }
	items := strings.TrimSuffix(strings.Repeat(`{"message":`+shipped+`},`, 101), ",")
	for name, test := range map[string]bad{
		"a queue that is off":                    {path: "/queues/fis-ingestion/messages", body: own, code: "queue_unknown"},
		"a queue that is not there":              {path: "/queues/nothing/messages", body: own, code: "queue_unknown"},
		"an envelope, elsewhere":                 {path: inside, body: `{"action":"charge","payload":{"who":"Ilse"},"id":"5"}`, code: unsupported},
		"an envelope of a provider without id":   {path: provided, body: `{"action":"charge","payload":{}}`, code: broken},
		"an envelope with the name of another":   {path: provided, body: in(renewal, `"renewal"`, `"order.paid"`), code: unsupported},
		"a version in words":                     {path: provided, body: `{"type":"charge","data":{},"version":"1"}`, code: broken},
		"an event for a queue of envelopes":      {path: enveloped, body: own, code: unsupported},
		"a message for a queue of events":        {path: inside, body: `{"type":"charge","data":{},"version":"1"}`, code: unsupported},
		"an envelope that is cut off":            {path: inside, body: strings.TrimSuffix(strings.TrimSpace(renewal), "}"), code: malformed},
		"an envelope with more behind it":        {path: inside, body: renewal + "x", code: malformed},
		"an action without a handler":            {path: enveloped, body: in(renewal, `"renewal"`, `"payout"`), code: broken},
		"an envelope's amount in no currency":    {path: enveloped, body: in(renewal, `"currency": "EUR",`, ``), code: broken},
		"a raw object without an action":         {path: enveloped, body: `{"subscription_id":"s1"}`, code: broken},
		"a type without a handler":               {path: inside, body: `{"eventId":"5","eventType":"payment.completed","timestamp":"2026-03-02T10:00:00Z","data":{}}`, code: broken},
		"points that do not fit an account":      {path: inside, body: in(own, `"items": [`, `"items": [`+strings.Repeat(`{"productId":"411486491630370501","quantity":9007199254740991},`, 2)), code: broken},
		"a refund in no currency":                {path: inside, body: `{"eventId":"5","eventType":"order.refunded","timestamp":"2026-03-02T10:00:00Z","data":{"order":{"id":"7"},"refund":{"id":"8","amount":"1.00"}}}`, code: broken},
		"a uid that is a number":                 {path: enveloped, body: in(renewal, `"pQ7rS9tU2vW4xY6zA1bC3dE5fG8h"`, `12345`), code: broken, where: "payload.uid"},
		"a type that is not declared":            {path: toOrders, body: in(created, `"order.created"`, `"order.lost"`), code: broken, where: "type", rule: "undeclared"},
		"a type of another queue":                {path: toOrders, body: in(created, `"order.created"`, `"order.payment_failed"`), code: broken, where: "data.user_id", rule: "unknown"},
		"an unknown member":                      {path: toOrders, body: in(created, `"total"`, `"subtotal"`), code: broken, where: "data.subtotal", rule: "unknown"},
		"an unknown member of a payload":         {path: enveloped, body: payload(`"plan_name":"mette"`), code: broken, where: "payload.plan_name", rule: "unknown", secret: "mette"},
		"an unknown member at the top":           {path: enveloped, body: in(renewal, `{`, `{"note":null,`), code: broken, where: "note", rule: "unknown"},
		"an unknown member that is an address":   {path: enveloped, body: payload(`"mette@example.com":1`), code: broken, where: "payload.?", rule: "unknown", secret: "mette"},
		"an unknown member of a raw object":      {path: enveloped, body: `{"action":"renewal","subscription_id":"s1","sku":"mette"}`, code: broken, where: "payload.sku", rule: "unknown", secret: "mette"},
		"a member of another format":             {path: inside, body: in(own, `{`, `{"action":"renewal",`), code: broken, where: "action", rule: "unknown"},
		"another priority":                       {path: toOrders, body: with(`"priority":"low"`), code: broken, where: "priority", rule: "not_of_queue"},
		"more attempts than the queue gives":     {path: toOrders, body: with(`"max_attempts":6`), code: broken, where: "max_attempts", rule: "max=5"},
		"no attempt":                             {path: toOrders, body: with(`"max_attempts":0`), code: broken, where: "max_attempts", rule: "min=1"},
		"half an attempt":                        {path: toOrders, body: with(`"max_attempts":1.5`), code: broken, where: "max_attempts", rule: "min=1"},
		"a time that is none":                    {path: toOrders, body: with(`"deliver_at":"tomorrow"`), code: broken, where: "deliver_at", rule: "timestamp"},
		"a time in 31 days":                      {path: toOrders, body: with(`"deliver_at":"2026-04-02T10:02:04Z"`), code: broken, where: "deliver_at", rule: "too_far"},
		"a time after the message has gone off":  {path: email, body: welcome, code: broken, where: "deliver_at", rule: "beyond_message_ttl"},
		"a tenant that is text":                  {path: toOrders, body: with(`"tenant":"Mette Lindqvist"`), code: broken, where: "tenant", rule: "id", secret: "Mette"},
		"a tenant that is an address":            {path: toOrders, body: with(`"tenant":"ip-203.0.113.77"`), code: broken, where: "tenant", rule: "ip"},
		"a tenant that is a number":              {path: toOrders, body: with(`"tenant":7`), code: broken, where: "tenant", rule: "text"},
		"a routing key that nothing is bound to": {path: onOrders, body: with(`"routing_key":"order.lost"`), code: broken, where: "routing_key", rule: "unroutable"},
		"a type that nothing is bound to":        {path: onOrders, body: in(shipped, "shipped", "confirmed"), code: broken, where: "routing_key", rule: "unroutable"},
		"a type that its queue does not handle":  {path: onOrders, body: in(with(`"routing_key":"order.shipped"`), "shipped", "confirmed"), code: broken, where: "type", rule: "not_of_queue"},
		"something else that is asked for":       {path: toOrders, body: with(`"delay":5`), code: broken, where: "delay", rule: "unknown"},
		"something that may be anything":         {path: toOrders, body: with(`"Mette Lindqvist":5`), code: broken, where: "?", rule: "unknown", secret: "Mette"},
		"a raw object of no known type":          {path: toOrders, body: `{"order_id":"o1"}`, code: broken, where: "type", rule: "required"},
		"a raw object with an unknown member":    {path: toOrders, body: `{"message":{"order_id":"o1","email":"x"},"routing_key":"order.shipped"}`, code: broken, where: "data.email", rule: "unknown"},
		"a list of nothing":                      {path: toOrders, body: `{"messages":[]}`, code: broken, where: "messages", rule: "1 to 100"},
		"a list that is too long":                {path: toOrders, body: `{"messages":[` + items + `]}`, code: broken, where: "messages", rule: "1 to 100"},
		"a list with something beside it":        {path: toOrders, body: `{"messages":[{"message":` + shipped + `}],"Mette":1}`, code: broken, where: "?", rule: "unknown", secret: "Mette"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test.check(t, func(c *webhook.Config) {
				producing()(c)
				queueOf("fis-ingestion", func(q *catalog.Queue) { q.Enabled = false })(c)
			})
		})
	}
}

// The contract's own bodies, from a provider: the tags say what is optional. A producer inside the house is told of
// all of it.
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
	type row struct {
		body, old, replacement string
		dropped                []string
		path                   string // of the violation, where it is refused
	}
	each(t, map[string]row{
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
	}, func(t *testing.T, test row) {
		require.Equal(t, 1, strings.Count(test.body, test.old))
		body := strings.Replace(test.body, test.old, test.replacement, 1)
		if test.dropped == nil {
			bad{"/webhooks/generic", body, broken, test.path, "", "mette"}.check(t, told)
		} else {
			requireWhole(t, requireTaken(t, open(t, told), generic(t, "/webhooks/generic", []byte(body)), test.dropped, "mette"))
		}
		to := queue
		if test.body == envelope {
			to = updates
		}
		bad{"/queues/" + to + "/messages", body, broken, "", "", "mette"}.check(t, nil)
	})
	got := requireTaken(t, open(t, told), generic(t, "/webhooks/generic", []byte(strings.Replace(envelope, `"u1"`, `12345`, 1))), nil, "")
	require.Contains(t, string(got.Data), `"uid":"12345"`, "a provider's number is a uid")
}

func TestTheContractsOwnBodiesPassUnchanged(t *testing.T) {
	t.Parallel()
	for format, to := range map[string]string{contract.PayNowV1: queue, contract.EnvelopeV1: updates, contract.MessageV1: "orders-process"} {
		for name, body := range goldens(t, format) {
			paths := []string{"/queues/" + to + "/messages", "/webhooks/generic"}
			if format == contract.MessageV1 {
				if name != "order.created.json" {
					continue
				}
				paths = paths[:1] // no provider sends one
			}
			for _, path := range paths {
				t.Run(name+" at "+path, func(t *testing.T) {
					t.Parallel()
					d := taken(t, open(t, func(c *webhook.Config) { producing()(c); told(c) }), generic(t, path, body))
					got := d.broker.all()[0].message
					requireWhole(t, got)
					var compact bytes.Buffer
					require.NoError(t, json.Compact(&compact, body))
					require.Equal(t, compact.String(), string(got.Data))
					require.Equal(t, format, got.Attributes["contract"])
				})
			}
		}
	}
}

func TestWhatTheContractDoesNotNameIsDroppedFromAProvidersBody(t *testing.T) {
	t.Parallel()
	for format, test := range map[string]struct{ file, old, with string }{
		contract.PayNowV1: {"order_paid.json", `"prettyId"`, `"name":"Ilse Brandvold","email":"ilse.brandvold@example.org","prettyId"`},
		contract.EnvelopeV1: {
			"renewal.json", `"payload": {`,
			`"note": "Ilse Brandvold", "payload": {"email": "ilse.brandvold@example.org", "customer": {"name": "Ilse Brandvold"},`,
		},
	} {
		body := strings.Replace(string(goldens(t, format)[test.file]), test.old, test.with, 1)
		got := requireTaken(t, open(t, told), generic(t, "/webhooks/generic", []byte(body)), nil, "Ilse")
		require.Equal(t, format, got.Attributes["contract"])
	}
}
