package handler_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"billhook/catalog"
	"billhook/internal/pipeline/handler"
	"billhook/internal/retry"
)

// gathered is a batch of at most size events that come within 20 ms, and what it was called with.
type gathered struct {
	handler.Leased
	mu    sync.Mutex
	calls [][]string
}

func gathering(size int, call func(context.Context, []handler.Event) ([]handler.Outcome, error)) *gathered {
	g := &gathered{}
	g.Leased = handler.Batch{
		Queue: func(id string) (catalog.Queue, bool) {
			return catalog.Queue{ID: id, Batch: catalog.Batch{Size: size, Wait: 20 * time.Millisecond}}, true
		},
		Timer: func(d time.Duration) (<-chan time.Time, func() bool) {
			timer := time.NewTimer(d)
			return timer.C, timer.Stop
		},
		Call: func(ctx context.Context, events []handler.Event) ([]handler.Outcome, error) {
			ids := make([]string, len(events))
			for i, e := range events {
				ids[i] = e.ID
			}
			slices.Sort(ids)
			g.mu.Lock()
			g.calls = append(g.calls, ids)
			g.mu.Unlock()
			return call(ctx, events)
		},
		SafeToRepeat: true,
	}.Leased()
	return g
}

// echo answers each event with its own id, and refuses those that are called bad.
func echo(_ context.Context, events []handler.Event) ([]handler.Outcome, error) {
	outcomes := make([]handler.Outcome, len(events))
	for i, e := range events {
		outcomes[i].Effect.Result = e.ID
		if e.Type == "bad" {
			outcomes[i] = handler.Outcome{Err: retry.Permanent("bad_"+e.ID, nil)}
		}
	}
	return outcomes, nil
}

func TestAttemptsAreGatheredUntilThereAreEnoughOrTheirTimeIsOver(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		arrive []time.Duration
		want   [][]string
	}{
		"as many as one call takes":               {[]time.Duration{0, 0, 0}, [][]string{{"0", "1", "2"}}},
		"one alone":                               {[]time.Duration{0}, [][]string{{"0"}}},
		"what comes before the first's time ends": {[]time.Duration{0, 19 * time.Millisecond}, [][]string{{"0", "1"}}},
		"what comes after it":                     {[]time.Duration{0, 21 * time.Millisecond}, [][]string{{"0"}, {"1"}}},
		"the rest of a burst":                     {[]time.Duration{0, 1, 2, 3, 4}, [][]string{{"0", "1", "2"}, {"3", "4"}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				g := gathering(3, echo)
				var attempts sync.WaitGroup
				for i, after := range test.arrive {
					attempts.Go(func() {
						<-time.After(after)
						id := fmt.Sprint(i)
						effect, err := g.Do(t.Context(), handler.Event{Queue: "q", ID: id})
						require.NoError(t, err)
						require.Equal(t, id, effect.Result, "each has the result of its own item")
					})
				}
				attempts.Wait()
				require.Equal(t, test.want, g.calls)
			})
		})
	}
}

func TestEachAttemptIsAnsweredByItsOwnItem(t *testing.T) {
	t.Parallel()
	const panicking = "a panic"
	for name, test := range map[string]struct {
		call func(context.Context, []handler.Event) ([]handler.Outcome, error)
		want map[string]string // the result, or the error, by id
	}{
		"one is refused": {echo, map[string]string{"good": "good", "bad": "bad_bad"}},
		"the whole call fails": {func(context.Context, []handler.Event) ([]handler.Outcome, error) {
			return nil, retry.Down("index_down", errors.New("no index"))
		}, map[string]string{"good": "index_down: no index", "bad": "index_down: no index"}},
		"an item is forgotten": {func(context.Context, []handler.Event) ([]handler.Outcome, error) {
			return make([]handler.Outcome, 1), nil
		}, map[string]string{"good": "batch_unanswered", "bad": "batch_unanswered"}},
		"the call panics": {func(context.Context, []handler.Event) ([]handler.Outcome, error) {
			panic(panicking)
		}, map[string]string{"good": panicking, "bad": panicking}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				g := gathering(2, test.call)
				var attempts sync.WaitGroup
				for id, want := range test.want {
					attempts.Go(func() {
						defer func() {
							if got := recover(); got != nil {
								require.Equal(t, want, got, "as if the attempt had made the call itself")
							}
						}()
						effect, err := g.Do(t.Context(), handler.Event{Queue: "q", ID: id, Type: id})
						if err != nil {
							require.EqualError(t, err, want)
							return
						}
						require.Equal(t, want, effect.Result)
					})
				}
				attempts.Wait()
			})
		})
	}
}

func TestACallEndsByTheEarliestDeadlineOfItsAttempts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		started := time.Now()
		g := gathering(2, func(ctx context.Context, _ []handler.Event) ([]handler.Outcome, error) {
			<-ctx.Done()
			<-time.After(time.Second)
			return nil, ctx.Err()
		})
		var attempts sync.WaitGroup
		for i, limit := range []time.Duration{time.Minute, time.Second} {
			attempts.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), limit)
				defer cancel()
				_, err := g.Do(ctx, handler.Event{Queue: "q", ID: fmt.Sprint(i)})
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.Equal(t, 2*time.Second, time.Since(started), "no attempt is let go while its call is at work")
			})
		}
		attempts.Wait()
	})
}

// Attempts of two queues come and go. Each attempt that stays is in one call of its queue, and no call is too large.
func TestEachAttemptThatStaysIsInOneCall(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		size := rapid.IntRange(2, 5).Draw(rt, "size")
		arrive := rapid.SliceOfN(rapid.IntRange(0, 60), 1, 20).Draw(rt, "arrive")
		leave := rapid.SliceOfN(rapid.IntRange(1, 60), len(arrive), len(arrive)).Draw(rt, "leave")
		synctest.Test(t, func(t *testing.T) {
			g := gathering(size, echo)
			var attempts sync.WaitGroup
			done := make([]bool, len(arrive))
			for i := range arrive {
				attempts.Go(func() {
					<-time.After(time.Duration(arrive[i]) * time.Millisecond)
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(leave[i])*time.Millisecond)
					defer cancel()
					effect, err := g.Do(ctx, handler.Event{Queue: []string{"even", "odd"}[i%2], ID: fmt.Sprint(i)})
					done[i] = err == nil
					require.True(t, err != nil || effect.Result == fmt.Sprint(i))
				})
			}
			attempts.Wait()
			<-time.After(time.Second)
			called := map[string]int{}
			for _, ids := range g.calls {
				require.LessOrEqual(t, len(ids), size)
				for _, id := range ids {
					called[id]++
					i, _ := strconv.Atoi(id)
					first, _ := strconv.Atoi(ids[0])
					require.Equal(t, first%2, i%2)
				}
			}
			for i := range arrive {
				require.LessOrEqual(t, called[fmt.Sprint(i)], 1)
				require.Equal(t, done[i], called[fmt.Sprint(i)] == 1)
				require.True(t, done[i] || leave[i] <= 20, "only somebody who leaves early is left out")
			}
		})
	})
}
