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
	items := strings.TrimSuffix(strings.Repeat(`{"message":`+shipped+`},`, 101), ",")
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
			What: "a list that is too long", Path: toOrders, Body: `{"messages":[` + items + `]}`, Code: broken,
			Where: "messages", Rule: "1 to 100",
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
	for format, to := range map[string]string{
		contract.PaymentV1: queue, contract.EnvelopeV1: updates, contract.MessageV1: "orders-process",
	} {
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
					d := accepted(t, open(t, func(c *webhook.Config) { producing()(c); lenient(c) }), generic(t, path, body))
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
