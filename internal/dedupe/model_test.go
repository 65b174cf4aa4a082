package dedupe_test

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
	dedupetest.Run(t, openStore)
}

func TestAPageOfTheJobLogCostsTheSameOfAnyNumber(t *testing.T) {
	t.Parallel()
	dedupetest.RunList(t, 2_000, openStore)
}

func openStore(t *testing.T) store.Store {
	t.Helper()
	db, err := standin.OpenTemporaryStore(filepath.Join(t.TempDir(), "store.db"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}
