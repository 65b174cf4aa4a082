package firestore_test

import (
	"testing"
	"time"

	"billhook/internal/apps/journal/journaltest"
	"billhook/internal/apps/ledger/ledgertest"
	"billhook/internal/apps/ledger/seal/sealtest"
	"billhook/internal/apps/orders/orderstest"
	"billhook/internal/apps/usage/usagetest"
	"billhook/internal/dedupe/dedupetest"
	"billhook/internal/pipeline/deadletter/deadlettertest"
	"billhook/internal/pipeline/rates/ratestest"
	"billhook/internal/platform/standin"
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

func TestTheStandInForTheDatabaseConforms(t *testing.T) {
	t.Parallel()
	short := func() time.Duration { return 2 * time.Microsecond }
	for name, far := range map[string]func(store.Store) store.Store{
		"near": func(s store.Store) store.Store { return s },
		"far away": func(s store.Store) store.Store {
			return &standin.Distant{Store: s, CommitTime: short, ReadTime: short, After: time.After}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			storetest.Run(t, func(t *testing.T) store.Store { return onStandIn(t, far) })
			storetest.RunQueries(t, func(t *testing.T) store.Store { return onStandIn(t, far) })
		})
	}
}
