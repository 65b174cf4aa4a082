package seal_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/require"

	"billhook/internal/apps/ledger"
	"billhook/internal/apps/ledger/seal"
	"billhook/internal/apps/ledger/seal/sealtest"
	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
)

func proofs(t *testing.T, n int) (all [][]byte, kept []seal.Seal) {
	t.Helper()
	s := storetest.Open(t)
	var entries []ledger.Entry
	for i := range n {
		entries = append(entries, sale("acme", fmt.Sprint("e", i), "2026-11", 100+int64(i), time.Duration(i)*time.Second))
	}
	post(t, s, entries...)
	run(t, s)
	for _, entry := range entries {
		text, err := seal.Prove(t.Context(), s, ledger.EntryID("acme", entry.EventID))
		require.NoError(t, err)
		all = append(all, text)
	}
	kept, _, err := seal.List(t.Context(), s, "acme", 0, 10)
	require.NoError(t, err)
	return all, kept
}

func TestEachEntryOfASealIsProvenToWhoeverKeptTheSeal(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 2, 3, 7, 8, 21} {
		all, kept := proofs(t, n)
		for i, text := range all {
			proven, err := seal.CheckProof(text, kept)
			require.NoError(t, err)
			entry := proven.Entry
			proven.Entry = nil
			require.Equal(t, seal.Proven{
				Tenant: "acme", Seal: 1, SealHash: kept[0].Hash, Root: kept[0].Root, Count: int64(n), Index: int64(i),
			}, proven)
			require.Contains(t, string(entry), fmt.Sprintf(`"event_id":"e%d"`, i))
		}
	}
}

func TestAnEntryThatIsNotAsItWasSealedIsNotProven(t *testing.T) {
	t.Parallel()
	s := storetest.Open(t)
	post(t, s, sale("acme", "a", "2026-11", 100, 0))
	_, err := seal.Prove(t.Context(), s, ledger.EntryID("acme", "a"))
	require.ErrorIs(t, err, seal.ErrUnsealed)
	for _, id := range []string{ledger.EntryID("acme", "b"), "", "a/b"} {
		_, err = seal.Prove(t.Context(), s, id)
		require.ErrorIs(t, err, seal.ErrNoEntry)
	}
	key := ledger.Key(ledger.EntryID("acme", "a"))
	for name, value := range map[string]any{"event_type": "other.event.happened", "leaf": int64(7), "seal": int64(7), "lines": "none"} {
		all := sealedBooks(t)
		all[key] = with(all[key], name, value)
		_, err = seal.Prove(t.Context(), all, key.ID)
		require.ErrorIs(t, err, seal.ErrBroken, name)
	}
}

// Any other bit of a proof makes it none.
func TestAChangedProofProvesNothing(t *testing.T) {
	t.Parallel()
	all, kept := proofs(t, 3)
	every := 1
	if testing.Short() {
		every = 7
	}
	for i := 0; i < 8*len(all[1]); i += every {
		changed := bytes.Clone(all[1])
		changed[i/8] ^= 1 << (i % 8)
		_, err := seal.CheckProof(changed, kept)
		require.ErrorIs(t, err, seal.ErrProof, "bit %d of %q", i%8, all[1][i/8:])
	}
}

// vector returns the proof and the seals in testdata. They may never change: what was given out is checked
// for years.
func vector(t testing.TB) (text string, kept []seal.Seal) {
	t.Helper()
	good, err := os.ReadFile(filepath.Join("testdata", "proof.json"))
	require.NoError(t, err)
	seals, err := os.ReadFile(filepath.Join("testdata", "seals.json"))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(seals, &kept))
	return string(good), kept
}

func TestAProofInAnotherFormOrOfAnotherSealProvesNothing(t *testing.T) {
	t.Parallel()
	good, kept := vector(t)
	proven, err := seal.CheckProof([]byte(good), kept)
	require.NoError(t, err)
	require.EqualValues(t, 1, proven.Index)
	_, err = seal.CheckProof([]byte(good), nil)
	require.ErrorContains(t, err, "no seal 1 of acme")
	_, again := proofs(t, 2)
	_, err = seal.CheckProof([]byte(good), again)
	require.ErrorIs(t, err, seal.ErrProof, "the books were sealed again, without an entry")
	for name, change := range map[string]func(*seal.Seal){
		"its root": func(s *seal.Seal) { s.Root = strings.Repeat("0", 64) }, "its count": func(s *seal.Seal) { s.Count = 4 },
		"its number": func(s *seal.Seal) { s.Number = 2 }, "its tenant": func(s *seal.Seal) { s.Tenant = "beta" }, "its hash": func(s *seal.Seal) { s.Hash = s.Root },
	} {
		_, other := vector(t)
		change(&other[0])
		_, err := seal.CheckProof([]byte(good), other)
		require.ErrorIs(t, err, seal.ErrProof, name)
	}
	zeros := `"` + base64.StdEncoding.EncodeToString(make([]byte, 32)) + `"`
	begin, rest, _ := strings.Cut(good, `"path":[`)
	path, rest, _ := strings.Cut(rest, "]")
	first, second, _ := strings.Cut(path, ",")
	route := func(hashes ...string) string { return begin + `"path":[` + strings.Join(hashes, ",") + "]" + rest }
	for sentence, text := range map[string]string{
		"nothing":                        "",
		"no proof":                       "{}\n",
		"a list":                         "[]\n",
		"a member more":                  strings.Replace(good, `"index":1`, `"index":1,"more":1`, 1),
		"a member twice":                 strings.Replace(good, `"index":1`, `"index":1,"index":1`, 1),
		"a space more":                   strings.Replace(good, `"index":1`, `"index": 1`, 1),
		"another entry":                  strings.Replace(good, `"debit":101`, `"debit":102`, 1),
		"the entry in another form":      strings.Replace(good, `"entry":{`, `"entry":{ `, 1),
		"another place":                  strings.Replace(good, `"index":1`, `"index":0`, 1),
		"a place behind the end":         strings.Replace(good, `"index":1`, `"index":3`, 1),
		"a place before the beginning":   strings.Replace(good, `"index":1`, `"index":-1`, 1),
		"another tenant":                 strings.Replace(good, `"tenant":"acme"`, `"tenant":"beta"`, 1),
		"another seal":                   strings.Replace(good, `"seal":1`, `"seal":2`, 1),
		"a hash is gone":                 route(first),
		"a hash is another":              route(first, zeros),
		"a hash is short":                route(first, `"AAAA"`),
		"a hash more":                    route(first, second, zeros),
		"the hashes changed places":      route(second, first),
		"hashes without an end":          route(strings.Split(strings.Repeat(zeros+" ", 1000), " ")[:1000]...),
		"it ends in the middle":          good[:len(good)/2],
		"it does not end":                strings.TrimSuffix(good, "\n"),
		"something behind the last line": good + "x",
	} {
		require.NotEqual(t, good, text, sentence)
		_, err := seal.CheckProof([]byte(text), kept)
		require.ErrorIs(t, err, seal.ErrProof, sentence)
	}
}

func FuzzCheckProof(f *testing.F) {
	good, kept := vector(f)
	f.Add([]byte(good))
	f.Fuzz(func(t *testing.T, text []byte) {
		proven, err := seal.CheckProof(text, kept)
		if err != nil {
			require.ErrorIs(t, err, seal.ErrProof)
			return
		}
		require.Less(t, proven.Index, proven.Count)
	})
}

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
