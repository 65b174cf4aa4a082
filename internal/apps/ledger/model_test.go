package ledger_test

import (
	"testing"

	"billhook/internal/apps/ledger/ledgertest"
)

func TestTheBooksHoldOnTheEmbeddedStore(t *testing.T) {
	t.Parallel()
	ledgertest.Run(t, openBooks)
}
