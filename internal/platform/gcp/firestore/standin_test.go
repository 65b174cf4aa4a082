package firestore_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/internal/platform/gcp/firestore"
	"billhook/internal/platform/standin"
	"billhook/internal/platform/store"
)

// onStandIn connects to the stand-in for the database, which is as far away as the function says.
func onStandIn(t *testing.T, far func(store.Store) store.Store) *firestore.Store {
	t.Helper()
	file, err := standin.OpenTemporaryStore(filepath.Join(t.TempDir(), "store.db"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, file.Close()) })
	database, err := standin.NewDatabase(t.Context(), far(file))
	require.NoError(t, err)
	t.Cleanup(database.Close)
	s, err := firestore.NewEmulated(t.Context(), database.Addr(), "p", "")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}
