package routing_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"billhook/internal/contract/routing"
	"billhook/internal/filetest"
)

func pattern(t require.TestingT, text string) routing.Pattern {
	return filetest.Must(routing.Parse(text))(t)
}

func TestInvalidPatternIsRefused(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", ".", "a.", ".a", "a..b", "a b", "a*", "*a.b", "**", "a.##", `a"`, strings.Repeat("a", 129),
	} {
		require.ErrorIs(t, filetest.ErrorOf(routing.Parse(text)), routing.ErrPattern, text)
	}
}

func TestNarrowestPatternIsFound(t *testing.T) {
	t.Parallel()
	table := routing.Table[string]{
		"#": "all", "*.*.*": "three", "billing.#": "billing", "billing.*.paid": "paid",
		"billing.invoice.paid": "itself", "*.*.reverted": "reverted",
	}
	for key, want := range map[string]string{
		"billing.invoice.paid": "itself", "billing.order.paid": "paid", "billing.invoice": "billing",
		"billing":                  "billing",
		"billing.invoice.reverted": "billing", "payroll.salary.reverted": "reverted",
		"payroll.salary.disbursed": "three", "x": "all",
	} {
		found, ok := table.Find(key)
		require.True(t, ok, key)
		require.Equal(t, want, found, key)
	}
	_, ok := routing.Table[int](nil).Find("a")
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

// patterns are drawn from few words, so that they often overlap.
func patterns() *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		return strings.Join(rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "*", "#"}), 1, 4).Draw(t,
			"words"), ".")
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

func TestPatternsOverlapWhereBothMatchAKey(t *testing.T) {
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

func TestPatternsAreAmbiguousWhereOnlyTheirSpellingDecides(t *testing.T) {
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

func TestPatternMatchesAsInRabbitMQ(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "A", "ab", "*", "#"}), 1, 6).Draw(t, "pattern")
		key := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "ab", "c"}), 1, 6).Draw(t, "key")
		require.Equal(t, matches(p, key), pattern(t, strings.Join(p, ".")).Match(strings.Join(key, ".")))
	})
	require.False(t, pattern(t, "#").Match(""))
	require.False(t, routing.Pattern("").Match("a"))
	// The time of a pattern with many # is bounded.
	require.False(t, pattern(t, strings.Repeat("#.a.", 31)+"b").Match(strings.Repeat("a.", 5000)+"c"))
}

func TestFilterIsTheNarrowestThatFits(t *testing.T) {
	t.Parallel()
	all := filetest.YAML[[]struct {
		What, Want      string
		routing.Binding `yaml:",inline"`
	}](t, "testdata", "filters.yaml")
	for _, test := range all {
		require.Equal(t, test.Want, test.Filter().String(), test.What)
	}
}

func TestMessageIsForOneQueueOrForThoseBoundToItsKey(t *testing.T) {
	t.Parallel()
	shared := routing.Binding{Queue: "q", Patterns: []routing.Pattern{"order.*", "bill.#"}}
	own, all := shared, routing.Binding{Queue: "q", Patterns: []routing.Pattern{"#"}}
	own.Own = true
	for sentence, test := range map[string]struct {
		attributes       map[string]string
		shared, own, all bool
	}{
		"bound":             {map[string]string{"routing_key": "order.created"}, true, true, true},
		"not bound":         {map[string]string{"routing_key": "order.created.eu"}, false, false, true},
		"without a key":     {nil, false, true, true},
		"with an empty key": {map[string]string{"routing_key": ""}, false, false, true},
		"for the queue alone": {
			map[string]string{"queue": "q", "routing_key": "mail"}, true, true, true,
		},
		"for another queue": {map[string]string{"queue": "p", "routing_key": "order.created"}, false, false, false},
		"for a queue without name": {
			map[string]string{"queue": ""}, false, false, false,
		},
	} {
		got := []bool{shared.Takes(test.attributes), own.Takes(test.attributes), all.Takes(test.attributes)}
		require.Equal(t, []bool{test.shared, test.own, test.all}, got, sentence)
		require.True(t, routing.Binding{Queue: "q"}.Takes(test.attributes),
			"a queue without a binding takes everything")
	}
}

func TestFilterFitsAndPassesWhatTheBindingTakes(t *testing.T) {
	t.Parallel()
	words := []string{"a", "b", "abc", strings.Repeat("long", 7)}
	rapid.Check(t, func(t *rapid.T) {
		b := routing.Binding{
			Queue: strings.Repeat("q", rapid.IntRange(1, 246).Draw(t, "id")), Own: rapid.Bool().Draw(t, "own"),
		}
		for range rapid.IntRange(0, 5).Draw(t, "patterns") {
			p := rapid.SliceOfN(rapid.SampledFrom(append([]string{"*", "#"}, words...)), 1, 4).Draw(t, "pattern")
			b.Patterns = append(b.Patterns, routing.Pattern(strings.Join(p, ".")))
		}
		attributes := map[string]string{}
		if rapid.Bool().Draw(t, "keyed") {
			attributes["routing_key"] = strings.Join(rapid.SliceOfN(rapid.SampledFrom(words), 0, 4).Draw(t,
				"key"), ".")
		}
		if rapid.IntRange(0, 3).Draw(t, "alone") == 0 {
			attributes["queue"] = rapid.SampledFrom([]string{b.Queue, "p"}).Draw(t, "queue")
		}
		f := b.Filter()
		require.LessOrEqual(t, len(f.String()), 256)
		require.Equal(t, f.String() == "", f.Match(nil) && f.Match(map[string]string{"queue": "another"}))
		if b.Takes(attributes) {
			require.True(t, f.Match(attributes), "%v %q", attributes, f)
		}
	})
}

func TestMatchingAllocatesNothing(t *testing.T) { //nolint:paralleltest // it counts allocations
	p := pattern(t, "#.b.*.#.c")
	require.Zero(t, testing.AllocsPerRun(100, func() { p.Match("a.b.c.d.e.b.f.c") }))
}
