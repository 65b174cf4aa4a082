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

// read decodes a body as its format's Go type.
func read[M any](t testing.TB, format string, data []byte) *M {
	t.Helper()
	body, err := contracts().Decode(format, data)
	require.NoError(t, err)
	m, err := contract.As[*M](body)
	require.NoError(t, err)
	return m
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
		t.Run(name, func(t *testing.T) {
			t.Parallel()
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
			require.EqualError(t, err, "contract: "+test.want) // which repeats no value
			if !test.goOnly {
				value, err := jsonschema.UnmarshalJSON(strings.NewReader(body))
				require.NoError(t, err)
				require.Error(t, schemas[format].Validate(value))
			}
		})
	}
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

func TestThePayloadHashCoversWhatABodySaysAndNotItsWay(t *testing.T) {
	t.Parallel()
	hash := func(made any) string {
		body, err := contracts().Held(contract.Of(made))
		require.NoError(t, err)
		h, err := body.PayloadHash()
		require.NoError(t, err)
		require.Regexp(t, `^sha256:[0-9a-f]{64}$`, h)
		return h
	}
	order := func(change func(*contract.PayNow)) string {
		m := read[contract.PayNow](t, contract.PayNowV1, golden(t, "order_paid"))
		change(m)
		return hash(m)
	}
	same := order(func(*contract.PayNow) {})
	require.Equal(t, same, order(func(m *contract.PayNow) { m.Timestamp = "2030-01-01T00:00:00Z"; m.EventID = "other" }))
	require.NotEqual(t, same, order(func(m *contract.PayNow) { m.Data.Order.Items[0].Quantity++ }))
	require.NotEqual(t, same, order(func(m *contract.PayNow) { m.EventType = "order.refunded" }))

	renewal := func(change func(*contract.Envelope)) string {
		m := read[contract.Envelope](t, contract.EnvelopeV1, goldenOf(t, contract.EnvelopeV1, "renewal"))
		change(m)
		return hash(m)
	}
	same = renewal(func(*contract.Envelope) {})
	require.Equal(t, same, renewal(func(m *contract.Envelope) { m.ID, m.CreatedAt, m.Attempts = "other", "2030-01-01T00:00:00Z", 3 }))
	require.NotEqual(t, same, renewal(func(m *contract.Envelope) { m.Payload.Cycle++ }))
	require.NotEqual(t, same, renewal(func(m *contract.Envelope) { m.Action = contract.ActionInitial }))
}

func TestARawObjectBecomesAnEnvelope(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 2, 11, 15, 0, 0, time.FixedZone("", 3600))
	const own, raw = `{"action":"renewal","subscription_id":"s1"}`, `{"subscription_id":"s1"}`
	hashed := func(said string) string {
		sum := sha256.Sum256([]byte(said))
		return "sha256:" + hex.EncodeToString(sum[:])
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
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			body, _, err := receive(test.data, test.attributes, at)
			require.NoError(t, err)
			require.NoError(t, body.Validate())
			m, err := contract.As[*contract.Envelope](body)
			require.NoError(t, err)
			require.Equal(t, &contract.Envelope{ID: test.id, Action: test.action, CreatedAt: "2026-03-02T10:15:00Z", Payload: contract.Payload{SubscriptionID: "s1"}}, m)
		})
	}
	_, _, err := receive(`{"action":"renewal","subscription_id":"s1","email":"ilse@example.org"}`, nil, at)
	require.ErrorIs(t, err, contract.ErrMalformed, "a member that no payload has")
	var invalid *contract.Invalid
	_, _, err = receive(`{"uid":"u1"}`, nil, at)
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

func TestABodysFormatIsDetectedByItsAttributeElseItsMembers(t *testing.T) {
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
