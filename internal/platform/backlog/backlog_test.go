package backlog_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/internal/filetest"
	"billhook/internal/platform/backlog"
	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
)

var noon = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

func TestACountIsReadAsWritten(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t)

	_, known := filetest.Must(backlog.Read(t.Context(), db))(t).Of("orders", noon)
	require.False(t, known, "nothing is counted yet")

	before := map[string]backlog.Held{"gone": {Messages: 1}}
	require.NoError(t, backlog.Write(t.Context(), db, noon.Add(-time.Hour), before))
	now := map[string]backlog.Held{"orders": {Messages: 7, Oldest: noon.Add(-time.Hour)}, "mails": {}}
	require.NoError(t, backlog.Write(t.Context(), db, noon, now))
	counted := filetest.Must(backlog.Read(t.Context(), db))(t)
	require.Equal(t, noon, counted.At)
	for queue, want := range map[string]bool{"orders": true, "mails": true, "gone": false} {
		held, known := counted.Of(queue, noon.Add(backlog.GoodFor))
		require.Equal(t, now[queue], held, queue)
		require.Equal(t, want, known, queue)
	}
	_, known = counted.Of("orders", noon.Add(backlog.GoodFor+1))
	require.False(t, known, "the count is too old")
}

func TestAnErrorOfTheStoreIsReturned(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t)
	faults := &storetest.Faults{Store: db}
	faults.Down(true)
	require.ErrorIs(t, filetest.ErrorOf(backlog.Read(t.Context(), faults)), storetest.ErrFault)
	require.ErrorIs(t, backlog.Write(t.Context(), faults, noon, nil), storetest.ErrFault)

	key := store.Key{Collection: backlog.Collection, ID: "all"}
	storetest.Put(t, db, store.Set(key, map[string]any{"counted_at": "today"}))
	require.ErrorIs(t, filetest.ErrorOf(backlog.Read(t.Context(), db)), store.ErrUnreadable)
}
