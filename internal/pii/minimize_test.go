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

	"billhook/internal/contract"
	"billhook/internal/filetest"
	"billhook/internal/ingest/webhook/webhooktest"
	"billhook/internal/pii"
)

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

// row is a row of testdata/documents.yaml.
type row struct {
	What, In, Out, Refused string
	Dropped                []string
}

func TestDocumentIsMinimizedOrRefusedAsRecorded(t *testing.T) {
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

// A dropped value leaks no more than a refused one, and the output is allowed.
func TestOutputOfAnyDocumentIsAllowedAndHoldsNoDroppedValue(t *testing.T) {
	t.Parallel()
	for name, p := range map[string]*pii.Projection{
		"orders": orders(), "the contract": contract.Of(&contract.Payment{}).Contract().Projection(),
	} {
		every := slices.Sorted(maps.Keys(p.Rules()))
		optional := pii.NewProjection(p.Rules(), every...)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(t *rapid.T) {
				in := document(rapid.SampledFrom(every).Draw(t, "path"), value(t, 3))
				if rapid.Bool().Draw(t, "any document") {
					in = filetest.Must(
						json.Marshal(map[string]any{"body": value(t, 5), "event_id": value(t, 1), marker: value(t, 4)}))(t)
				}
				out, dropped, err := minimize(t, optional, string(in))
				var listed strings.Builder
				for _, v := range dropped {
					listed.WriteString(v.Path + ": " + v.Rule + "\n")
				}
				requireSilent(t, []byte(out+listed.String()), err)
				if err == nil {
					requireAllowed(t, optional, []byte(out))
				}
				strict, err := optional.Append(nil, in)
				requireSilent(t, strict, err)
				if err == nil {
					requireAllowed(t, optional, strict)
				}
				if err == nil && len(dropped) == 0 {
					require.Equal(t, string(strict), out, "good values are unchanged")
				}
			})
		})
	}
}

func TestListOfViolationsIsBounded(t *testing.T) {
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

func TestMinimizeReturnsThePositionsOfValuesAndElements(t *testing.T) {
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
