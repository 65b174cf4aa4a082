package filetest_test

import (
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/internal/filetest"
)

// TestTimersOfABubbleMayFireTogether crashes under the race detector if two processors run it.
func TestTimersOfABubbleMayFireTogether(t *testing.T) { //nolint:paralleltest // counts processors
	before := runtime.GOMAXPROCS(0)
	filetest.Bubble(t, func(*testing.T) {
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				for range 40_000 {
					select {
					case <-time.NewTimer(0).C:
					default:
					}
				}
			})
		}
		all.Wait()
	})
	require.Equal(t, before, runtime.GOMAXPROCS(0))
}
