package webhook_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

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

// refused is a row of testdata/refused.yaml, which says what each member is.
type refused struct {
	What, Path, Of, Old, With, Body, Code, Where, Rule, Secret string
}

func TestARequestThatCannotBeTakenIsRefusedAndItsMistakeNamed(t *testing.T) {
	t.Parallel()
	renewal := string(goldens(t, contract.EnvelopeV1)["renewal.json"])
	bodies := map[string]string{"order": order, "refund": refundOf(`"currency":"USD","amount":2000`), "shipped": shipped}
	for _, format := range []string{contract.PayNowV1, contract.EnvelopeV1, contract.MessageV1} {
		for name, body := range goldens(t, format) {
			bodies[format+"/"+strings.TrimSuffix(name, ".json")] = string(body)
		}
	}
	text, err := os.ReadFile(filepath.Join("testdata", "refused.yaml"))
	require.NoError(t, err)
	var all map[string][]refused
	require.NoError(t, yaml.Unmarshal(text, &all))
	items := strings.TrimSuffix(strings.Repeat(`{"message":`+shipped+`},`, 101), ",")
	const inside = "/queues/paynow-events/messages"
	all["paynow"] = append(all["paynow"], []refused{ // bodies that no file says well
		{What: "cut off in the middle", Body: order[:len(order)/2], Code: malformed},
		{What: "invalid UTF-8 in what is dropped", Of: "order", Old: `Ilse Brandvold`, With: "mette\xc3\x28", Code: malformed, Secret: "mette"},
		{What: "100,000 deep", Of: "order", Old: `"Ilse Brandvold"`, With: strings.Repeat(`{"a":`, 100_000) + "1" + strings.Repeat("}", 100_000), Code: malformed},
	}...)
	all["producers"] = append(all["producers"], []refused{
		{What: "an envelope that is cut off", Path: inside, Body: strings.TrimSuffix(strings.TrimSpace(renewal), "}"), Code: malformed},
		{What: "an envelope with more behind it", Path: inside, Body: renewal + "x", Code: malformed},
		{What: "a list that is too long", Path: toOrders, Body: `{"messages":[` + items + `]}`, Code: broken, Where: "messages", Rule: "1 to 100"},
	}...)
	changes := map[string]func(*webhook.Config){"paynow": nil, "producers": func(c *webhook.Config) {
		producing()(c)
		queueOf("fis-ingestion", func(q *catalog.Queue) { q.Enabled = false })(c)
	}}
	for sender, rows := range all {
		for _, row := range rows {
			t.Run(sender+": "+row.What, func(t *testing.T) {
				t.Parallel()
				body := row.Body
				if row.Of != "" {
					require.Contains(t, bodies[row.Of], row.Old)
					body = strings.Replace(bodies[row.Of], row.Old, row.With, 1)
				}
				bad{row.Path, body, row.Code, row.Where, row.Rule, row.Secret}.check(t, changes[sender])
			})
		}
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
