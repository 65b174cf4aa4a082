package webhook_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/contract"
	"billhook/internal/ingest/webhook"
)

// goldens are the contract's own bodies in a format, one per kind of event.
func goldens(tb testing.TB, format string) map[string][]byte {
	tb.Helper()
	files, err := filepath.Glob(filepath.Join("..", "..", "contract", "testdata", format, "*.json"))
	require.NoError(tb, err)
	require.NotEmpty(tb, files)
	all := map[string][]byte{}
	for _, file := range files {
		all[filepath.Base(file)], err = os.ReadFile(file)
		require.NoError(tb, err)
	}
	return all
}

// updates is a queue of envelopes.
const updates = "pay-subscription-update"

// told routes the generic source's envelopes to that queue.
func told(c *webhook.Config) {
	source("generic", func(s *catalog.Source) {
		s.Events = maps.Clone(s.Events)
		q, _ := c.Catalog.Queue(updates)
		for action := range q.Handlers {
			s.Events[action] = updates
		}
	})(c)
}

func TestTheContractsOwnBodiesPassUnchanged(t *testing.T) {
	t.Parallel()
	for format, to := range map[string]string{contract.PayNowV1: queue, contract.EnvelopeV1: updates} {
		for name, body := range goldens(t, format) {
			for _, path := range []string{"/webhooks/generic", "/queues/" + to + "/messages"} {
				t.Run(name+" at "+path, func(t *testing.T) {
					t.Parallel()
					d := open(t, told)
					w := d.send(generic(t, path, body))
					require.Equal(t, http.StatusAccepted, w.Code, "%s", w.Body)
					require.Len(t, d.broker.all(), 1)
					got := d.broker.all()[0]
					require.Equal(t, to, got.topic)
					var compact bytes.Buffer
					require.NoError(t, json.Compact(&compact, body))
					require.Equal(t, compact.String(), string(got.message.Data))
					m, err := contracts(t).Decode(format, got.message.Data)
					require.NoError(t, err)
					require.NoError(t, m.CheckAttributes(got.message.Attributes))
					require.Equal(t, format, got.message.Attributes["contract"])
					require.NoError(t, got.message.Check())
				})
			}
		}
	}
}

func TestAMessageIsTakenByWhatIsDeclaredOfIt(t *testing.T) {
	t.Parallel()
	good := string(goldens(t, contract.MessageV1)["order.created.json"])
	for name, test := range map[string]struct {
		old, with  string
		path, rule string
	}{
		"as it is":                      {},
		"a type that is not declared":   {`"order.created"`, `"order.lost"`, "type", "undeclared"},
		"a type of another queue":       {`"order.created"`, `"order.payment_failed"`, "data.user_id", "unknown"},
		"a member that is not declared": {`"total"`, `"subtotal"`, "data.subtotal", "unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := open(t, nil)
			w := d.send(generic(t, "/queues/orders-process/messages", []byte(strings.Replace(good, test.old, test.with, 1))))
			if test.path != "" {
				p := requireProblem(t, d, w, http.StatusUnprocessableEntity, "contract_broken", "")
				require.Equal(t, []string{test.path, test.rule}, []string{p.Violations[0].Path, p.Violations[0].Rule})
				return
			}
			require.Equal(t, http.StatusAccepted, w.Code, "%s", w.Body)
			m := d.broker.all()[0].message
			body, err := contracts(t).Decode(contract.MessageV1, m.Data)
			require.NoError(t, err)
			require.NoError(t, body.Validate())
			require.NoError(t, body.CheckAttributes(m.Attributes))
			require.Equal(t, []string{"ord_abc123", "ord_abc123", "req_xyz789"}, []string{m.OrderingKey, m.Attributes["order_id"], m.Attributes["correlation_id"]})
		})
	}
}

func TestAProducersMistakesAreNamed(t *testing.T) {
	t.Parallel()
	const inside = "/queues/paynow-events/messages"
	good := string(goldens(t, contract.PayNowV1)["order_paid.json"])
	const enveloped = "/queues/" + updates + "/messages"
	renewal := string(goldens(t, contract.EnvelopeV1)["renewal.json"])
	tests := []struct {
		name, path, body string
		status           int
		code             string
	}{
		{"a disabled queue", "/queues/orders-process/messages", good, http.StatusNotFound, "queue_unknown"},
		{"a queue that is not there", "/queues/nothing/messages", good, http.StatusNotFound, "queue_unknown"},
		{"an envelope", inside, `{"action":"charge","payload":{"who":"Ilse"},"id":"5"}`, http.StatusUnprocessableEntity, "contract_unsupported"},
		{"an envelope without an id at the generic source", "/webhooks/generic", `{"action":"charge","payload":{}}`, http.StatusUnprocessableEntity, "contract_broken"},
		{"an envelope with the name of a PayNow event", "/webhooks/generic", strings.Replace(renewal, `"renewal"`, `"order.paid"`, 1), http.StatusUnprocessableEntity, "contract_unsupported"},
		{"a message.v1 with a version in words, at the generic source", "/webhooks/generic", `{"type":"charge","data":{},"version":"1"}`, http.StatusUnprocessableEntity, "contract_broken"},
		{"a PayNow event for a queue of envelopes", enveloped, good, http.StatusUnprocessableEntity, "contract_unsupported"},
		{"an envelope that is cut off", inside, strings.TrimSuffix(strings.TrimSpace(renewal), "}"), http.StatusBadRequest, "body_malformed"},
		{"an envelope with more behind it", inside, renewal + "x", http.StatusBadRequest, "body_malformed"},
		{"an action that the queue has no handler for", enveloped, strings.Replace(renewal, `"renewal"`, `"payout"`, 1), http.StatusUnprocessableEntity, "contract_broken"},
		{"an envelope's amount without a currency", enveloped, strings.Replace(renewal, `"currency": "EUR",`, ``, 1), http.StatusUnprocessableEntity, "contract_broken"},
		{"a raw object that does not say its action", enveloped, `{"subscription_id":"s1"}`, http.StatusUnprocessableEntity, "contract_broken"},
		{"a message.v1", inside, `{"type":"charge","data":{},"version":"1"}`, http.StatusUnprocessableEntity, "contract_unsupported"},
		{"a type that the queue has no handler for", inside, `{"eventId":"5","eventType":"payment.completed","timestamp":"2026-03-02T10:00:00Z","data":{}}`, http.StatusUnprocessableEntity, "contract_broken"},
		{"a quantity whose points do not fit", inside, strings.Replace(good, `"items": [`, `"items": [`+strings.Repeat(`{"productId":"411486491630370501","quantity":9007199254740991},`, 2), 1), http.StatusUnprocessableEntity, "contract_broken"},
		{"a refund amount without a currency", inside, `{"eventId":"5","eventType":"order.refunded","timestamp":"2026-03-02T10:00:00Z","data":{"order":{"id":"7"},"refund":{"id":"8","amount":"1.00"}}}`, http.StatusUnprocessableEntity, "contract_broken"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			d := open(t, queueOf("orders-process", func(q *catalog.Queue) { q.Enabled = false }))
			requireProblem(t, d, d.send(generic(t, test.path, []byte(test.body))), test.status, test.code, "")
		})
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

func TestAGenericTypeThatNoQueueWantsIsIgnored(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{
		"a PayNow event": `{"eventId":"5","eventType":"payout.sent","timestamp":"2026-03-02T10:00:00Z","data":{}}`,
		"an envelope":    `{"id":"5","action":"payout","created_at":"2026-03-02T10:00:00Z","attempts":0,"payload":{}}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := open(t, nil)
			w := d.send(generic(t, "/webhooks/generic", []byte(body)))
			require.Equal(t, http.StatusOK, w.Code)
			require.JSONEq(t, `{"event_id":"5","ignored":true,"reason":"no_queue"}`, w.Body.String())
			require.Empty(t, d.broker.all())
		})
	}
}
