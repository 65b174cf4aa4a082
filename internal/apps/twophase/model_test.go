package twophase_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"billhook/internal/platform/store/storetest"
	"billhook/internal/retry"
)

// odometer goes through every sequence of choices, one after the other.
type odometer struct {
	taken, of []int
	at        int
}

func (o *odometer) pick(n int) int {
	if o.at == len(o.taken) {
		o.taken, o.of = append(o.taken, 0), append(o.of, n)
	}
	o.at++
	return o.taken[o.at-1]
}

// next turns to the sequence after this one, and reports whether there is one.
func (o *odometer) next() bool {
	for o.at = 0; len(o.taken) > 0; {
		last := len(o.taken) - 1
		if o.taken[last]++; o.taken[last] < o.of[last] {
			return true
		}
		o.taken, o.of = o.taken[:last], o.of[:last]
	}
	return false
}

// sides are the other sides that do what the package asks for.
var sides = map[string]side{
	"agrees, and answers a repetition alike":      {decisions: []bool{true}},
	"agrees, and refuses a repetition":            {decisions: []bool{true}, rebuffs: true},
	"refuses for good":                            {decisions: []bool{false}},
	"refuses one and takes the next, unless void": {decisions: []bool{false, true}, forgets: true, voids: true},
}

// everyHistory goes through every sequence of choices, and hands over the world and what is wrong in its end.
func everyHistory(begin func() *world, see func(w *world, err error, choices []int)) (runs int) {
	for choices := new(odometer); ; {
		w := begin()
		see(w, w.run(choices.pick), choices.taken)
		if runs++; !choices.next() {
			return runs
		}
	}
}

// agree requires that the two sides agree in the end of each history.
func agree(t *testing.T, begin func() *world) {
	t.Helper()
	require.Greater(t, everyHistory(begin, func(_ *world, err error, choices []int) {
		if err != nil {
			require.NoError(t, err, "choices %v", choices)
		}
	}), 100)
}

// TestNoCrashMakesTheTwoSidesDisagree goes through every way in which up to two of the steps of three
// deliveries can fail, and on to the end: a worker killed on either side of a step,
// an answer lost, a commit sent twice, a request that arrives late.
func TestNoCrashMakesTheTwoSidesDisagree(t *testing.T) {
	t.Parallel()
	for name, other := range sides {
		for _, reconciles := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, reconciles %t", name, reconciles), func(t *testing.T) {
				t.Parallel()
				agree(t, func() *world {
					return &world{
						store: newMemory(), side: other, together: 1, deliveries: 3, reconciles: reconciles, budget: 2, befalls: everything,
					}
				})
			})
		}
	}
}

// TestTwoWorkersNeverMakeTheTwoSidesDisagree goes through every order of the steps of two workers at the
// same event, while one of the steps seems to fail or none does.
func TestTwoWorkersNeverMakeTheTwoSidesDisagree(t *testing.T) {
	t.Parallel()
	for name, other := range sides {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			agree(t, func() *world {
				return &world{store: newMemory(), side: other, together: 2, deliveries: 2, budget: 1, befalls: heldUp}
			})
		})
	}
}

// TestEveryLongHistoryEndsInAgreement draws long histories of two and three workers with
// many faults, on the embedded store.
func TestEveryLongHistoryEndsInAgreement(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		kind := rapid.SampledFrom(slices.Sorted(maps.Keys(sides))).Draw(rt, "side")
		w := &world{
			store: storetest.Open(t), side: sides[kind],
			together: rapid.IntRange(2, 3).Draw(rt, "together"), deliveries: rapid.IntRange(2, 6).Draw(rt, "deliveries"),
			reconciles: rapid.Bool().Draw(rt, "reconciles"), budget: rapid.IntRange(0, 8).Draw(rt, "faults"), befalls: everything,
		}
		require.NoError(rt, w.run(func(n int) int { return rapid.IntRange(0, n-1).Draw(rt, "pick") }))
	})
}

// A side that forgets its refusals parts from us: the walks above can fail. The
// attempt that meets it says so, and nothing is confirmed that was rolled back.
func TestASideThatForgetsItsRefusalsIsReportedAsADisagreement(t *testing.T) {
	t.Parallel()
	parted, said := 0, 0
	everyHistory(func() *world {
		return &world{store: newMemory(), side: side{decisions: []bool{false, true}, forgets: true}, together: 2, deliveries: 2}
	}, func(w *world, err error, _ []int) {
		if err != nil {
			require.NoError(t, w.always(), "whatever happens there, nothing is done twice here")
			parted++
		}
		for _, a := range w.answers {
			if a.err != nil && retry.Decide(a.err).Reason == "two_phase_disagreement" {
				require.True(t, final(a.err))
				said++
			}
		}
	})
	require.Positive(t, parted)
	require.Positive(t, said)
}
