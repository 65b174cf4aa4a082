package firestore_test

import (
	"testing"

	"google.golang.org/grpc/codes"

	"billhook/internal/apps/journal/journaltest"
	"billhook/internal/apps/ledger/ledgertest"
	"billhook/internal/apps/ledger/seal/sealtest"
	"billhook/internal/apps/orders/orderstest"
	"billhook/internal/apps/usage/usagetest"
	"billhook/internal/dedupe/dedupetest"
	"billhook/internal/pipeline/deadletter/deadlettertest"
	"billhook/internal/pipeline/rates/ratestest"
	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
)

// The models of what is stored hold on Firestore's emulator as on the embedded store. What a person waits for
// is that the store conforms, and that an event is completed once.
func TestFirestoreFollowsEachModel(t *testing.T) {
	t.Parallel()
	for name, suite := range map[string]struct {
		run  func(*testing.T, func(*testing.T) store.Store)
		long bool
	}{
		"the store":    {storetest.Run, false},
		"queries":      {storetest.RunQueries, false},
		"events":       {dedupetest.Run, false},
		"the job log":  {func(t *testing.T, open func(*testing.T) store.Store) { dedupetest.RunList(t, *records, open) }, true},
		"books":        {ledgertest.Run, true},
		"journal":      {journaltest.Run, true},
		"seals":        {sealtest.Run, true},
		"orders":       {orderstest.Run, true},
		"usage":        {usagetest.Run, true},
		"dead letters": {deadlettertest.Run, true},
		"rates":        {ratestest.Run, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if suite.long && testing.Short() {
				t.Skip("runs in test-all; here it runs on the embedded store")
			}
			suite.run(t, func(t *testing.T) store.Store { return open(t) })
		})
	}
}

func TestFirestoreConformsWhereAnswersAreLost(t *testing.T) {
	t.Parallel()
	storetest.RunLostAnswers(t, func(t *testing.T) (store.Store, func()) {
		t.Helper()
		s, arm, _ := openLosing(t)
		return s, func() { arm(codes.Internal) }
	})
}
