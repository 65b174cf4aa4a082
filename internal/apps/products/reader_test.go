package products_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"billhook/internal/apps/products"
	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
)

func (s *shop) worth(t require.TestingT, id string) string {
	points, known, err := s.reader.Points(context.Background(), tenant, id)
	require.NoError(t, err)
	if !known {
		return "unknown"
	}
	return fmt.Sprint(points)
}

func TestAKnownProductIsReadOnceInAWhile(t *testing.T) {
	t.Parallel()
	s := open(t)
	s.set(t, "new", 5)
	for _, id := range []string{"hat", "new"} {
		before := s.counter.Gets.Load()
		for range 100 {
			s.worth(t, id)
		}
		require.EqualValues(t, 1, s.counter.Gets.Load()-before, id)
		s.wait(products.RememberedFor)
		s.worth(t, id)
		require.EqualValues(t, 2, s.counter.Gets.Load()-before, id)
	}
	require.Zero(t, s.counter.Queries.Load())
}

func TestAProductIsUnknownOnlyWhereTheStoreHasJustSaidSo(t *testing.T) {
	t.Parallel()
	s := open(t)
	require.Equal(t, "unknown", s.worth(t, "new"))
	s.set(t, "new", 5)
	require.Equal(t, "5", s.worth(t, "new"), "it was set a moment ago, by another process")
	s.retire(t, "hat")
	require.Equal(t, "unknown", s.worth(t, "hat"), "whatever the catalog says")
	s.set(t, "hat", 6)
	require.Equal(t, "6", s.worth(t, "hat"))
	before := s.counter.Gets.Load()
	require.Equal(t, "unknown", s.worth(t, "not an id"))
	require.Equal(t, before, s.counter.Gets.Load())
}

func TestAChangeElsewhereIsSeenInTime(t *testing.T) {
	t.Parallel()
	s := open(t)
	require.Equal(t, "250", s.worth(t, "hat"))
	require.Equal(t, "10", s.worth(t, "cap"))
	s.set(t, "hat", 300)
	s.retire(t, "cap")
	s.wait(products.RememberedFor - 1)
	require.Equal(t, "250", s.worth(t, "hat"))
	require.Equal(t, "10", s.worth(t, "cap"))
	s.wait(1)
	require.Equal(t, "300", s.worth(t, "hat"))
	require.Equal(t, "unknown", s.worth(t, "cap"))
}

func TestAChangeHereIsSeenAtOnce(t *testing.T) {
	t.Parallel()
	s := open(t)
	s.Changed = s.reader.Forget
	require.Equal(t, "250", s.worth(t, "hat"))
	s.set(t, "hat", 300)
	require.Equal(t, "300", s.worth(t, "hat"))
	s.retire(t, "hat")
	require.Equal(t, "unknown", s.worth(t, "hat"))
}

func TestAStoreThatIsDownIsNoPriceList(t *testing.T) {
	t.Parallel()
	s := open(t)
	require.Equal(t, "250", s.worth(t, "hat"))
	s.faults.Down(true)
	require.Equal(t, "250", s.worth(t, "hat"), "as it would be if the store were up")
	s.wait(products.RememberedFor)
	for _, id := range []string{"hat", "cap", "odd"} {
		_, known, err := s.reader.Points(t.Context(), tenant, id)
		require.ErrorIs(t, err, storetest.ErrFault, "neither what was remembered nor what the catalog says")
		require.NotErrorIs(t, err, products.ErrUnknown)
		require.False(t, known)
	}
	s.faults.Down(false)
	require.Equal(t, "10", s.worth(t, "cap"))
}

// held is a store that answers each read when it is told to.
type held struct {
	store.Getter
	reads   chan string
	answers chan struct{}
}

func (h *held) Get(ctx context.Context, key store.Key) (store.Document, error) {
	doc, err := h.Getter.Get(ctx, key)
	h.reads <- key.ID
	<-h.answers
	return doc, err
}

// answer is what a question got.
type answer struct {
	points int64
	known  bool
	err    error
}

// asks asks n times at once.
func asks(ctx context.Context, r *products.Reader, id string, n int) <-chan answer {
	answers := make(chan answer, n)
	for range n {
		go func() {
			points, known, err := r.Points(ctx, tenant, id)
			answers <- answer{points, known, err}
		}()
	}
	return answers
}

func TestThoseWhoAskAtOnceShareOneRead(t *testing.T) {
	t.Parallel()
	s := open(t)
	h := &held{s.faults, make(chan string), make(chan struct{})}
	reader := products.NewReader(h, start, s.Now)
	first := asks(t.Context(), reader, "hat", 1)
	<-h.reads
	rest := asks(t.Context(), reader, "hat", 20)
	close(h.answers) // a later call finds the answer, or the read under way
	require.Equal(t, answer{250, true, nil}, <-first)
	for range 20 {
		require.Equal(t, answer{250, true, nil}, <-rest)
	}
	require.EqualValues(t, 1, s.counter.Gets.Load())
}

// A shared read may have ended before the product was set. A call after that must not answer
// that the product is unknown.
func TestASharedReadDoesNotHideAProductThatWasSetAfterIt(t *testing.T) {
	t.Parallel()
	s := open(t)
	h := &held{s.faults, make(chan string), make(chan struct{})}
	reader := products.NewReader(h, start, s.Now)
	first := asks(t.Context(), reader, "new", 1)
	<-h.reads // it found nothing, and has not said so yet
	s.set(t, "new", 5)
	waiting := newWaiting(t.Context())
	second := asks(waiting, reader, "new", 1)
	<-waiting.waits // it shares that read
	h.answers <- struct{}{}
	require.Equal(t, answer{}, <-first)
	select {
	case <-h.reads:
		h.answers <- struct{}{}
		require.Equal(t, answer{5, true, nil}, <-second)
	case told := <-second:
		require.Fail(t, "it did not ask for itself", "%v", told)
	}
}

// waiting is a context that says when somebody waits for its end.
type waiting struct {
	context.Context
	once  sync.Once
	waits chan struct{}
}

func newWaiting(ctx context.Context) *waiting {
	return &waiting{Context: ctx, waits: make(chan struct{})}
}

func (w *waiting) Done() <-chan struct{} {
	w.once.Do(func() { close(w.waits) })
	return w.Context.Done()
}

func TestACallerThatLeavesDoesNotEndASharedRead(t *testing.T) {
	t.Parallel()
	s := open(t)
	h := &held{s.faults, make(chan string), make(chan struct{})}
	reader := products.NewReader(h, start, s.Now)
	leaving, leave := context.WithCancel(t.Context())
	first := asks(leaving, reader, "hat", 1)
	<-h.reads
	stays := newWaiting(t.Context())
	second := asks(stays, reader, "hat", 1)
	<-stays.waits
	leave()
	require.ErrorIs(t, (<-first).err, context.Canceled)
	h.answers <- struct{}{}
	require.Equal(t, answer{250, true, nil}, <-second)
}

// many is a store of one-point products that counts how often it is asked.
type many struct{ asked int }

func (m *many) Get(_ context.Context, key store.Key) (store.Document, error) {
	m.asked++
	return store.Document{Key: key, Version: 1, Fields: map[string]any{"tenant": tenant, "product_id": key.ID, "points": int64(1), "state": "active", "since": noon}}, nil
}

func TestWhatIsRememberedIsBounded(t *testing.T) {
	t.Parallel()
	from := &many{}
	reader := products.NewReader(from, nil, func() time.Time { return noon })
	ask := func(id string) int {
		points, known, err := reader.Points(t.Context(), tenant, id)
		require.Equal(t, answer{1, true, nil}, answer{points, known, err})
		return from.asked
	}
	for i := range 10_001 {
		require.Equal(t, i+1, ask(fmt.Sprintf("p%05d", i)))
	}
	require.Equal(t, 10_001, ask("p10000"), "it is remembered")
	require.Equal(t, 10_002, ask("p00000"), "it is not")
}

// TestWhateverHappensNoOldPriceIsCharged drives two processes, of which one makes the
// changes, over a store that is down at times. What a reader says must have been true within
// the time that an answer is believed, and what it calls unknown must be so now.
func TestWhateverHappensNoOldPriceIsCharged(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		s := open(t)
		s.Changed = s.reader.Forget
		elsewhere := products.NewReader(s.faults, start, s.Now)
		type was struct {
			worth string
			until time.Time
		}
		ids := []string{"hat", "cap", "new"}
		now := map[string]string{"hat": "250", "cap": "10", "new": "unknown"}
		past := map[string][]was{}
		becomes := func(id, worth string) {
			past[id] = append(past[id], was{now[id], s.Now()})
			now[id] = worth
		}
		down := false
		id := rapid.SampledFrom(ids)
		ask := func(r *rapid.T, reader *products.Reader, at string, allowed []string) {
			points, known, err := reader.Points(context.Background(), tenant, at)
			switch {
			case err != nil:
				require.True(r, down, "it fails only where the store does")
			case !known:
				require.Equal(r, "unknown", now[at])
			default:
				require.Contains(r, allowed, fmt.Sprint(points))
			}
		}
		r.Repeat(map[string]func(*rapid.T){
			"set": func(r *rapid.T) {
				at, points := id.Draw(r, "id"), rapid.Int64Range(1, 5).Draw(r, "points")
				_, err := s.Set(context.Background(), tenant, at, points, ada)
				require.Equal(r, down, err != nil)
				if err == nil {
					becomes(at, fmt.Sprint(points))
				}
			},
			"retire": func(r *rapid.T) {
				at := id.Draw(r, "id")
				if _, err := s.Retire(context.Background(), tenant, at, ada); err == nil {
					becomes(at, "unknown")
				}
			},
			"wait": func(r *rapid.T) {
				s.wait(rapid.SampledFrom([]time.Duration{1, time.Second, 29 * time.Second, 30 * time.Second}).Draw(r, "for"))
			},
			"break or mend": func(*rapid.T) {
				down = !down
				s.faults.Down(down)
			},
			"ask here": func(r *rapid.T) {
				at := id.Draw(r, "id")
				ask(r, s.reader, at, []string{now[at]})
			},
			"ask elsewhere": func(r *rapid.T) {
				at := id.Draw(r, "id")
				allowed := []string{now[at]}
				for _, before := range past[at] {
					if s.Now().Sub(before.until) < products.RememberedFor {
						allowed = append(allowed, before.worth)
					}
				}
				ask(r, elsewhere, at, slices.Compact(allowed))
			},
		})
	})
}
