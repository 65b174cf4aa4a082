package push

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func timer(d time.Duration) (<-chan time.Time, func() bool) {
	t := time.NewTimer(d)
	return t.C, t.Stop
}

// asker is one message that asks for a slot, in the time of its test's bubble.
type asker struct {
	key   string
	leave context.CancelFunc
	over  atomic.Bool
	got   bool
}

func ask(s *slots, key string, size int, patience time.Duration) *asker {
	ctx, leave := context.WithCancel(context.Background())
	a := &asker{key: key, leave: leave}
	go func() {
		a.got = s.acquire(ctx, key, size, patience)
		a.over.Store(true)
	}()
	synctest.Wait()
	return a
}

// holds reports whether it has a slot.
func (a *asker) holds() bool { return a.over.Load() && a.got }

func TestWhatWaitsForASlotIsBounded(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		size, fit int
	}{
		"in number": {1, maxWaiting},
		"in bytes":  {maxWaitingBytes / 4, 4},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newSlots(1, timer, nil)
				require.True(t, ask(s, "", 1, time.Second).holds())
				var waiting []*asker
				for i := range test.fit {
					waiting = append(waiting, ask(s, fmt.Sprint(i%3), test.size, time.Hour))
					require.False(t, waiting[i].over.Load())
				}
				beyond := ask(s, "beyond", test.size, time.Hour)
				require.True(t, beyond.over.Load(), "at once")
				require.False(t, beyond.got)
				waiting[test.fit/2].leave()
				synctest.Wait()
				require.True(t, waiting[test.fit/2].over.Load())
				again := ask(s, "beyond", test.size, time.Hour)
				require.False(t, again.over.Load(), "who leaves frees a place")
				for range test.fit {
					s.release()
				}
				synctest.Wait()
				require.True(t, again.holds())
				require.Zero(t, s.count)
				require.Zero(t, s.bytes)
				require.Empty(t, s.waiting)
				require.Empty(t, s.keys)
			})
		})
	}
}

func TestAWaitForASlotEnds(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		patience time.Duration
		end      func(a *asker, ended chan struct{})
		free     bool
	}{
		"when the patience is over":                    {2 * time.Second, func(*asker, chan struct{}) { <-time.After(2 * time.Second) }, false},
		"when the caller leaves":                       {time.Hour, func(a *asker, _ chan struct{}) { a.leave() }, false},
		"when the service ends":                        {time.Hour, func(_ *asker, ended chan struct{}) { close(ended) }, false},
		"at once where nobody is to wait":              {0, func(*asker, chan struct{}) {}, false},
		"before it begins where the service has ended": {time.Hour, func(_ *asker, ended chan struct{}) { close(ended) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ended := make(chan struct{})
				s := newSlots(1, timer, ended)
				if test.free {
					test.end(nil, ended)
				} else {
					require.True(t, ask(s, "", 1, time.Second).holds())
				}
				a := ask(s, "k", 1, test.patience)
				if !test.free {
					test.end(a, ended)
				}
				synctest.Wait()
				require.True(t, a.over.Load())
				require.False(t, a.got)
				if !test.free {
					require.Zero(t, s.free)
					s.release()
				}
				require.Equal(t, 1, s.free, "no slot is lost")
				require.Zero(t, s.count+s.bytes+len(s.keys)+len(s.waiting))
			})
		})
	}
}

// TestATurnThatComesWithTheEndOfAWaitIsPassedOn, whichever of them is seen first.
func TestATurnThatComesWithTheEndOfAWaitIsPassedOn(t *testing.T) {
	t.Parallel()
	for _, first := range []string{"the turn", "the end"} {
		synctest.Test(t, func(t *testing.T) {
			ended := make(chan struct{})
			s := newSlots(1, timer, ended)
			require.True(t, ask(s, "", 1, time.Second).holds())
			a := ask(s, "k", 1, time.Hour)
			s.mu.Lock()
			if first == "the turn" {
				s.handOver()
			}
			close(ended)
			if first == "the end" {
				s.handOver()
			}
			s.mu.Unlock()
			synctest.Wait()
			require.True(t, a.over.Load())
			require.False(t, a.got)
			require.Equal(t, 1, s.free)
		})
	}
}

// TestSlotsGoRoundAsTheirModelSays holds slots to the plainest model: the waiting messages by
// key, and the key whose turn it is.
func TestSlotsGoRoundAsTheirModelSays(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		// Without the deadline of the real time, which a bubble does not tell.
		rapid.Check(struct{ rapid.TB }{t}, func(t *rapid.T) {
			s := newSlots(rapid.IntRange(1, 3).Draw(t, "slots"), timer, nil)
			free, holding := s.free, 0
			var turns []string // keys, the next first
			waiting := map[string][]*asker{}
			takeOut := func(a *asker) {
				waiting[a.key] = slices.DeleteFunc(waiting[a.key], func(other *asker) bool { return other == a })
				if len(waiting[a.key]) == 0 {
					delete(waiting, a.key)
					turns = slices.DeleteFunc(turns, func(key string) bool { return key == a.key })
				}
			}
			all := func() (list []*asker) {
				for _, key := range slices.Sorted(maps.Keys(waiting)) {
					list = append(list, waiting[key]...)
				}
				return list
			}
			t.Repeat(map[string]func(*rapid.T){
				"a message": func(t *rapid.T) {
					a := ask(s, rapid.SampledFrom([]string{"a", "a", "b", "c"}).Draw(t, "key"), 10, time.Hour)
					if free > 0 {
						free, holding = free-1, holding+1
						require.True(t, a.holds())
						return
					}
					require.False(t, a.over.Load())
					if len(waiting[a.key]) == 0 {
						turns = append(turns, a.key)
					}
					waiting[a.key] = append(waiting[a.key], a)
				},
				"one is done": func(t *rapid.T) {
					if holding == 0 {
						return
					}
					s.release()
					synctest.Wait()
					if len(turns) == 0 {
						free, holding = free+1, holding-1
						return
					}
					next := waiting[turns[0]][0]
					turns = append(turns[1:], turns[0])
					takeOut(next)
					require.True(t, next.holds(), "it was the turn of %s", next.key)
				},
				"one leaves": func(t *rapid.T) {
					if len(waiting) == 0 {
						return
					}
					a := rapid.SampledFrom(all()).Draw(t, "who")
					a.leave()
					synctest.Wait()
					require.True(t, a.over.Load())
					require.False(t, a.got)
					takeOut(a)
				},
				"": func(t *rapid.T) {
					for _, a := range all() {
						require.False(t, a.over.Load(), "nobody is served out of turn")
					}
					require.Equal(t, []int{free, len(all()), 10 * len(all()), len(turns)}, []int{s.free, s.count, s.bytes, len(s.keys)})
				},
			})
			for _, a := range all() {
				a.leave()
			}
			synctest.Wait()
		})
	})
}

// TestSlotsAreNotLostInACrowd is for the race detector: each message with a slot gives it back,
// while others are late, leave or are ended.
func TestSlotsAreNotLostInACrowd(t *testing.T) {
	t.Parallel()
	const n = 3
	ended := make(chan struct{})
	s := newSlots(n, timer, ended)
	var held, most atomic.Int64
	var crowd sync.WaitGroup
	for i := range 400 {
		crowd.Go(func() {
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			if i%5 == 0 {
				leave()
			}
			if i == 300 {
				close(ended)
			}
			if !s.acquire(ctx, fmt.Sprint(i%7), 1, time.Duration(i%3)*time.Millisecond) {
				return
			}
			now := held.Add(1)
			for {
				before := most.Load()
				if now <= before || most.CompareAndSwap(before, now) {
					break
				}
			}
			held.Add(-1)
			s.release()
		})
	}
	crowd.Wait()
	require.LessOrEqual(t, most.Load(), int64(n))
	require.Equal(t, n, s.free)
	require.Zero(t, s.count+s.bytes+len(s.keys)+len(s.waiting))
}
