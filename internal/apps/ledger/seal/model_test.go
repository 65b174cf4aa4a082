package seal_test

import (
	"testing"

	"billhook/internal/apps/ledger/seal/sealtest"
	"billhook/internal/platform/store"
)

func TestSealsFollowTheModelHere(t *testing.T) {
	t.Parallel()
	sealtest.Run(t, func(t *testing.T) store.Store {
		t.Helper()
		return open(t)
	})
}
