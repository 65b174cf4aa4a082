package worker_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/internal/apps/usage"
	"billhook/internal/compose/worker"
	"billhook/internal/contract"
	"billhook/internal/dedupe"
	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
)

// TestWhatAnEventOfUsageCosts counts, in the worker as it is put together, what an event costs the
// store: three reads and one commit of three documents, however much was counted before.
func TestWhatAnEventOfUsageCosts(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 2, 10, 15, 0, 0, time.UTC)
	var counter *storetest.Counter
	w, err := worker.New(config(t, func(c *worker.Config) {
		counter = &storetest.Counter{Store: c.Store}
		c.Store, c.Publisher, c.Now = counter, somewhere{}, func() time.Time { return now }
	}))
	require.NoError(t, err)
	deliver := func(id string, quantity int64) int {
		return posted(t, w, "/push/events-high", contract.Of(&contract.Event{
			ID: id, Type: "usage_tracking", Version: 1, Timestamp: "2026-03-02T10:15:00Z",
			Data: map[string]any{"subscription_id": "s-1", "meter": "calls", "quantity": quantity},
		}))
	}
	require.Equal(t, 200, deliver("first", 1))
	for i := range 50 {
		did := spent(counter, func() { require.Equal(t, 200, deliver(fmt.Sprint("u-", i), 1)) })
		require.Equal(t, []int64{3, 1, 3}, did, "whether messages of its key wait, the total, the period; the record, the entry, the total")
	}
	totals, _, err := usage.Totals(t.Context(), counter, usage.Of{Tenant: dedupe.DefaultTenant, Subscription: "s-1"}, store.Cursor{}, 10)
	require.NoError(t, err)
	require.EqualValues(t, 51, totals[0].Used)
}
