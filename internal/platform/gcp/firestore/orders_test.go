package firestore_test

import (
	"testing"

	"billhook/internal/apps/orders/orderstest"
	"billhook/internal/platform/store"
)

// TestNoHistorySellsAPieceTwiceOrLosesOne runs the model of orders and stock on the emulator.
func TestNoHistorySellsAPieceTwiceOrLosesOne(t *testing.T) {
	t.Parallel()
	orderstest.Run(t, func(t *testing.T) store.Store {
		t.Helper()
		return open(t)
	})
}
