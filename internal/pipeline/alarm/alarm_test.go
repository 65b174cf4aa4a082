package alarm_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"billhook/internal/pipeline/alarm"
	"billhook/internal/platform/standin/clocktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type bell struct {
	*alarm.Timer
	clock *clocktest.Clock
	calls []time.Time
}

// newBell returns a bell. It runs during, if not nil, within each call.
func newBell(at time.Time, during func(ctx context.Context, b *bell)) *bell {
	b := &bell{clock: clocktest.New(at)}
	b.Timer = alarm.NewTimer(alarm.Config{
		Call: func(ctx context.Context) {
			b.calls = append(b.calls, b.clock.Now())
			if during != nil {
				during(ctx, b)
			}
		},
		Now: b.clock.Now, AfterFunc: b.clock.AfterFunc,
	})
	return b
}

func (b *bell) pass(d time.Duration) {
	for d > 0 {
		moved, rang := b.clock.Next(d)
		d -= moved
		if !rang {
			return
		}
	}
	for b.clock.Pending() > 0 { // what is due now
		if _, rang := b.clock.Next(0); !rang {
			return
		}
	}
}

// TestEveryRequestedTimeGetsACall: the call comes within a quarter of a second after the
// requested time, never before it, and one quarter has one call at most. This also holds where
// a call requests more times and lasts.
func TestEveryRequestedTimeGetsACall(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		type ask struct{ at, by time.Time }
		var asks []ask
		want := func(b *bell, label string) {
			now := b.clock.Now()
			at := now.Add(time.Duration(rapid.Int64Range(-int64(time.Second), int64(4*time.Second)).Draw(t, label)))
			require.NoError(t, b.At(t.Context(), at))
			if at.Before(now) {
				at = now
			}
			asks = append(asks, ask{at, at.Add(alarm.Step)})
		}
		b := newBell(start.Add(time.Duration(rapid.Int64Range(0, int64(time.Second)).Draw(t, "start"))), func(_ context.Context, b *bell) {
			if len(asks) < 60 && rapid.IntRange(0, 3).Draw(t, "ask during a call") == 0 {
				want(b, "during")
			}
		})
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			for range rapid.IntRange(1, 4).Draw(t, "asks") {
				want(b, "at")
			}
			// Sometimes the clock stops exactly at a moment: what is requested then needs the
			// next call.
			d := time.Duration(rapid.Int64Range(0, int64(2*time.Second)).Draw(t, "pass"))
			if rapid.Bool().Draw(t, "to a moment") {
				d = alarm.Moment(b.clock.Now().Add(d)).Sub(b.clock.Now())
			}
			b.pass(d)
		}
		b.pass(10 * time.Second)
		for _, a := range asks {
			found := false
			for _, call := range b.calls {
				found = found || (!call.Before(a.at) && !call.After(a.by))
			}
			require.True(t, found, "asked for %s, called at %v", a.at, b.calls)
		}
		for i := 1; i < len(b.calls); i++ {
			require.False(t, alarm.Moment(b.calls[i-1]).Equal(alarm.Moment(b.calls[i])), "two calls for one quarter: %v", b.calls)
		}
		require.LessOrEqual(t, len(b.calls), len(asks))
		require.Zero(t, b.clock.Pending(), "no timer runs for nothing")
	})
}

// A long call postpones the others, which become one.
func TestCallsDoNotOverlap(t *testing.T) {
	t.Parallel()
	running := 0
	b := newBell(start, func(_ context.Context, b *bell) {
		running++
		require.Equal(t, 1, running)
		if len(b.calls) == 1 {
			b.pass(time.Second)
		}
		running--
	})
	for i := range 4 {
		require.NoError(t, b.At(t.Context(), start.Add(time.Duration(i)*alarm.Step)))
	}
	b.pass(time.Minute)
	require.Equal(t, []time.Time{start, start.Add(time.Second)}, b.calls)
}

func TestCloseEndsARunningCallAndTheNextOnes(t *testing.T) {
	t.Parallel()
	b := newBell(start, func(ctx context.Context, b *bell) {
		require.NoError(t, ctx.Err())
		require.NoError(t, b.At(ctx, start))
		require.NoError(t, b.At(ctx, start.Add(time.Hour)))
		b.pass(time.Second) // the first of them is due when the call ends
		b.Close()
		require.ErrorIs(t, ctx.Err(), context.Canceled)
	})
	require.NoError(t, b.At(t.Context(), start))
	b.pass(time.Minute)
	require.Len(t, b.calls, 1)
	require.Zero(t, b.clock.Pending())
	b.Close()
	require.ErrorIs(t, b.At(t.Context(), start), alarm.ErrClosed)
}

func TestMoreMomentsThanFitAreRefused(t *testing.T) {
	t.Parallel()
	b := newBell(start, nil)
	for i := range alarm.MaxMoments {
		require.NoError(t, b.At(t.Context(), start.Add(time.Duration(i)*alarm.Step)))
	}
	require.ErrorIs(t, b.At(t.Context(), start.Add(time.Hour*24)), alarm.ErrFull)
	require.NoError(t, b.At(t.Context(), start), "that one is known")
	b.pass(alarm.Step)
	require.NoError(t, b.At(t.Context(), start.Add(time.Hour*24)))
	b.Close()
}

// On the machine's clock, with requests from many goroutines, for the race detector.
func TestATimerRunsOnTheMachinesClock(t *testing.T) {
	t.Parallel()
	called := make(chan struct{})
	first := sync.OnceFunc(func() { close(called) })
	timer := alarm.NewTimer(alarm.Config{Call: func(context.Context) { first() }, Now: time.Now, AfterFunc: alarm.AfterFunc})
	t.Cleanup(timer.Close)
	for range 8 {
		t.Run("a caller", func(t *testing.T) {
			t.Parallel()
			for range 100 {
				require.NoError(t, timer.At(t.Context(), time.Now()))
			}
			<-called
		})
	}
}

// start is a whole second, and so a moment.
var start = time.Date(2026, 3, 2, 10, 15, 0, 0, time.UTC)
