package seal_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/require"

	"billhook/internal/apps/ledger"
	"billhook/internal/apps/ledger/seal"
	"billhook/internal/filetest"
	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
)

func proofs(t *testing.T, n int) (all [][]byte, kept []seal.Seal) {
	t.Helper()
	s := storetest.Open(t)
	event := func(i int) string { return fmt.Sprint("e", i) }
	for i := range n { // in this order they are in their seal
		post(t, s, sale("acme", event(i), "2026-11", 100+int64(i), time.Duration(i)*time.Second))
	}
	run(t, s)
	for i := range n {
		all = append(all, filetest.Must(seal.Prove(t.Context(), s, ledger.EntryID("acme", event(i))))(t))
	}
	kept, _ = filetest.Both(seal.List(t.Context(), s, "acme", store.Cursor{}, 10))(t)
	return all, kept
}

func TestEachEntryOfASealIsProvenByTheKeptSeal(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 2, 3, 7, 8, 21} {
		all, kept := proofs(t, n)
		for i, text := range all {
			proven := filetest.Must(seal.CheckProof(text, kept))(t)
			entry := proven.Entry
			proven.Entry = nil
			require.Equal(t, seal.Proven{
				Tenant: "acme", Seal: 1, SealHash: kept[0].Hash, Root: kept[0].Root, Count: int64(n), Index: int64(i),
			}, proven)
			require.Contains(t, string(entry), fmt.Sprintf(`"event_id":"e%d"`, i))
		}
	}
}

func TestAnUnsealedOrChangedEntryIsNotProven(t *testing.T) {
	t.Parallel()
	s := storetest.Open(t)
	post(t, s, sale("acme", "a", "2026-11", 100, 0))
	_, err := seal.Prove(t.Context(), s, ledger.EntryID("acme", "a"))
	require.ErrorIs(t, err, seal.ErrUnsealed)
	require.ErrorIs(t, filetest.ErrorOf(seal.Prove(t.Context(), s, "a/b")), seal.ErrNoEntry)
	key := ledger.Key(ledger.EntryID("acme", "a"))
	for name, value := range map[string]any{
		"event_type": "other.event.happened", "shard": int64(7), "committed_at": nil, "lines": "none",
	} {
		all := sealedBooks(t)
		all[key] = with(all[key], name, value)
		require.ErrorIs(t, filetest.ErrorOf(seal.Prove(t.Context(), all, key.ID)), seal.ErrBroken, name)
	}
}

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

// The files in testdata may never change: proofs that were given out are checked for years.
func vector(t testing.TB) (text string, kept []seal.Seal) {
	t.Helper()
	good := filetest.Read(t, "testdata", "proof.json")
	require.NoError(t, json.Unmarshal([]byte(filetest.Read(t, "testdata", "seals.json")), &kept))
	return good, kept
}

func TestAProofInAnotherFormOrOfAnotherSealProvesNothing(t *testing.T) {
	t.Parallel()
	good, kept := vector(t)
	require.EqualValues(t, 1, filetest.Must(seal.CheckProof([]byte(good), kept))(t).Index)
	require.ErrorContains(t, filetest.ErrorOf(seal.CheckProof([]byte(good), nil)), "no seal 1 of acme")
	_, again := proofs(t, 2)
	_, err := seal.CheckProof([]byte(good), again)
	require.ErrorIs(t, err, seal.ErrProof, "the books were sealed again, without an entry")
	for name, change := range map[string]func(*seal.Seal){
		"its root": func(s *seal.Seal) { s.Root = strings.Repeat("0", 64) }, "its count": func(s *seal.Seal) {
			s.Count = 4
		},
		"its number": func(s *seal.Seal) { s.Number = 2 }, "its tenant": func(s *seal.Seal) { s.Tenant = "beta" },
		"its hash": func(s *seal.Seal) { s.Hash = s.Root },
	} {
		_, other := vector(t)
		change(&other[0])
		require.ErrorIs(t, filetest.ErrorOf(seal.CheckProof([]byte(good), other)), seal.ErrProof, name)
	}
	zeros := `"` + base64.StdEncoding.EncodeToString(make([]byte, 32)) + `"`
	begin, rest, _ := strings.Cut(good, `"path":[`)
	path, rest, _ := strings.Cut(rest, "]")
	first, second, _ := strings.Cut(path, ",")
	route := func(hashes ...string) string { return begin + `"path":[` + strings.Join(hashes, ",") + "]" + rest }
	for sentence, text := range map[string]string{
		"an empty text":             "",
		"an object without members": "{}\n",
		"a list":                    "[]\n",
		"an unknown member":         strings.Replace(good, `"index":1`, `"index":1,"more":1`, 1),
		"a member twice":            strings.Replace(good, `"index":1`, `"index":1,"index":1`, 1),
		"an additional space":       strings.Replace(good, `"index":1`, `"index": 1`, 1),
		"another entry":             strings.Replace(good, `"debit":101`, `"debit":102`, 1),
		"the entry in another form": strings.Replace(good, `"entry":{`, `"entry":{ `, 1),
		"another index":             strings.Replace(good, `"index":1`, `"index":0`, 1),
		"an index after the end":    strings.Replace(good, `"index":1`, `"index":3`, 1),
		"a negative index":          strings.Replace(good, `"index":1`, `"index":-1`, 1),
		"another tenant":            strings.Replace(good, `"tenant":"acme"`, `"tenant":"beta"`, 1),
		"another seal":              strings.Replace(good, `"seal":1`, `"seal":2`, 1),
		"a hash is missing":         route(first),
		"a hash is another":         route(first, zeros),
		"a hash is short":           route(first, `"AAAA"`),
		"an additional hash":        route(first, second, zeros),
		"the hashes changed places": route(second, first),
		"far too many hashes":       route(strings.Split(strings.Repeat(zeros+" ", 1000), " ")[:1000]...),
		"half of the text":          good[:len(good)/2],
		"no newline at the end":     strings.TrimSuffix(good, "\n"),
		"text after the last line":  good + "x",
	} {
		require.NotEqual(t, good, text, sentence)
		require.ErrorIs(t, filetest.ErrorOf(seal.CheckProof([]byte(text), kept)), seal.ErrProof, sentence)
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
