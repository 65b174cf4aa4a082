package seal_test

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	tlog "github.com/transparency-dev/formats/log"
	"golang.org/x/mod/sumdb/note"

	"billhook/internal/apps/ledger"
	"billhook/internal/apps/ledger/seal"
)

// proofs seals n entries and returns the proof of each, by its leaf.
func proofs(t *testing.T, n int, by seal.Authority) [][]byte {
	t.Helper()
	s := open(t)
	var entries []ledger.Entry
	for i := range n {
		entries = append(entries, sale("acme", fmt.Sprint("e", i), "2026-11", 100+int64(i), time.Duration(i)*time.Second))
	}
	post(t, s, entries...)
	run(t, s)
	all := make([][]byte, n)
	for i, entry := range entries {
		var err error
		all[i], err = seal.Prove(t.Context(), s, ledger.EntryID("acme", entry.EventID), by)
		require.NoError(t, err)
	}
	return all
}

func keys(t *testing.T, name string) (private, public string) {
	t.Helper()
	private, public, err := note.GenerateKey(rand.Reader, name)
	require.NoError(t, err)
	return private, public
}

func TestEachEntryOfASealIsProven(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 2, 3, 7, 8, 21} {
		for i, text := range proofs(t, n, seal.Authority{Installation: "staging eu"}) {
			proven, err := seal.CheckProof(text, "")
			require.NoError(t, err)
			require.EqualValues(t, i, proven.Index)
			require.EqualValues(t, n, proven.Count)
			require.Equal(t, "staging eu", proven.Installation)
			require.Equal(t, "billhook/staging%20eu/acme/1", proven.Origin)
			require.Empty(t, proven.SignedBy)
			require.Empty(t, proven.Claims)
			require.Contains(t, string(proven.Entry), fmt.Sprintf(`"event_id":"e%d"`, i))
		}
	}
}

func TestASignedProofIsThatOfItsKeyAlone(t *testing.T) {
	t.Parallel()
	private, public := keys(t, "billhook.example/books")
	_, other := keys(t, "billhook.example/books")
	by, err := seal.NewAuthority("live", private)
	require.NoError(t, err)
	text := proofs(t, 3, by)[1]
	proven, err := seal.CheckProof(text, public)
	require.NoError(t, err)
	require.Equal(t, "billhook.example/books", proven.SignedBy)
	_, err = seal.CheckProof(text, other)
	require.ErrorIs(t, err, seal.ErrProof)
	proven, err = seal.CheckProof(text, "")
	require.NoError(t, err)
	require.Empty(t, proven.SignedBy, "nobody has checked it")
	require.Equal(t, []string{"billhook.example/books"}, proven.Claims)

	// Tools of others read the checkpoint.
	_, checkpoint, found := bytes.Cut(text, []byte("\n\n"))
	require.True(t, found)
	verifier, err := note.NewVerifier(public)
	require.NoError(t, err)
	parsed, _, _, err := tlog.ParseCheckpoint(checkpoint, "billhook/live/acme/1", verifier)
	require.NoError(t, err)
	require.EqualValues(t, 3, parsed.Size)

	_, err = seal.CheckProof(proofs(t, 1, seal.Authority{})[0], public)
	require.ErrorIs(t, err, seal.ErrProof, "nobody has signed it")
	_, err = seal.CheckProof(text, "no key")
	require.ErrorIs(t, err, seal.ErrKey)
	_, err = seal.NewAuthority("live", "no key")
	require.ErrorIs(t, err, seal.ErrKey)
	require.NotContains(t, err.Error(), "no key")
}

func TestWhatHasNoSealIsNotProven(t *testing.T) {
	t.Parallel()
	s := open(t)
	post(t, s, sale("acme", "a", "2026-11", 100, 0))
	_, err := seal.Prove(t.Context(), s, ledger.EntryID("acme", "a"), seal.Authority{})
	require.ErrorIs(t, err, seal.ErrUnsealed)
	for _, id := range []string{ledger.EntryID("acme", "b"), "", "a/b"} {
		_, err = seal.Prove(t.Context(), s, id, seal.Authority{})
		require.ErrorIs(t, err, seal.ErrNoEntry)
	}
	all := sealedBooks(t)
	key := ledger.Key(ledger.EntryID("acme", "a"))
	all[key] = with(all[key], "event_type", "other.event.happened")
	_, err = seal.Prove(t.Context(), all, key.ID, seal.Authority{})
	require.ErrorIs(t, err, seal.ErrBroken, "a proof that does not hold is not given out")
}

// Any other byte of a proof makes it none.
func TestAChangedProofProvesNothing(t *testing.T) {
	t.Parallel()
	private, public := keys(t, "billhook.example/books")
	by, err := seal.NewAuthority("live", private)
	require.NoError(t, err)
	text := proofs(t, 3, by)[1]
	every := 1
	if testing.Short() {
		every = 7
	}
	for i := 0; i < 8*len(text); i += every {
		changed := bytes.Clone(text)
		changed[i/8] ^= 1 << (i % 8)
		_, err := seal.CheckProof(changed, public)
		require.ErrorIs(t, err, seal.ErrProof, "bit %d of %q", i%8, text[i/8:])
	}
}

// The vectors may never change: proofs that were given out are checked for years.
func TestVectorsOfProofs(t *testing.T) {
	t.Parallel()
	good, err := os.ReadFile(filepath.Join("testdata", "proof.txt"))
	require.NoError(t, err)
	proven, err := seal.CheckProof(good, "billhook.example/books+7a9ff1bb+invalid")
	require.ErrorIs(t, err, seal.ErrKey)
	require.Empty(t, proven)
	proven, err = seal.CheckProof(good, "")
	require.NoError(t, err)
	require.Equal(t, "acme", proven.Tenant)
	require.EqualValues(t, 1, proven.Index)
	lines := strings.SplitAfter(string(good), "\n")
	line := func(begins string) int {
		for i, l := range lines {
			if strings.HasPrefix(l, begins) {
				return i
			}
		}
		require.Fail(t, "no such line", begins)
		return 0
	}
	path := line("index ") + 1
	origin := line("billhook/")
	replace := func(at int, with ...string) string {
		changed := append([]string{}, lines[:at]...)
		return strings.Join(append(append(changed, with...), lines[at+1:]...), "")
	}
	zeros := base64.StdEncoding.EncodeToString(make([]byte, 32)) + "\n"
	for sentence, text := range map[string]string{
		"nothing":                        "",
		"another form":                   replace(0, "c2sp.org/tlog-proof@v2\n"),
		"no entry":                       replace(1),
		"another entry":                  replace(1, "extra "+base64.StdEncoding.EncodeToString([]byte(`{"tenant":"acme"}`))+"\n"),
		"an inner node for an entry":     replace(1, "extra "+base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{1}, 64))+"\n"),
		"another place":                  replace(path-1, "index 0\n"),
		"a place behind the end":         replace(path-1, "index 3\n"),
		"a place with a zero before it":  replace(path-1, "index 01\n"),
		"a hash is gone":                 replace(path),
		"a hash is another":              replace(path, zeros),
		"a hash more":                    replace(path, lines[path], zeros),
		"the hashes changed places":      replace(path, lines[path+1], lines[path]),
		"another root":                   replace(origin+2, zeros),
		"a size with a longer way":       replace(origin+1, "9\n"), // 4 has the same way: the seal, or a signature, says which
		"a size of nothing":              replace(origin+1, "0\n"),
		"a size that is negative":        replace(origin+1, "-3\n"),
		"another tenant":                 replace(origin, "billhook/live/beta/1\n"),
		"an origin of somebody else":     replace(origin, "example.org/log\n"),
		"no number of a seal":            replace(origin, "billhook/live/acme/one\n"),
		"a number that is written oddly": replace(origin, "billhook/live/acme/01\n"),
		"no hash of the seal":            replace(origin + 3),
		"another extension":              replace(origin+3, "note x\n"),
		"a line more":                    replace(origin+3, lines[origin+3], "more\n"),
		"it does not end":                strings.TrimSuffix(string(good), "\n"),
		"it ends in the middle":          string(good[:len(good)/2]),
		"carriage returns":               strings.ReplaceAll(string(good), "\n", "\r\n"),
		"a signature that is none":       string(good) + "— x y\n",
		"something behind the last line": string(good) + "x",
		"a line longer than any entry's": replace(1, "extra "+strings.Repeat("A", 1<<17)+"\n"),
		"hashes without an end":          replace(path, strings.Repeat(zeros, 1000)),
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			_, err := seal.CheckProof([]byte(text), "")
			require.ErrorIs(t, err, seal.ErrProof)
		})
	}
}

func FuzzCheckProof(f *testing.F) {
	good, err := os.ReadFile(filepath.Join("testdata", "proof.txt"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte("c2sp.org/tlog-proof@v1\nindex 0\n\nbillhook///1\n1\n" + hex.EncodeToString([]byte("x")) + "\nseal \n\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		proven, err := seal.CheckProof(text, "")
		if err != nil {
			require.ErrorIs(t, err, seal.ErrProof)
			return
		}
		require.Positive(t, proven.Count)
		require.Less(t, proven.Index, proven.Count)
	})
}
