package products_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"billhook/internal/apps/products"
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

func TestAKnownProductIsReadOnceInAWhileAndAStoreThatIsDownIsNoPriceList(t *testing.T) {
	t.Parallel()
	s := open(t)
	_, remembered := s.reader.Remembered(tenant, "hat")
	require.False(t, remembered)
	for range 100 {
		require.Equal(t, "250", s.worth(t, "hat"))
	}
	require.Equal(t, "unknown", s.worth(t, "not an id"))
	require.EqualValues(t, 1, s.counter.Gets.Load())
	points, remembered := s.reader.Remembered(tenant, "hat")
	require.True(t, remembered)
	require.EqualValues(t, 250, points)
	s.faults.Down(true)
	require.Equal(t, "250", s.worth(t, "hat"), "as it would be if the store were up")
	s.wait(products.RememberedFor)
	for _, id := range []string{"hat", "cap", "odd"} {
		_, known, err := s.reader.Points(t.Context(), tenant, id)
		require.ErrorIs(t, err, storetest.ErrFault, "neither what was remembered nor what the catalog says")
		require.False(t, known)
	}
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
