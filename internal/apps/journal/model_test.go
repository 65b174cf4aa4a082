package journal_test

import (
	"testing"

	"billhook/internal/apps/journal/journaltest"
	"billhook/internal/platform/store/storetest"
)

func TestTheJournalHoldsOneEntryForAnEventOnTheEmbeddedStore(t *testing.T) {
	t.Parallel()
	journaltest.Run(t, storetest.Open)
}
