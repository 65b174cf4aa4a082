package pii_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
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
			require.Fail(t, "a scalar of no shape", path)
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

func TestNothingThatIsNotAllowedComesOutOfAnyDocument(t *testing.T) {
	t.Parallel()
	p := orders()
	rapid.Check(t, func(t *rapid.T) {
		in := filetest.Must(
			json.Marshal(map[string]any{"body": value(t, 5), "event_id": value(t, 1), marker: value(t, 4)}))(t)
		out, err := p.Append(nil, in)
		requireSilent(t, out, err)
		if err == nil {
			requireAllowed(t, p, out)
		}
	})
}

func refusedBy(t require.TestingT, err error) *pii.Error {
	var refused *pii.Error
	require.ErrorAs(t, err, &refused)
	return refused
}

func TestEveryAllowedStringOfTheContractIsBoundedByARule(t *testing.T) {
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

func TestADocumentThatIsNotOneIsRefused(t *testing.T) {
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
		// Nested too deep, wherever it is.
		nest(65): -1, nest(5000): -1, `{"event_id":` + nest(64) + `}`: -1, `{"body":{"lines":[` +
			nest(62) + `]}}`: -1,
	} {
		_, err := orders().Append(nil, []byte(body))
		refused := refusedBy(t, err)
		require.True(t, refused.Malformed, body)
		if offset >= 0 {
			require.Equal(t, offset, refused.Offset, body)
		}
		// A name that stands twice is refused by who reads the object that it is in.
		d, err := pii.Parse([]byte(body), jsontext.AllowDuplicateNames(true))
		if err == nil {
			_, _, err = orders().Minimize(nil, nil, d)
		}
		require.Equal(t, body != unread, err != nil && refusedBy(t, err).Malformed, body)
	}
}

func TestAPathThatCannotBeMeantPanics(t *testing.T) {
	t.Parallel()
	for _, paths := range [][]string{
		{""}, {"a..b"}, {"a."}, {"a[0]"}, {"a[][]"}, {`a"b`}, {"é"}, // none of them is a path
		{"a", "a.b"}, {"a", "a[]"}, {"a.b", "a[].b"}, {"a[]", "a[].b"}, // each is one, and both cannot be
	} {
		for range 20 { // a map has no order: whichever path comes first
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
	require.Len(t, p.Rules(), 2, "the rules of a projection are its own")
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
			again := filetest.Must(p.Append(nil, out))(t)
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

func depth(document []byte) int {
	deepest := 0
	for decoder := jsontext.NewDecoder(bytes.NewReader(document)); ; {
		if _, err := decoder.ReadToken(); err != nil {
			return deepest
		}
		deepest = max(deepest, decoder.StackDepth())
	}
}

func lenient() *pii.Projection {
	return pii.NewProjection(map[string]pii.Rule{
		"id": pii.ID, "lines[].product": pii.ID, "lines[].quantity": pii.Quantity, "lines[].price": pii.Integer,
		"at": pii.Time, "currency": pii.Currency, "who.uid": pii.UID, "who.id": pii.ID, "tags[]": pii.Code,
		"notes[].code":  pii.Code,
		"refund.amount": pii.Amount, "refund.id": pii.ID,
	}, "lines[].price", "at", "currency", "who.uid", "who.id", "tags", "notes[].code", "refund.id")
}

func minimize(
	t require.TestingT, p *pii.Projection, in string,
) (out string, dropped []pii.Violation, err error) {
	d := filetest.Must(pii.Parse([]byte(in)))(t)
	minimized, dropped, err := p.Minimize([]byte("before"), nil, d)
	require.True(t, strings.HasPrefix(string(minimized), "before"))
	return strings.TrimPrefix(string(minimized), "before"), dropped, err
}

// row is one of testdata/documents.yaml, which says what each member is.
type row struct {
	What, In, Out, Refused string
	Dropped                []string
}

func TestADocumentIsMinimizedOrRefusedAsRecorded(t *testing.T) {
	t.Parallel()
	all := filetest.YAML[map[string][]row](t, "testdata", "documents.yaml")
	require.Len(t, all, 3)
	all["orders"] = append(all["orders"], row{
		What: "an order as PayNow sends it",
		In:   string(webhooktest.Order(1)), Out: `{"event_type":"ON_ORDER_COMPLETED",` +
			`"event_id":"502113004410990001","body":{"id":"502113004410990002",` +
			`"customer":{"id":"502113004410990003"},` +
			`"checkout":{"metadata":{"uid":"Zk3uQm0aBcD4eFgH5iJkL6mNoPq7"}},"currency":"USD",` +
			`"completed_at":"2026-03-02T10:01:00Z",` +
			`"lines":[{"product_id":"411486491630370501","price":1000,"quantity":2}],"total_amount":2000}}`,
	})
	for of, rows := range all {
		for _, row := range rows {
			var out string
			var violations []pii.Violation
			var err error
			switch of {
			case "exact":
				out, err = exactly(t, lenient(), row.In)
			case "lenient":
				out, violations, err = minimize(t, lenient(), row.In)
			default:
				out, violations, err = minimize(t, orders(), row.In)
				appended, same := orders().Append([]byte("before"), []byte(row.In))
				require.Equal(t, "before"+out, string(appended), row.What)
				require.Equal(t, err, same, row.What)
			}
			dropped := filetest.Map(violations, func(v pii.Violation) string { return v.Path + ": " + v.Rule })
			require.Equal(t, row.Dropped, dropped, row.What)
			require.Equal(t, row.Out, out, row.What)
			if row.Refused == "" {
				require.NoError(t, err, row.What)
				continue
			}
			require.EqualError(t, err, "pii: "+row.Refused, row.What)
			require.NotContains(t, strings.ToLower(err.Error()), "ilse")
		}
	}
	_, _, err := minimize(t, pii.NewProjection(map[string]pii.Rule{"a": pii.ID}, "a"), `[]`)
	require.EqualError(t, err, "pii: : object", "the document itself is never optional")
	_, err = exactly(t, lenient(), `{"id":"1","at":null,"who":{"uid":"u"}}`)
	require.NoError(t, err)
}

// What is dropped leaks no more than what is refused, and what comes out is allowed.
func TestNothingComesOutOfWhatIsLeftOut(t *testing.T) {
	t.Parallel()
	for name, p := range map[string]*pii.Projection{
		"orders": orders(), "the contract": contract.Of(&contract.Payment{}).Contract().Projection(),
	} {
		every := slices.Sorted(maps.Keys(p.Rules()))
		optional := pii.NewProjection(p.Rules(), every...)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(t *rapid.T) {
				path, text := rapid.SampledFrom(every).Draw(t, "path"), value(t, 3)
				in := string(document(path, text))
				out, dropped, err := minimize(t, optional, in)
				var told strings.Builder
				for _, v := range dropped {
					told.WriteString(v.Path + ": " + v.Rule + "\n")
				}
				requireSilent(t, []byte(out+told.String()), err)
				if err == nil {
					requireAllowed(t, optional, []byte(out))
				}
				strict, strictErr := optional.Append(nil, []byte(in))
				if strictErr == nil && len(dropped) == 0 {
					require.Equal(t, string(strict), out, "what is good is the same")
				}
			})
		})
	}
}

func TestTheListOfViolationsIsBounded(t *testing.T) {
	t.Parallel()
	unknown := `{"event_id":"1"`
	for i := range 1000 {
		unknown += fmt.Sprintf(`,"m%d":1`, i)
	}
	for _, in := range []string{
		unknown + `}`, `{"body":{"lines":[` + strings.Repeat(`{"quantity":0},`, 1000) + `{}]}}`,
	} {
		_, err := exactly(t, orders(), in)
		require.Len(t, refusedBy(t, err).Violations, 20)
	}
	var dropped pii.Dropped
	for i := range 50 {
		dropped.Add(fmt.Sprint(i%25), "id")
	}
	require.Len(t, dropped, 20)
	require.Equal(t, []bool{true, false}, []bool{dropped.Has("19"), dropped.Has("20")})
}

func TestMinimizeSaysWhereTheValuesAreAndWhereAnElementBegins(t *testing.T) {
	t.Parallel()
	p := pii.NewProjection(
		map[string]pii.Rule{"id": pii.ID, "lines[].product": pii.ID, "lines[].price": pii.Integer}, "lines[].price")
	d := filetest.Must(pii.Parse([]byte(
		`{"lines":[{"product":"p1","price":5},{"price":"mette","product":"p2"}],"name":"mette","id":"o1"}`)))(t)
	var values []pii.Value
	out, dropped, err := p.Minimize(nil, &values, d)
	require.NoError(t, err)
	require.Equal(t, pii.Dropped{{Path: "lines[].price", Rule: "integer"}}, dropped)
	names, said := map[int]string{}, ""
	for _, path := range []string{"id", "lines[]", "lines[].product", "lines[].price"} {
		names[p.Number(path)] = path
	}
	for _, v := range values {
		said += names[v.Number] + "=" + string(out[v.Start:v.End]) + " "
	}
	require.Equal(t, "lines[]= lines[].product=p1 lines[].price=5 lines[]= lines[].product=p2 id=o1 ", said)
	values = values[:0]
	require.Equal(t, "o1", string(pii.NewProjection(map[string]pii.Rule{"id": pii.ID}).First(nil, &values, d)))
}
