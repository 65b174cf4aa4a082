package routing_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"billhook/internal/contract/routing"
)

func TestAFilterIsTheNarrowestThatFits(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 60)
	for sentence, test := range map[string]struct {
		binding routing.Binding
		want    string
	}{
		"nothing bound takes everything": {routing.Binding{Queue: "q", Own: true}, ""},
		"a condition a pattern": {
			routing.Binding{Queue: "q", Patterns: []routing.Pattern{"order.created", "mail.*.sent", "mail.*", "billing.#", "*.*.*"}},
			`attributes.queue = "q" OR (NOT attributes:queue AND (attributes.routing_key = "order.created" OR ` +
				`hasPrefix(attributes.routing_key, "mail.") OR hasPrefix(attributes.routing_key, "billing") OR attributes:routing_key))`,
		},
		"no key is for the owner of the topic": {
			routing.Binding{Queue: "q", Own: true, Patterns: []routing.Pattern{"a"}},
			`attributes.queue = "q" OR (NOT attributes:queue AND (NOT attributes:routing_key OR attributes.routing_key = "a"))`,
		},
		"everything that is for no other queue": {
			routing.Binding{Queue: "q", Patterns: []routing.Pattern{"a", "#"}}, `attributes.queue = "q" OR NOT attributes:queue`,
		},
		"one prefix where there is no room for all": {
			routing.Binding{Queue: "q", Patterns: []routing.Pattern{routing.Pattern("ab." + long), routing.Pattern("ac." + long), routing.Pattern("ad." + long)}},
			`attributes.queue = "q" OR (NOT attributes:queue AND (hasPrefix(attributes.routing_key, "a")))`,
		},
		"any key where they have no prefix in common": {
			routing.Binding{Queue: "q", Patterns: []routing.Pattern{routing.Pattern("b." + long), routing.Pattern("c." + long), routing.Pattern("d." + long)}},
			`attributes.queue = "q" OR (NOT attributes:queue AND (attributes:routing_key))`,
		},
		"no key at all where the id is long": {
			routing.Binding{Queue: strings.Repeat("q", 200), Patterns: []routing.Pattern{"b." + "x"}},
			`attributes.queue = "` + strings.Repeat("q", 200) + `" OR NOT attributes:queue`,
		},
		"everything where even that is too long": {routing.Binding{Queue: strings.Repeat("q", 240), Patterns: []routing.Pattern{"b"}}, ""},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, test.want, test.binding.Filter().String())
		})
	}
}

func TestAMessageIsForOneQueueAloneOrForThoseBoundToItsKey(t *testing.T) {
	t.Parallel()
	shared := routing.Binding{Queue: "q", Patterns: []routing.Pattern{"order.*", "bill.#"}}
	own, all := shared, routing.Binding{Queue: "q", Patterns: []routing.Pattern{"#"}}
	own.Own = true
	for sentence, test := range map[string]struct {
		attributes       map[string]string
		shared, own, all bool
	}{
		"bound":                    {map[string]string{"routing_key": "order.created"}, true, true, true},
		"not bound":                {map[string]string{"routing_key": "order.created.eu"}, false, false, true},
		"without a key":            {nil, false, true, true},
		"with an empty key":        {map[string]string{"routing_key": ""}, false, false, true},
		"for the queue alone":      {map[string]string{"queue": "q", "routing_key": "mail"}, true, true, true},
		"for another queue":        {map[string]string{"queue": "p", "routing_key": "order.created"}, false, false, false},
		"for a queue without name": {map[string]string{"queue": ""}, false, false, false},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, []bool{test.shared, test.own, test.all}, []bool{shared.Takes(test.attributes), own.Takes(test.attributes), all.Takes(test.attributes)})
			require.True(t, routing.Binding{Queue: "q"}.Takes(test.attributes), "nothing bound takes everything")
		})
	}
}

func TestAFilterFitsAndLetsThroughWhatIsTaken(t *testing.T) {
	t.Parallel()
	words := []string{"a", "b", "abc", strings.Repeat("long", 7)}
	rapid.Check(t, func(t *rapid.T) {
		b := routing.Binding{Queue: strings.Repeat("q", rapid.IntRange(1, 246).Draw(t, "id")), Own: rapid.Bool().Draw(t, "own")}
		for range rapid.IntRange(0, 5).Draw(t, "patterns") {
			p := rapid.SliceOfN(rapid.SampledFrom(append([]string{"*", "#"}, words...)), 1, 4).Draw(t, "pattern")
			b.Patterns = append(b.Patterns, routing.Pattern(strings.Join(p, ".")))
		}
		attributes := map[string]string{}
		if rapid.Bool().Draw(t, "keyed") {
			attributes["routing_key"] = strings.Join(rapid.SliceOfN(rapid.SampledFrom(words), 0, 4).Draw(t, "key"), ".")
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

// A pattern of many # must not take time beyond measure.
func TestManyHashesAreMatchedInOrder(t *testing.T) {
	t.Parallel()
	p := pattern(t, strings.Repeat("#.a.", 31)+"b")
	require.False(t, p.Match(strings.Repeat("a.", 5000)+"c"))
}
