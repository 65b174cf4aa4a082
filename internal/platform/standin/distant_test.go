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
	there := func() bool {
		_, err := near.Get(t.Context(), key)
		return err == nil
	}
	var waited []time.Duration
	var seen []bool
	ctx, cancel := context.WithCancel(t.Context())
	onWay := func() {} // is called at each half of the way
	far := &standin.Distant{
		Store: near, CommitTime: func() time.Duration { return 21 }, ReadTime: func() time.Duration { return 8 },
		After: func(d time.Duration) <-chan time.Time {
			waited, seen = append(waited, d), append(seen, there())
			onWay()
			done := make(chan time.Time, 1)
			if ctx.Err() == nil {
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
	require.Equal(t, []time.Duration{10, 11, 4, 4, 4, 4}, waited)
	_, err = far.Commit(ctx, []store.Write{store.Create(key, nil)})
	require.ErrorIs(t, err, store.ErrExists)

	// A caller that goes away on the way back has deleted.
	halves := 0
	onWay = func() {
		if halves++; halves == 2 {
			cancel()
		}
	}
	_, err = far.Commit(ctx, []store.Write{store.Delete(key, 0)})
	require.ErrorIs(t, err, context.Canceled)
	require.False(t, there())
}
