package standin_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/internal/platform/standin"
	"billhook/internal/platform/store"
)

func TestACallOfADistantStoreHappensHalfWayThrough(t *testing.T) {
	t.Parallel()
	near := openStore(t)
	key := store.Key{Collection: "c", ID: "a"}
	var waited []time.Duration
	var seen []bool
	ctx, cancel := context.WithCancel(t.Context())
	far := &standin.Distant{
		Store: near, CommitTime: func() time.Duration { return 21 }, ReadTime: func() time.Duration { return 8 },
		After: func(d time.Duration) <-chan time.Time {
			_, err := near.Get(t.Context(), key)
			waited, seen = append(waited, d), append(seen, err == nil)
			done := make(chan time.Time, 1)
			if len(waited) >= 8 { // on the way back of the second commit, its caller goes away
				cancel()
			} else {
				done <- time.Time{}
			}
			return done
		},
	}
	_, err := far.Commit(ctx, []store.Write{store.Create(key, nil)})
	require.NoError(t, err)
	require.Equal(t, []bool{false, true}, seen)
	_, err = far.Get(ctx, key)
	require.NoError(t, err)
	page, err := far.Query(ctx, store.Query{Collection: "c", Limit: 1})
	require.NoError(t, err)
	require.Len(t, page.Documents, 1)
	_, err = far.Commit(ctx, []store.Write{store.Delete(key, 0)})
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, []time.Duration{10, 11, 4, 4, 4, 4, 10, 11}, waited)
	require.False(t, seen[7], "it has deleted")
	_, err = far.Get(ctx, key)
	require.ErrorIs(t, err, context.Canceled)
}
