package seal_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/internal/apps/ledger"
	"billhook/internal/apps/ledger/seal"
	"billhook/internal/apps/ledger/seal/sealtest"
	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
)

// watched are the books of three tenants, one of whom has an entry that was changed.
func watched(t *testing.T) store.Store {
	t.Helper()
	s := storetest.Open(t)
	for i := range 12 { // more seals than a part has
		post(t, s, sale("acme", fmt.Sprint("a", i), "2026-11", 100, 0))
		run(t, s)
	}
	post(t, s, sale("beta", "b", "2026-11", 100, 0), sale("zeta", "z", "2026-11", 100, 0))
	run(t, s)
	tamper(t, s, ledger.Key(ledger.EntryID("beta", "b")), func(fields map[string]any) { fields["rule"] = "another" })
	return s
}

// A verification that is cut off after any number of reads goes on where it was, ends once, finds what a
// whole one finds, and begins again a day later.
func TestTheDailyVerificationGoesOnWhereItWasCutOff(t *testing.T) {
	t.Parallel()
	for reads := 4; reads < 40; reads += 3 {
		s := &storetest.Faults{Store: watched(t)}
		now := noon
		var told []string
		watch := seal.Watch{
			Verifier: seal.Verifier{From: s, Origins: sealtest.Trusting{}}, Store: s, Now: func() time.Time { return now },
			Report: func(f seal.Finding) { told = append(told, f.Kind+" "+f.Document) },
		}
		steps := 0
		var state seal.State
		for state.Last.FinishedAt.IsZero() {
			steps++
			require.Less(t, steps, 100, "%d reads", reads)
			ctx, cancel := context.WithCancel(t.Context())
			n := 0
			s.OnRead = func(do func() error) error {
				if n++; n > max(reads, 12*(steps/20)) {
					cancel()
					return ctx.Err()
				}
				return do()
			}
			var err error
			if state, err = watch.Step(ctx); err != nil {
				require.ErrorIs(t, err, context.Canceled)
			}
			cancel()
			now = now.Add(5 * time.Minute)
		}
		require.Equal(t, []string{"changed entries/" + ledger.EntryID("beta", "b")}, told)
		require.EqualValues(t, 1, state.Worst().Found)
		require.Equal(t, "changed", state.Last.Findings[0].Kind)
		require.EqualValues(t, 14, state.Last.Seals)

		s.OnRead = nil
		again, err := watch.Step(t.Context())
		require.NoError(t, err)
		require.Equal(t, state.Last, again.Last, "once a day")
		now = state.Last.BegunAt.Add(24 * time.Hour)
		again, err = watch.Step(t.Context())
		require.NoError(t, err)
		require.Equal(t, now, again.Last.BegunAt)
		require.Len(t, told, 2)
	}
}

// Of two steps at once one ends early, and each part is counted once. Of a finding both may tell.
func TestTwoStepsAtOnceCountEachPartOnce(t *testing.T) {
	t.Parallel()
	s := watched(t)
	faults := &storetest.Faults{Store: s}
	told := 0
	watch := func(on store.Store) seal.Watch {
		return seal.Watch{
			Verifier: seal.Verifier{From: on, Origins: sealtest.Trusting{}}, Store: on, Now: func() time.Time { return noon }, Report: func(seal.Finding) { told++ },
		}
	}
	first := true
	faults.OnCommit = func(ctx context.Context, _ []store.Write, do func() error) error {
		if first {
			first = false
			_, err := watch(s).Step(ctx)
			require.NoError(t, err)
		}
		return do()
	}
	state, err := watch(faults).Step(t.Context())
	require.NoError(t, err)
	require.Contains(t, []int{1, 2}, told)
	require.EqualValues(t, 1, state.Last.Found)
	require.EqualValues(t, 14, state.Last.Seals)
}
