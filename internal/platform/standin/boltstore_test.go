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
	"billhook/internal/platform/store/storetest"
)

func openStore(t *testing.T) *standin.Store {
	t.Helper()
	s, err := standin.OpenTemporaryStore(filepath.Join(t.TempDir(), "store.db"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

func TestAQueryOfTheBoltStoreLooksAtWhatItReturns(t *testing.T) {
	t.Parallel()
	storetest.RunLooks(t, func(t *testing.T) (store.Store, func() int64) {
		t.Helper()
		s := openStore(t)
		return s, s.Looked
	})
}

func TestACommitOutlivesTheStoreThatMadeIt(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store.db")
	s, err := standin.OpenStore(path)
	require.NoError(t, err)
	key := store.Key{Collection: "c", ID: "a"}
	versions, err := s.Commit(t.Context(), []store.Write{store.Create(key, map[string]any{"n": int64(1)})})
	require.NoError(t, err)
	require.NoError(t, s.Close())
	s, err = standin.OpenStore(path)
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	doc, err := s.Get(t.Context(), key)
	require.NoError(t, err)
	require.Equal(t, store.Document{Key: key, Fields: map[string]any{"n": int64(1)}, Version: versions[0]}, doc)
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

func TestTheBoltStoreConformsWhereAnswersAreLost(t *testing.T) {
	t.Parallel()
	storetest.RunLostAnswers(t, func(t *testing.T) (store.Store, func()) {
		t.Helper()
		faults := &storetest.Faults{Store: openStore(t)}
		return faults, func() { faults.FailAfter(1) }
	})
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
	for i := range said {
		_, err := s.Get(t.Context(), numbered(i))
		require.NoError(t, err)
	}
	page, err := s.Query(t.Context(), store.Query{Collection: "c", Limit: store.MaxPage})
	require.NoError(t, err)
	sum, err := s.Get(t.Context(), store.Key{Collection: "sums", ID: "all"})
	require.NoError(t, err)
	require.Equal(t, int64(len(page.Documents)), sum.Fields["n"], "no commit is there by half")
}
