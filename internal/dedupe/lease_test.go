package dedupe_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/internal/dedupe"
	"billhook/internal/dedupe/dedupetest"
	"billhook/internal/pipeline/handler"
	"billhook/internal/retry"
)

// TestOfManyWorkersOneClaims has fifty deliveries claim one event at once.
func TestOfManyWorkersOneClaims(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func(*testing.T, *bench){
		"that is new": func(*testing.T, *bench) {},
		"whose worker is gone": func(t *testing.T, b *bench) {
			t.Helper()
			_, err := b.begin("A").Claim(t.Context(), time.Minute, nil, false)
			require.NoError(t, err)
			b.pass(time.Minute)
		},
		"that failed": func(t *testing.T, b *bench) {
			t.Helper()
			_, err := b.begin("A").Conclude(t.Context(), dedupe.Ending{Status: dedupe.Failed, Reason: "handler_error", Next: b.once.Now()})
			require.NoError(t, err)
		},
		"that is forgotten": func(t *testing.T, b *bench) {
			t.Helper()
			_, err := dedupetest.Effect(t.Context(), b.begin("A"), event(), false, credit)
			require.NoError(t, err)
			b.pass(remember)
		},
	} {
		for _, redelivered := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				b := newBench()
				prepare(t, b)
				seen := map[dedupe.Seen]int{}
				var mu sync.Mutex
				var wg sync.WaitGroup
				start := make(chan struct{})
				for range 50 {
					wg.Go(func() {
						<-start
						got, err := b.begin("A").Claim(context.Background(), time.Minute, nil, redelivered)
						mu.Lock()
						defer mu.Unlock()
						if err != nil {
							got = dedupe.Fresh
						}
						seen[got]++
					})
				}
				close(start)
				wg.Wait()
				require.Equal(t, map[dedupe.Seen]int{dedupe.Claimed: 1, dedupe.Held: 49}, seen)
			})
		}
	}
}

// TestAnEndThatCannotBeWrittenIsTriedThreeTimes: then the lease stands, and the event
// is asked about.
func TestAnEndThatCannotBeWrittenIsTriedThreeTimes(t *testing.T) {
	t.Parallel()
	b := newBench()
	run := b.begin("A")
	_, err := run.Claim(t.Context(), time.Minute, nil, false)
	require.NoError(t, err)
	b.trips()
	b.faults = []fault{refuse, lose}
	seen, err := run.Conclude(t.Context(), dedupe.Ending{Status: dedupe.Completed, Effect: handler.Effect{Result: "sent"}})
	require.NoError(t, err)
	require.Equal(t, dedupe.Own, seen, "the second one happened, and a look after the third says so")
	require.Equal(t, "sent", run.Result())

	b = newBench()
	run = b.begin("A")
	_, err = run.Claim(t.Context(), time.Minute, nil, false)
	require.NoError(t, err)
	b.trips()
	b.faults = []fault{refuse, refuse, refuse}
	_, err = run.Conclude(t.Context(), dedupe.Ending{Status: dedupe.Completed, Effect: handler.Effect{Result: "sent"}})
	require.Equal(t, "store_unavailable", retry.Decide(err).Reason)
	_, commits := b.trips()
	require.Equal(t, 3, commits)
	require.Equal(t, dedupe.Processing, b.record(t).Status)
}
