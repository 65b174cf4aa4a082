package orders_test

import (
	"testing"

	"go.uber.org/goleak"

	"billhook/internal/apps/orders/orderstest"
	"billhook/internal/platform/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestNoHistorySellsAPieceTwiceOrLosesOne runs the model on the embedded store.
func TestNoHistorySellsAPieceTwiceOrLosesOne(t *testing.T) {
	t.Parallel()
	orderstest.Run(t, storetest.Open)
}
