package standin

import (
	"context"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"

	"billhook/internal/filetest"
	"billhook/internal/platform/store"
)

// TestConcurrentCommitsShareOneForceToTheDisk: each of them keeps its own outcome.
func TestConcurrentCommitsShareOneForceToTheDisk(t *testing.T) {
	t.Parallel()
	s := filetest.Must(OpenTemporaryStore(filepath.Join(t.TempDir(), "store.db")))(t)
	defer func() { require.NoError(t, s.Close()) }()
	transactions := func() (n int) {
		require.NoError(t, s.db.View(func(tx *bbolt.Tx) error { n = tx.ID(); return nil }))
		return n
	}
	key := func(id string) store.Key { return store.Key{Collection: "c", ID: id} }
	sum := store.Increment(key("sum"), map[string]int64{"n": 1}, nil)
	there := store.Create(key("there"), map[string]any{"n": int64(1)})
	_, err := s.Commit(t.Context(), []store.Write{there})
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
	s.writing.Lock() // as if a caller were writing
	const sums = 10
	for range sums {
		commit(t.Context(), nil, sum)
	}
	commit(t.Context(), store.ErrExists, sum, there)
	commit(t.Context(), store.ErrStale, sum, store.Replace(key("there"), 99, map[string]any{"n": int64(2)}))
	commit(gone, context.Canceled, sum)
	for waiting := 0; waiting < sums+3; runtime.Gosched() {
		s.mu.Lock()
		waiting = len(s.waiting)
		s.mu.Unlock()
	}
	cancel()
	s.writing.Unlock()
	commits.Wait()
	require.Equal(t, before+1, transactions())
	doc := filetest.Must(s.Get(t.Context(), key("sum")))(t)
	require.EqualValues(t, sums, doc.Fields["n"], "of those refused nothing is left")

	_, err = s.Commit(t.Context(), []store.Write{there})
	require.ErrorIs(t, err, store.ErrExists)
	require.Equal(t, before+1, transactions(), "what is refused does not touch the disk")
}

func TestCommitsBetweenThePartsOfAnIndexAreInIt(t *testing.T) {
	t.Parallel()
	s := filetest.Must(OpenTemporaryStore(filepath.Join(t.TempDir(), "store.db")))(t)
	defer func() { require.NoError(t, s.Close()) }()
	write := func(id int, color string) store.Write {
		return store.Set(store.Key{Collection: "c", ID: fmt.Sprintf("%05d", id)}, map[string]any{"color": color})
	}
	commit := func(writes ...store.Write) {
		for some := range slices.Chunk(writes, store.MaxWrites) {
			_, err := s.Commit(t.Context(), some)
			require.NoError(t, err)
		}
	}
	const documents = 3*indexedAtOnce + 1
	var all []store.Write
	for id := range documents {
		all = append(all, write(2*id, "red"))
	}
	commit(all...)
	byColor, parts := index{Equal: []string{"color"}}, 0
	for from := []byte{}; from != nil; parts++ {
		require.NoError(t, s.db.Update(func(tx *bbolt.Tx) (err error) { from, err = extend(tx, "c", byColor, from); return err }))
		for _, at := range []int{10 * parts, documents - 50 + 10*parts} { // before and behind what is indexed
			commit(write(2*at, "blue"), write(2*at+1, "red"), store.Delete(store.Key{Collection: "c", ID: fmt.Sprintf("%05d", 2*at+2)}, 0))
		}
	}
	require.Equal(t, 4, parts)
	for color, want := range map[string]int64{"blue": 8, "red": documents - 8} {
		page, err := s.Query(t.Context(), store.Query{Collection: "c", Equal: map[string]any{"color": color}, Count: true, Limit: 2 * documents})
		require.NoError(t, err)
		require.Equal(t, want, page.Count, color)
	}
}
