package push_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/retry"
)

// TestAttemptsFollowThePolicyToTheSecond is the table of the moments of all attempts of an event that fails until it is a
// dead letter. The message comes back from its lane when the alarm rings, or from the broker after the broker's wait.
func TestAttemptsFollowThePolicyToTheSecond(t *testing.T) {
	t.Parallel()
	const second = time.Second
	policies := map[string]retry.Policy{
		"by the schedule of orders": {Schedule: []time.Duration{0, 5 * second, 30 * second, 120 * second, 600 * second}},
		"of base 1 s":               times10(1), "of base 2 s": times10(2), "of base 3 s": times10(3), "of base 5 s": times10(5), "of base 10 s": times10(10),
		"of billing, half of the jitter": {Base: time.Minute, Multiplier: 2, Max: time.Hour, Jitter: 30 * second},
		"tripling":                       {Base: second, Multiplier: 3, Max: 600 * second},
		"of 10 minutes at most":          {Base: 5 * time.Minute, Multiplier: 2, Max: 10 * time.Minute},
		"of an hour at most":             {Base: 8 * time.Minute, Multiplier: 2, Max: time.Hour},
	}
	failing := map[string]error{
		"fails": errHandler, "asks for half an hour": retry.After(30*time.Minute, errHandler), "misses another event": retry.Missing("order_not_seen", nil),
	}
	table, _ := enumerate([]dimension{
		{"policy", slices.Sorted(maps.Keys(policies))},
		{"the event", slices.Sorted(maps.Keys(failing))},
		{"in order", []string{anyOrder, inKeyOrder}},
		{"nacks are", []string{"left", "used up"}},
	}, func(c cell) (what, cost string) {
		const attempts = 5
		policy := policies[c["policy"]]
		var at []string
		b := newBench(t, false, setup{queue: func(q *catalog.Queue) {
			if policyOf(policy, attempts)(q); c["in order"] == inKeyOrder {
				inOrder(q)
			}
			if c["nacks are"] == "used up" {
				q.NackBudget = 10_000 * time.Hour
			}
		}})
		b.deliverNow(b.event().saying("{")) // is nacked, and uses up the budget for its time
		b.pass(time.Minute)
		m := b.event()
		began := b.config.Now()
		b.fails = slices.Repeat([]error{failing[c["the event"]]}, attempts)
		var looks func(context.Context)
		looks = func(context.Context) {
			at = append(at, fmt.Sprint(b.config.Now().Sub(began)))
			b.during = looks // in the next one, too
		}
		b.during = looks
		b.exhaust(t, m, func(attempt int) time.Duration { return policy.Wait(attempt, 0.5) })
		return strings.Join(at, " "), ""
	})
	golden(t, "schedules.txt", table)
}

// TestEventThatKillsItsWorkersKillsEightAtMost: then it is dead-lettered, however often it failed before it killed. A
// worker that is killed has written nothing, and the broker delivers again.
func TestEventThatKillsItsWorkersKillsEightAtMost(t *testing.T) {
	t.Parallel()
	for _, failures := range []int{0, 1, 3} {
		kills := 0
		b := newBench(t, false, setup{queue: budgeted})
		m := b.event()
		b.fails = slices.Repeat([]error{errHandler}, 100)
		var got reply
		for delivery := 1; got.Outcome != "dead_lettered"; delivery++ {
			require.Less(t, delivery, 20)
			b.during = func(context.Context) {
				if b.calls.Load() > int64(failures) {
					kills++
					b.faults.Down(true)
				}
			}
			got = b.deliver(m.again(delivery))
			b.faults.Down(false)
			if back := b.release(t); len(back) > 0 {
				m, delivery = back[0], 0
			}
			b.pass(10 * time.Minute)
		}
		require.Equal(t, []any{"worker_died", 5}, []any{got.Reason, got.Attempt})
		require.Positive(t, kills)
		require.LessOrEqual(t, kills, 8, "after %d failures", failures)
	}
}
