package standin_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/internal/platform/standin"
	"billhook/internal/platform/store"
)

func openStore(t *testing.T) *standin.Store {
	t.Helper()
	s, err := standin.OpenTemporaryStore(filepath.Join(t.TempDir(), "store.db"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

func TestAnIncrementThatWouldOverflowIsRefused(t *testing.T) {
	t.Parallel()
	s := openStore(t)
	key := store.Key{Collection: "c", ID: "a"}
	_, err := s.Commit(t.Context(), []store.Write{store.Increment(key, map[string]int64{"n": 1 << 62}, nil)})
	require.NoError(t, err)
	_, err = s.Commit(t.Context(), []store.Write{store.Increment(key, map[string]int64{"n": 1 << 62}, nil)})
	require.ErrorIs(t, err, store.ErrInvalid)
}

// A child process commits and prints each commit until it is killed. Every printed commit must
// be in the file.
func TestACommitOutlivesTheKillingOfItsProcess(t *testing.T) {
	const variable = "BOLTSTORE_TEST_CHILD"
	numbered := func(i int) store.Key { return store.Key{Collection: "c", ID: strconv.Itoa(i)} }
	if path := os.Getenv(variable); path != "" {
		s, err := standin.OpenStore(path)
		require.NoError(t, err)
		for i := 0; ; i++ {
			_, err := s.Commit(t.Context(), []store.Write{
				store.Create(numbered(i), map[string]any{"n": int64(i)}),
				store.Increment(store.Key{Collection: "sums", ID: "all"}, map[string]int64{"n": 1}, nil),
			})
			require.NoError(t, err)
			_, err = fmt.Fprintf(os.Stdout, "committed %d\n", i)
			require.NoError(t, err)
		}
	}
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store.db")
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestACommitOutlivesTheKillingOfItsProcess$")
	child.Env = append(os.Environ(), variable+"="+path)
	out, err := child.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	said := 0
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if !strings.HasPrefix(lines.Text(), "committed ") {
			continue
		}
		if said++; said == 50 {
			require.NoError(t, child.Process.Kill()) // its output up to the kill is read below
		}
	}
	require.Error(t, child.Wait())
	require.GreaterOrEqual(t, said, 50)

	s, err := standin.OpenStore(path)
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	_, err = standin.OpenStore(path)
	require.ErrorIs(t, err, standin.ErrInUse)
	for i := range said {
		doc, err := s.Get(t.Context(), numbered(i))
		require.NoError(t, err)
		require.Equal(t, map[string]any{"n": int64(i)}, doc.Fields)
	}
	page, err := s.Query(t.Context(), store.Query{Collection: "c", Limit: store.MaxPage})
	require.NoError(t, err)
	sum, err := s.Get(t.Context(), store.Key{Collection: "sums", ID: "all"})
	require.NoError(t, err)
	require.Equal(t, int64(len(page.Documents)), sum.Fields["n"], "no commit is there by half")
}
