package standin_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/internal/dedupe"
	"billhook/internal/dedupe/dedupetest"
	"billhook/internal/standin"
)

func TestAnEventIsCompletedOnceOnTheEmbeddedStore(t *testing.T) {
	t.Parallel()
	dedupetest.Run(t, func(t *testing.T) dedupe.Querier {
		db, err := standin.OpenTemporaryStore(filepath.Join(t.TempDir(), "store.db"))
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, db.Close()) })
		return db
	})
}
