package contract_test

import (
	"encoding/json"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"billhook/internal/contract"
	"billhook/internal/filetest"
	"billhook/internal/pii"
)

func TestAttributesAgreeWithTheirBody(t *testing.T) {
	t.Parallel()
	const rule = "agrees_with_body"
	// attributes of these bodies alone
	disagrees := map[string]string{"order_paid order": rule, "renewal story": rule, "renewal uid": rule}
	for file, correlation := range map[string]string{
		"payment.v1/order_paid": "530217764480012801", "payment.v1/trial_activated": "530217764480017001",
		"envelope.v1/renewal": "530217764480015001",
	} {
		format, name, _ := strings.Cut(file, "/")
		m := filetest.Must(contracts().Decode(format, goldenOf(t, format, name)))(t)
		a := m.Attributes()
		a.OrderingKey = "k"
		require.NoError(t, m.CheckAttributes(a.Map()))
		require.Equal(t, format, contracts().Detect(a.Map(), nil))
		require.Equal(t, []string{correlation, "530217764480019001"}, []string{a.CorrelationID, a.CustomerID})
		for change, rule := range map[string]string{
			"event_id=other": rule, "event_type=order.refunded": rule, "paynow_customer_id=other": "agrees_with_body",
			"contract=" + contract.MessageV1: rule, "event_id=": "required", "points=1.5": "number",
			"first_published_at=yesterday": "timestamp",
			"ordering_key=":                "required", "uid=ilse@example.org": "uid",
			"order_id=other":       disagrees[name+" order"],
			"correlation_id=other": disagrees[name+" story"],
			"uid=u1":               disagrees[name+" uid"], "googclient_traceparent=00-1-2-01": "", "points=5": "",
		} {
			attribute, value, _ := strings.Cut(change, "=")
			attributes := a.Map()
			attributes[attribute] = value
			err := m.CheckAttributes(attributes)
			if rule == "" {
				require.NoError(t, err, change)
				continue
			}
			require.EqualError(t, err, "contract: attributes."+attribute+": "+rule, file)
		}
	}
}

// For any text in any attribute, the schema and the rules agree.
func TestSchemaOfAttributesAgreesWithTheirRules(t *testing.T) {
	t.Parallel()
	schema := compile(t, "payment.v1.attributes.json")
	names := append(slices.Sorted(maps.Keys(contract.AttributeRules)), "googclient_traceparent")
	rapid.Check(t, func(t *rapid.T) {
		value := rapid.OneOf(
			rapid.SampledFrom([]string{
				"", "unknown", "1000", "-1", "99999999999999999999", "three", "a/b", "now", "a\nb", "customer",
				contract.EnvelopeV1, "2026-03-02T10:15:00.123456789Z",
			}),
			rapid.StringMatching(`[A-Za-z0-9._:|@/ -]{0,66}|[a-z]{60,70}|[0-9a-z|]{120,135}|[0-9]{1,21}`),
		).Draw(t, "value")
		attributes := map[string]string{"event_id": "1", "event_type": "order.paid", "ordering_key": "u1"}
		attributes[rapid.SampledFrom(names).Draw(t, "name")] = value
		document := map[string]any{}
		for key, value := range attributes {
			if value != "" {
				document[key] = value
			}
		}
		byGo, bySchema := contract.AttributesOf(attributes).Validate(), schema.Validate(document)
		if attributes["contract"] != "" && bySchema != nil {
			return // the schema lists the contracts
		}
		require.Equal(t, byGo == nil, bySchema == nil, "%v: %v: %v", attributes, byGo, bySchema)
	})
}

func given(eventType string) contract.Given {
	return contract.Given{Type: eventType, At: time.Date(2026, 3, 2, 11, 15, 0, 0, time.FixedZone("", 3600))}
}

func completed(t *testing.T, format, data, eventType string) string {
	t.Helper()
	return string(filetest.Must(contracts().Complete(format, []byte(data), given(eventType)))(t))
}

// madeUp matches an id that is a hash.
var madeUp = regexp.MustCompile(`"id":"sha256:[0-9a-f]{64}"`)

// bodies are those of testdata/bodies.yaml.
type bodies struct {
	Completed []struct{ What, Format, Data, Of, Type, Want string }
	Detected  []struct{ Attribute, Data, Want string }
	Held      []change
	Refused   []struct {
		What, Want string
		Member     contract.Member
	}
	Attempted []struct {
		Data string
		Want int
	}
	Declared map[string][]contract.Declaration
	Received []struct {
		What, Data, ID, Action string
		Attributes             map[string]string
	}
	Fits   []struct{ What, Format, Type, As, Want string }
	Hashed []struct {
		Of, Old, With string
		Same          bool
	}
}

func readBodies(t *testing.T) bodies { return filetest.YAML[bodies](t, "testdata", "bodies.yaml") }

// declared is a set of testdata/bodies.yaml, with more formats.
func declared(t *testing.T, name string, more ...contract.Format) *contract.Set {
	t.Helper()
	return filetest.Must(contract.NewSet(slices.Concat(contract.Formats, more), readBodies(t).Declared[name]))(t)
}

func TestMissingMembersOfABodyAreMadeUp(t *testing.T) {
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

func TestMadeUpIDIsTheSameForTheSameMessage(t *testing.T) {
	t.Parallel()
	id := func(data, eventType string) string {
		return madeUp.FindString(completed(t, contract.MessageV1, data, eventType))
	}
	first := id(`{"order_id":"o1"}`, "order.shipped")
	require.Equal(t, first, id("{ \"order_id\" :\n\"o1\" }", "order.shipped"), "white space does not matter")
	require.NotEqual(t, first, id(`{"order_id":"o2"}`, "order.shipped"))
	require.NotEqual(t, first, id(`{"order_id":"o1"}`, "order.payment_confirmed"),
		"one order has several events")
	require.Equal(t, id(`{"type":"order.shipped","order_id":"o1"}`, ""),
		id(`{"type":"order.shipped","order_id":"o1"}`, "order.shipped"))
}

func TestRawObjectIsReceivedAsAnEnvelope(t *testing.T) {
	t.Parallel()
	receive := func(data string, attributes map[string]string) (contract.Body, error) {
		body, _, err := contracts().Receive(contract.EnvelopeV1, []string{"subscription_id"},
			contract.Message{Data: []byte(data), Attributes: attributes}, given("").At)
		return body, err
	}
	for _, test := range readBodies(t).Received {
		body, err := receive(test.Data, test.Attributes)
		require.NoError(t, err, test.What)
		require.NoError(t, body.Validate(), test.What)
		m := filetest.Must(contract.As[*contract.Envelope](body))(t)
		require.Equal(t, &contract.Envelope{
			ID: test.ID, Action: test.Action, CreatedAt: "2026-03-02T10:15:00Z",
			Payload: contract.Payload{SubscriptionID: "s1"},
		}, m, test.What)
	}
	_, err := receive(`{"action":"renewal","subscription_id":"s1","email":"ilse@example.org"}`, nil)
	require.ErrorIs(t, err, contract.ErrMalformed, "a member that no payload has")
	var invalid *contract.Invalid
	_, err = receive(`{"uid":"u1"}`, nil)
	require.ErrorAs(t, err, &invalid, "there is no action")
}

func TestInvalidMessageIsNotCompleted(t *testing.T) {
	t.Parallel()
	for _, data := range []string{
		``, `null`, `[]`, `{}`, `{"type":"order.shipped"}`, `{"order_id":"o1"}x`, `{"uid":"a","uid":"b"}`, `"x"`,
	} {
		_, err := contracts().Complete(contract.MessageV1, []byte(data), given("order.shipped"))
		require.ErrorIs(t, err, contract.ErrMalformed, data)
	}
	_, err := contracts().Complete("message.v9", []byte(`{}`), given(""))
	require.ErrorIs(t, err, contract.ErrFormat)
}

func TestMessageHasTheNumberOfItsAttempts(t *testing.T) {
	t.Parallel()
	for _, test := range readBodies(t).Attempted {
		data := []byte(test.Data)
		body := filetest.Must(contracts().Decode(contracts().Detect(nil, data), data))(t)
		require.Equal(t, test.Want, body.Attempted(), test.Data)
	}
}

const upgrade = `{"id":"u1","action":"upgrade","created_at":"2026-03-02T10:15:00Z","attempts":0,` +
	`"payload":{"subscription_id":"s1","seats":7,"prorated":true,"accepted":false,` +
	`"invoice":{"invoice_id":"i1","paid":true,"amount":"9.99","currency":"EUR"}}}`

func TestMembersBeyondAHandlersTypeAreKept(t *testing.T) {
	t.Parallel()
	set := declared(t, "upgrades")
	require.NoError(t, set.Takes(contract.EnvelopeV1, "upgrade", reflect.TypeFor[*contract.Envelope]()))
	require.NoError(t, set.Takes(contract.EnvelopeV1, "upgrade", reflect.TypeFor[contract.Payload]()))
	c := filetest.Must(set.Find(contract.EnvelopeV1, []byte(upgrade)))(t)
	minimized := filetest.Must(c.Projection().Append(nil, []byte(upgrade)))(t)
	require.JSONEq(t, upgrade, string(minimized), "it passes ingest")
	body := filetest.Must(set.Decode(contract.EnvelopeV1, minimized))(t)
	require.NoError(t, body.Validate())
	require.Equal(t, []any{"s1", "", int64(7), int64(0)}, []any{
		body.Text("subscription_id"), body.Text("seats"), body.Number("seats"), body.Number("subscription_id"),
	})
	require.JSONEq(t, upgrade, string(filetest.Must(body.Append(nil))(t)))

	posted := filetest.Must(body.Post("key-1", "default"))(t)
	sent := filetest.JSON[struct{ Payload json.RawMessage }](t, posted)
	require.JSONEq(t, `{"subscription_id":"s1","seats":7,"prorated":true,"accepted":false,`+
		`"invoice":{"invoice_id":"i1","paid":true,"amount":"9.99","currency":"EUR"}}`, string(sent.Payload))

	type invoice struct {
		InvoiceID string `json:"invoice_id"`
		Paid      bool   `json:"paid"`
	}
	type own struct {
		Seats    int64    `json:"seats"`
		Prorated bool     `json:"prorated"`
		Accepted *bool    `json:"accepted"`
		Invoice  *invoice `json:"invoice"`
	}
	require.NoError(t, set.Takes(contract.EnvelopeV1, "upgrade", reflect.TypeFor[own]()))
	taken := filetest.Must(contract.As[own](body))(t)
	require.Equal(t, own{7, true, new(bool), &invoice{"i1", true}}, taken)
	whole := filetest.Must(contract.As[*contract.Envelope](body))(t)
	require.Equal(t, "s1", whole.Payload.SubscriptionID)

	type wrong struct {
		Prorated string `json:"prorated"`
		Invoice  struct {
			InvoiceID int64 `json:"invoice_id"`
		} `json:"invoice"`
	}
	err := set.Takes(contract.EnvelopeV1, "upgrade", reflect.TypeFor[wrong]())
	require.ErrorContains(t, err, ".prorated is no string")
	require.ErrorContains(t, err, ".invoice.invoice_id is no int64")
}

func TestBooleansAndObjectsAreHeldToTheirShapes(t *testing.T) {
	t.Parallel()
	set := declared(t, "upgrades")
	for _, test := range readBodies(t).Held {
		require.Equal(t, 1, strings.Count(upgrade, test.Old), test.What)
		bad := []byte(strings.Replace(upgrade, test.Old, test.With, 1))
		c := filetest.Must(set.Find(contract.EnvelopeV1, bad))(t)
		document := filetest.Must(pii.Parse(bad))(t)
		minimized, err := c.Projection().Exact(nil, document)
		if err == nil {
			body, decoded := set.Decode(contract.EnvelopeV1, minimized)
			require.NoError(t, decoded)
			err = body.Validate()
		}
		require.ErrorContains(t, err, test.Want, test.What)
		require.NotContains(t, strings.ToLower(err.Error()), "mette")
	}
	schemas := set.Schemas()
	require.Regexp(t, `"prorated":\s*{\s*"type":\s*"boolean"`, string(schemas["envelope.v1.json"]))
	require.Regexp(t, `"invoice":\s*{\s*"type":\s*"object"`, string(schemas["envelope.v1.json"]))
}

func TestInvalidDeclarationOfAnObjectIsRefused(t *testing.T) {
	t.Parallel()
	for _, test := range readBodies(t).Refused {
		_, err := contract.NewSet(contract.Formats, []contract.Declaration{
			{Format: contract.MessageV1, Type: "x.y", Version: 1, Members: []contract.Member{test.Member}},
		})
		require.ErrorContains(t, err, test.Want, test.What)
	}
}
