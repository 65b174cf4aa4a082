package contract_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/contract"
	"billhook/internal/pii"
	"billhook/internal/platform/store"
)

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

func TestEachSampleBodyKeepsItsContractAndSchema(t *testing.T) {
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

// A good body of a format is broken in one place, or replaced as a whole where nothing is said to be replaced.
func TestABrokenBodyIsRefusedByItsPathsAndRules(t *testing.T) {
	t.Parallel()
	const (
		order, renewed  = "paynow.v1/order_paid", "paynow.v1/subscription_renewed"
		renewal         = "envelope.v1/renewal"
		created, billed = "message.v1/order.created", "message.v1/billing.invoice.paid"
	)
	of := func(eventType, data string) string {
		return `{"eventId":"1","eventType":"` + eventType + `","timestamp":"2026-03-02T10:15:00Z","data":` + data + `}`
	}
	schemas := map[string]*jsonschema.Schema{}
	for _, format := range []string{contract.PayNowV1, contract.EnvelopeV1, contract.MessageV1} {
		schemas[format] = compile(t, format+".json")
	}
	for name, test := range map[string]struct {
		of, old, with, want string
		// go only: a relation or a table that the schema cannot hold.
		goOnly bool
	}{
		"no event id":                                  {order, `"eventId": "530217764480030001",`, ``, "eventId: required", false},
		"an empty event id":                            {order, `"530217764480030001"`, `""`, "eventId: required", false},
		"an id with a slash":                           {order, `"530217764480030001"`, `"a/b"`, "eventId: id", false},
		"an id that is too long":                       {order, `"530217764480030001"`, `"` + strings.Repeat("x", 129) + `"`, "eventId: id", false},
		"a type with a space":                          {order, `"order.paid"`, `"order paid"`, "eventType: event_type", false},
		"a time of no shape":                           {order, `"2026-03-02T10:15:00Z"`, `"yesterday"`, "timestamp: timestamp", false},
		"an hour that no day has":                      {order, `"2026-03-02T10:15:00Z"`, `"2026-03-02T25:15:00Z"`, "timestamp: timestamp", true},
		"no order":                                     {order, ``, of("order.paid", `{}`), "data.order: required", false},
		"an order without items":                       {order, ``, of("order.paid", `{"order":{"id":"o1"}}`), "data.order.items: required", false},
		"an order's quantity of 0":                     {order, `"quantity": 2`, `"quantity": 0`, "data.order.items[0].quantity: min=1", false},
		"a quantity of 2^53":                           {order, `"quantity": 2`, `"quantity": 9007199254740992`, "data.order.items[0].quantity: max=9007199254740991", false},
		"a price with another exponent":                {order, `"10.00"`, `"10.000"`, "data.order.items[0].price: amount", true},
		"a price below zero":                           {order, `"10.00"`, `"-10.00"`, "data.order.items[0].price: amount", false},
		"an order's currency that is none":             {order, `"USD"`, `"XXQ"`, "data.order.currency: currency", true},
		"a total without a currency":                   {order, `"currency": "USD",`, ``, "data.order.total: amount", true},
		"an e-mail address as customer":                {order, `"530217764480019001"`, `"ilse@example.org"`, "data.order.customerId: id", false},
		"a refund without a currency":                  {order, ``, of("payment.refunded", `{"refund":{"amount":"1.00"}}`), "data.refund.amount: amount", true},
		"a subscription event without one":             {renewed, ``, of("subscription.renewed", `{}`), "data.subscription: required", false},
		"a trial event without one":                    {renewed, ``, of("trial.canceled", `{}`), "data.subscription: required", false},
		"a subscription without an id":                 {renewed, `"id": "530217764480015001",`, ``, "data.subscription.id: required", false},
		"a cycle below 0":                              {renewed, `"cycle": 2`, `"cycle": -1`, "data.subscription.cycle: min=0", false},
		"a status that is a sentence":                  {renewed, `"active"`, `"has left"`, "data.subscription.status: code", false},
		"a subscription's total without its currency":  {renewed, `"currency": "EUR",`, ``, "data.subscription.total: amount", true},
		"a subscription's total in its order's digits": {renewed, ``, of("subscription.renewed", `{"order":{"id":"o1","currency":"USD"},"subscription":{"id":"s1","total":"1.00","currency":"JPY"}}`), "data.subscription.total: amount", true},

		"an envelope without an id":      {renewal, `"id": "6f1d2c9a-3b7e-4d15-9a58-1c0e7b2f4a02",`, ``, "id: required", false},
		"no action":                      {renewal, `"action": "renewal",`, ``, "action: required", false},
		"no time":                        {renewal, `"created_at": "2026-04-02T10:15:01Z",`, ``, "created_at: required", false},
		"attempts below 0":               {renewal, `"attempts": 0`, `"attempts": -1`, "attempts: min=0", false},
		"attempts beyond reason":         {renewal, `"max_attempts": 3`, `"max_attempts": 1001`, "max_attempts: max=1000", false},
		"an amount below 0":              {renewal, `"9.99"`, `"-9.99"`, "payload.amount: amount", false},
		"an envelope's extra digit":      {renewal, `"9.99"`, `"9.990"`, "payload.amount: amount", true},
		"an envelope's amount alone":     {renewal, `"currency": "EUR",`, ``, "payload.amount: amount", false},
		"a currency that is none":        {renewal, `"EUR"`, `"XXQ"`, "payload.currency: currency", true},
		"an address as customer":         {renewal, `"530217764480019001"`, `"ilse@example.org"`, "payload.customer_id: id", false},
		"a period that is no time":       {renewal, `"2026-05-02T10:15:00Z"`, `"soon"`, "payload.period_end: timestamp", false},
		"a cycle that is too large":      {renewal, `"cycle": 2`, `"cycle": 1000001`, "payload.cycle: max=1000000", false},
		"a version that is not declared": {created, `"version": 1`, `"version": 2`, "version: undeclared", false},
		"a version in words":             {created, `"version": 1`, `"version": "1"`, "version: required", false},
		"no version":                     {created, `"version": 1,`, ``, "version: required", false},
		"a type that is not declared":    {created, `"order.created"`, `"order.lost"`, "type: undeclared", false},
		"no type":                        {created, `"type": "order.created",`, ``, "type: required", false},
		"a message without an id":        {created, `"id": "msg_a1b2c3d4",`, ``, "id: required", false},
		"a member that is required":      {created, `"order_id": "ord_abc123",`, ``, "data.order_id: required", false},
		"one in a list":                  {created, `{"product_id": "prd_2", "quantity": 1}`, `{"quantity": 1}`, "data.items[1].product_id: required", false},
		"a number that is required":      {created, `"prd_2", "quantity": 1`, `"prd_2"`, "data.items[1].quantity: required", false},
		"a quantity of none":             {created, `"quantity": 2`, `"quantity": 0`, "data.items[0].quantity: min=1", false},
		"a shape that is another":        {created, `"usr_42"`, `"Ilse Brandvold"`, "data.user_id: uid", false},
		"more retries than reason":       {created, `"max_retries": 5`, `"max_retries": 5000`, "metadata.max_retries: max=1000", false},
		"an amount's extra digit":        {billed, `"19.00"`, `"19.000"`, "data.tax_amount: amount", true},
		"amounts in no currency":         {billed, `"currency": "EUR",`, ``, "data.amount: amount, data.currency: required, data.tax_amount: amount", false},
	} {
		format, file, _ := strings.Cut(test.of, "/")
		body := test.with
		if test.old != "" {
			good := string(goldenOf(t, format, file))
			require.Contains(t, good, test.old)
			body = strings.Replace(good, test.old, test.with, 1)
		}
		decoded, err := contracts().Decode(format, []byte(body))
		if err == nil {
			err = decoded.Validate()
		}
		require.EqualError(t, err, "contract: "+test.want, name) // which repeats no value
		if !test.goOnly {
			value, err := jsonschema.UnmarshalJSON(strings.NewReader(body))
			require.NoError(t, err)
			require.Error(t, schemas[format].Validate(value), name)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(goldenOf(f, contract.PayNowV1, "order_paid"), "", "")
	f.Add(goldenOf(f, contract.PayNowV1, "order_refunded_partial"), "", "")
	f.Add(goldenOf(f, contract.PayNowV1, "subscription_renewed"), "", "")
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

func TestABodyThatIsNotTheContractsIsMalformed(t *testing.T) {
	t.Parallel()
	for _, body := range []string{
		"", "x", "[]", `{"eventId":"1","email":"ilse@example.org"}`, `{"data":{"order":{"id":"1","customer":{"name":"Ilse"}}}}`,
		`{"eventId":"1","eventId":"2"}`, "{\"eventId\":\"\xff\"}", `{"data":{"order":{"items":[{"quantity":1.5}]}}}`, `{"data":{"order":{"items":[{"quantity":1e400}]}}}`,
	} {
		for _, format := range []string{contract.PayNowV1, contract.EnvelopeV1, contract.MessageV1} {
			decoded, err := contracts().Decode(format, []byte(body))
			var invalid *contract.Invalid // of a format that does not find its event type
			require.True(t, errors.Is(err, contract.ErrMalformed) || (format != contract.PayNowV1 && errors.As(err, &invalid)), "%s: %v", body, err)
			require.True(t, decoded.None())
			require.NotContains(t, err.Error(), "ilse")
		}
	}
}

func TestThePayloadHashCoversWhatABodySaysAndNotItsWay(t *testing.T) {
	t.Parallel()
	for file, test := range map[string]struct{ same, other string }{
		"paynow.v1/order_paid": {
			`"eventId": "530217764480030001"=>"eventId": "other"|2026-03-02T10:15:00Z=>2030-01-01T00:00:00Z`, `"quantity": 2=>"quantity": 3|order.paid=>order.refunded`,
		},
		"envelope.v1/renewal": {
			`6f1d2c9a-3b7e-4d15-9a58-1c0e7b2f4a02=>other|2026-04-02T10:15:01Z=>2030-01-01T00:00:00Z|"attempts": 0=>"attempts": 3`, `"cycle": 2=>"cycle": 3|"renewal"=>"initial"`,
		},
	} {
		format, name, _ := strings.Cut(file, "/")
		good := string(goldenOf(t, format, name))
		hash := func(body string) string {
			decoded, err := contracts().Decode(format, []byte(body))
			require.NoError(t, err)
			h, err := decoded.PayloadHash()
			require.NoError(t, err)
			require.Regexp(t, `^sha256:[0-9a-f]{64}$`, h)
			return h
		}
		for changes, same := range map[string]bool{test.same: true, test.other: false} {
			for change := range strings.SplitSeq(changes, "|") {
				old, replacement, _ := strings.Cut(change, "=>")
				require.Contains(t, good, old)
				require.Equal(t, same, hash(good) == hash(strings.Replace(good, old, replacement, 1)), change)
			}
		}
	}
}

func TestAnEnvelopesKeyIsTheFirstFieldThatItHas(t *testing.T) {
	t.Parallel()
	m := contract.Of(&contract.Envelope{CorrelationID: "c", Payload: contract.Payload{PaymentID: "p", OrderID: "o", CustomerID: "k", UID: "u"}})
	for fields, want := range map[string]string{
		"correlation_id": "c", "subscription_id": "", "payment_id": "p", "order_id": "o", "customer_id": "k", "uid": "u", "colour": "",
		"subscription_id payment_id uid": "p", "": "",
	} {
		require.Equal(t, want, m.OrderingKey(strings.Fields(fields), nil), fields)
	}
}

func TestAMessageOverALimitIsNamedByTheLimit(t *testing.T) {
	t.Parallel()
	full := func(bytes int) contract.Message {
		most := contract.Message{Attributes: map[string]string{strings.Repeat("k", 256): strings.Repeat("v", 1024)}, OrderingKey: strings.Repeat("o", 1024)}
		for i := range 99 {
			most.Attributes[fmt.Sprint("a", i)] = ""
		}
		most.Data = make([]byte, bytes-most.Size())
		return most
	}
	require.NoError(t, full(contract.MaxMessageBytes).Check(), "at every limit")
	require.ErrorIs(t, full(contract.MaxMessageBytes+1).Check(), contract.ErrLimit, "attributes and ordering key count")
	for name, spoil := range map[string]func(*contract.Message){
		"nothing at all":      func(m *contract.Message) { m.Data, m.Attributes = nil, nil },
		"too many attributes": func(m *contract.Message) { m.Attributes["one more"] = "" },
		"a long key":          func(m *contract.Message) { m.Attributes = map[string]string{strings.Repeat("k", 257): ""} },
		"an empty key":        func(m *contract.Message) { m.Attributes = map[string]string{"": "v"} },
		"a long value":        func(m *contract.Message) { m.Attributes = map[string]string{"k": strings.Repeat("v", 1025)} },
		"a long ordering key": func(m *contract.Message) { m.OrderingKey += "o" },
	} {
		m := full(100_000)
		require.NoError(t, m.Check())
		spoil(&m)
		require.ErrorIs(t, m.Check(), contract.ErrLimit, name)
	}
}

func TestABodysFormatIsDetectedByItsAttributeElseItsMembers(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ attribute, data, want string }{
		{"", `{"eventType":"a","x":[{}],"eventId":"b"}`, contract.PayNowV1},
		{"", `{"action":"a","payload":{"eventId":1,"eventType":1}}`, contract.EnvelopeV1},
		{"", `{"type":"a","version":1,"data":{}}`, contract.MessageV1},
		{"", `{"action":"a","payload":{},"eventId":1,"eventType":1}`, contract.PayNowV1},
		{"", `{"type":"a","data":{}}`, ""},
		{contract.MessageV1, `{"eventId":"1","eventType":"a"}`, contract.MessageV1},
		{"paynow.v9", `{"eventId":"1","eventType":"a"}`, ""},
		{"", `[]`, ""},
		{"", ``, ""},
		{"", `{"eventId":"1","eventType":"a"`, ""},
		{"", `{"eventId":"1","eventType":"a`, ""},
	} {
		var attributes map[string]string
		if test.attribute != "" {
			attributes = map[string]string{contract.AttrContract: test.attribute}
		}
		require.Equal(t, test.want, contracts().Detect(attributes, []byte(test.data)), test.data)
	}
}

func TestAStoredMessageComesBackAndLacksNoField(t *testing.T) {
	t.Parallel()
	m := contract.Message{Data: []byte{0xff, 0x00, 0xfe}, Attributes: map[string]string{"event_id": "e1"}, OrderingKey: "u1"}
	fields := store.Encode(&m)
	var got contract.Message
	require.NoError(t, store.Decode(fields, &got))
	require.Equal(t, m, got)
	require.Len(t, fields, 3)
	for name := range fields {
		broken := maps.Clone(fields)
		delete(broken, name)
		require.ErrorIs(t, store.Decode(broken, new(contract.Message)), store.ErrUnreadable, name)
	}
}
