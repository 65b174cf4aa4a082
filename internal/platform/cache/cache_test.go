package cache_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"billhook/internal/filetest"
	"billhook/internal/platform/cache"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var noon = time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)

var errLoad = errors.New("not loaded")

type entry struct {
	key          string
	value        int
	since, until time.Time
}

func (e entry) valid(now time.Time) bool { return !now.Before(e.since) && now.Before(e.until) }

// model has the entries of a cache, the least recently used first.
type model struct {
	most    int
	entries []entry
}

func (m *model) forget(key string) {
	m.entries = slices.DeleteFunc(m.entries, func(e entry) bool { return e.key == key })
}

func (m *model) add(e entry) {
	m.forget(e.key)
	m.entries = append(m.entries, e)
	m.entries = m.entries[max(0, len(m.entries)-max(1, m.most)):] // a cache of size 0 holds one
}

func (m *model) use(key string, now time.Time) (e entry, valid bool) {
	at := slices.IndexFunc(m.entries, func(e entry) bool { return e.key == key })
	if at < 0 {
		return entry{}, false
	}
	e = m.entries[at]
	m.add(e)
	return e, e.valid(now)
}

func TestACacheAgreesWithItsModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := &model{most: rapid.IntRange(0, 3).Draw(t, "most")}
		now, count := noon, 0
		c := cache.New[int](m.most, func() time.Time { return now })
		key := rapid.SampledFrom([]string{"a", "b", "c", "d", "e"})
		seconds := rapid.Map(rapid.IntRange(1, 30), func(n int) time.Duration {
			return time.Duration(n) * time.Second
		})
		t.Repeat(map[string]func(*rapid.T){
			"put": func(t *rapid.T) {
				count++
				e := entry{key.Draw(t, "key"), count, now, now.Add(seconds.Draw(t, "good"))}
				c.Put(e.key, e.value, e.until.Sub(now))
				m.add(e)
			},
			"forget": func(t *rapid.T) {
				key := key.Draw(t, "key")
				c.Forget(key)
				m.forget(key)
			},
			"time passes, or the clock is set back": func(t *rapid.T) {
				now = now.Add(time.Duration(rapid.IntRange(-3, 15).Draw(t, "seconds")) * time.Second)
			},
			"known": func(t *rapid.T) {
				key := key.Draw(t, "key")
				value, ok := c.Known(key)
				e, valid := m.use(key, now)
				require.Equal(t, valid, ok)
				if ok {
					require.Equal(t, e.value, value)
				}
			},
			"get": func(t *rapid.T) {
				key, lasts, fails := key.Draw(t, "key"), seconds.Draw(t, "good"), rapid.Bool().Draw(t, "fails")
				e, valid := m.use(key, now)
				count++
				value, err := c.Get(t.Context(), key, func(context.Context) (int, time.Duration, error) {
					require.False(t, valid, "a valid value is not loaded")
					if fails {
						return 0, 0, errLoad
					}
					return count, lasts, nil
				})
				switch {
				case valid:
					require.NoError(t, err)
					require.Equal(t, e.value, value)
				case fails:
					require.Equal(t, errLoad, err)
				default:
					require.NoError(t, err)
					require.Equal(t, count, value)
					m.add(entry{key, count, now, now.Add(lasts)})
				}
			},
		})
	})
}

type bench struct {
	*cache.Cache[int]
	t       *testing.T
	now     time.Time
	answers chan int
	loads   int
}

func newBench(t *testing.T) *bench {
	b := &bench{t: t, now: noon, answers: make(chan int)}
	b.Cache = cache.New[int](1, func() time.Time { return b.now })
	return b
}

func (b *bench) get(ctx context.Context) <-chan string {
	answer := make(chan string, 1)
	go func() {
		value, err := b.Get(ctx, "a", func(ctx context.Context) (int, time.Duration, error) {
			b.loads++
			if value := <-b.answers; value != 0 {
				return value, time.Minute, ctx.Err()
			}
			return 0, 0, errLoad
		})
		answer <- fmt.Sprint(value, " ", err)
	}()
	synctest.Wait()
	return answer
}

func (b *bench) answer(value, loads int) {
	b.t.Helper()
	require.Equal(b.t, loads, b.loads)
	b.answers <- value
	synctest.Wait()
}

func TestConcurrentCallersShareALoad(t *testing.T) {
	t.Parallel()
	retried := func(value int, want string) func(*testing.T, *bench) {
		return func(t *testing.T, b *bench) {
			first, second := b.get(t.Context()), b.get(t.Context())
			b.answer(0, 1)
			require.Equal(t, "0 not loaded", <-first)
			b.answer(value, 2)
			require.Equal(t, want, <-second)
		}
	}
	changed := func(change func(*bench)) func(*testing.T, *bench) {
		return func(t *testing.T, b *bench) {
			first := b.get(t.Context())
			change(b)
			b.answer(7, 1)
			require.Equal(t, "7 <nil>", <-first, "a call before the change gets the old value")
			b.now = b.now.Add(time.Nanosecond)
			second := b.get(t.Context())
			b.answer(8, 2)
			require.Equal(t, "8 <nil>", <-second)
		}
	}
	filetest.Each(t, map[string]func(*testing.T, *bench){
		"that none of them ends": func(t *testing.T, b *bench) {
			leaving, leave := context.WithCancel(t.Context())
			first, second, third := b.get(leaving), b.get(t.Context()), b.get(t.Context())
			leave()
			require.Equal(t, "0 context canceled", <-first)
			b.answer(7, 1)
			require.Equal(t, []string{"7 <nil>", "7 <nil>"}, []string{<-second, <-third})
		},
		"and retry one that failed":                    retried(5, "5 <nil>"),
		"and retry one that failed, once":              retried(0, "0 not loaded"),
		"that does not overwrite that it is forgotten": changed(func(b *bench) { b.Forget("a") }),
		"that does not overwrite a newer value":        changed(func(b *bench) { b.Put("a", 9, time.Nanosecond) }),
	}, func(t *testing.T, script func(*testing.T, *bench)) {
		filetest.Bubble(t, func(t *testing.T) { script(t, newBench(t)) })
	})
}
