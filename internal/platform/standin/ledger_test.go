package standin_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/internal/apps/ledger/ledgertest"
	"billhook/internal/platform/standin"
	"billhook/internal/platform/store"
)

func TestTheBooksHoldOnTheEmbeddedStore(t *testing.T) {
	t.Parallel()
	ledgertest.Run(t, func(t *testing.T) store.Store {
		db, err := standin.OpenTemporaryStore(filepath.Join(t.TempDir(), "store.db"))
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, db.Close()) })
		return db
	})
}
