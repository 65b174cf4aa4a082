package firestore_test

import (
	"testing"

	"billhook/internal/platform/store"
	"billhook/internal/rates/ratestest"
)

func TestWhatIsAddedIsCountedOnceOnFirestore(t *testing.T) {
	t.Parallel()
	ratestest.Run(t, func(t *testing.T) store.Store {
		t.Helper()
		return open(t)
	})
}
