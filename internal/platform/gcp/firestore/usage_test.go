package firestore_test

import (
	"testing"

	"billhook/internal/apps/usage/usagetest"
	"billhook/internal/platform/store"
)

func TestUsageIsTheSumOfItsEntriesOnFirestore(t *testing.T) {
	t.Parallel()
	usagetest.Run(t, func(t *testing.T) store.Store {
		t.Helper()
		return open(t)
	})
}
