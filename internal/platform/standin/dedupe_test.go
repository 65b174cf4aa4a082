package standin_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/internal/dedupe/dedupetest"
	"billhook/internal/platform/standin"
	"billhook/internal/platform/store"
)

func TestAnEventIsCompletedOnceOnTheEmbeddedStore(t *testing.T) {
	t.Parallel()
	dedupetest.Run(t, func(t *testing.T) store.Store {
		db, err := standin.OpenTemporaryStore(filepath.Join(t.TempDir(), "store.db"))
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, db.Close()) })
		return db
	})
}

func TestAPageOfTheJobLogCostsTheSameOfAnyNumber(t *testing.T) {
	t.Parallel()
	records := 100_000
	if testing.Short() {
		records = 5_000
	}
	dedupetest.RunList(t, records, func(t *testing.T) store.Store {
		t.Helper()
		return openStore(t)
	})
}
