package ledger_test

import (
	"testing"

	"billhook/internal/apps/ledger/ledgertest"
	"billhook/internal/platform/store/storetest"
)

func TestTheBooksHoldOnTheEmbeddedStore(t *testing.T) {
	t.Parallel()
	ledgertest.Run(t, storetest.Open)
}
