package contract_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/internal/contract"
)

// given is what a door knows of a message.
func given(eventType string) contract.Given {
	return contract.Given{Type: eventType, At: time.Date(2026, 3, 2, 11, 15, 0, 0, time.FixedZone("", 3600))}
}

func completed(t *testing.T, format, data, eventType string) map[string]any {
	t.Helper()
	whole, err := contracts().Complete(format, []byte(data), given(eventType))
	require.NoError(t, err)
	var members map[string]any
	require.NoError(t, json.Unmarshal(whole, &members))
	return members
}

func TestWhatABodyMayLackIsMadeUp(t *testing.T) {
	t.Parallel()
	const at = "2026-03-02T10:15:00Z"
	for name, test := range map[string]struct {
		format, data, eventType string
		want                    map[string]any
	}{
		"the id and the time of an envelope": {
			contract.EnvelopeV1, `{"action":"renewal","payload":{"subscription_id":"s1"}}`, "",
			map[string]any{"action": "renewal", "created_at": at, "payload": map[string]any{"subscription_id": "s1"}},
		},
		"null and empty ones": {
			contract.EnvelopeV1, `{"id":null,"created_at":"","action":"renewal","payload":{"subscription_id":"s1"}}`, "",
			map[string]any{"action": "renewal", "created_at": at, "payload": map[string]any{"subscription_id": "s1"}},
		},
		"its action": {
			contract.EnvelopeV1, `{"id":"e1","created_at":"` + at + `","payload":{"subscription_id":"s1"}}`, "renewal",
			map[string]any{"id": "e1", "action": "renewal", "created_at": at, "payload": map[string]any{"subscription_id": "s1"}},
		},
		"its own action stays": {
			contract.EnvelopeV1, `{"id":"e1","action":"initial","created_at":"` + at + `","payload":{"subscription_id":"s1"}}`, "renewal",
			map[string]any{"id": "e1", "action": "initial", "created_at": at, "payload": map[string]any{"subscription_id": "s1"}},
		},
		"all of a raw object but its payload": {
			contract.EnvelopeV1, `{"action":"renewal","subscription_id":"s1"}`, "",
			map[string]any{"action": "renewal", "created_at": at, "payload": map[string]any{"subscription_id": "s1"}},
		},
		"what a raw object has of the head stays there": {
			contract.EnvelopeV1, `{"id":"e1","attempts":2,"max_attempts":3,"correlation_id":"c1","idempotency_key":"k1","created_at":"` + at + `","action":"renewal","subscription_id":"s1"}`, "",
			map[string]any{
				"id": "e1", "action": "renewal", "correlation_id": "c1", "idempotency_key": "k1", "created_at": at, "attempts": 2.0, "max_attempts": 3.0,
				"payload": map[string]any{"subscription_id": "s1"},
			},
		},
		"the id and the time of a message": {
			contract.MessageV1, `{"type":"order.shipped","version":1,"data":{"order_id":"o1"}}`, "",
			map[string]any{"type": "order.shipped", "version": 1.0, "timestamp": at, "data": map[string]any{"order_id": "o1"}},
		},
		"all of a raw object of a known type": {
			contract.MessageV1, `{"order_id":"o1"}`, "order.shipped",
			map[string]any{"type": "order.shipped", "version": 1.0, "timestamp": at, "data": map[string]any{"order_id": "o1"}},
		},
		"a raw object may say its type": {
			contract.MessageV1, `{"type":"order.shipped","order_id":"o1"}`, "",
			map[string]any{"type": "order.shipped", "version": 1.0, "timestamp": at, "data": map[string]any{"order_id": "o1"}},
		},
		"what the type declares is data, whatever its name": {
			contract.MessageV1, `{"document_id":"d1","version":7}`, "product.updated",
			map[string]any{"type": "product.updated", "version": 1.0, "timestamp": at, "data": map[string]any{"document_id": "d1", "version": 7.0}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := completed(t, test.format, test.data, test.eventType)
			if test.want["id"] == nil {
				require.Regexp(t, `^sha256:[0-9a-f]{64}$`, got["id"])
				delete(got, "id")
			}
			require.Equal(t, test.want, got)
		})
	}
}

func TestABodyThatLacksNothingIsLeftAsItIs(t *testing.T) {
	t.Parallel()
	for _, format := range []string{contract.PayNowV1, contract.EnvelopeV1, contract.MessageV1} {
		name := map[string]string{contract.PayNowV1: "order_paid", contract.EnvelopeV1: "renewal", contract.MessageV1: "order.created"}[format]
		data := goldenOf(t, format, name)
		whole, err := contracts().Complete(format, data, given("other"))
		require.NoError(t, err)
		require.Equal(t, string(data), string(whole))
	}
}

func TestTheIDThatIsMadeUpIsThatOfTheSameMessage(t *testing.T) {
	t.Parallel()
	id := func(data, eventType string) any { return completed(t, contract.MessageV1, data, eventType)["id"] }
	first := id(`{"order_id":"o1"}`, "order.shipped")
	require.Equal(t, first, id("{ \"order_id\" :\n\"o1\" }", "order.shipped"), "spaces say nothing")
	require.NotEqual(t, first, id(`{"order_id":"o2"}`, "order.shipped"))
	require.NotEqual(t, first, id(`{"order_id":"o1"}`, "order.payment_confirmed"), "of one order several things are told")
	require.Equal(t, id(`{"type":"order.shipped","order_id":"o1"}`, ""), id(`{"type":"order.shipped","order_id":"o1"}`, "order.shipped"))
}

func TestWhatIsNoMessageIsNotCompleted(t *testing.T) {
	t.Parallel()
	for _, data := range []string{``, `null`, `[]`, `{}`, `{"type":"order.shipped"}`, `{"order_id":"o1"}x`, `{"uid":"a","uid":"b"}`, `"x"`} {
		_, err := contracts().Complete(contract.MessageV1, []byte(data), given("order.shipped"))
		require.ErrorIs(t, err, contract.ErrMalformed, data)
	}
	_, err := contracts().Complete("message.v9", []byte(`{}`), given(""))
	require.ErrorIs(t, err, contract.ErrFormat)
}

func TestAMessageSaysHowOftenItWasTried(t *testing.T) {
	t.Parallel()
	for data, want := range map[string]int{
		`{"id":"e1","action":"renewal","created_at":"2026-03-02T10:15:00Z","attempts":0,"payload":{}}`:                                                        0,
		`{"id":"e1","action":"renewal","created_at":"2026-03-02T10:15:00Z","attempts":2,"payload":{}}`:                                                        2,
		`{"id":"e1","type":"order.shipped","version":1,"timestamp":"2026-03-02T10:15:00Z","data":{"order_id":"o1"}}`:                                          0,
		`{"id":"e1","type":"order.shipped","version":1,"timestamp":"2026-03-02T10:15:00Z","data":{"order_id":"o1"},"metadata":{"attempt":1}}`:                 0,
		`{"id":"e1","type":"order.shipped","version":1,"timestamp":"2026-03-02T10:15:00Z","data":{"order_id":"o1"},"metadata":{"attempt":3,"max_retries":5}}`: 2,
	} {
		body, err := contracts().Decode(contracts().Detect(nil, []byte(data)), []byte(data))
		require.NoError(t, err)
		require.Equal(t, want, body.Attempted(), data)
	}
}
