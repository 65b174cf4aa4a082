package embedded_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/internal/embedded"
	"billhook/internal/store"
	"billhook/internal/store/storetest"
)

func openStore(t *testing.T) *embedded.Store {
	t.Helper()
	s, err := embedded.OpenTemporaryStore(filepath.Join(t.TempDir(), "store.db"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

func TestTheBoltStoreConforms(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T) storetest.Store { return openStore(t) })
}

func TestACommitOutlivesTheStoreThatMadeIt(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store.db")
	s, err := embedded.OpenStore(path)
	require.NoError(t, err)
	key := store.Key{Collection: "c", ID: "a"}
	versions, err := s.Commit(t.Context(), []store.Write{store.Create(key, map[string]any{"n": int64(1)})})
	require.NoError(t, err)
	require.NoError(t, s.Close())
	s, err = embedded.OpenStore(path)
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

func TestALostAnswerLooksLikeAnotherWriter(t *testing.T) {
	t.Parallel()
	faults := &storetest.Faults{Store: openStore(t)}
	faults.FailAfter(1)
	write := []store.Write{store.Create(store.Key{Collection: "c", ID: "a"}, map[string]any{"n": int64(1)})}
	_, err := faults.Commit(t.Context(), write)
	require.ErrorIs(t, err, storetest.ErrFault)
	_, err = faults.Commit(t.Context(), write)
	require.ErrorIs(t, err, store.ErrExists)
}
