package push

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestThatAQueueIsCalmIsReadOnceASecondHoweverManyAsk(t *testing.T) {
	t.Parallel()
	for name, found := range map[string]bool{"where it is": true, "where it is not": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c, reads := newCalm(), 0
				var wrong atomic.Int64
				askAll := func() {
					var crowd sync.WaitGroup
					for range 50 {
						crowd.Go(func() {
							got, err := c.holds(t.Context(), time.Now, func(context.Context) (bool, error) {
								reads++
								<-time.After(100 * time.Millisecond)
								return found, nil
							})
							if err != nil || got != found {
								wrong.Add(1)
							}
						})
					}
					crowd.Wait()
					require.Zero(t, wrong.Load())
				}
				askAll()
				require.Equal(t, 1, reads)
				<-time.After(calmFor - 101*time.Millisecond)
				askAll()
				require.Equal(t, 1, reads)
				<-time.After(time.Millisecond)
				askAll()
				require.Equal(t, 2, reads, "a second after the first began, not after it ended: a message may have been kept in between")
			})
		})
	}
}

func TestAReadThatFailsSaysNothingOfCalm(t *testing.T) {
	t.Parallel()
	c, now, down := newCalm(), func() time.Time { return time.Unix(0, 0) }, errors.New("no answer")
	for range 2 {
		calm, err := c.holds(t.Context(), now, func(context.Context) (bool, error) { return true, down })
		require.ErrorIs(t, err, down)
		_ = calm
	}
	read := false
	calm, err := c.holds(t.Context(), now, func(context.Context) (bool, error) { read = true; return true, nil })
	require.NoError(t, err)
	require.True(t, read && calm, "it is asked again")
	gone, leave := context.WithCancel(t.Context())
	leave()
	c.one <- struct{}{} // somebody reads
	_, err = c.holds(gone, now, nil)
	require.ErrorIs(t, err, context.Canceled)
}
