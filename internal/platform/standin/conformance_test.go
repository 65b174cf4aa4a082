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
	open := func(t *testing.T) store.Store { return openStore(t) }
	for name, run := range map[string]func(*testing.T){
		"the store":   func(t *testing.T) { storetest.Run(t, open) },
		"queries":     func(t *testing.T) { storetest.RunQueries(t, open) },
		"the job log": func(t *testing.T) { dedupetest.RunList(t, records, open) },
		"a query looks at what it returns": func(t *testing.T) {
			storetest.RunLooks(t, func(t *testing.T) (store.Store, func() int64) {
				t.Helper()
				s := openStore(t)
				return s, s.Looked
			})
		},
		"answers that are lost": func(t *testing.T) {
			storetest.RunLostAnswers(t, func(t *testing.T) (store.Store, func()) {
				t.Helper()
				faults := &storetest.Faults{Store: openStore(t)}
				return faults, func() { faults.FailAfter(1) }
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t)
		})
	}
}
