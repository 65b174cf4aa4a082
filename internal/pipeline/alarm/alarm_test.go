package alarm_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"billhook/internal/filetest"
	"billhook/internal/pipeline/alarm"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bell is a timer in a bubble. It runs during, if not nil, within each call.
type bell struct {
	*alarm.Timer
	calls   []time.Time
	pending atomic.Int64
}

func newBell(t interface{ Cleanup(func()) }, during func(ctx context.Context, b *bell)) *bell {
	b := &bell{}
	b.Timer = alarm.NewTimer(alarm.Config{
		Call: func(ctx context.Context) {
			b.calls = append(b.calls, now())
			if during != nil {
				during(ctx, b)
			}
		},
		Now: now,
		AfterFunc: func(d time.Duration, f func()) func() {
			b.pending.Add(1)
			end := sync.OnceFunc(func() { b.pending.Add(-1) })
			stop := alarm.AfterFunc(d, func() { end(); f() })
			return func() { stop(); end() }
		},
	})
	t.Cleanup(b.Close)
	return b
}

// now is the bubble's time, which begins with a whole second, and so with a moment.
func now() time.Time { return time.Now().UTC().Round(0) }

func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// TestEveryRequestedTimeGetsACall: the call is made within a quarter of a second after the requested time,
// never before it, and each quarter has at most one call. Also for slow calls that request more times.
func TestEveryRequestedTimeGetsACall(t *testing.T) {
	t.Parallel()
	filetest.Bubble(t, func(t *testing.T) {
		rapid.Check(struct{ testing.TB }{t}, func(t *rapid.T) { // a bubble has no deadline
			type request struct{ at, by time.Time }
			var mu sync.Mutex // what is due now is called at once
			var ended atomic.Bool
			var requests []request
			var failed error
			want := func(b *bell, in time.Duration) {
				mu.Lock()
				defer mu.Unlock()
				at := now().Add(in)
				failed = errors.Join(failed, b.At(t.Context(), at))
				if in < 0 {
					at = now()
				}
				requests = append(requests, request{at, at.Add(alarm.Step)})
			}
			in := rapid.Int64Range(-int64(time.Second), int64(4*time.Second))
			// Three of four calls request nothing.
			during := rapid.SliceOfN(rapid.Int64Range(-int64(time.Second), int64(19*time.Second)), 20,
				60).Draw(t, "during")
			pass(time.Duration(rapid.Int64Range(0, int64(time.Second)).Draw(t, "start")))
			b := newBell(t, func(_ context.Context, b *bell) {
				if n := len(b.calls) - 1; !ended.Load() && n < len(during) && during[n] <= int64(4*time.Second) {
					want(b, time.Duration(during[n]))
				}
			})
			for range rapid.IntRange(1, 20).Draw(t, "steps") {
				for range rapid.IntRange(1, 4).Draw(t, "requests") {
					want(b, time.Duration(in.Draw(t, "at")))
				}
				// Sometimes the clock stops exactly at a moment: a request then needs the next call.
				d := time.Duration(rapid.Int64Range(0, int64(2*time.Second)).Draw(t, "pass"))
				if rapid.Bool().Draw(t, "to a moment") {
					d = alarm.Moment(now().Add(d)).Sub(now())
				}
				pass(d)
			}
			ended.Store(true)
			pass(10 * time.Second)
			require.NoError(t, failed)
			for _, a := range requests {
				found := false
				for _, call := range b.calls {
					found = found || (!call.Before(a.at) && !call.After(a.by))
				}
				require.True(t, found, "requested %s, called at %v", a.at, b.calls)
			}
			for i := 1; i < len(b.calls); i++ {
				require.False(t, alarm.Moment(b.calls[i-1]).Equal(alarm.Moment(b.calls[i])),
					"two calls for one quarter: %v", b.calls)
			}
			require.LessOrEqual(t, len(b.calls), len(requests))
			require.Zero(t, b.pending.Load(), "no timer is left")
		})
	})
}

// A long call postpones the others, which become one.
func TestCallsDoNotOverlap(t *testing.T) {
	t.Parallel()
	filetest.Bubble(t, func(t *testing.T) {
		running, start := 0, now()
		b := newBell(t, func(_ context.Context, b *bell) {
			running++
			require.Equal(t, 1, running)
			if len(b.calls) == 1 {
				pass(time.Second)
			}
			running--
		})
		for i := range 4 {
			require.NoError(t, b.At(t.Context(), start.Add(time.Duration(i)*alarm.Step)))
		}
		pass(time.Minute)
		require.Equal(t, []time.Time{start, start.Add(time.Second)}, b.calls)
	})
}

func TestCloseEndsARunningCallAndTheNextOnes(t *testing.T) {
	t.Parallel()
	filetest.Bubble(t, func(t *testing.T) {
		start := now()
		b := newBell(t, func(ctx context.Context, b *bell) {
			require.NoError(t, ctx.Err())
			require.NoError(t, b.At(ctx, start))
			require.NoError(t, b.At(ctx, start.Add(time.Hour)))
			pass(time.Second) // the first of them is due when the call ends
			b.Close()
			require.ErrorIs(t, ctx.Err(), context.Canceled)
		})
		require.NoError(t, b.At(t.Context(), start))
		pass(time.Minute)
		require.Len(t, b.calls, 1)
		require.Zero(t, b.pending.Load())
		b.Close()
		require.ErrorIs(t, b.At(t.Context(), start), alarm.ErrClosed)
	})
}

func TestMoreMomentsThanFitAreRefused(t *testing.T) {
	t.Parallel()
	filetest.Bubble(t, func(t *testing.T) {
		b, first := newBell(t, nil), now().Add(alarm.Step)
		for i := range alarm.MaxMoments {
			require.NoError(t, b.At(t.Context(), first.Add(time.Duration(i)*alarm.Step)))
		}
		require.ErrorIs(t, b.At(t.Context(), first.Add(time.Hour*24)), alarm.ErrFull)
		require.NoError(t, b.At(t.Context(), first), "a known moment is accepted")
		pass(alarm.Step)
		require.NoError(t, b.At(t.Context(), first.Add(time.Hour*24)))
	})
}

// On the machine's clock, with requests from many goroutines, for the race detector.
func TestTimerRunsOnTheMachinesClock(t *testing.T) {
	t.Parallel()
	called := make(chan struct{})
	first := sync.OnceFunc(func() { close(called) })
	timer := alarm.NewTimer(
		alarm.Config{Call: func(context.Context) { first() }, Now: time.Now, AfterFunc: alarm.AfterFunc})
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
