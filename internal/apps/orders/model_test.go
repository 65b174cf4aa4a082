package orders_test

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"billhook/internal/apps/orders/orderstest"
	"billhook/internal/platform/standin"
	"billhook/internal/platform/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestNoHistorySellsAPieceTwiceOrLosesOne runs the model on the embedded store.
func TestNoHistorySellsAPieceTwiceOrLosesOne(t *testing.T) {
	t.Parallel()
	dir, runs := t.TempDir(), 0
	orderstest.Run(t, func(t *testing.T) store.Store {
		t.Helper()
		runs++
		db, err := standin.OpenTemporaryStore(filepath.Join(dir, fmt.Sprint(runs)))
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, db.Close()) })
		return db
	})
}
