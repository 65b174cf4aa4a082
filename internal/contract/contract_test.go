package contract_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"billhook/catalog"
	"billhook/internal/contract"
	"billhook/internal/pii"
	"billhook/internal/platform/store"
)

func golden(t testing.TB, name string) []byte {
	t.Helper()
	return goldenOf(t, contract.PayNowV1, name)
}

func goldenOf(t testing.TB, format, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", format, name+".json"))
	require.NoError(t, err)
	return data
}

// contracts are those of the shipped catalog.
var contracts = sync.OnceValue(func() *contract.Set {
	shipped, err := catalog.Load("")
	if err != nil {
		panic(err)
	}
	return shipped.Contracts
})

// read decodes a body, and gives it as its format's Go type.
func read[M any](t testing.TB, format string, data []byte) (contract.Body, *M) {
	t.Helper()
	body, err := contracts().Decode(format, data)
	require.NoError(t, err)
	m, err := contract.As[*M](body)
	require.NoError(t, err)
	return body, m
}

// receive reads a message of a queue of envelopes.
func receive(data string, attributes map[string]string, at time.Time) (contract.Body, map[string]string, error) {
	return contracts().Receive(contract.EnvelopeV1, []string{"subscription_id"}, contract.Message{Data: []byte(data), Attributes: attributes}, at)
}

func compile(t *testing.T, name string) *jsonschema.Schema {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("schema", name))
	require.NoError(t, err)
	parsed, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	require.NoError(t, err)
	c := jsonschema.NewCompiler()
	require.NoError(t, c.AddResource(name, parsed))
	schema, err := c.Compile(name)
	require.NoError(t, err)
	return schema
}

func TestSchemasAndPageAreThoseOfTheContracts(t *testing.T) {
	t.Parallel()
	schemas, err := contracts().Schemas()
	require.NoError(t, err)
	for name, want := range schemas {
		got, err := os.ReadFile(filepath.Join("schema", name))
		require.NoError(t, err)
		require.Equal(t, string(want), string(got), "run make generate")
	}
	page, err := os.ReadFile("../../docs/contracts.md")
	require.NoError(t, err)
	require.Equal(t, string(contracts().Page()), string(page), "run make generate")
}

func TestTheGoldenEventsKeepTheContract(t *testing.T) {
	t.Parallel()
	for _, format := range []string{contract.PayNowV1, contract.EnvelopeV1, contract.MessageV1} {
		schema := compile(t, format+".json")
		files, err := filepath.Glob(filepath.Join("testdata", format, "*.json"))
		require.NoError(t, err)
		require.NotEmpty(t, files)
		for _, file := range files {
			data, err := os.ReadFile(file)
			require.NoError(t, err)
			m, err := contracts().Decode(format, data)
			require.NoError(t, err, file)
			require.NoError(t, m.Validate(), file)
			value, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
			require.NoError(t, err)
			require.NoError(t, schema.Validate(value), file)
			again, err := m.Append(nil)
			require.NoError(t, err)
			var compact bytes.Buffer
			require.NoError(t, json.Compact(&compact, data))
			require.Equal(t, compact.String(), string(again), file)
			require.Equal(t, format, contracts().Detect(nil, data))
			require.True(t, contracts().Known(format))
		}
	}
}

func TestABrokenMessageIsRefusedByItsPathAndRule(t *testing.T) {
	t.Parallel()
	schema := compile(t, "paynow.v1.json")
	for name, test := range map[string]struct {
		change func(m map[string]any)
		path   string
		// go only: a relation or a table that the schema cannot hold.
		goOnly bool
	}{
		"no event id":                   {func(m map[string]any) { delete(m, "eventId") }, "eventId", false},
		"an empty event id":             {func(m map[string]any) { m["eventId"] = "" }, "eventId", false},
		"an id with a slash":            {func(m map[string]any) { m["eventId"] = "a/b" }, "eventId", false},
		"an id that is too long":        {func(m map[string]any) { m["eventId"] = strings.Repeat("x", 129) }, "eventId", false},
		"a type with a space":           {func(m map[string]any) { m["eventType"] = "order paid" }, "eventType", false},
		"a time of no shape":            {func(m map[string]any) { m["timestamp"] = "yesterday" }, "timestamp", false},
		"no order":                      {func(m map[string]any) { m["data"] = map[string]any{} }, "data.order", false},
		"an order without items":        {func(m map[string]any) { delete(order(m), "items") }, "data.order.items", false},
		"a quantity of 0":               {func(m map[string]any) { item(m)["quantity"] = 0 }, "data.order.items[0].quantity", false},
		"a quantity of 2^53":            {func(m map[string]any) { item(m)["quantity"] = json.Number("9007199254740992") }, "data.order.items[0].quantity", false},
		"a price with another exponent": {func(m map[string]any) { item(m)["price"] = "10.000" }, "data.order.items[0].price", true},
		"a price below zero":            {func(m map[string]any) { item(m)["price"] = "-10.00" }, "data.order.items[0].price", false},
		"a currency that is none":       {func(m map[string]any) { order(m)["currency"] = "XXQ" }, "data.order.currency", true},
		"a total without a currency":    {func(m map[string]any) { delete(order(m), "currency") }, "data.order.total", true},
		"an hour that no day has":       {func(m map[string]any) { m["timestamp"] = "2026-03-02T25:15:00Z" }, "timestamp", true},
		"a refund without a currency": {func(m map[string]any) {
			m["data"] = map[string]any{"refund": map[string]any{"amount": "1.00"}}
			m["eventType"] = "payment.refunded"
		}, "data.refund.amount", true},
		"a subscription event without one": {func(m map[string]any) { m["eventType"] = "subscription.renewed" }, "data.subscription", false},
		"a trial event without one":        {func(m map[string]any) { m["eventType"] = "trial.canceled" }, "data.subscription", false},
		"a subscription without an id":     {subscribed(map[string]any{"status": "active"}), "data.subscription.id", false},
		"a cycle below 0":                  {subscribed(map[string]any{"id": "s1", "cycle": -1}), "data.subscription.cycle", false},
		"a status that is a sentence":      {subscribed(map[string]any{"id": "s1", "status": "has left"}), "data.subscription.status", false},
		"a subscription's total without its currency": {
			subscribed(map[string]any{"id": "s1", "total": "1.00"}), "data.subscription.total", true,
		},
		"a subscription's total in its order's digits": {func(m map[string]any) {
			subscribed(map[string]any{"id": "s1", "total": "1.00", "currency": "JPY"})(m)
			m["data"].(map[string]any)["order"] = map[string]any{"id": "o1", "currency": "USD"}
		}, "data.subscription.total", true},
		"an e-mail address as customer": {func(m map[string]any) { order(m)["customerId"] = "ilse@example.org" }, "data.order.customerId", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var m map[string]any
			require.NoError(t, json.Unmarshal(golden(t, "order_paid"), &m))
			test.change(m)
			data, err := json.Marshal(m)
			require.NoError(t, err)
			decoded, err := contracts().Decode(contract.PayNowV1, data)
			require.NoError(t, err)
			var invalid *contract.Invalid
			require.ErrorAs(t, decoded.Validate(), &invalid)
			require.Equal(t, test.path, invalid.Violations[0].Path)
			require.NotContains(t, invalid.Error(), "ilse")
			if !test.goOnly {
				value, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
				require.NoError(t, err)
				require.Error(t, schema.Validate(value))
			}
		})
	}
}

// subscribed makes the event one of a subscription.
func subscribed(subscription map[string]any) func(m map[string]any) {
	return func(m map[string]any) {
		m["eventType"], m["data"] = "subscription.renewed", map[string]any{"subscription": subscription}
	}
}

func TestABrokenEnvelopeIsRefusedByItsPathAndRule(t *testing.T) {
	t.Parallel()
	schema := compile(t, "envelope.v1.json")
	for name, test := range map[string]struct {
		in     string // payload, or empty: the envelope itself
		field  string
		value  any // nil: the field is not there
		path   string
		goOnly bool
	}{
		"no id":                     {field: "id", path: "id"},
		"no action":                 {field: "action", path: "action"},
		"no time":                   {field: "created_at", path: "created_at"},
		"attempts below 0":          {field: "attempts", value: -1, path: "attempts"},
		"attempts beyond reason":    {field: "max_attempts", value: 1001, path: "max_attempts"},
		"an amount below 0":         {"payload", "amount", "-9.99", "payload.amount", false},
		"an amount's extra digit":   {"payload", "amount", "9.990", "payload.amount", true},
		"an amount in no currency":  {"payload", "currency", nil, "payload.amount", false},
		"a currency that is none":   {"payload", "currency", "XXQ", "payload.currency", true},
		"an address as customer":    {"payload", "customer_id", "ilse@example.org", "payload.customer_id", false},
		"a period that is no time":  {"payload", "period_end", "soon", "payload.period_end", false},
		"a cycle that is too large": {"payload", "cycle", 1_000_001, "payload.cycle", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var m map[string]any
			require.NoError(t, json.Unmarshal(goldenOf(t, contract.EnvelopeV1, "renewal"), &m))
			at := m
			if test.in != "" {
				at = m[test.in].(map[string]any)
			}
			at[test.field] = test.value
			if test.value == nil {
				delete(at, test.field)
			}
			data, err := json.Marshal(m)
			require.NoError(t, err)
			decoded, err := contracts().Decode(contract.EnvelopeV1, data)
			if err == nil {
				err = decoded.Validate()
			}
			var invalid *contract.Invalid
			require.ErrorAs(t, err, &invalid)
			require.Len(t, invalid.Violations, 1)
			require.Equal(t, test.path, invalid.Violations[0].Path)
			require.NotContains(t, invalid.Error(), "ilse")
			if !test.goOnly {
				value, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
				require.NoError(t, err)
				require.Error(t, schema.Validate(value))
			}
		})
	}
}

func order(m map[string]any) map[string]any {
	return m["data"].(map[string]any)["order"].(map[string]any)
}

func item(m map[string]any) map[string]any {
	return order(m)["items"].([]any)[0].(map[string]any)
}

func TestABodyThatIsNotTheContractsIsMalformed(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{
		"empty": "", "not JSON": "x", "a list": "[]", "an unknown field": `{"eventId":"1","email":"ilse@example.org"}`,
		"an unknown field inside": `{"data":{"order":{"id":"1","customer":{"name":"Ilse"}}}}`,
		"a duplicate name":        `{"eventId":"1","eventId":"2"}`, "invalid UTF-8": "{\"eventId\":\"\xff\"}",
		"a float quantity": `{"data":{"order":{"items":[{"quantity":1.5}]}}}`, "1e400": `{"data":{"order":{"items":[{"quantity":1e400}]}}}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, format := range []string{contract.PayNowV1, contract.EnvelopeV1, contract.MessageV1} {
				decoded, err := contracts().Decode(format, []byte(body))
				var invalid *contract.Invalid // of a format that does not find its event type
				require.True(t, errors.Is(err, contract.ErrMalformed) || (format != contract.PayNowV1 && errors.As(err, &invalid)), "%v", err)
				require.True(t, decoded.None())
				require.NotContains(t, err.Error(), "ilse")
			}
		})
	}
}

func TestThePayloadHashSeesTheDataAndNotTheReceipt(t *testing.T) {
	t.Parallel()
	hash := func(change func(*contract.PayNow)) string {
		body, m := read[contract.PayNow](t, contract.PayNowV1, golden(t, "order_paid"))
		change(m)
		h, err := body.PayloadHash()
		require.NoError(t, err)
		return h
	}
	same := hash(func(*contract.PayNow) {})
	require.Regexp(t, `^sha256:[0-9a-f]{64}$`, same)
	require.Equal(t, same, hash(func(m *contract.PayNow) { m.Timestamp = "2030-01-01T00:00:00Z"; m.EventID = "other" }))
	require.NotEqual(t, same, hash(func(m *contract.PayNow) { m.Data.Order.Items[0].Quantity++ }))
	require.NotEqual(t, same, hash(func(m *contract.PayNow) { m.EventType = "order.refunded" }))
}

func TestAnEnvelopesHashSeesWhatItSaysAndNotItsWay(t *testing.T) {
	t.Parallel()
	hash := func(change func(*contract.Envelope)) string {
		_, m := read[contract.Envelope](t, contract.EnvelopeV1, goldenOf(t, contract.EnvelopeV1, "renewal"))
		change(m)
		body, err := contracts().Held(contract.Of(m))
		require.NoError(t, err)
		h, err := body.PayloadHash()
		require.NoError(t, err)
		return h
	}
	same := hash(func(*contract.Envelope) {})
	require.Regexp(t, `^sha256:[0-9a-f]{64}$`, same)
	require.Equal(t, same, hash(func(m *contract.Envelope) { m.ID, m.CreatedAt, m.Attempts = "other", "2030-01-01T00:00:00Z", 3 }))
	require.NotEqual(t, same, hash(func(m *contract.Envelope) { m.Payload.Cycle++ }))
	require.NotEqual(t, same, hash(func(m *contract.Envelope) { m.Action = contract.ActionInitial }))
}

func TestARawObjectBecomesAnEnvelope(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 2, 11, 15, 0, 0, time.FixedZone("", 3600))
	const body = `{"action":"renewal","subscription_id":"s1","currency":"EUR","amount":"9.99"}`
	for name, test := range map[string]struct {
		data       string
		attributes map[string]string
		id, action string
	}{
		"its id is its hash":                        {body, nil, "", "renewal"},
		"unless the attributes have one":            {body, map[string]string{"event_id": "e1"}, "e1", "renewal"},
		"its own action comes first":                {body, map[string]string{"event_type": "initial"}, "", "renewal"},
		"else the action is that of the attributes": {`{"subscription_id":"s1"}`, map[string]string{"event_type": "initial"}, "", "initial"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			body, _, err := receive(test.data, test.attributes, at)
			require.NoError(t, err)
			require.NoError(t, body.Validate())
			m, err := contract.As[*contract.Envelope](body)
			require.NoError(t, err)
			if test.id == "" {
				said := test.data
				if !strings.Contains(said, "action") {
					said += "\x00" + test.attributes["event_type"]
				}
				sum := sha256.Sum256([]byte(said))
				test.id = "sha256:" + hex.EncodeToString(sum[:])
			}
			gotID, action := body.Identity()
			require.Equal(t, test.id, gotID)
			require.Equal(t, test.action, action)
			require.Equal(t, "2026-03-02T10:15:00Z", m.CreatedAt)
			require.Equal(t, "s1", m.Payload.SubscriptionID)
			require.Zero(t, m.Attempts)
		})
	}
	for name, data := range map[string]string{
		"nothing": ``, "null": `null`, "an object that says nothing": `{}`, "an action alone": `{"action":"renewal"}`, "a list": `[]`,
		"a field that no payload has": `{"action":"renewal","subscription_id":"s1","email":"ilse@example.org"}`, "a name twice": `{"uid":"a","uid":"b"}`,
	} {
		t.Run("not of "+name, func(t *testing.T) {
			t.Parallel()
			_, _, err := receive(data, nil, at)
			require.ErrorIs(t, err, contract.ErrMalformed)
		})
	}
	var invalid *contract.Invalid
	_, _, err := receive(`{"uid":"u1"}`, nil, at)
	require.ErrorAs(t, err, &invalid, "nobody says what is to be done")
}

func TestAnEnvelopesKeyIsTheFirstFieldThatItHas(t *testing.T) {
	t.Parallel()
	m := contract.Of(&contract.Envelope{CorrelationID: "c", Payload: contract.Payload{PaymentID: "p", OrderID: "o", CustomerID: "k", UID: "u"}})
	for field, want := range map[string]string{
		"correlation_id": "c", "subscription_id": "", "payment_id": "p", "order_id": "o", "customer_id": "k", "uid": "u", "colour": "",
	} {
		require.Equal(t, want, m.OrderingKey([]string{field}, nil), field)
	}
	require.Equal(t, "p", m.OrderingKey([]string{"subscription_id", "payment_id", "uid"}, nil))
	require.Empty(t, m.OrderingKey(nil, nil))
}

func TestAMessageOverALimitIsNamedByTheLimit(t *testing.T) {
	t.Parallel()
	many := map[string]string{}
	for i := range 101 {
		many[fmt.Sprint("a", i)] = ""
	}
	for name, m := range map[string]contract.Message{
		"nothing at all":      {},
		"too much data":       {Data: make([]byte, contract.MaxMessageBytes+1)},
		"too many attributes": {Data: []byte("x"), Attributes: many},
		"a long key":          {Data: []byte("x"), Attributes: map[string]string{strings.Repeat("k", 257): ""}},
		"an empty key":        {Data: []byte("x"), Attributes: map[string]string{"": "v"}},
		"a long value":        {Data: []byte("x"), Attributes: map[string]string{"k": strings.Repeat("v", 1025)}},
		"a long ordering key": {Data: []byte("x"), OrderingKey: strings.Repeat("o", 1025)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.ErrorIs(t, m.Check(), contract.ErrLimit)
		})
	}
	require.NoError(t, contract.Message{Data: []byte("x"), OrderingKey: "o"}.Check())
	full := maps.Clone(many)
	delete(full, "a100")
	delete(full, "a99")
	full[strings.Repeat("k", 256)] = strings.Repeat("v", 1024)
	most := contract.Message{Attributes: full, OrderingKey: strings.Repeat("o", 1024)}
	beside := len(most.OrderingKey)
	for key, value := range full {
		beside += len(key) + len(value)
	}
	most.Data = make([]byte, contract.MaxMessageBytes-beside)
	require.NoError(t, most.Check(), "at every limit")
	most.Data = append(most.Data, 0)
	require.ErrorIs(t, most.Check(), contract.ErrLimit, "attributes and ordering key count")
}

func TestAttributesMustAgreeWithTheBody(t *testing.T) {
	t.Parallel()
	for of, body := range map[string]struct{ format, name string }{
		"an order": {contract.PayNowV1, "order_paid"}, "a trial": {contract.PayNowV1, "trial_activated"}, "an envelope": {contract.EnvelopeV1, "renewal"},
	} {
		m, err := contracts().Decode(body.format, goldenOf(t, body.format, body.name))
		require.NoError(t, err)
		id, eventType := m.Identity()
		for name, change := range map[string]struct {
			attribute, value string
			ok               bool
		}{
			"nothing else":              {"event_id", id, true},
			"another event id":          {"event_id", "other", false},
			"no event id":               {"event_id", "", false},
			"another type":              {"event_type", "order.refunded", false},
			"no ordering key":           {"ordering_key", "", false},
			"a uid that is an address":  {"uid", "ilse@example.org", false},
			"another customer":          {"paynow_customer_id", "other", false},
			"the customer":              {"paynow_customer_id", "530217764480019001", true},
			"another order":             {"order_id", "other", body.name != "order_paid"},
			"another story's messages":  {"correlation_id", "other", body.format == contract.PayNowV1},
			"another contract":          {"contract", "other.v1", false},
			"an attribute of a library": {"googclient_traceparent", "00-1-2-01", true},
		} {
			t.Run(of+" with "+name, func(t *testing.T) {
				t.Parallel()
				attributes := map[string]string{"event_id": id, "event_type": eventType, "ordering_key": "u1"}
				attributes[change.attribute] = change.value
				err := m.CheckAttributes(attributes)
				if change.ok {
					require.NoError(t, err)
					return
				}
				var invalid *contract.Invalid
				require.ErrorAs(t, err, &invalid)
				require.Equal(t, "attributes."+change.attribute, invalid.Violations[0].Path)
			})
		}
	}
}

func TestTheAttributesOfABodyAgreeWithIt(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ format, correlation string }{
		"order_paid":      {contract.PayNowV1, "530217764480012801"},
		"trial_activated": {contract.PayNowV1, "530217764480017001"},
		"renewal":         {contract.EnvelopeV1, "530217764480015001"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			data := goldenOf(t, test.format, name)
			m, err := contracts().Decode(test.format, data)
			require.NoError(t, err)
			a := m.Attributes()
			a.OrderingKey = "k"
			require.NoError(t, m.CheckAttributes(a.Map()))
			require.Equal(t, test.format, contracts().Detect(a.Map(), nil))
			require.Equal(t, test.correlation, a.CorrelationID)
			require.Equal(t, "530217764480019001", a.CustomerID)
		})
	}
}

func TestTheAttributesSchemaAgreesWithTheRules(t *testing.T) {
	t.Parallel()
	schema := compile(t, "paynow.v1.attributes.json")
	for name, test := range map[string]struct {
		attribute, value string
		ok               bool
	}{
		"none but the required":              {"ordering_key", "unknown", true},
		"no ordering key":                    {"ordering_key", "", false},
		"no event id":                        {"event_id", "", false},
		"no event type":                      {"event_type", "", false},
		"points in digits":                   {"points", "1000", true},
		"points below zero":                  {"points", "-1", false},
		"points of twenty digits":            {"points", "99999999999999999999", false},
		"a known contract":                   {"contract", contract.EnvelopeV1, true},
		"attempts in words":                  {"max_attempts", "three", false},
		"a uid with a slash":                 {"uid", "a/b", false},
		"a time of publishing":               {"first_published_at", "2026-03-02T10:15:00.123456789Z", true},
		"a time of publishing in words":      {"first_published_at", "now", false},
		"an attribute that is somebody's":    {"googclient_traceparent", "00-1-2-01", true},
		"a correlation id with a line break": {"correlation_id", "a\nb", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			attributes := map[string]string{"event_id": "1", "event_type": "order.paid", "ordering_key": "u1"}
			attributes[test.attribute] = test.value
			document := map[string]any{}
			for key, value := range attributes {
				if value != "" {
					document[key] = value
				}
			}
			byGo, bySchema := contract.AttributesOf(attributes).Validate(), schema.Validate(document)
			require.Equal(t, test.ok, byGo == nil, "%v", byGo)
			require.Equal(t, test.ok, bySchema == nil, "%v", bySchema)
		})
	}
}

func TestAttributesSurviveTheMapAndBack(t *testing.T) {
	t.Parallel()
	want := contract.Attributes{
		OrderingKey: "1", EventID: "2", EventType: "3", OrderID: "4", CustomerID: "5", UID: "6", Points: "7", Contract: "8",
		CorrelationID: "9", Tenant: "10", RoutingKey: "11", Priority: "12", MaxAttempts: "13", FirstPublished: "14", DeliverAt: "15", DelayTicket: "16", UIDSource: "17", FirstMessageID: "18", IdempotencyKey: "19", ShopOrderID: "20", DoorReceived: "21",
	}
	carried := want.Map()
	require.Len(t, carried, reflect.TypeFor[contract.Attributes]().NumField())
	require.Equal(t, &want, contract.AttributesOf(carried))
	for name := range carried {
		require.Contains(t, contract.AttributeRules, name)
	}
	require.Empty(t, (&contract.Attributes{}).Map())
}

func TestTheSchemaHasTheShapesOfPackagePII(t *testing.T) {
	t.Parallel()
	schema := compile(t, "paynow.v1.json")
	shape := func(value, as string) error {
		m := map[string]any{"eventId": "1", "eventType": "x", "timestamp": "2026-03-02T10:15:00Z", "data": map[string]any{}}
		m[as] = value
		return schema.Validate(m)
	}
	rapid.Check(t, func(t *rapid.T) {
		value := rapid.StringMatching(`[A-Za-z0-9._:@/ -]{0,66}|[a-z]{60,70}|[0-9a-z]{120,135}`).Draw(t, "value")
		require.Equal(t, pii.ID.Valid(value), shape(value, "eventId") == nil)
		require.Equal(t, pii.Code.Valid(value) && !about.MatchString(value), shape(value, "eventType") == nil)
	})
}

func TestTheSchemaOfTheAttributesTakesAUIDAsOrderingKey(t *testing.T) {
	t.Parallel()
	schema := compile(t, "paynow.v1.attributes.json")
	rapid.Check(t, func(t *rapid.T) {
		uid := rapid.StringMatching(`[A-Za-z0-9._:|@/ -]{0,66}|[0-9a-z|]{120,135}`).Draw(t, "uid")
		carried := map[string]any{"ordering_key": uid, "event_id": "1", "event_type": "x"}
		require.Equal(t, pii.UID.Valid(uid), schema.Validate(carried) == nil)
		require.Equal(t, pii.UID.Valid(uid), (&contract.Attributes{OrderingKey: uid, EventID: "1", EventType: "x"}).Validate() == nil)
		carried["ordering_key"], carried["uid"] = "k", uid
		require.Equal(t, pii.UID.Valid(uid), schema.Validate(carried) == nil)
	})
}

// about: a type whose event must say what it is about.
var about = regexp.MustCompile(`^(order|subscription|trial)\.`)

func TestDetectTellsTheFormatsApart(t *testing.T) {
	t.Parallel()
	attribute := func(format string) map[string]string { return map[string]string{contract.AttrContract: format} }
	for name, test := range map[string]struct {
		attributes map[string]string
		data, want string
	}{
		"by its fields, paynow.v1":          {nil, `{"eventType":"a","x":[{}],"eventId":"b"}`, contract.PayNowV1},
		"by its fields, envelope.v1":        {nil, `{"action":"a","payload":{"eventId":1,"eventType":1}}`, contract.EnvelopeV1},
		"by its fields, message.v1":         {nil, `{"type":"a","version":1,"data":{}}`, contract.MessageV1},
		"fields of two formats":             {nil, `{"action":"a","payload":{},"eventId":1,"eventType":1}`, contract.PayNowV1},
		"fields of none":                    {nil, `{"type":"a","data":{}}`, ""},
		"an attribute against the fields":   {attribute(contract.MessageV1), `{"eventId":"1","eventType":"a"}`, contract.MessageV1},
		"an attribute of an unknown format": {attribute("paynow.v9"), `{"eventId":"1","eventType":"a"}`, ""},
		"a list":                            {nil, `[]`, ""},
		"nothing":                           {nil, ``, ""},
		"an object without its end":         {nil, `{"eventId":"1","eventType":"a"`, ""},
		"a value without its end":           {nil, `{"eventId":"1","eventType":"a`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, test.want, contracts().Detect(test.attributes, []byte(test.data)))
		})
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(golden(f, "order_paid"), "", "")
	f.Add(golden(f, "order_refunded_partial"), "", "")
	f.Add(golden(f, "subscription_renewed"), "", "")
	f.Add([]byte(`{"eventId":"1","data":{"order":null}}`), "", "")
	f.Add(goldenOf(f, contract.EnvelopeV1, "renewal"), "", "")
	f.Add(goldenOf(f, contract.EnvelopeV1, "trial_completed"), "e1", "trial")
	f.Add([]byte(`{"subscription_id":"s1","currency":"JPY","amount":"5"}`), "", "initial")
	f.Add([]byte(`{"payload":null}`), "", "")
	f.Add(goldenOf(f, contract.MessageV1, "order.created"), "", "")
	f.Add(goldenOf(f, contract.MessageV1, "billing.invoice.paid"), "", "")
	f.Fuzz(func(t *testing.T, data []byte, id, eventType string) {
		for _, format := range []string{contract.PayNowV1, contract.EnvelopeV1, contract.MessageV1} {
			m, _, err := contracts().Receive(format, nil, contract.Message{Data: data, Attributes: map[string]string{"event_id": id, "event_type": eventType}}, time.Unix(0, 0))
			if err != nil || m.Validate() != nil {
				continue
			}
			_, err = m.PayloadHash()
			require.NoError(t, err)
			again, err := m.Append(nil)
			require.NoError(t, err)
			back, err := contracts().Decode(format, again)
			require.NoError(t, err)
			require.Equal(t, m, back)
			a := m.Attributes()
			a.OrderingKey = "k"
			require.NoError(t, m.CheckAttributes(a.Map()))
			_, err = m.Contract().Projection().Append(nil, again)
			var found *pii.Error
			require.True(t, err == nil || errors.As(err, &found))
		}
	})
}

func TestAMessageComesBackFromItsFields(t *testing.T) {
	t.Parallel()
	for name, m := range map[string]contract.Message{
		"as text":             {Data: []byte(`{"a":1}`), Attributes: map[string]string{"event_id": "e1"}, OrderingKey: "u1"},
		"that is not UTF-8":   {Data: []byte{0xff, 0x00, 0xfe}, Attributes: map[string]string{}},
		"that has no payload": {Data: []byte{}, Attributes: map[string]string{"a": ""}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got contract.Message
			require.NoError(t, store.Decode(store.Encode(&m), &got))
			require.Equal(t, m, got)
		})
	}
	for _, broken := range []map[string]any{
		nil, {"data": "x"}, {"data": 1, "attributes": map[string]any{}, "ordering_key": ""},
		{"data_base64": "~", "attributes": map[string]any{}, "ordering_key": ""},
		{"data": "x", "attributes": map[string]any{"a": 1}, "ordering_key": ""}, {"data": "x", "attributes": map[string]any{}},
	} {
		require.ErrorIs(t, store.Decode(broken, new(contract.Message)), store.ErrUnreadable, broken)
	}
}
