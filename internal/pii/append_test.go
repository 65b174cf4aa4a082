package pii_test

import (
	"bytes"
	"encoding/json"
	"runtime"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"billhook/catalog"
	"billhook/internal/contract"
	"billhook/internal/ingest/webhook/webhooktest"
	"billhook/internal/pii"
)

// marker fits no shape, so wherever it is planted it must come out nowhere. No four
// bytes of it stand in a path, in a rule's name or in the words of an error.
const marker = "~qzx~wvk~jqy~"

// requireSilent: neither the output nor the error gives four bytes of the marker away.
func requireSilent(t require.TestingT, out []byte, err error) {
	text := string(out)
	if err != nil {
		text += " " + err.Error()
	}
	for i := range len(marker) - 3 {
		require.NotContains(t, text, marker[i:i+4])
	}
}

// value draws any JSON, with the marker in names and strings.
func value(t *rapid.T, depth int) any {
	kind := rapid.IntRange(0, 7).Draw(t, "kind")
	if depth == 0 && kind < 3 {
		kind += 3
	}
	switch kind {
	case 0, 1:
		object := map[string]any{}
		for range rapid.IntRange(0, 4).Draw(t, "fields") {
			name := rapid.SampledFrom([]string{"body", "lines", "id", "event_id", "event_type", "customer", "checkout", "metadata",
				"uid", "product_id", "quantity", "price", "currency", "total_amount", "name", marker, "é", "a.b", "lines[]", "", `"`, `\`}).Draw(t, "name")
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
		return rapid.SampledFrom([]string{"1", "502113004410990001", "USD", "ORDER", "2026-03-02T10:01:00Z", ""}).Draw(t, "fitting")
	case 5:
		return rapid.SampledFrom([]any{0, 1, -1, 1.5, 1e300, 9007199254740991}).Draw(t, "number")
	case 6:
		return rapid.Bool().Draw(t, "bool")
	default:
		return nil
	}
}

func TestNothingThatIsNotAllowedComesOutOfAnyDocument(t *testing.T) {
	t.Parallel()
	p := orders()
	rapid.Check(t, func(t *rapid.T) {
		in, err := json.Marshal(map[string]any{"body": value(t, 5), "event_id": value(t, 1), marker: value(t, 4)})
		require.NoError(t, err)
		out, err := p.Append(nil, in)
		requireSilent(t, out, err)
		if err == nil {
			requireAllowed(t, p, out)
		}
	})
}

// requireAllowed: every scalar of the document stands at an allowed path and has its
// rule's shape.
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
			require.Fail(t, "a scalar of no shape", path)
		}
	}
	check("", decoded)
}

func TestEveryAllowedStringOfTheContractIsBoundedByARule(t *testing.T) {
	t.Parallel()
	sentence := "Ilse Brandvold, Storgata 7"
	personal := []string{sentence, "ilse@example.org", "Ilse Brandvold", "Storgata 7", "+47 73 59 00 00", "4111 1111 1111 1111",
		"NO93 8601 1117 947", "198.51.100.23/24", "<p>", "a/b", "a\nb", "a\x00b", " ", strings.Repeat("1", 1500)}
	shipped, err := catalog.Load("")
	require.NoError(t, err)
	of := func(format, body string) *pii.Projection {
		c, err := shipped.Contracts.Find(format, []byte(body))
		require.NoError(t, err)
		return c.Projection()
	}
	for name, p := range map[string]*pii.Projection{
		"paynow.v1": of(contract.PayNowV1, ``), "envelope.v1": of(contract.EnvelopeV1, `{"action":"renewal"}`), "attributes": pii.NewProjection(contract.AttributeRules),
		"an order": of(contract.MessageV1, `{"type":"order.created","version":1}`), "an invoice": of(contract.MessageV1, `{"type":"billing.invoice.paid","version":1}`),
	} {
		require.NotEmpty(t, p.Rules(), name)
		for path, rule := range p.Rules() {
			for _, value := range personal {
				require.False(t, rule.Valid(value), "%s: %s (%s) allows %q", name, path, rule.Name(), value)
				out, err := p.Append(nil, document(path, value))
				var refused *pii.Error
				require.ErrorAs(t, err, &refused)
				require.Empty(t, out)
				require.Equal(t, []pii.Violation{{Path: strings.ReplaceAll(path, "[]", "[0]"), Rule: rule.Name()}}, refused.Violations)
			}
		}
	}
}

// document holds one value, at a path.
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

func TestNestingIsBoundedWhereverItStands(t *testing.T) {
	t.Parallel()
	nest := func(depth int) string {
		return `{"x":` + strings.Repeat("[", depth-1) + strings.Repeat("]", depth-1) + `}`
	}
	out, err := orders().Append(nil, []byte(nest(64)))
	require.NoError(t, err)
	require.Equal(t, "{}", string(out))
	for _, body := range []string{nest(65), nest(5000), `{"event_id":` + nest(64) + `}`, `{"body":{"lines":[` + nest(62) + `]}}`} {
		_, err = orders().Append(nil, []byte(body))
		var refused *pii.Error
		require.ErrorAs(t, err, &refused)
		require.True(t, refused.Malformed)
	}
}

func TestAllowedFieldsAloneAreAppendedBehindWhatWasThere(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ in, want string }{
		"white space is dropped":                {" {\n\t\"body\" : { \"lines\" : [ { \"quantity\" : 1 } , { } ] } }\r\n", `{"body":{"lines":[{"quantity":1},{}]}}`},
		"null fields are dropped":               {`{"event_id":null,"body":{"id":null,"lines":null,"customer":null}}`, `{"body":{}}`},
		"an escaped name is the name":           {`{"event\u005fid":"1"}`, `{"event_id":"1"}`},
		"an escaped value is the value":         {`{"event_id":"\u0031\u0032"}`, `{"event_id":"12"}`},
		"the order is the input's":              {`{"body":{"lines":[],"id":"2"},"event_id":"1"}`, `{"body":{"lines":[],"id":"2"},"event_id":"1"}`},
		"quotes and brackets in what is unread": {`{"x":"\\\"}]{[\\","y":{"\"}":["]","\\"]},"event_id":"1","z":-1.5e+400}`, `{"event_id":"1"}`},
		"words in what is unread":               {`{"a":true,"b":[false,null,-0.1],"event_id":"1","c":false}`, `{"event_id":"1"}`},
		"a number too large for any type":       {`{"x":1e400,"event_id":"1"}`, `{"event_id":"1"}`},
		"empty strings are absent":              {`{"event_type":"","event_id":"1","body":{"currency":"","id":""}}`, `{"event_id":"1","body":{}}`},
		"an order as PayNow sends it": {
			string(webhooktest.Order(1)),
			`{"event_type":"ON_ORDER_COMPLETED","event_id":"502113004410990001","body":{"id":"502113004410990002","customer":{"id":"502113004410990003"},` +
				`"checkout":{"metadata":{"uid":"Zk3uQm0aBcD4eFgH5iJkL6mNoPq7"}},"currency":"USD","completed_at":"2026-03-02T10:01:00Z",` +
				`"lines":[{"product_id":"411486491630370501","price":1000,"quantity":2}],"total_amount":2000}}`,
		},
		"nothing is allowed": {`{"x":{"event_id":"1"}}`, `{}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, err := orders().Append([]byte("before"), []byte(test.in))
			require.NoError(t, err)
			require.Equal(t, "before"+test.want, string(out))
		})
	}
	out, err := orders().Append([]byte("before"), []byte(`{"event_id":"1","body":[]}`))
	require.Error(t, err)
	require.Equal(t, "before", string(out))
}

func TestAPathThatCannotBeMeantPanics(t *testing.T) {
	t.Parallel()
	for name, paths := range map[string][]string{
		"empty":                             {""},
		"an empty name":                     {"a..b"},
		"a dot at the end":                  {"a."},
		"an index":                          {"a[0]"},
		"an array of arrays":                {"a[][]"},
		"a name that JSON would escape":     {`a"b`},
		"a name outside ASCII":              {"é"},
		"too deep a one":                    {strings.Repeat("a.", 16) + "a"},
		"a field within a scalar":           {"a", "a.b"},
		"an array that is a scalar too":     {"a", "a[]"},
		"an array that is an object too":    {"a.b", "a[].b"},
		"an item that is a scalar and more": {"a[]", "a[].b"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for range 20 { // a map has no order: whichever path comes first
				require.Panics(t, func() {
					rules := map[string]pii.Rule{}
					for _, path := range paths {
						rules[path] = pii.ID
					}
					pii.NewProjection(rules)
				})
			}
		})
	}
	require.Panics(t, func() { pii.NewProjection(map[string]pii.Rule{"a": {}}) })
}

func TestTheRulesOfAProjectionAreItsOwn(t *testing.T) {
	t.Parallel()
	rules := map[string]pii.Rule{"a": pii.ID}
	p := pii.NewProjection(rules)
	rules["b"] = pii.ID
	p.Rules()["c"] = pii.ID
	require.Equal(t, map[string]pii.Rule{"a": pii.ID}, p.Rules())
}

func TestShapes(t *testing.T) {
	t.Parallel()
	for rule, test := range map[pii.Rule]struct{ good, bad []string }{
		pii.Flake:    {[]string{"1", strings.Repeat("9", 32)}, []string{"", strings.Repeat("9", 33), "-1", "1a", "１"}},
		pii.ID:       {[]string{"a", "ORD-2025-001", "a.b_c:d-e", strings.Repeat("x", 128)}, []string{"", "-a", ":a", "a/b", "a b", "a@b", "é", strings.Repeat("x", 129)}},
		pii.Code:     {[]string{"order.paid", "ON_REFUND", "x-1"}, []string{"", "1a", "a:b", "a b", strings.Repeat("x", 65)}},
		pii.Currency: {[]string{"USD"}, []string{"", "usd", "US", "USDT", "U$D"}},
		pii.Time: {
			[]string{"2026-03-02T10:01:00Z", "2024-02-29T23:59:59.123456789-23:59", "2000-02-29T00:00:00+00:00"},
			[]string{"", "2026-03-02", "2026-03-02 10:01:00Z", "2026-03-02T10:01:00", "2026-03-02t10:01:00z", "2026-03-02T1:01:00Z", "2026-03-02T10:01:00,5Z",
				"2026-03-02T10:01:00.Z", "2026-03-02T10:01:00.1234567890Z", "2026-02-29T10:01:00Z", "1900-02-29T10:01:00Z", "2026-13-02T10:01:00Z", "2026-00-02T10:01:00Z",
				"2026-04-31T10:01:00Z", "2026-03-00T10:01:00Z", "2026-03-02T24:01:00Z", "2026-03-02T10:60:00Z", "2026-03-02T10:01:60Z", "2026-03-02T10:01:00+24:00",
				"2026-03-02T10:01:00+0200", "2026-03-02T10:01:00+02:60", "2026-03-02T10:01:00ZZ"},
		},
		pii.Amount:   {[]string{"0", "-1", "10.00", "1.000"}, []string{"", "-", ".5", "5.", "1.2.3", "1,5", "+1", "1e3", " 1", strings.Repeat("9", 25)}},
		pii.Integer:  {[]string{"0", "-1", "9223372036854775807", "-9223372036854775808"}, []string{"", "-", "9223372036854775808", "-9223372036854775809", "1.0", "1e3", "99999999999999999999"}},
		pii.Quantity: {[]string{"1", "9007199254740991"}, []string{"", "0", "-1", "01", "9007199254740992", "9007199254740993", "1.5", "1e3", "99999999999999999"}},
		{}:           {nil, []string{"", "a", "1"}},
	} {
		t.Run(rule.Name(), func(t *testing.T) {
			t.Parallel()
			for _, value := range test.good {
				require.True(t, rule.Valid(value), value)
			}
			for _, value := range test.bad {
				require.False(t, rule.Valid(value), value)
			}
		})
	}
}

func TestShapesAllocateNothing(t *testing.T) { //nolint:paralleltest // it counts allocations
	if raceDetector {
		t.Skip("conversions allocate under the race detector")
	}
	large := strings.Repeat("1", 1<<20)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		for _, value := range []string{"order-20260302-000001-and-more-than-32-bytes", "2026-03-02T10:01:00.123456789+01:00", "9223372036854775807", large} {
			for _, rule := range []pii.Rule{pii.Flake, pii.ID, pii.Code, pii.Currency, pii.Time, pii.Amount, pii.Integer, pii.Quantity} {
				_ = rule.Valid(value)
			}
		}
	}))
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
		// The JSON reader is the judge of what is well-formed; only nesting is ours.
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
			again, err := p.Append(nil, out)
			require.NoError(t, err)
			require.Equal(t, string(out), string(again), "what was minimized is minimal")
		}
		// The same with a marker in it: neither output nor error may tell of it.
		i := int(at) % (len(in) + 1)
		planted := append(append(bytes.Clone(in[:i]), marker...), in[i:]...)
		if bytes.Count(in, []byte("~")) == 0 {
			out, err = p.Append(nil, planted)
			requireSilent(t, out, err)
		}
	})
}

// depth is how deep a document is nested.
func depth(document []byte) int {
	deepest := 0
	for decoder := jsontext.NewDecoder(bytes.NewReader(document)); ; {
		if _, err := decoder.ReadToken(); err != nil {
			return deepest
		}
		deepest = max(deepest, decoder.StackDepth())
	}
}

func TestALargeStringIsRefusedWithoutACopy(t *testing.T) { //nolint:paralleltest // it counts allocations
	p := orders()
	for _, unit := range []string{"1", `\u0031`} {
		body := []byte(`{"event_id":"` + strings.Repeat(unit, 1<<20) + `"}`)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := p.Append(nil, body)
		runtime.ReadMemStats(&after)
		require.EqualError(t, err, "pii: event_id: flake")
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(64<<10))
	}
}
