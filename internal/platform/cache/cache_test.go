package cache_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"billhook/internal/platform/cache"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var noon = time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)

var errLoad = errors.New("not loaded")

// TestACacheIsAMapThatForgets compares a cache with a list of its entries, the one used last at the end.
func TestACacheIsAMapThatForgets(t *testing.T) {
	t.Parallel()
	type entry struct {
		key          string
		value        int
		since, until time.Time
	}
	rapid.Check(t, func(t *rapid.T) {
		const most, keep = 3, 20 * time.Second
		now, count := noon, 0
		c := cache.New[int](most, keep, func() time.Time { return now })
		var entries []entry
		use := func(key string) (entry, bool) {
			at := slices.IndexFunc(entries, func(e entry) bool { return e.key == key })
			if at < 0 {
				return entry{}, false
			}
			e := entries[at]
			entries = append(slices.Delete(entries, at, at+1), e)
			return e, true
		}
		add := func(e entry) {
			use(e.key)
			entries = append(slices.DeleteFunc(entries, func(old entry) bool { return old.key == e.key }), e)
			entries = entries[max(0, len(entries)-most):]
		}
		good := func(e entry) bool { return !now.Before(e.since) && now.Before(e.until) }
		key := rapid.SampledFrom([]string{"a", "b", "c", "d", "e"})
		seconds := rapid.IntRange(1, 30)
		t.Repeat(map[string]func(*rapid.T){
			"put": func(t *rapid.T) {
				count++
				e := entry{key.Draw(t, "key"), count, now, now.Add(time.Duration(seconds.Draw(t, "good")) * time.Second)}
				c.Put(e.key, e.value, e.until.Sub(now))
				add(e)
			},
			"forget": func(t *rapid.T) {
				key := key.Draw(t, "key")
				c.Forget(key)
				entries = slices.DeleteFunc(entries, func(e entry) bool { return e.key == key })
			},
			"time passes, or the clock is set back": func(t *rapid.T) {
				now = now.Add(time.Duration(rapid.IntRange(-3, 15).Draw(t, "seconds")) * time.Second)
			},
			"known": func(t *rapid.T) {
				key := key.Draw(t, "key")
				value, ok := c.Known(key)
				e, held := use(key)
				require.Equal(t, held && good(e), ok)
				if ok {
					require.Equal(t, e.value, value)
				}
			},
			"get": func(t *rapid.T) {
				key, lasts, fails := key.Draw(t, "key"), time.Duration(seconds.Draw(t, "good"))*time.Second, rapid.Bool().Draw(t, "fails")
				if slices.ContainsFunc(entries, func(e entry) bool {
					return e.key == key && !good(e) && !now.Before(e.since) && now.Before(e.since.Add(keep))
				}) {
					return // it is loaded behind the caller's back, see below
				}
				e, held := use(key)
				count++
				value, err := c.Get(t.Context(), key, func(context.Context) (int, time.Duration, error) {
					require.False(t, held && good(e), "what is good is not loaded")
					if fails {
						return 0, 0, errLoad
					}
					return count, lasts, nil
				})
				switch {
				case held && good(e):
					require.NoError(t, err)
					require.Equal(t, e.value, value)
				case fails:
					require.Equal(t, errLoad, err)
				default:
					require.NoError(t, err)
					require.Equal(t, count, value)
					add(entry{key, count, now, now.Add(lasts)})
				}
			},
		})
	})
}

// loads is a load that each of its answers lets go on.
type loads struct {
	began   chan struct{}
	answers chan int
}

func newLoads() *loads { return &loads{make(chan struct{}), make(chan int)} }

// load answers with a value that is good for a minute, or with an error for 0.
func (l *loads) load(ctx context.Context) (int, time.Duration, error) {
	l.began <- struct{}{}
	if value := <-l.answers; value != 0 {
		return value, time.Minute, ctx.Err()
	}
	return 0, 0, errLoad
}

// get asks in the background, and returns once that waits for the load.
func get(ctx context.Context, c *cache.Cache[int], load cache.Load[int]) (answer chan string) {
	waits := &waiting{Context: ctx, began: make(chan struct{})}
	answer = make(chan string, 1)
	go func() {
		value, err := c.Get(waits, "a", load)
		answer <- fmt.Sprint(value, " ", err)
	}()
	<-waits.began
	return answer
}

// waiting is a context that says when somebody waits for its end.
type waiting struct {
	context.Context
	once  sync.Once
	began chan struct{}
}

func (w *waiting) Done() <-chan struct{} {
	w.once.Do(func() { close(w.began) })
	return w.Context.Done()
}

func at(now *time.Time) func() time.Time { return func() time.Time { return *now } }

func TestThoseWhoAskAtOnceShareALoadThatOutlivesEachOfThem(t *testing.T) {
	t.Parallel()
	now, l := noon, newLoads()
	c := cache.New[int](1, 0, at(&now))
	leaving, leave := context.WithCancel(t.Context())
	first := get(leaving, c, l.load)
	<-l.began
	rest := []chan string{get(t.Context(), c, l.load), get(t.Context(), c, l.load)}
	leave()
	require.Equal(t, "0 context canceled", <-first)
	l.answers <- 7
	for _, answer := range rest {
		require.Equal(t, "7 <nil>", <-answer)
	}
}

func TestACacheOfNothingHoldsOne(t *testing.T) {
	t.Parallel()
	c := cache.New[int](0, 0, time.Now)
	c.Put("a", 1, cache.Forever)
	value, ok := c.Known("a")
	require.True(t, ok)
	require.Equal(t, 1, value)
}

func TestWhoSharedALoadThatFailedAsksOnceMore(t *testing.T) {
	t.Parallel()
	now, l := noon, newLoads()
	c := cache.New[int](1, 0, at(&now))
	first := get(t.Context(), c, l.load)
	<-l.began
	second := get(t.Context(), c, l.load)
	l.answers <- 0
	require.Equal(t, "0 not loaded", <-first)
	<-l.began
	l.answers <- 0
	require.Equal(t, "0 not loaded", <-second)
	third := get(t.Context(), c, l.load)
	<-l.began
	fourth := get(t.Context(), c, l.load)
	l.answers <- 0
	require.Equal(t, "0 not loaded", <-third)
	<-l.began
	l.answers <- 5
	require.Equal(t, "5 <nil>", <-fourth)
}

func TestAChangeWhileALoadIsUnderWayIsNotHidden(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*cache.Cache[int]){
		"it is forgotten": func(c *cache.Cache[int]) { c.Forget("a") },
		"it is put":       func(c *cache.Cache[int]) { c.Put("a", 9, time.Nanosecond) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			now, l := noon, newLoads()
			c := cache.New[int](1, 0, at(&now))
			first := get(t.Context(), c, l.load)
			<-l.began
			change(c)
			l.answers <- 7
			require.Equal(t, "7 <nil>", <-first, "it asked before")
			now = now.Add(time.Nanosecond)
			second := get(t.Context(), c, l.load)
			<-l.began
			l.answers <- 8
			require.Equal(t, "8 <nil>", <-second)
		})
	}
}

func TestAnOldValueIsAnsweredWhileANewerOneIsLoaded(t *testing.T) {
	t.Parallel()
	now, l := noon, newLoads()
	c := cache.New[int](1, 2*time.Minute, at(&now))
	c.Put("a", 1, time.Minute)
	now = noon.Add(2*time.Minute - 1)
	value, err := c.Get(t.Context(), "a", l.load)
	require.NoError(t, err)
	require.Equal(t, 1, value)
	<-l.began
	now = noon.Add(2 * time.Minute)
	waits := get(t.Context(), c, l.load)
	l.answers <- 2
	require.Equal(t, "2 <nil>", <-waits)
	value, ok := c.Known("a")
	require.True(t, ok)
	require.Equal(t, 2, value)
}
