package dedupe_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/internal/dedupe"
	"billhook/internal/platform/store"
)

// TestAPageIsInOrderWhereOnePartHasTheNewest: the newest events are all of one part of the time index, and
// more than one look at it returns.
func TestAPageIsInOrderWhereOnePartHasTheNewest(t *testing.T) {
	t.Parallel()
	db := openStore(t)
	begin := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	var want []string
	put := func(id string, age int) {
		at := begin.Add(-time.Duration(age) * time.Second)
		record := dedupe.Record{Queue: "orders", Tenant: "default", EventID: id, Status: dedupe.Completed, CreatedAt: at, UpdatedAt: at}
		_, err := db.Commit(t.Context(), []store.Write{store.Set(dedupe.Key("orders", "default", id), record.Fields())})
		require.NoError(t, err)
		want = append(want, id)
	}
	for n := 0; len(want) < 30; n++ {
		if id := fmt.Sprint("new-", n); dedupe.Shard("orders", "default", id) == 0 {
			put(id, len(want))
		}
	}
	for n := range 30 {
		put(fmt.Sprint("old-", n), len(want))
	}
	records, _, err := dedupe.List(t.Context(), db, dedupe.Listing{Limit: 60})
	require.NoError(t, err)
	var listed []string
	for _, r := range records {
		listed = append(listed, r.EventID)
	}
	require.Equal(t, want, listed)
}
