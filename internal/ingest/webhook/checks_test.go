package webhook_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/internal/contract"
	"billhook/internal/ingest/webhook"
)

// The codes of refused bodies.
const (
	malformed   = "body_malformed"
	broken      = "contract_broken"
	unsupported = "contract_unsupported"
)

var statusOf = map[string]int{
	malformed: http.StatusBadRequest, broken: 422, unsupported: 422, "queue_unknown": 404, "topic_unknown": 404,
}

func (r submission) check(t *testing.T, change func(*webhook.Config)) {
	t.Helper()
	d := open(t, change)
	p := requireProblem(t, d, d.send(r.sent(t)), statusOf[r.Code], r.Code, r.Secret)
	require.Equal(t, r.Code == broken, len(p.Violations) > 0)
	if r.Where != "" {
		require.Equal(t, r.Where, p.Violations[0].Path)
	}
	if r.Rule != "" {
		require.Equal(t, r.Rule, p.Violations[0].Rule)
	}
	require.NotContains(t, d.scrape(t), "\nbillhook_webhook_dropped_fields_total{", "nothing was accepted")
}

func TestInvalidRequestIsRefusedWithItsPathAndRule(t *testing.T) {
	t.Parallel()
	all := requests(t).Refused
	renewal := string(goldens(t, contract.EnvelopeV1)["renewal.json"])
	many := func(text string, n int) string { return strings.TrimSuffix(strings.Repeat(text+",", n), ",") }
	lines := func(n int) string { // as many as the handler takes
		return `{"type":"order.created","version":1,"data":{"order_id":"o1","items":[` +
			many(`{"product_id":"p1","quantity":1}`, n) + `]}}`
	}
	accepted(t, open(t, producing()), generic(t, toOrders, []byte(lines(100))))
	const inside = "/queues/paynow-events/messages"
	all["paynow"] = append(all["paynow"], []submission{ // bodies that are hard to write in YAML
		{What: "cut off in the middle", Body: order[:len(order)/2], Code: malformed},
		{
			What: "invalid UTF-8 in what is dropped", Body: string(spoil(t, `Ilse Brandvold`, "mette\xc3\x28")),
			Code: malformed, Secret: "mette",
		},
		{
			What: "100,000 deep", Body: string(spoil(t, `"Ilse Brandvold"`,
				strings.Repeat(`{"a":`, 100_000)+"1"+strings.Repeat("}", 100_000))), Code: malformed,
		},
	}...)
	all["producers"] = append(all["producers"], []submission{
		{
			What: "an envelope that is cut off", Path: inside, Body: strings.TrimSuffix(strings.TrimSpace(renewal),
				"}"), Code: malformed,
		},
		{What: "an envelope with a byte after it", Path: inside, Body: renewal + "x", Code: malformed},
		{
			What: "a list that is too long", Path: toOrders, Code: broken, Where: "messages", Rule: "1 to 100",
			Body: `{"messages":[` + many(`{"message":`+shipped+`}`, 101) + `]}`,
		},
		{
			What: "too many lines", Path: toOrders, Body: lines(101), Code: broken, Where: "data.items",
			Rule: "max=100",
		},
	}...)
	for name, requests := range all {
		for _, r := range requests {
			t.Run(name+": "+r.What, func(t *testing.T) {
				t.Parallel()
				r.check(t, configurations[name])
			})
		}
	}
}

func TestGoldenBodiesOfAContractPassUnchanged(t *testing.T) {
	t.Parallel()
	d := open(t, func(c *webhook.Config) { producing()(c); lenient(c) })
	for format, of := range map[string]string{
		contract.PaymentV1: "/queues/" + queue + "/messages", contract.EnvelopeV1: toUpdates,
	} {
		for name, body := range goldens(t, format) {
			for _, path := range []string{of, "/webhooks/generic"} {
				d.broker.got = nil
				got := accepted(t, d, generic(t, path, body)).broker.all()[0].message
				requireWhole(t, got)
				var compact bytes.Buffer
				require.NoError(t, json.Compact(&compact, body))
				require.Equal(t, compact.String(), string(got.Data), name)
				require.Equal(t, format, got.Attributes["contract"])
			}
		}
	}
}
