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

// bodies are those of testdata/bodies.yaml, which says what each is.
type bodies struct {
	Completed []struct{ What, Format, Data, Of, Type, Want string }
	Detected  []struct{ Attribute, Data, Want string }
	Held      []change
}

func readBodies(t *testing.T) bodies { return yamlOf[bodies](t, "bodies.yaml") }

func TestWhatABodyMayLackIsMadeUp(t *testing.T) {
	t.Parallel()
	for _, test := range readBodies(t).Completed {
		if test.Of != "" {
			whole := string(goldenOf(t, test.Format, test.Of))
			require.Equal(t, whole, completed(t, test.Format, whole, test.Type), test.What)
			continue
		}
		got := completed(t, test.Format, test.Data, test.Type)
		require.JSONEq(t, test.Want, madeUp.ReplaceAllString(got, `"id":"ID"`), test.What)
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
