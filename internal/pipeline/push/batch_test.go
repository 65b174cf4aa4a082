package push_test

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/dedupe"
	"billhook/internal/pipeline/handler"
	"billhook/internal/retry"
)

// batches gathers up to size attempts that come within 20 ms; call is given their ids.
func batches(size int, call func(ctx context.Context, ids []string) ([]handler.Outcome, error)) *handler.Leased {
	leased := handler.Batch{
		Queue: func(id string) (catalog.Queue, bool) {
			return catalog.Queue{ID: id, Batch: catalog.Batch{Size: size, Wait: 20 * time.Millisecond}}, true
		},
		Timer: realTimer,
		Call: func(ctx context.Context, events []handler.Event) ([]handler.Outcome, error) {
			var ids []string
			for _, e := range events {
				ids = append(ids, e.ID)
			}
			return call(ctx, ids)
		},
		SafeToRepeat: true,
	}.Leased()
	return &leased
}

// deliverAll pushes the events e0 to e(n-1) at once, and returns the statuses of the answers.
func (r *rig) deliverAll(n int) []int {
	codes := make([]int, n)
	var pushes sync.WaitGroup
	for i := range n {
		pushes.Go(func() { codes[i] = r.deliverNow(paid(fmt.Sprint("e", i), known, 1)).code })
	}
	pushes.Wait()
	return codes
}

// live is a rig in the time of its test's bubble.
func live(t *testing.T, queue func(*catalog.Queue), leased *handler.Leased) *rig {
	t.Helper()
	return newRig(t, setup{queue: queue, leased: leased, live: true, timer: realTimer})
}

// A half-failed batch is tried again for what failed, and each event has its own record.
func TestAHalfFailedBatchRetriesOnlyWhatFailed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var calls [][]string
		r := live(t, policyOf(times10(1), 3), batches(4, func(_ context.Context, ids []string) ([]handler.Outcome, error) {
			calls = append(calls, slices.Sorted(slices.Values(ids)))
			outcomes := make([]handler.Outcome, len(ids))
			for i, id := range ids {
				switch {
				case id == "e1" && len(calls) == 1:
					outcomes[i].Err = retry.Transient("callee_failed_503", nil)
				case id == "e2":
					outcomes[i].Err = retry.Permanent("callee_refused_400", nil)
				default:
					outcomes[i].Effect.Result = "indexed"
				}
			}
			return outcomes, nil
		}))
		codes := r.deliverAll(4)
		require.Equal(t, [][]string{{"e0", "e1", "e2", "e3"}, {"e1"}}, calls)
		require.Equal(t, []int{200, 200, http.StatusUnprocessableEntity, 200}, codes)
		for id, want := range map[string]dedupe.Status{"e0": dedupe.Completed, "e1": dedupe.Completed, "e2": dedupe.DeadLettered, "e3": dedupe.Completed} {
			record, ok := r.record(t, id)
			require.True(t, ok)
			require.Equal(t, want, record.Status, id)
			require.Equal(t, max(1, map[string]int64{"e1": 2}[id]), record.Attempts, id)
		}
		require.Len(t, r.letters(), 1)
	})
}

// Each attempt of a batch holds a slot: no more are gathered than the queue handles at once.
func TestEachAttemptOfABatchHoldsASlot(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		largest, total := 0, map[string]int{}
		r := live(t, func(q *catalog.Queue) { q.Concurrency, q.SlotWait = 3, 10*time.Second },
			batches(10, func(_ context.Context, ids []string) ([]handler.Outcome, error) {
				largest = max(largest, len(ids))
				for _, id := range ids {
					total[id]++
				}
				return make([]handler.Outcome, len(ids)), nil
			}))
		codes := r.deliverAll(10)
		require.Equal(t, slices.Repeat([]int{200}, 10), codes)
		require.Equal(t, 3, largest)
		require.Len(t, total, 10)
		for n := range maps.Values(total) {
			require.Equal(t, 1, n)
		}
	})
}

// A drain refuses what comes, and lets a batch that has been gathered end.
func TestADrainLetsABatchEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := live(t, nil, batches(10, func(_ context.Context, ids []string) ([]handler.Outcome, error) {
			<-time.After(time.Second)
			return make([]handler.Outcome, len(ids)), nil
		}))
		var codes []int
		done := make(chan bool)
		go func() { codes = r.deliverAll(3); close(done) }()
		<-time.After(10 * time.Millisecond) // the batch is still open
		r.Drain()
		require.Equal(t, http.StatusServiceUnavailable, r.deliverNow(paid("late", known, 1)).code)
		<-done
		require.Equal(t, []int{200, 200, 200}, codes)
	})
}
