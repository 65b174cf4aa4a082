package firestore_test

import (
	"testing"

	"billhook/internal/pipeline/deadletter/deadlettertest"
	"billhook/internal/platform/store"
)

// TestNoHistoryReplaysAnItemTwiceOrGoesOnAfterItsEnd runs the model of operations on the emulator.
func TestNoHistoryReplaysAnItemTwiceOrGoesOnAfterItsEnd(t *testing.T) {
	t.Parallel()
	deadlettertest.Run(t, func(t *testing.T) store.Store {
		t.Helper()
		return open(t)
	})
}
