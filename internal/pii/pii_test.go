package pii_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"billhook/internal/pii"
	"billhook/internal/webhook/webhooktest"
)

func orders() *pii.Projection {
	return pii.NewProjection(map[string]pii.Rule{
		"event_type": pii.Code, "event_id": pii.Flake, "body.id": pii.Flake, "body.customer.id": pii.Flake,
		"body.checkout.metadata.uid": pii.UID, "body.currency": pii.Currency, "body.completed_at": pii.Time,
		"body.total_amount": pii.Integer, "body.lines[].product_id": pii.Flake,
		"body.lines[].quantity": pii.Quantity, "body.lines[].price": pii.Integer,
	})
}

func TestOnlyWhatIsAllowedPasses(t *testing.T) {
	t.Parallel()
	out, err := orders().Append(nil, webhooktest.Order(1))
	require.NoError(t, err)
	require.JSONEq(t, `{"event_type":"ON_ORDER_COMPLETED","event_id":"502113004410990001","body":{"id":"502113004410990002",
		"customer":{"id":"502113004410990003"},"checkout":{"metadata":{"uid":"Zk3uQm0aBcD4eFgH5iJkL6mNoPq7"}},"currency":"USD",
		"completed_at":"2026-03-02T10:01:00Z","lines":[{"product_id":"411486491630370501","price":1000,"quantity":2}],"total_amount":2000}}`, string(out))
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
	for name, body := range map[string]string{
		"nothing":                        "",
		"white space":                    "  ",
		"not JSON":                       "hello",
		"cut short":                      `{"event_id":"1"`,
		"two documents":                  `{"event_id":"1"}{"event_id":"2"}`,
		"a byte order mark":              "\ufeff{}",
		"NaN":                            `{"body":{"total_amount":NaN}}`,
		"a duplicate name":               `{"event_id":"1","event_id":"2"}`,
		"a duplicate name, escaped":      `{"event_id":"1","event\u005fid":"2"}`,
		"a duplicate name in the unread": `{"x":{"y":[{"z":1,"z":2}]}}`,
		"invalid UTF-8":                  "{\"event_id\":\"\xff\"}",
		"invalid UTF-8 in the unread":    "{\"x\":\"\xff\"}",
		"nested too deep":                deep,
		"a trailing comma":               `{"event_id":"1",}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := orders().Append(nil, []byte(body))
			var refused *pii.Error
			require.ErrorAs(t, err, &refused)
			require.True(t, refused.Malformed)
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
		"an IBAN as a uid":                {`{"body":{"checkout":{"metadata":{"uid":"NO9386011117947"}}}}`, "body.checkout.metadata.uid", "iban"},
		"a phone number as a uid":         {`{"body":{"checkout":{"metadata":{"uid":"601-234-567"}}}}`, "body.checkout.metadata.uid", "phone"},
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

func TestAnEmptyStringCountsAsAbsent(t *testing.T) {
	t.Parallel()
	out, err := orders().Append(nil, []byte(`{"event_type":"","event_id":"1","body":{"currency":"","id":""}}`))
	require.NoError(t, err)
	require.JSONEq(t, `{"event_id":"1","body":{}}`, string(out))
}

func TestTheListOfViolationsIsBounded(t *testing.T) {
	t.Parallel()
	body := `{"body":{"lines":[` + strings.TrimSuffix(strings.Repeat(`{"quantity":0},`, 1000), ",") + `]}}`
	_, err := orders().Append(nil, []byte(body))
	var refused *pii.Error
	require.ErrorAs(t, err, &refused)
	require.Len(t, refused.Violations, 20)
}

func TestTheDetectorsFindPersonalData(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]string{
		"ilse@example.org": "email", "to: ilse.b+x@mail.example.co.uk, please": "email", "ilse@exämple.org": "email",
		"198.51.100.23": "ip", "from 198.51.100.23/24": "ip", "2001:db8:5::17": "ip", "[::1]": "ip", "::ffff:198.51.100.23": "ip",
		"4111 1111 1111 1111": "card", "4111-1111-1111-1111": "card", "5500005555555559": "card", "card 378282246310005 ok": "card",
		"NO93 8601 1117 947": "iban", "PL61109010140000071219812874": "iban", "iban GB29NWBK60161331926819.": "iban",
		"+47 73 59 00 00": "phone", "+48601234567": "phone", "call (555) 123-4567 x": "phone", "0048 601 234 567": "phone", "601.234.567": "phone",
		"0048601234567": "phone", "tel:601-234-567": "phone", "(+47) 73 59 00 00": "phone", "mail ilse@example.org.": "email",
		"id:198.51.100.23": "ip", "ip:2001:db8:5::17": "ip", "198.51.100.23:8080": "ip", "[2001:db8::1]:443": "ip",
		"3782-822463-10005": "card", "12-4111-1111-1111-1111": "card", "6011 0009 9013 9424 ": "card",
		"2f3d0a11-1111-4111-8111-111111111111:4111111111111111": "card",
	} {
		t.Run(value, func(t *testing.T) {
			t.Parallel()
			found, ok := pii.Detect(pii.UID, value)
			require.True(t, ok)
			require.Equal(t, want, found)
		})
	}
}

func TestTheDetectorsAreSilentAboutIdentifiers(t *testing.T) {
	t.Parallel()
	for _, id := range []string{
		"ORD-2025-001", "evt_abc123", "Zk3uQm0aBcD4eFgH5iJkL6mNoPq7", "points:user:abc", "req_xyz789", "msg_a1b2c3d4",
		"2f3d0a11-1111-4111-8111-111111111111", "sub_2f3d0a11-1111-4111-8111-111111111111:refund", "v1.2.3", "sub-payment-initiation", "pay_run_2026_03", "a:b:c", "INV-2026-000042",
		// Right in everything but the check digit.
		"4111-1111-1111-1112", "4111111111111112", "NO9386011117948",
		"ORD-123-456-789",
		// Dated and numbered ids: refusing one of these would lose an order.
		"ORD-2025-001-002", "pay_2026-03-02-001", "order-20260302-000001", "2026-03-02-000123", "20260302-100100-001", "ORD-0000000042", "0000000042",
		"2026-03-02T10:01:00Z", "2026-03-02T10:01:00.123456789+02:00", "1234567.89", "points::abc", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
		"user-700000000000000300", "u_4111111111111111", "411486491630370001", "76561198000000001",
	} {
		found, ok := pii.Detect(pii.UID, id)
		require.False(t, ok, "%s is taken for %s", id, found)
	}
	rapid.Check(t, func(t *rapid.T) {
		var raw [16]byte
		copy(raw[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "bytes"))
		id, err := uuid.FromBytes(raw[:])
		require.NoError(t, err)
		for _, text := range []string{id.String(), strings.ToUpper(id.String()), "cus-" + id.String(), id.String() + ":1"} {
			found, ok := pii.Detect(pii.UID, text)
			require.False(t, ok, "%s is taken for %s", text, found)
		}
		firebase := rapid.StringMatching(`[A-Za-z0-9]{28}`).Draw(t, "uid")
		if strings.ToUpper(firebase) != firebase {
			found, ok := pii.Detect(pii.UID, firebase)
			require.False(t, ok, "%s is taken for %s", firebase, found)
		}
		flake := rapid.Int64Range(1, 1<<62).Draw(t, "flake")
		_, ok := pii.Detect(pii.ID, fmt.Sprint(flake))
		require.False(t, ok, "an id of digits passes Luhn by chance")
	})
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

func TestFreeTextCannotBeDeclared(t *testing.T) {
	t.Parallel()
	require.Panics(t, func() {
		pii.For[struct {
			Note string `json:"note" validate:"max=100"`
		}]()
	})
	p := pii.For[struct {
		ID    string `json:"id" validate:"required,id"`
		Items []struct {
			N int64 `json:"n" validate:"min=1"`
		} `json:"items"`
	}]()
	require.Equal(t, map[string]pii.Rule{"id": pii.ID, "items[].n": pii.Quantity}, p.Rules())
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
