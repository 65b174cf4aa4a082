package contract_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"billhook/internal/contract"
	"billhook/internal/pii"
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

func TestTheSchemasAreThoseOfTheTypes(t *testing.T) {
	t.Parallel()
	schemas, err := contract.Schemas()
	require.NoError(t, err)
	for name, want := range schemas {
		got, err := os.ReadFile(filepath.Join("schema", name))
		require.NoError(t, err)
		require.Equal(t, string(want), string(got), "run make generate")
	}
}

func TestTheGoldenEventsKeepTheContract(t *testing.T) {
	t.Parallel()
	for _, format := range []string{contract.PayNowV1, contract.EnvelopeV1} {
		schema := compile(t, format+".json")
		files, err := filepath.Glob(filepath.Join("testdata", format, "*.json"))
		require.NoError(t, err)
		require.NotEmpty(t, files)
		for _, file := range files {
			data, err := os.ReadFile(file)
			require.NoError(t, err)
			m, err := contract.Decode(format, data)
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
			require.Equal(t, format, contract.Detect(nil, data))
			require.True(t, contract.Decodes(format))
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
		"an e-mail address as customer": {func(m map[string]any) { order(m)["customerId"] = "ilse@example.org" }, "data.order.customerId", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var m map[string]any
			require.NoError(t, json.Unmarshal(golden(t, "order_paid"), &m))
			test.change(m)
			data, err := json.Marshal(m)
			require.NoError(t, err)
			decoded, err := contract.DecodePayNow(data)
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
			_, err := contract.DecodePayNow([]byte(body))
			require.ErrorIs(t, err, contract.ErrMalformed)
			require.NotContains(t, err.Error(), "ilse")
		})
	}
}

func TestThePayloadHashSeesTheDataAndNotTheReceipt(t *testing.T) {
	t.Parallel()
	hash := func(change func(*contract.PayNow)) string {
		m, err := contract.DecodePayNow(golden(t, "order_paid"))
		require.NoError(t, err)
		change(m)
		h, err := m.PayloadHash()
		require.NoError(t, err)
		return h
	}
	same := hash(func(*contract.PayNow) {})
	require.Regexp(t, `^sha256:[0-9a-f]{64}$`, same)
	require.Equal(t, same, hash(func(m *contract.PayNow) { m.Timestamp = "2030-01-01T00:00:00Z"; m.EventID = "other" }))
	require.NotEqual(t, same, hash(func(m *contract.PayNow) { m.Data.Order.Items[0].Quantity++ }))
	require.NotEqual(t, same, hash(func(m *contract.PayNow) { m.EventType = "order.refunded" }))
}

func TestAMessageOverALimitIsNamedByTheLimit(t *testing.T) {
	t.Parallel()
	many := map[string]string{}
	for i := range 101 {
		many[fmt.Sprint("a", i)] = ""
	}
	for name, m := range map[string]contract.Message{
		"nothing at all":      {},
		"too much data":       {Data: make([]byte, contract.MaxDataBytes+1)},
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
}

func TestAttributesMustAgreeWithTheBody(t *testing.T) {
	t.Parallel()
	m, err := contract.DecodePayNow(golden(t, "order_paid"))
	require.NoError(t, err)
	good := map[string]string{"event_id": m.EventID, "event_type": m.EventType, "ordering_key": "u1"}
	require.NoError(t, m.CheckAttributes(good))
	for name, change := range map[string][2]string{
		"another event id": {"event_id", "other"}, "no event id": {"event_id", ""}, "another type": {"event_type", "order.refunded"},
		"no ordering key": {"ordering_key", ""}, "a uid that is an address": {"uid", "ilse@example.org"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			attributes := map[string]string{"event_id": m.EventID, "event_type": m.EventType, "ordering_key": "u1"}
			attributes[change[0]] = change[1]
			var invalid *contract.Invalid
			require.ErrorAs(t, m.CheckAttributes(attributes), &invalid)
			require.Equal(t, "attributes."+change[0], invalid.Violations[0].Path)
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
		"an unknown contract":                {"contract", "paynow.v2", false},
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
		CorrelationID: "9", Tenant: "10", RoutingKey: "11", Priority: "12", MaxAttempts: "13", FirstPublished: "14",
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
		require.Equal(t, pii.Code.Valid(value) && !strings.HasPrefix(value, "order."), shape(value, "eventType") == nil)
	})
}

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
			require.Equal(t, test.want, contract.Detect(test.attributes, []byte(test.data)))
		})
	}
}

func FuzzDecodePayNow(f *testing.F) {
	f.Add(golden(f, "order_paid"))
	f.Add(golden(f, "order_refunded_partial"))
	f.Add([]byte(`{"eventId":"1","data":{"order":null}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := contract.DecodePayNow(data)
		if err != nil || m.Validate() != nil {
			return
		}
		_, err = m.PayloadHash()
		require.NoError(t, err)
		again, err := m.Append(nil)
		require.NoError(t, err)
		back, err := contract.DecodePayNow(again)
		require.NoError(t, err)
		require.Equal(t, m, back)
	})
}
