package twophase_test

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"billhook/internal/platform/standin"
	"billhook/internal/platform/store"
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

func newMemory() *memory { return &memory{docs: map[store.Key]store.Document{}} }

// sides are the other sides that do what the package asks for.
func sides() map[string]side {
	return map[string]side{
		"agrees, and answers a repetition alike":      {decisions: []bool{true}},
		"agrees, and refuses a repetition":            {decisions: []bool{true}, rebuffs: true},
		"refuses for good":                            {decisions: []bool{false}},
		"refuses one and takes the next, unless void": {decisions: []bool{false, true}, forgets: true, voids: true},
	}
}

// TestNoCrashMakesTheTwoSidesDisagree goes through every way in which up to two of the steps of three
// deliveries can fail, and on to the end: a worker killed on either side of a step,
// an answer lost, a commit sent twice, a request that arrives late.
func TestNoCrashMakesTheTwoSidesDisagree(t *testing.T) {
	t.Parallel()
	for name, other := range sides() {
		for _, reconciles := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, reconciles %t", name, reconciles), func(t *testing.T) {
				t.Parallel()
				every(t, func() *world {
					return &world{
						store: newMemory(), side: other, together: 1, deliveries: 3, reconciles: reconciles,
						budget: 2, befalls: everything,
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
	for name, other := range sides() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			every(t, func() *world {
				return &world{store: newMemory(), side: other, together: 2, deliveries: 2, budget: 1, befalls: heldUp}
			})
		})
	}
}

func every(t *testing.T, begin func() *world) {
	t.Helper()
	runs := 0
	for choices := new(odometer); ; runs++ {
		if err := begin().run(choices.pick); err != nil {
			require.NoError(t, err, "choices %v", choices.taken)
		}
		if !choices.next() {
			break
		}
	}
	require.Greater(t, runs, 100)
	t.Log(runs, "histories")
}

// TestEveryLongHistoryEndsInAgreement draws long histories of two and three workers with
// many faults, on the embedded store.
func TestEveryLongHistoryEndsInAgreement(t *testing.T) {
	t.Parallel()
	dir, runs := t.TempDir(), 0
	rapid.Check(t, func(t *rapid.T) {
		runs++
		db, err := standin.OpenTemporaryStore(filepath.Join(dir, fmt.Sprint(runs)))
		require.NoError(t, err)
		defer func() { require.NoError(t, db.Close()) }()
		kinds := sides()
		w := &world{
			store: db, side: kinds[rapid.SampledFrom(slices.Sorted(maps.Keys(kinds))).Draw(t, "side")],
			together: rapid.IntRange(2, 3).Draw(t, "together"), deliveries: rapid.IntRange(2, 6).Draw(t, "deliveries"),
			reconciles: rapid.Bool().Draw(t, "reconciles"), budget: rapid.IntRange(0, 8).Draw(t, "faults"), befalls: everything,
		}
		require.NoError(t, w.run(func(n int) int { return rapid.IntRange(0, n-1).Draw(t, "pick") }))
	})
}

// A side that forgets its refusals parts from us: the walks above can fail. The
// attempt that meets it says so, and nothing is confirmed that was rolled back.
func TestASideThatForgetsItsRefusalsIsReportedAsADisagreement(t *testing.T) {
	t.Parallel()
	parted, said := 0, 0
	for choices := new(odometer); ; {
		w := &world{
			store: newMemory(), side: side{decisions: []bool{false, true}, forgets: true},
			together: 2, deliveries: 2,
		}
		if err := w.run(choices.pick); err != nil {
			require.NoError(t, w.always(), "whatever happens there, nothing is done twice here")
			parted++
		}
		for _, a := range w.answers {
			if a.err != nil && retry.Decide(a.err).Reason == "two_phase_disagreement" {
				require.True(t, final(a.err))
				said++
			}
		}
		if !choices.next() {
			break
		}
	}
	require.Positive(t, parted)
	require.Positive(t, said)
}
