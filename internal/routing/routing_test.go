package routing_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"billhook/internal/routing"
)

func pattern(t require.TestingT, text string) routing.Pattern {
	p, err := routing.Parse(text)
	require.NoError(t, err)
	return p
}

func TestAPatternHoldsWhatRabbitMQSaysItHolds(t *testing.T) {
	t.Parallel()
	for text, keys := range map[string]struct{ holds, not string }{
		"order.created":        {"order.created", "order order.created.eu order.shipped Order.created"},
		"notification.email.*": {"notification.email.sent notification.email.x", "notification.email notification.email.a.b notification.sms.sent"},
		"billing.#":            {"billing billing.invoice billing.invoice.paid", "billings billings.invoice ledger"},
		"#":                    {"a a.b a.b.c", ""},
		"*.*.*":                {"a.b.c", "a.b a.b.c.d a"},
		"#.a.b":                {"a.b x.a.b a.a.b a.b.a.b", "a.b.c b.a"},
		"#.reverted":           {"reverted a.reverted a.b.reverted", "a.reverted.b revertedx"},
		"a.#.b.#.c":            {"a.b.c a.x.b.c a.b.y.z.c a.b.b.c", "a.c a.b b.c"},
		"*.*.reverted":         {"billing.invoice.reverted", "invoice.reverted a.b.c.reverted"},
	} {
		t.Run(text, func(t *testing.T) {
			t.Parallel()
			p := pattern(t, text)
			for _, key := range strings.Fields(keys.holds) {
				require.True(t, p.Match(key), key)
			}
			for _, key := range append(strings.Fields(keys.not), "") {
				require.False(t, p.Match(key), key)
			}
		})
	}
	require.False(t, routing.Pattern("").Match("a"))
}

func TestATextThatIsNoPatternIsRefused(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", ".", "a.", ".a", "a..b", "a b", "a*", "*a.b", "**", "a.##", `a"`, strings.Repeat("a", 129)} {
		_, err := routing.Parse(text)
		require.ErrorIs(t, err, routing.ErrPattern, text)
	}
}

func TestTheNarrowestPatternIsFound(t *testing.T) {
	t.Parallel()
	table, err := routing.NewTable(map[string]string{
		"#": "all", "*.*.*": "three", "billing.#": "billing", "billing.*.paid": "paid", "billing.invoice.paid": "itself", "*.*.reverted": "reverted",
	})
	require.NoError(t, err)
	for key, want := range map[string]string{
		"billing.invoice.paid": "itself", "billing.order.paid": "paid", "billing.invoice": "billing", "billing": "billing",
		"billing.invoice.reverted": "billing", "payroll.salary.reverted": "reverted", "payroll.salary.disbursed": "three", "x": "all",
	} {
		found, ok := table.Find(key)
		require.True(t, ok, key)
		require.Equal(t, want, found, key)
	}
	_, err = routing.NewTable(map[string]int{"a b": 1})
	require.ErrorIs(t, err, routing.ErrPattern)
	empty, err := routing.NewTable[int](nil)
	require.NoError(t, err)
	_, ok := empty.Find("a")
	require.False(t, ok)
}

// matches is the definition, word by word, without any shortcut.
func matches(pattern, key []string) bool {
	switch {
	case len(pattern) == 0:
		return len(key) == 0
	case pattern[0] == "#":
		return matches(pattern[1:], key) || (len(key) > 0 && matches(pattern, key[1:]))
	default:
		return len(key) > 0 && (pattern[0] == "*" || pattern[0] == key[0]) && matches(pattern[1:], key[1:])
	}
}

func TestMatchingIsTheDefinition(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "*", "#"}), 1, 6).Draw(t, "pattern")
		key := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "c"}), 1, 6).Draw(t, "key")
		require.Equal(t, matches(p, key), pattern(t, strings.Join(p, ".")).Match(strings.Join(key, ".")))
	})
}
