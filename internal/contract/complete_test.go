package contract_test

import (
	"crypto/sha256"
	"fmt"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/internal/contract"
)

// given is what ingest knows of a message.
func given(eventType string) contract.Given {
	return contract.Given{Type: eventType, At: time.Date(2026, 3, 2, 11, 15, 0, 0, time.FixedZone("", 3600))}
}

func completed(t *testing.T, format, data, eventType string) string {
	t.Helper()
	whole, err := contracts().Complete(format, []byte(data), given(eventType))
	require.NoError(t, err)
	return string(whole)
}

// madeUp is an id that is a hash.
var madeUp = regexp.MustCompile(`"id":"sha256:[0-9a-f]{64}"`)

func TestWhatABodyMayLackIsMadeUp(t *testing.T) {
	t.Parallel()
	const at = "2026-03-02T10:15:00Z"
	const renewal = `{"id":"ID","action":"renewal","created_at":"` + at + `","payload":{"subscription_id":"s1"}}`
	const shipped = `{"id":"ID","type":"order.shipped","version":1,"timestamp":"` + at + `","data":{"order_id":"o1"}}`
	const head = `"id":"e1","attempts":2,"max_attempts":3,"correlation_id":"c1","idempotency_key":"k1","created_at":"` + at + `","action":"renewal",`
	for name, test := range map[string]struct{ format, data, eventType, want string }{
		"the id and the time of an envelope":        {contract.EnvelopeV1, `{"action":"renewal","payload":{"subscription_id":"s1"}}`, "", renewal},
		"null and empty ones":                       {contract.EnvelopeV1, `{"id":null,"created_at":"","action":"renewal","payload":{"subscription_id":"s1"}}`, "", renewal},
		"its action":                                {contract.EnvelopeV1, `{"payload":{"subscription_id":"s1"}}`, "renewal", renewal},
		"its own action stays":                      {contract.EnvelopeV1, `{"action":"renewal","payload":{"subscription_id":"s1"}}`, "initial", renewal},
		"all of a raw object but its payload":       {contract.EnvelopeV1, `{"action":"renewal","subscription_id":"s1"}`, "", renewal},
		"what a raw object has of the head":         {contract.EnvelopeV1, `{` + head + `"subscription_id":"s1"}`, "", `{` + head + `"payload":{"subscription_id":"s1"}}`},
		"the id and the time of a message":          {contract.MessageV1, `{"type":"order.shipped","version":1,"data":{"order_id":"o1"}}`, "", shipped},
		"all of a raw object of a known type":       {contract.MessageV1, `{"order_id":"o1"}`, "order.shipped", shipped},
		"a raw object may say its type":             {contract.MessageV1, `{"type":"order.shipped","order_id":"o1"}`, "", shipped},
		"what the type declares, whatever its name": {contract.MessageV1, `{"document_id":"d1","version":7}`, "product.updated", `{"id":"ID","type":"product.updated","version":1,"timestamp":"` + at + `","data":{"document_id":"d1","version":7}}`},
		"nothing where a body of PayNow's is whole": {contract.PayNowV1, string(goldenOf(t, contract.PayNowV1, "order_paid")), "other", ""},
		"nothing where an envelope lacks nothing":   {contract.EnvelopeV1, string(goldenOf(t, contract.EnvelopeV1, "renewal")), "other", ""},
		"nothing where a message lacks nothing":     {contract.MessageV1, string(goldenOf(t, contract.MessageV1, "order.created")), "other", ""},
	} {
		got := completed(t, test.format, test.data, test.eventType)
		if test.want == "" {
			require.Equal(t, test.data, got, name)
			continue
		}
		require.JSONEq(t, test.want, madeUp.ReplaceAllString(got, `"id":"ID"`), name)
	}
}

func TestTheIDThatIsMadeUpIsThatOfTheSameMessage(t *testing.T) {
	t.Parallel()
	id := func(data, eventType string) string {
		return madeUp.FindString(completed(t, contract.MessageV1, data, eventType))
	}
	first := id(`{"order_id":"o1"}`, "order.shipped")
	require.Equal(t, first, id("{ \"order_id\" :\n\"o1\" }", "order.shipped"), "spaces say nothing")
	require.NotEqual(t, first, id(`{"order_id":"o2"}`, "order.shipped"))
	require.NotEqual(t, first, id(`{"order_id":"o1"}`, "order.payment_confirmed"), "of one order several things are told")
	require.Equal(t, id(`{"type":"order.shipped","order_id":"o1"}`, ""), id(`{"type":"order.shipped","order_id":"o1"}`, "order.shipped"))
}

func TestARawObjectIsReceivedAsAnEnvelope(t *testing.T) {
	t.Parallel()
	const own, raw = `{"action":"renewal","subscription_id":"s1"}`, `{"subscription_id":"s1"}`
	hashed := func(said string) string { return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(said))) }
	receive := func(data string, attributes map[string]string) (contract.Body, error) {
		body, _, err := contracts().Receive(contract.EnvelopeV1, []string{"subscription_id"}, contract.Message{Data: []byte(data), Attributes: attributes}, given("").At)
		return body, err
	}
	for name, test := range map[string]struct {
		data       string
		attributes map[string]string
		id, action string
	}{
		"its id is its hash":                        {own, nil, hashed(own), "renewal"},
		"its own action comes first":                {own, map[string]string{"event_id": "e1", "event_type": "initial"}, "e1", "renewal"},
		"else the action is that of the attributes": {raw, map[string]string{"event_type": "initial"}, hashed(raw + "\x00initial"), "initial"},
	} {
		body, err := receive(test.data, test.attributes)
		require.NoError(t, err, name)
		require.NoError(t, body.Validate(), name)
		m, err := contract.As[*contract.Envelope](body)
		require.NoError(t, err)
		require.Equal(t, &contract.Envelope{ID: test.id, Action: test.action, CreatedAt: "2026-03-02T10:15:00Z", Payload: contract.Payload{SubscriptionID: "s1"}}, m, name)
	}
	_, err := receive(`{"action":"renewal","subscription_id":"s1","email":"ilse@example.org"}`, nil)
	require.ErrorIs(t, err, contract.ErrMalformed, "a member that no payload has")
	var invalid *contract.Invalid
	_, err = receive(`{"uid":"u1"}`, nil)
	require.ErrorAs(t, err, &invalid, "nobody says what is to be done")
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
	const envelope = `{"id":"e1","action":"renewal","created_at":"2026-03-02T10:15:00Z",`
	const message = `{"id":"e1","type":"order.shipped","version":1,"timestamp":"2026-03-02T10:15:00Z","data":{"order_id":"o1"}`
	for data, want := range map[string]int{
		envelope + `"attempts":0,"payload":{}}`: 0, envelope + `"attempts":2,"payload":{}}`: 2, message + `}`: 0,
		message + `,"metadata":{"attempt":1}}`: 0, message + `,"metadata":{"attempt":3,"max_retries":5}}`: 2,
	} {
		body, err := contracts().Decode(contracts().Detect(nil, []byte(data)), []byte(data))
		require.NoError(t, err)
		require.Equal(t, want, body.Attempted(), data)
	}
}
