package journal_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/internal/apps/journal/journaltest"
	"billhook/internal/platform/standin"
	"billhook/internal/platform/store"
)

func TestTheJournalHoldsOneEntryForAnEventOnTheEmbeddedStore(t *testing.T) {
	t.Parallel()
	journaltest.Run(t, func(t *testing.T) store.Store {
		t.Helper()
		db, err := standin.OpenTemporaryStore(filepath.Join(t.TempDir(), "store.db"))
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, db.Close()) })
		return db
	})
}
