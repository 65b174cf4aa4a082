package push_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/contract"
	"billhook/internal/dedupe"
	"billhook/internal/pipeline/handler"
	"billhook/internal/retry"
)

// told is an envelope about a subscription.
func told(id string) message {
	return message{
		id: "m-" + id,
		body: contract.Envelope{
			ID: id, Action: "renewal", CorrelationID: "corr-" + id, CreatedAt: "2026-03-02T10:14:59Z",
			Payload: contract.Payload{SubscriptionID: "s1", CustomerID: buyer, Currency: "EUR", Amount: "9.99", Cycle: 2},
		},
		attributes: map[string]string{
			"event_id": id, "event_type": "renewal", "ordering_key": "s1", "contract": "envelope.v1", "correlation_id": "corr-" + id,
		},
		published: start,
	}
}

// raw is a message from before there were envelopes.
func raw(body string, attributes map[string]string) message {
	return message{id: "m-raw", body: body, attributes: attributes, published: start}
}

// listening serves a queue of envelopes, whose handler keeps what it was given and
// returns an error.
func listening(tb testing.TB, seen *[]handler.Event, result error) *rig {
	tb.Helper()
	return takingAll(tb, seen, result, func(q *catalog.Queue) {
		q.Contract, q.OrderingKey = contract.EnvelopeV1, []string{"subscription_id", "correlation_id"}
		q.Handlers = map[string]catalog.Handler{"renewal": q.Handlers["order.paid"]}
	})
}

// takingAll serves a queue, whose handler keeps what it was given and returns an error.
func takingAll(tb testing.TB, seen *[]handler.Event, result error, queue func(*catalog.Queue)) *rig {
	tb.Helper()
	return newRig(tb, setup{
		queue: queue,
		credit: func(*rig, handler.Tx) handler.Tx {
			return func(_ context.Context, event handler.Event) (handler.Effect, error) {
				*seen = append(*seen, event)
				return handler.Effect{Result: "told"}, result
			}
		},
	})
}

func hashed(data string) string {
	sum := sha256.Sum256([]byte(data))
	return "sha256:" + hex.EncodeToString(sum[:])
}

func TestAQueueOfEnvelopesHandsThemOver(t *testing.T) {
	t.Parallel()
	const body = `{"action":"renewal","subscription_id":"s1","status":"active"}`
	for name, test := range map[string]struct {
		message         message
		id, key, correl string
	}{
		"an envelope": {told("e1"), "e1", "s1", "corr-e1"},
		"an envelope that does not name its contract": {told("e1").with(func(m *message) { delete(m.attributes, "contract") }), "e1", "s1", "corr-e1"},
		"a raw object without attributes":             {raw(body, nil), hashed(body), "s1", "s1"},
		"a raw object with attributes of its own": {
			raw(`{"payment_id":"p1"}`, map[string]string{"event_id": "e1", "event_type": "renewal", "correlation_id": "c1"}), "e1", "c1", "c1",
		},
		"a raw object that belongs to nothing": {raw(`{"payment_id":"p1"}`, map[string]string{"event_id": "e1", "event_type": "renewal"}), "e1", "unknown", "e1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var seen []handler.Event
			r := listening(t, &seen, nil)
			got := r.deliver(test.message)
			require.Equal(t, http.StatusOK, got.code, got.text)
			require.Len(t, seen, 1)
			event := seen[0]
			require.Equal(t, []string{test.id, "renewal", contract.EnvelopeV1, test.correl, test.key},
				[]string{event.ID, event.Type, event.Contract, event.CorrelationID, event.OrderingKey})
			body := event.Body
			require.NoError(t, body.Validate())
			require.NoError(t, body.CheckAttributes(event.Attributes))

			record, ok := r.record(t, test.id)
			require.True(t, ok)
			require.Equal(t, "renewal", record.EventType)
			hash, err := body.PayloadHash()
			require.NoError(t, err)
			require.Equal(t, hash, record.PayloadHash)
			require.Equal(t, http.StatusNoContent, r.deliver(test.message.again(2)).code, "it is known when it comes again")
			require.Len(t, seen, 1)
		})
	}
}

func TestTheRecordSaysWhatItsMessageWasMadeFrom(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ given, want string }{
		"the key that the envelope names": {"payment-7", "payment-7"},
		"else the event itself":           {"", "e1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var seen []handler.Event
			r := listening(t, &seen, nil)
			require.Equal(t, http.StatusOK, r.deliver(told("e1").with(func(m *message) {
				body := m.body.(contract.Envelope)
				body.IdempotencyKey = test.given
				m.body = body
			})).code)
			doc, err := r.counter.Get(t.Context(), dedupe.Key("orders", dedupe.DefaultTenant, "e1"))
			require.NoError(t, err)
			require.Equal(t, test.want, doc.Fields["idempotency_key"])
			require.Equal(t, "renewal", doc.Fields["action"])
		})
	}
}

func TestWhatAQueueOfEnvelopesDoesNotTake(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		bad    message
		code   int
		reason string
	}{
		"a PayNow event":                        {paid("e1", known, 1), 400, "contract_mismatch"},
		"a PayNow event without its contract":   {paid("e1", known, 1).with(func(m *message) { delete(m.attributes, "contract") }), 400, "contract_mismatch"},
		"a raw object that names a contract":    {raw(`{"subscription_id":"s1"}`, map[string]string{"contract": "envelope.v1"}), 400, "body_malformed"},
		"a contract that is not known":          {raw(`{"subscription_id":"s1"}`, map[string]string{"contract": "envelope.v9"}), 400, "contract_mismatch"},
		"a raw object with a field of its own":  {raw(`{"subscription_id":"s1","email":"x"}`, map[string]string{"event_type": "renewal"}), 400, "body_malformed"},
		"a raw object without an action":        {raw(`{"subscription_id":"s1"}`, nil), 422, "contract_broken"},
		"a raw object of two actions":           {raw(`{"action":"renewal","subscription_id":"s1"}`, map[string]string{"event_type": "initial"}), 422, "attributes_invalid"},
		"an envelope whose attributes disagree": {told("e1").with(func(m *message) { m.attributes["event_id"] = "e2" }), 422, "attributes_invalid"},
		"an envelope of an unknown action":      {told("e1").with(func(m *message) { m.attributes["event_type"] = "upgrade"; m.body = upgraded(m.body) }), 422, "event_type_unknown"},
		"no JSON":                               {raw("nonsense", nil), 400, "body_malformed"},
		"nothing":                               {raw("", nil), 400, "body_malformed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var seen []handler.Event
			r := listening(t, &seen, nil)
			got := r.deliver(test.bad)
			require.Equal(t, test.code, got.code, got.text)
			require.Equal(t, test.reason, got.Reason)
			require.Len(t, r.letters(), 1)
			require.Equal(t, http.StatusNoContent, r.deliver(test.bad.again(2)).code)
			require.Empty(t, seen)
		})
	}
}

func TestAQueueOfMessagesHandsThemOver(t *testing.T) {
	t.Parallel()
	const good = `{"id":"e1","type":"order.shipped","timestamp":"2026-03-02T10:14:59Z","version":1,"correlation_id":"c1","data":{"order_id":"o1"},"metadata":{"max_retries":2}}`
	attributes := map[string]string{"event_id": "e1", "event_type": "order.shipped", "ordering_key": "o1", "contract": "message.v1"}
	for name, test := range map[string]struct {
		old, with string
		code      int
		reason    string
	}{
		"as it is":                 {"", "", 200, "told"},
		"attributes that disagree": {`"id":"e1"`, `"id":"e2"`, 422, "attributes_invalid"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var seen []handler.Event
			r := takingAll(t, &seen, nil, func(q *catalog.Queue) {
				q.Contract, q.OrderingKey = contract.MessageV1, []string{"order_id"}
				q.Handlers = map[string]catalog.Handler{"order.shipped": q.Handlers["order.paid"]}
			})
			got := r.deliver(raw(strings.Replace(good, test.old, test.with, 1), attributes))
			require.Equal(t, []any{test.code, test.reason}, []any{got.code, got.Reason}, got.text)
			if test.code != 200 {
				require.Len(t, r.letters(), 1)
				return
			}
			data, err := contract.As[struct {
				OrderID string `json:"order_id"`
			}](seen[0].Body)
			require.NoError(t, err)
			require.Equal(t, "o1", data.OrderID)
			require.Equal(t, 2, seen[0].Body.MaxAttempts())
		})
	}
}

func upgraded(body any) any {
	envelope, _ := body.(contract.Envelope)
	envelope.Action = "upgrade"
	return envelope
}

// The queue gives three attempts.
func TestAMessageMayWishForFewerAttemptsAndNotForMore(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		attribute string
		body      int64
		want      int
	}{
		"no wish":                    {"", 0, 3},
		"the attribute's":            {"2", 0, 2},
		"the envelope's":             {"", 2, 2},
		"both: the smaller":          {"2", 1, 1},
		"both, the other way round":  {"1", 2, 1},
		"more than the queue's":      {"", 1000, 3},
		"more in the attribute":      {"999", 0, 3},
		"none at all is not a wish":  {"0", 0, 3},
		"more in one, fewer in both": {"999", 2, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var seen []handler.Event
			r := listening(t, &seen, retry.Down("away", nil))
			m := told("e1").with(func(m *message) {
				envelope, _ := m.body.(contract.Envelope)
				envelope.MaxAttempts = test.body
				m.body = envelope
				if test.attribute != "" {
					m.attributes["max_attempts"] = test.attribute
				}
			})
			for attempt := 1; attempt < test.want; attempt++ {
				require.Equal(t, http.StatusServiceUnavailable, r.deliver(m.again(attempt)).code)
				r.now.Add(int64(time.Hour))
			}
			got := r.deliver(m.again(test.want))
			require.Equal(t, http.StatusUnprocessableEntity, got.code, got.text)
			require.Equal(t, "away", got.Reason)
			require.Len(t, seen, test.want)
		})
	}
}
