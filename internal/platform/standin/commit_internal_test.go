package standin

import (
	"context"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"

	"billhook/internal/platform/store"
)

// TestConcurrentCommitsShareOneForceToTheDisk: each of them keeps its own outcome.
func TestConcurrentCommitsShareOneForceToTheDisk(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, err := OpenTemporaryStore(filepath.Join(t.TempDir(), "store.db"))
		require.NoError(t, err)
		defer func() { require.NoError(t, s.Close()) }()
		transactions := func() (n int) {
			require.NoError(t, s.db.View(func(tx *bbolt.Tx) error { n = tx.ID(); return nil }))
			return n
		}
		key := func(id string) store.Key { return store.Key{Collection: "c", ID: id} }
		sum := store.Increment(key("sum"), map[string]int64{"n": 1}, nil)
		there := store.Create(key("there"), map[string]any{"n": int64(1)})
		_, err = s.Commit(t.Context(), []store.Write{there})
		require.NoError(t, err)
		gone, cancel := context.WithCancel(t.Context())

		var commits sync.WaitGroup
		commit := func(ctx context.Context, want error, writes ...store.Write) {
			commits.Go(func() {
				_, err := s.Commit(ctx, writes)
				require.ErrorIs(t, err, want)
			})
		}
		before := transactions()
		s.writing <- struct{}{} // as if a caller were writing
		const sums = 10
		for range sums {
			commit(t.Context(), nil, sum)
		}
		commit(t.Context(), store.ErrExists, sum, there)
		commit(t.Context(), store.ErrStale, sum, store.Replace(key("there"), 99, map[string]any{"n": int64(2)}))
		commit(gone, context.Canceled, sum)
		synctest.Wait()
		cancel()
		<-s.writing
		commits.Wait()
		require.Equal(t, before+1, transactions())
		doc, err := s.Get(t.Context(), key("sum"))
		require.NoError(t, err)
		require.EqualValues(t, sums, doc.Fields["n"], "of those refused nothing is left")

		_, err = s.Commit(t.Context(), []store.Write{there})
		require.ErrorIs(t, err, store.ErrExists)
		require.Equal(t, before+1, transactions(), "what is refused does not touch the disk")
	})
}
