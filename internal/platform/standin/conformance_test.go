package standin_test

import (
	"testing"

	"billhook/internal/dedupe/dedupetest"
	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
)

// TestTheEmbeddedStoreFollowsEachModel: the models of dedupe, ledger, seal and journal run on it in their own packages.
func TestTheEmbeddedStoreFollowsEachModel(t *testing.T) {
	t.Parallel()
	records := 100_000
	if testing.Short() {
		records = 5_000
	}
	for name, run := range map[string]func(*testing.T, func(*testing.T) store.Store){
		"the store":   storetest.Run,
		"queries":     storetest.RunQueries,
		"the job log": func(t *testing.T, open func(*testing.T) store.Store) { dedupetest.RunList(t, records, open) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, func(t *testing.T) store.Store { return openStore(t) })
		})
	}
}
