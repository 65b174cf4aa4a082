package storetest

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/internal/platform/store"
)

const racers = 50

// race makes fifty commits at once. It requires that this many succeed, and that the others fail with meets.
func race(t *testing.T, s store.Store, succeed int, meets error, writes func(i int) []store.Write) {
	t.Helper()
	var wg sync.WaitGroup
	start, errs := make(chan struct{}), make([]error, racers)
	for i := range racers {
		wg.Go(func() {
			<-start
			_, errs[i] = s.Commit(t.Context(), writes(i))
		})
	}
	close(start)
	wg.Wait()
	for _, err := range errs {
		if err == nil {
			succeed--
			continue
		}
		require.ErrorIs(t, err, meets)
	}
	require.Zero(t, succeed)
}

func raceCreate(t *testing.T, s store.Store) {
	race(t, s, 1, store.ErrExists, func(i int) []store.Write {
		return []store.Write{
			store.Create(key("one"), map[string]any{"by": int64(i)}),
			store.Increment(key("count"), map[string]int64{"n": 1}, nil),
		}
	})
	require.Equal(t, int64(1), Get(t, s, key("count")).Fields["n"])
}

func raceUpdate(t *testing.T, s store.Store) {
	version := Put(t, s, store.Create(key("one"), map[string]any{"by": int64(-1)}))[0]
	race(t, s, 1, store.ErrStale, func(i int) []store.Write {
		return []store.Write{store.Replace(key("one"), version, map[string]any{"by": int64(i)})}
	})
}

func raceIncrement(t *testing.T, s store.Store) {
	race(t, s, racers, nil, func(int) []store.Write {
		return []store.Write{store.Increment(key("sum"), map[string]int64{"n": 3}, nil)}
	})
	require.Equal(t, int64(3*racers), Get(t, s, key("sum")).Fields["n"])
}
