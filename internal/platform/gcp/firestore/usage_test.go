package firestore_test

import (
	"testing"

	"billhook/internal/platform/store"
	"billhook/internal/usage/usagetest"
)

func TestUsageIsTheSumOfItsEntriesOnFirestore(t *testing.T) {
	t.Parallel()
	usagetest.Run(t, func(t *testing.T) store.Store {
		t.Helper()
		return open(t)
	})
}
