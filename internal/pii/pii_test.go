package pii_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"billhook/internal/ingest/webhook/webhooktest"
	"billhook/internal/pii"
)

func orders() *pii.Projection {
	return pii.NewProjection(map[string]pii.Rule{
		"event_type": pii.Code, "event_id": pii.Flake, "body.id": pii.Flake, "body.customer.id": pii.Flake,
		"body.checkout.metadata.uid": pii.UID, "body.currency": pii.Currency, "body.completed_at": pii.Time,
		"body.total_amount": pii.Integer, "body.lines[].product_id": pii.Flake,
		"body.lines[].quantity": pii.Quantity, "body.lines[].price": pii.Integer,
	})
}

func TestAnUnknownFieldNeverPassesWhereverItStands(t *testing.T) {
	t.Parallel()
	p := orders()
	rapid.Check(t, func(t *rapid.T) {
		const planted = "ilse.brandvold@example.org"
		var plant func(depth int) any
		plant = func(depth int) any {
			if depth == 0 || rapid.Bool().Draw(t, "leaf") {
				return planted
			}
			if rapid.Bool().Draw(t, "list") {
				return []any{plant(depth - 1), plant(depth - 1)}
			}
			// Allowed names in places where they are not allowed count as unknown too.
			name := rapid.SampledFrom([]string{"id", "name", "uid", "lines", "body", "event_id", "é", "a.b", ""}).Draw(t, "name")
			return map[string]any{name + "_": plant(depth - 1), name + "x": planted}
		}
		order := map[string]any{
			"event_type": "ON_ORDER_COMPLETED", "extra": plant(4),
			"body": map[string]any{"id": "1", "billing": plant(4), "customer": map[string]any{"id": "2", "name": plant(3)},
				"lines": []any{map[string]any{"product_id": "3", "quantity": 1, "note": plant(3)}}},
		}
		in, err := json.Marshal(order)
		require.NoError(t, err)
		out, err := p.Append(nil, in)
		require.NoError(t, err)
		require.NotContains(t, string(out), "ilse")
		require.True(t, json.Valid(out))
	})
}

func TestADocumentThatIsNotOneIsRefused(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat(`{"a":`, 20000) + "1" + strings.Repeat("}", 20000)
	for name, test := range map[string]struct {
		body   string
		offset int64
	}{
		"a stray word":                   {`{"event_id":"1", oops}`, 17},
		"a second value":                 {`{"event_id":"1"} {}`, 17},
		"a duplicate name":               {`{"x":1,"x":2}`, 7},
		"cut short":                      {`{"event_id":"1"`, 15},
		"nothing":                        {"", -1},
		"white space":                    {"  ", -1},
		"a byte order mark":              {"\ufeff{}", -1},
		"NaN":                            {`{"body":{"total_amount":NaN}}`, -1},
		"a duplicate name, escaped":      {`{"event_id":"1","event\u005fid":"2"}`, -1},
		"a duplicate name in the unread": {`{"x":{"y":[{"z":1,"z":2}]}}`, -1},
		"invalid UTF-8":                  {"{\"event_id\":\"\xff\"}", -1},
		"invalid UTF-8 in the unread":    {"{\"x\":\"\xff\"}", -1},
		"nested too deep":                {deep, -1},
		"a trailing comma":               {`{"event_id":"1",}`, -1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := orders().Append(nil, []byte(test.body))
			var refused *pii.Error
			require.ErrorAs(t, err, &refused)
			require.True(t, refused.Malformed)
			if test.offset >= 0 {
				require.Equal(t, test.offset, refused.Offset)
			}
		})
	}
}

func TestAValueOfAnotherShapeIsNamedAndNotRepeated(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ body, path, rule string }{
		"an e-mail address in an id":      {`{"event_id":"ilse@example.org"}`, "event_id", "flake"},
		"an e-mail address, escaped":      {`{"body":{"checkout":{"metadata":{"uid":"ilse\u0040example.org"}}}}`, "body.checkout.metadata.uid", "uid"},
		"an IP address as a uid":          {`{"body":{"checkout":{"metadata":{"uid":"198.51.100.23"}}}}`, "body.checkout.metadata.uid", "ip"},
		"an IPv6 address as a uid":        {`{"body":{"checkout":{"metadata":{"uid":"2001:db8::17"}}}}`, "body.checkout.metadata.uid", "ip"},
		"a card number as a uid":          {`{"body":{"checkout":{"metadata":{"uid":"4111111111111111"}}}}`, "body.checkout.metadata.uid", "card"},
		"a card number with dashes":       {`{"body":{"checkout":{"metadata":{"uid":"4111-1111-1111-1111"}}}}`, "body.checkout.metadata.uid", "card"},
		"a card number as a flake":        {`{"body":{"id":"4111111111111111"}}`, "body.id", "card"},
		"a card number as a price":        {`{"body":{"total_amount":4111111111111111}}`, "body.total_amount", "integer"},
		"a card number as a quantity":     {`{"body":{"lines":[{"quantity":4111111111111111}]}}`, "body.lines[0].quantity", "quantity"},
		"an IBAN as a uid":                {`{"body":{"checkout":{"metadata":{"uid":"NO9386011117947"}}}}`, "body.checkout.metadata.uid", "iban"},
		"an e-mail address behind a bar":  {`{"body":{"checkout":{"metadata":{"uid":"auth0|ilse@example.org"}}}}`, "body.checkout.metadata.uid", "uid"},
		"a phone number as a uid":         {`{"body":{"checkout":{"metadata":{"uid":"tel:601-234-567"}}}}`, "body.checkout.metadata.uid", "phone"},
		"a number where a string is due":  {`{"event_id":1}`, "event_id", "flake"},
		"an object where a string is due": {`{"event_id":{"a":1}}`, "event_id", "flake"},
		"a string where an object is due": {`{"body":"x"}`, "body", "object"},
		"an object where a list is due":   {`{"body":{"lines":{"product_id":"1"}}}`, "body.lines", "array"},
		"an item further down":            {`{"body":{"lines":[{"quantity":1},{"quantity":0}]}}`, "body.lines[1].quantity", "quantity"},
		"a quantity below zero":           {`{"body":{"lines":[{"quantity":-1}]}}`, "body.lines[0].quantity", "quantity"},
		"a quantity of 2^53":              {`{"body":{"lines":[{"quantity":9007199254740992}]}}`, "body.lines[0].quantity", "quantity"},
		"a quantity with a fraction":      {`{"body":{"lines":[{"quantity":1.5}]}}`, "body.lines[0].quantity", "quantity"},
		"a price with an exponent":        {`{"body":{"lines":[{"price":1e400}]}}`, "body.lines[0].price", "integer"},
		"a price beyond an int64":         {`{"body":{"lines":[{"price":9223372036854775808}]}}`, "body.lines[0].price", "integer"},
		"an id of 1500 bytes":             {`{"event_id":"` + strings.Repeat("1", 1500) + `"}`, "event_id", "flake"},
		"an id with a slash":              {`{"body":{"checkout":{"metadata":{"uid":"a/b"}}}}`, "body.checkout.metadata.uid", "uid"},
		"a control character":             {`{"body":{"checkout":{"metadata":{"uid":"a\u0000b"}}}}`, "body.checkout.metadata.uid", "uid"},
		"a list for the document":         {`[]`, "", "object"},
		"nothing for the document":        {`null`, "", "object"},
		"a word for the document":         {`true`, "", "object"},
		"a time of no shape":              {`{"body":{"completed_at":"yesterday, Ilse"}}`, "body.completed_at", "timestamp"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := orders().Append(nil, []byte(test.body))
			var refused *pii.Error
			require.ErrorAs(t, err, &refused)
			require.Equal(t, []pii.Violation{{Path: test.path, Rule: test.rule}}, refused.Violations)
			require.NotContains(t, strings.ToLower(err.Error()), "ilse")
		})
	}
}

func TestTheListOfViolationsIsBounded(t *testing.T) {
	t.Parallel()
	var unknown strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&unknown, `,"m%d":1`, i)
	}
	bad, err := pii.Parse([]byte(`{"body":{"lines":[` + strings.TrimSuffix(strings.Repeat(`{"quantity":0},`, 1000), ",") + `]}}`))
	require.NoError(t, err)
	foreign, err := pii.Parse([]byte(`{"event_id":"1"` + unknown.String() + `}`))
	require.NoError(t, err)
	for _, d := range []pii.Document{bad, foreign} {
		_, err = orders().Exact(nil, d)
		var refused *pii.Error
		require.ErrorAs(t, err, &refused)
		require.Len(t, refused.Violations, 20)
	}
}

func TestAttributesNeedARule(t *testing.T) {
	t.Parallel()
	rules := map[string]pii.Rule{"event_id": pii.ID, "uid": pii.UID}
	require.NoError(t, pii.CheckAttributes(map[string]string{"event_id": "1", "uid": "u"}, rules))
	err := pii.CheckAttributes(map[string]string{"event_id": "", "uid": "198.51.100.23", "ilse@example.org": "x"}, rules)
	var refused *pii.Error
	require.ErrorAs(t, err, &refused)
	require.Equal(t, []pii.Violation{{"attribute", "unknown"}, {"event_id", "id"}, {"uid", "ip"}}, refused.Violations)
}

func TestMinimizationAllocatesNextToNothing(t *testing.T) { //nolint:paralleltest // it counts allocations
	if raceDetector {
		t.Skip("pools drop their contents under the race detector")
	}
	p, order := orders(), webhooktest.Order(5<<10)
	dst := make([]byte, 0, len(order))
	allocations := testing.AllocsPerRun(100, func() {
		if _, err := p.Append(dst, order); err != nil {
			t.Fatal(err)
		}
	})
	require.LessOrEqual(t, allocations, 2.0)
}

func BenchmarkMinimize(b *testing.B) {
	p := orders()
	var dst []byte
	benchmark(b, func(order []byte) (err error) {
		dst, err = p.Append(dst[:0], order)
		return err
	})
}

// BenchmarkMinimizeFloor is what minimization is held against: decoding into a map and
// encoding again, without dropping or checking anything.
func BenchmarkMinimizeFloor(b *testing.B) {
	benchmark(b, func(order []byte) error {
		var document map[string]any
		if err := json.Unmarshal(order, &document); err != nil {
			return err
		}
		_, err := json.Marshal(document)
		return err
	})
}

func benchmark(b *testing.B, minimize func(order []byte) error) {
	b.Helper()
	for _, size := range []int{4 << 10, 5 << 10, 64 << 10, 1 << 20} {
		b.Run(fmt.Sprintf("%dKiB", size>>10), func(b *testing.B) {
			order := webhooktest.Order(size)
			b.SetBytes(int64(len(order)))
			b.ReportAllocs()
			for b.Loop() {
				if err := minimize(order); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
