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

func TestACountIsReadAsItWasWritten(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t)

	none, err := backlog.Read(t.Context(), db)
	require.NoError(t, err, "nobody has counted yet")
	_, known := none.Of("orders", noon)
	require.False(t, known)

	require.NoError(t, backlog.Write(t.Context(), db, noon.Add(-time.Hour),
		map[string]backlog.Held{"gone": {Messages: 1}}))
	require.NoError(t, backlog.Write(t.Context(), db, noon,
		map[string]backlog.Held{"orders": {Messages: 7, Oldest: noon.Add(-time.Hour)}, "letters": {}}))
	counted := filetest.Must(backlog.Read(t.Context(), db))(t)
	require.Equal(t, noon, counted.At)
	for queue, want := range map[string]struct {
		held  backlog.Held
		known bool
	}{
		"orders": {backlog.Held{Messages: 7, Oldest: noon.Add(-time.Hour)}, true}, "letters": {known: true},
		"gone": {},
	} {
		held, known := counted.Of(queue, noon.Add(backlog.GoodFor))
		require.Equal(t, want.held, held, queue)
		require.Equal(t, want.known, known, queue)
	}
	_, known = counted.Of("orders", noon.Add(backlog.GoodFor+1))
	require.False(t, known, "what was counted too long ago is not known")
}

func TestAStoreThatIsDownHasCountedNothing(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t)
	faults := &storetest.Faults{Store: db}
	faults.Down(true)
	require.ErrorIs(t, filetest.ErrorOf(backlog.Read(t.Context(), faults)), storetest.ErrFault)
	require.ErrorIs(t, backlog.Write(t.Context(), faults, noon, nil), storetest.ErrFault)

	storetest.Put(t, db, store.Set(store.Key{Collection: backlog.Collection, ID: "all"},
		map[string]any{"counted_at": "today"}))
	require.ErrorIs(t, filetest.ErrorOf(backlog.Read(t.Context(), db)), store.ErrUnreadable)
}
