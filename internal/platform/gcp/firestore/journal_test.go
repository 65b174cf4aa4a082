package firestore_test

import (
	"testing"

	"billhook/internal/apps/journal/journaltest"
	"billhook/internal/platform/store"
)

func TestTheJournalHoldsOneEntryForAnEventOnFirestore(t *testing.T) {
	t.Parallel()
	journaltest.Run(t, func(t *testing.T) store.Store {
		t.Helper()
		return open(t)
	})
}
