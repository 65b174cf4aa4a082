package routing_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"billhook/internal/contract/routing"
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

// patterns are drawn of few words, so that they often meet.
func patterns() *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		return strings.Join(rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "*", "#"}), 1, 4).Draw(t, "words"), ".")
	})
}

// keys are all keys of at most n words of a, b and c. Two patterns of four words that hold a
// key both hold one of at most eight words; with few words five find it.
func keys(n int) (all []string) {
	longest := []string{""}
	for range n {
		var next []string
		for _, key := range longest {
			for _, w := range []string{"a", "b", "c"} {
				next = append(next, strings.TrimPrefix(key+"."+w, "."))
			}
		}
		all, longest = append(all, next...), next
	}
	return all
}

func TestPatternsOverlapWhereAKeyIsHeldByBoth(t *testing.T) {
	t.Parallel()
	all := keys(7)
	rapid.Check(t, func(t *rapid.T) {
		a, b := pattern(t, patterns().Draw(t, "a")), pattern(t, patterns().Draw(t, "b"))
		both := false
		for _, key := range all {
			both = both || a.Match(key) && b.Match(key)
		}
		require.Equal(t, both, routing.Overlap(a, b))
		require.Equal(t, routing.Overlap(a, b), routing.Overlap(b, a))
	})
	require.False(t, routing.Overlap("", "#"))
}

func TestPatternsAreAmbiguousWhereTheirSpellingAloneDecides(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		a, b string
		want bool
	}{
		{"#.paid.#", "#.invoice.#", true},
		{"#.a", "#.b", false},          // no key ends with both
		{"a.*", "*.b", false},          // the first says more of the first word
		{"*.*.reverted", "*.#", false}, // the first is narrower
		{"order.created", "order.created", false},
		{"billing.#", "billing.#.#", false}, // the longer goes first
	} {
		require.Equal(t, test.want, routing.Ambiguous(pattern(t, test.a), pattern(t, test.b)), test.a+" "+test.b)
		require.Equal(t, test.want, routing.Ambiguous(pattern(t, test.b), pattern(t, test.a)), test.b+" "+test.a)
	}
}
