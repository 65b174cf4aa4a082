package seal_test

import (
	"testing"

	"billhook/internal/apps/ledger/seal/sealtest"
	"billhook/internal/platform/store/storetest"
)

func TestSealsFollowTheModelHere(t *testing.T) {
	t.Parallel()
	sealtest.Run(t, storetest.Open)
}
