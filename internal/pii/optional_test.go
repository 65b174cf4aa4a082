package pii_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"billhook/internal/contract"
	"billhook/internal/pii"
)

// lenient has an id and lines that are required, and the rest optional.
func lenient() *pii.Projection {
	return pii.NewProjection(map[string]pii.Rule{
		"id": pii.ID, "lines[].product": pii.ID, "lines[].quantity": pii.Quantity, "lines[].price": pii.Integer,
		"at": pii.Time, "currency": pii.Currency, "who.uid": pii.UID, "who.id": pii.ID, "tags[]": pii.Code, "notes[].code": pii.Code,
		"refund.amount": pii.Amount, "refund.id": pii.ID,
	}, "lines[].price", "at", "currency", "who.uid", "who.id", "tags", "notes[].code", "refund.id")
}

func minimize(t require.TestingT, p *pii.Projection, in string) (out string, dropped []pii.Violation, err error) {
	d, err := pii.Parse([]byte(in))
	require.NoError(t, err)
	minimized, dropped, err := p.Minimize([]byte("before"), d)
	require.True(t, strings.HasPrefix(string(minimized), "before"))
	return strings.TrimPrefix(string(minimized), "before"), dropped, err
}

func TestABadOptionalFieldIsLeftOut(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		in, want string
		dropped  []pii.Violation
	}{
		"all is good":                   {`{"id":"1","at":"2026-03-02T10:01:00Z","who":{"uid":"u"}}`, `{"id":"1","at":"2026-03-02T10:01:00Z","who":{"uid":"u"}}`, nil},
		"the last":                      {`{"id":"1","currency":"usd"}`, `{"id":"1"}`, []pii.Violation{{Path: "currency", Rule: "currency"}}},
		"one between others":            {`{"id":"1","at":"now","currency":"USD"}`, `{"id":"1","currency":"USD"}`, []pii.Violation{{Path: "at", Rule: "timestamp"}}},
		"a number where text is due":    {`{"id":"1","at":5}`, `{"id":"1"}`, []pii.Violation{{Path: "at", Rule: "timestamp"}}},
		"text where a number is due":    {`{"lines":[{"price":"5"}]}`, `{"lines":[{}]}`, []pii.Violation{{Path: "lines[].price", Rule: "integer"}}},
		"text where an object is due":   {`{"who":"u","id":"1"}`, `{"id":"1"}`, []pii.Violation{{Path: "who", Rule: "object"}}},
		"a list where an object is due": {`{"who":[{"uid":"u"}]}`, `{}`, []pii.Violation{{Path: "who", Rule: "object"}}},
		"text where a list is due":      {`{"tags":"a","id":"1"}`, `{"id":"1"}`, []pii.Violation{{Path: "tags", Rule: "array"}}},
		"a detector's hit":              {`{"who":{"uid":"4111111111111111","id":"203.0.113.77"}}`, `{"who":{}}`, []pii.Violation{{Path: "who.uid", Rule: "card"}, {Path: "who.id", Rule: "ip"}}},
		"the same in each line, once":   {`{"lines":[{"price":1.5},{"price":2},{"price":"3"}]}`, `{"lines":[{},{"price":2},{}]}`, []pii.Violation{{Path: "lines[].price", Rule: "integer"}}},
		"a uid that is a number":        {`{"who":{"uid":12345}}`, `{"who":{"uid":"12345"}}`, nil},
		"a uid that is a card":          {`{"who":{"uid":4111111111111111}}`, `{"who":{}}`, []pii.Violation{{Path: "who.uid", Rule: "card"}}},
		"a uid that is a fraction":      {`{"who":{"uid":1.5}}`, `{"who":{}}`, []pii.Violation{{Path: "who.uid", Rule: "uid"}}},
		"a uid of 200 digits":           {`{"who":{"uid":` + strings.Repeat("1", 200) + `}}`, `{"who":{}}`, []pii.Violation{{Path: "who.uid", Rule: "uid"}}},
		"an id that is a number":        {`{"who":{"id":12345}}`, `{"who":{}}`, []pii.Violation{{Path: "who.id", Rule: "id"}}},
		"nothing":                       {`{"at":"","who":null}`, `{}`, nil},
	} {
		out, dropped, err := minimize(t, lenient(), test.in)
		require.NoError(t, err, name)
		require.Equal(t, test.want, out, name)
		require.Equal(t, test.dropped, dropped, name)
	}
}

func TestABadRequiredFieldRefusesTheBody(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		in, path, rule string
	}{
		"a field":                             {`{"at":"now","id":"#"}`, "id", "id"},
		"a field of a line":                   {`{"at":"now","lines":[{"product":"1"},{"quantity":0}]}`, "lines[1].quantity", "quantity"},
		"a line":                              {`{"at":"now","lines":["x"]}`, "lines[0]", "object"},
		"the lines, in which some is needed":  {`{"at":"now","lines":{}}`, "lines", "array"},
		"an element, which would leave a gap": {`{"at":"now","tags":["a","b c"]}`, "tags[1]", "code"},
		"an object as an element":             {`{"at":"now","notes":["x"]}`, "notes[0]", "object"},
		"an object in which some is needed":   {`{"at":"now","refund":"all"}`, "refund", "object"},
		"what is needed of it":                {`{"at":"now","refund":{"amount":"five"}}`, "refund.amount", "amount"},
	} {
		out, dropped, err := minimize(t, lenient(), test.in)
		require.Equal(t, []pii.Violation{{Path: test.path, Rule: test.rule}}, refusedBy(t, err).Violations, name)
		require.Equal(t, []pii.Violation{{Path: "at", Rule: "timestamp"}}, dropped, name)
		require.Empty(t, out, name)
	}
	_, _, err := minimize(t, pii.NewProjection(map[string]pii.Rule{"a": pii.ID}, "a"), `[]`)
	require.EqualError(t, err, "pii: : object", "the document itself is never optional")
}

// What is dropped leaks no more than what is refused, and what comes out is allowed.
func TestNothingComesOutOfWhatIsLeftOut(t *testing.T) {
	t.Parallel()
	for name, p := range map[string]*pii.Projection{"orders": orders(), "the contract": contract.Of(&contract.PayNow{}).Contract().Projection()} {
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

// exactly is the projection of a document without anything that is not on the list.
func exactly(t *testing.T, p *pii.Projection, in string) (string, error) {
	t.Helper()
	d, err := pii.Parse([]byte(in))
	require.NoError(t, err)
	out, err := p.Exact(nil, d)
	return string(out), err
}

func TestExactTakesATimeWithoutAnOffsetForOneInUTC(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]string{
		"2026-03-02T10:15:00":        "2026-03-02T10:15:00Z",
		"2026-03-02T10:15:00.123456": "2026-03-02T10:15:00.123456Z", // as Python writes it
		"2026-03-02T10:15:00Z":       "2026-03-02T10:15:00Z",
		"2026-03-02T10:15:00+01:00":  "2026-03-02T10:15:00+01:00",
		"2026-03-02":                 "", "2026-03-02T10:15": "", "2026-03-02 10:15:00": "", "2026-13-02T10:15:00": "", "soon": "",
	} {
		out, err := exactly(t, lenient(), `{"at":"`+given+`"}`)
		if want == "" {
			require.EqualError(t, err, "pii: at: timestamp", given)
			want = given
		} else {
			require.Equal(t, `{"at":"`+want+`"}`, out)
		}
		require.Equal(t, want, pii.InUTC(given))
	}
}

func TestExactNamesWhatItDoesNotKnow(t *testing.T) {
	t.Parallel()
	_, err := exactly(t, lenient(), `{"id":"1","at":null,"who":{"uid":"u"}}`)
	require.NoError(t, err)
	for in, want := range map[string]string{
		`{"x":1}`:                               "pii: x: unknown",
		`{"x":null}`:                            "pii: x: unknown",
		`{"who":{"x":{"id":"1"}}}`:              "pii: who.x: unknown",
		`{"lines":[{},{"sku":"1"}]}`:            "pii: lines[1].sku: unknown",
		`{"i\u0064x":1}`:                        "pii: idx: unknown",
		`{"two words":1,"":2,"1a":3}`:           "pii: ?: unknown, ?: unknown, ?: unknown",
		`{"who":{"a@b.cd":1}}`:                  "pii: who.?: unknown",
		`{"ip-203.0.113.77":1}`:                 "pii: ?: unknown",
		`{"at":"now","x":1}`:                    "pii: at: timestamp, x: unknown",
		`{"who":{"uid":5}}`:                     "pii: who.uid: uid",
		`{"` + strings.Repeat("x", 65) + `":1}`: "pii: ?: unknown",
		`{"who":{"` + strings.Repeat(`\u0041`, 200) + `":1}}`: "pii: who.?: unknown",
	} {
		_, err := exactly(t, lenient(), in)
		require.EqualError(t, err, want, in)
	}
}

func TestAPeekStopsBehindWhatItWants(t *testing.T) {
	t.Parallel()
	p := pii.NewProjection(map[string]pii.Rule{"type": pii.Code, "id": pii.ID})
	deep := strings.Repeat("[", 65) + strings.Repeat("]", 65)
	for in, want := range map[string]string{
		`{"type":"a","id":"1","body":` + deep + `}`:  `{"type":"a","id":"1"}`,
		`{"id":"1","x":5,"type":"a","id2":7}`:        `{"id":"1","type":"a"}`,
		`{"id":"1","type":null,"body":` + deep + `}`: `{"id":"1"}`,
		`{"body":{"id":"2"},"type":"a"}`:             `{"type":"a"}`,
		`{}`:                                         `{}`,
	} {
		d, err := pii.Parse([]byte(in))
		require.NoError(t, err)
		out, err := p.Peek(nil, d)
		require.NoError(t, err, in)
		require.Equal(t, want, string(out))
	}
	d, err := pii.Parse([]byte(`{"body":` + deep + `,"id":"1"}`))
	require.NoError(t, err)
	_, err = p.Peek(nil, d)
	require.ErrorContains(t, err, "malformed", "it passes over what stands before")
}

func TestTheListOfViolationsIsBounded(t *testing.T) {
	t.Parallel()
	unknown := `{"event_id":"1"`
	for i := range 1000 {
		unknown += fmt.Sprintf(`,"m%d":1`, i)
	}
	for _, in := range []string{unknown + `}`, `{"body":{"lines":[` + strings.Repeat(`{"quantity":0},`, 1000) + `{}]}}`} {
		_, err := exactly(t, orders(), in)
		require.Len(t, refusedBy(t, err).Violations, 20)
	}
}
