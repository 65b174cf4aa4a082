package usage_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/internal/apps/usage/usagetest"
	"billhook/internal/platform/standin"
	"billhook/internal/platform/store"
)

func TestUsageIsTheSumOfItsEntriesOnTheEmbeddedStore(t *testing.T) {
	t.Parallel()
	usagetest.Run(t, func(t *testing.T) store.Store {
		t.Helper()
		return openStore(t)
	})
}

func openStore(t *testing.T) *standin.Store {
	t.Helper()
	db, err := standin.OpenTemporaryStore(filepath.Join(t.TempDir(), "store.db"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}
