package pii_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"billhook/catalog/catalogtest"
	"billhook/internal/contract"
	"billhook/internal/filetest"
	"billhook/internal/ingest/webhook/webhooktest"
	"billhook/internal/pii"
)

func orders() *pii.Projection {
	return pii.NewProjection(map[string]pii.Rule{
		"event_type": pii.Code, "event_id": pii.ID, "body.id": pii.ID, "body.customer.id": pii.ID,
		"body.checkout.metadata.uid": pii.UID, "body.currency": pii.Currency, "body.completed_at": pii.Time,
		"body.total_amount": pii.Integer, "body.lines[].product_id": pii.ID,
		"body.lines[].quantity": pii.Quantity, "body.lines[].price": pii.Integer,
	})
}

// marker fits no shape, so it must never be in an output. No path, rule or error has four bytes of it.
const marker = "~qzx~wvk~jqy~"

// requireSilent: neither the output nor the error has four bytes of the marker.
func requireSilent(t require.TestingT, out []byte, err error) {
	text := string(out)
	if err != nil {
		text += " " + err.Error()
	}
	for i := range len(marker) - 3 {
		require.NotContains(t, text, marker[i:i+4])
	}
}

func value(t *rapid.T, depth int) any {
	kind := rapid.IntRange(0, 7).Draw(t, "kind")
	if depth == 0 && kind < 3 {
		kind += 3
	}
	switch kind {
	case 0, 1:
		object := map[string]any{}
		for range rapid.IntRange(0, 4).Draw(t, "fields") {
			name := rapid.SampledFrom(
				[]string{
					"body", "lines", "id", "event_id", "event_type", "customer", "checkout", "metadata",
					"uid", "product_id", "quantity", "price", "currency", "total_amount", "name", marker, "é", "a.b",
					"lines[]", "", `"`, `\`,
				}).Draw(t, "name")
			object[name] = value(t, depth-1)
		}
		return object
	case 2:
		list := []any{}
		for range rapid.IntRange(0, 3).Draw(t, "length") {
			list = append(list, value(t, depth-1))
		}
		return list
	case 3:
		return marker + rapid.String().Draw(t, "text")
	case 4:
		return rapid.SampledFrom([]string{"1", "502113004410990001", "USD", "ORDER", "2026-03-02T10:01:00Z", ""}).
			Draw(t, "fitting")
	case 5:
		return rapid.SampledFrom([]any{0, 1, -1, 1.5, 1e300, 9007199254740991}).Draw(t, "number")
	case 6:
		return rapid.Bool().Draw(t, "bool")
	default:
		return nil
	}
}

func requireAllowed(t require.TestingT, p *pii.Projection, document []byte) {
	decoder := json.NewDecoder(bytes.NewReader(document))
	decoder.UseNumber()
	var decoded any
	require.NoError(t, decoder.Decode(&decoded))
	rules := p.Rules()
	var check func(path string, value any)
	check = func(path string, value any) {
		switch value := value.(type) {
		case map[string]any:
			for name, child := range value {
				check(strings.TrimPrefix(path+"."+name, "."), child)
			}
		case []any:
			for _, child := range value {
				check(path+"[]", child)
			}
		case string:
			require.True(t, rules[path].Valid(value), path)
		case json.Number:
			require.True(t, rules[path].Valid(value.String()), path)
		default:
			require.Fail(t, "a scalar without a shape", path)
		}
	}
	check("", decoded)
}

func document(path string, value any) []byte {
	names := strings.Split(path, ".")
	for i := len(names) - 1; i >= 0; i-- {
		name, array := strings.CutSuffix(names[i], "[]")
		if array {
			value = []any{value}
		}
		value = map[string]any{name: value}
	}
	out, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return out
}

func refusedBy(t require.TestingT, err error) *pii.Error {
	var refused *pii.Error
	require.ErrorAs(t, err, &refused)
	return refused
}

func TestEachStringOfTheContractsHasARule(t *testing.T) {
	t.Parallel()
	sentence := "Ilse Brandvold, Storgata 7"
	personal := []string{
		sentence, "ilse@example.org", "Ilse Brandvold", "Storgata 7", "+47 73 59 00 00", "4111 1111 1111 1111",
		"NO93 8601 1117 947", "198.51.100.23/24", "<p>", "a/b", "a\nb", "a\x00b", " ", strings.Repeat("1", 1500),
	}
	of := func(format, body string) *pii.Projection {
		c := filetest.Must(catalogtest.Shipped().Contracts.Find(format, []byte(body)))(t)
		return c.Projection()
	}
	for name, p := range map[string]*pii.Projection{
		"payment.v1": of(contract.PaymentV1, ``), "envelope.v1": of(contract.EnvelopeV1, `{"action":"renewal"}`),
		"attributes": pii.NewProjection(contract.AttributeRules),
		"an order":   of(contract.MessageV1, `{"type":"order.created","version":1}`),
		"an invoice": of(contract.MessageV1, `{"type":"billing.invoice.paid","version":1}`),
	} {
		require.NotEmpty(t, p.Rules(), name)
		for path, rule := range p.Rules() {
			for _, value := range personal {
				require.False(t, rule.Valid(value), "%s: %s (%s) allows %q", name, path, rule.Name(), value)
				out, err := p.Append(nil, document(path, value))
				require.Empty(t, out)
				require.Equal(t, []pii.Violation{{Path: strings.ReplaceAll(path, "[]", "[0]"), Rule: rule.Name()}},
					refusedBy(t, err).Violations)
			}
		}
	}
}

func TestInvalidDocumentIsRefused(t *testing.T) {
	t.Parallel()
	nest := func(depth int) string {
		return `{"x":` + strings.Repeat("[", depth-1) + strings.Repeat("]", depth-1) + `}`
	}
	const unread = `{"x":{"y":[{"z":1,"z":2}]}}`
	out := filetest.Must(orders().Append(nil, []byte(nest(64))))(t)
	require.Equal(t, "{}", string(out))
	for body, offset := range map[string]int64{
		`{"event_id":"1", oops}`: 17, `{"event_id":"1"} {}`: 17, `{"x":1,"x":2}`: 7, `{"event_id":"1"`: 15,
		"": -1, "  ": -1, "\ufeff{}": -1, `{"body":{"total_amount":NaN}}`: -1,
		`{"event_id":"1","event\u005fid":"2"}`: -1, `{"event_id":"1",}`: -1,
		unread: -1, `{"body":{"id":null,"id":"2"}}`: -1, `{"body":{"lines":[{"a":1,"b":2,"a":3}]}}`: -1,
		"{\"event_id\":\"\xff\"}": -1, "{\"x\":\"\xff\"}": -1,
		// Nested too deep, in any place.
		nest(65): -1, nest(5000): -1, `{"event_id":` + nest(64) + `}`: -1, `{"body":{"lines":[` +
			nest(62) + `]}}`: -1,
	} {
		_, err := orders().Append(nil, []byte(body))
		refused := refusedBy(t, err)
		require.True(t, refused.Malformed, body)
		if offset >= 0 {
			require.Equal(t, offset, refused.Offset, body)
		}
		// A duplicate name is refused where its object is read.
		d, err := pii.Parse([]byte(body), jsontext.AllowDuplicateNames(true))
		if err == nil {
			_, _, err = orders().Minimize(nil, nil, d)
		}
		require.Equal(t, body != unread, err != nil && refusedBy(t, err).Malformed, body)
	}
}

func TestInvalidPathPanics(t *testing.T) {
	t.Parallel()
	for _, paths := range [][]string{
		{""}, {"a..b"}, {"a."}, {"a[0]"}, {"a[][]"}, {`a"b`}, {"é"}, // invalid paths
		{"a", "a.b"}, {"a", "a[]"}, {"a.b", "a[].b"}, {"a[]", "a[].b"}, // valid paths that exclude each other
	} {
		for range 20 { // maps have no order, and any path may come first
			require.Panics(t, func() {
				rules := map[string]pii.Rule{}
				for _, path := range paths {
					rules[path] = pii.ID
				}
				pii.NewProjection(rules)
			}, "%q", paths)
		}
	}
	rules := map[string]pii.Rule{"a": pii.ID, "l[].x": pii.ID}
	for _, optional := range []string{"b", "a.b", "", "a[]", "l.x", "l[].y"} {
		require.Panics(t, func() { pii.NewProjection(rules, optional) }, optional)
	}
	require.Panics(t, func() { pii.NewProjection(map[string]pii.Rule{"a": {}}) })
	p := pii.NewProjection(rules)
	rules["b"] = pii.ID
	p.Rules()["c"] = pii.ID
	require.Len(t, p.Rules(), 2, "the returned rules are a copy")
}

func FuzzAppend(f *testing.F) {
	f.Add(webhooktest.Order(1), uint16(600))
	f.Add([]byte(`{"event_id":"1","body":{"lines":[{"quantity":1},{}],"customer":null}}`), uint16(13))
	f.Add([]byte(`{"body":{"lines":[[],[]]}}`), uint16(0))
	f.Add([]byte(`{"x":"\\\"","event\u005fid":"\u0031","x":[{}]}`), uint16(7))
	f.Add([]byte(`{"body":{"total_amount":-0,"lines":[{"price":1e5}]}}`), uint16(9))
	p := orders()
	f.Fuzz(func(t *testing.T, in []byte, at uint16) {
		out, err := p.Append(nil, in)
		// The JSON reader decides what is well-formed, except for nesting.
		if refused := (*pii.Error)(nil); err != nil {
			require.Empty(t, out)
			require.ErrorAs(t, err, &refused)
			require.LessOrEqual(t, len(refused.Violations), 20)
			require.Equal(t, refused.Malformed, !jsontext.Value(in).IsValid() || depth(in) > 64)
			require.LessOrEqual(t, refused.Offset, int64(len(in)))
		} else {
			require.True(t, jsontext.Value(in).IsValid())
			require.LessOrEqual(t, depth(in), 64)
			require.True(t, jsontext.Value(out).IsValid())
			requireAllowed(t, p, out)
			again := filetest.Must(p.Append(nil, out))(t)
			require.Equal(t, string(out), string(again), "the output projects to itself")
		}
		// The same with a marker in it, which neither output nor error may hold.
		i := int(at) % (len(in) + 1)
		planted := append(append(bytes.Clone(in[:i]), marker...), in[i:]...)
		if bytes.Count(in, []byte("~")) == 0 {
			out, err = p.Append(nil, planted)
			requireSilent(t, out, err)
		}
	})
}
