package firestore_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/internal/platform/gcp/firestore"
	"billhook/internal/platform/standin"
	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
)

// onStandIn connects to the stand-in for the database, which is as far away as the function says.
func onStandIn(t *testing.T, far func(store.Store) store.Store) *firestore.Store {
	t.Helper()
	file, err := standin.OpenTemporaryStore(filepath.Join(t.TempDir(), "store.db"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, file.Close()) })
	database, err := standin.NewDatabase(t.Context(), far(file))
	require.NoError(t, err)
	t.Cleanup(database.Close)
	s, err := firestore.NewEmulated(t.Context(), database.Addr(), "p", "")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

func near(s store.Store) store.Store { return s }

func TestTheStandInForTheDatabaseConforms(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T) store.Store {
		t.Helper()
		return onStandIn(t, near)
	})
}

func TestTheQueriesOfTheStandInFollowTheModel(t *testing.T) {
	t.Parallel()
	storetest.RunQueries(t, func(t *testing.T) store.Store {
		t.Helper()
		return onStandIn(t, near)
	})
}

func TestAStoreThatIsFarAwayConforms(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T) store.Store {
		t.Helper()
		return onStandIn(t, func(s store.Store) store.Store {
			short := func() time.Duration { return 2 * time.Microsecond }
			return &standin.Distant{Store: s, CommitTime: short, ReadTime: short, After: time.After}
		})
	})
}
