package firestore_test

import (
	"testing"

	"billhook/internal/pipeline/rates/ratestest"
	"billhook/internal/platform/store"
)

func TestWhatIsAddedIsCountedOnceOnFirestore(t *testing.T) {
	t.Parallel()
	ratestest.Run(t, func(t *testing.T) store.Store {
		t.Helper()
		return open(t)
	})
}
