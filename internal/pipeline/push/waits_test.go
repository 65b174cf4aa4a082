package push_test

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/contract"
	"billhook/internal/contract/routing"
	"billhook/internal/filetest"
	"billhook/internal/pipeline/handler"
	"billhook/internal/pipeline/lane"
	"billhook/internal/retry"
)

// policyOf gives every event type of a queue a policy, and the queue a budget of nacks.
func policyOf(policy retry.Policy, attempts int) func(*catalog.Queue) {
	return func(q *catalog.Queue) {
		q.Backoff, q.MaxAttempts, q.MessageRetention = policy, attempts, 7*24*time.Hour
		q.NackBudget, q.SlotWait = 10*time.Second, 2*time.Second
		for eventType, h := range q.Handlers {
			h.Backoff, h.MaxAttempts = policy, attempts
			q.Handlers[eventType] = h
		}
	}
}

func times10(base int) retry.Policy {
	return retry.Policy{Base: time.Duration(base) * time.Second, Multiplier: 2, Max: 600 * time.Second}
}

func budgeted(q *catalog.Queue) { policyOf(times10(10), 5)(q) }

func inOrder(q *catalog.Queue) { q.OrderingKey = []string{"uid"} }

func all(changes ...func(*catalog.Queue)) func(*catalog.Queue) {
	return func(q *catalog.Queue) {
		for _, change := range changes {
			change(q)
		}
	}
}

func (r *rig) keptMessages() int { return len(r.documents(lane.Delayed.Entries())) }

func (r *rig) release(t require.TestingT) (back []message) {
	relay := &lane.Relay{Of: lane.Delayed, Store: r.faults, Publisher: r.broker, Now: r.config.Now}
	_, err := relay.Due(context.Background(), 100, func(string, error) {})
	require.NoError(t, err)
	for _, m := range r.broker.taken["orders"] {
		back = append(back, arrived("back-"+m.Attributes[contract.AttrDelayTicket], m, r.config.Now()))
	}
	r.broker.taken["orders"] = nil
	return back
}

// TestOneMessageInTenSecondsIsNacked: the other answers are 200, with the class of the failure in the body.
func TestOneMessageInTenSecondsIsNacked(t *testing.T) {
	t.Parallel()
	for name, err := range map[string]error{
		"dead_lettered": retry.Permanent("refused", nil), "retry": errHandler,
	} {
		r := newRig(t, setup{queue: budgeted})
		r.do = always(err)
		for i := range 30 { // one a second
			got := r.deliverNow(paid(fmt.Sprint("e", i), known, 1))
			require.Equal(t, []any{name, 1}, []any{got.Outcome, got.Attempt})
			require.Equal(t, []bool{i%10 == 0, i%10 != 0},
				[]bool{got.code == got.Status, got.code == http.StatusOK}, i)
			r.pass(time.Second)
		}
		want := map[string][2]int{"dead_lettered": {30, 0}, "retry": {0, 27}}[name]
		require.Equal(t, want, [2]int{len(r.deadLetters()), r.keptMessages()})
	}
}

// TestMessageThatWaitsInItsRequestHoldsNoSlot: the only slot handles a second message meanwhile.
func TestMessageThatWaitsInItsRequestHoldsNoSlot(t *testing.T) {
	t.Parallel()
	filetest.Bubble(t, func(t *testing.T) {
		r := newRig(t, setup{
			live: true, queue: all(policyOf(times10(1), 3), func(q *catalog.Queue) { q.Concurrency = 1 }),
		})
		r.fails = []error{errHandler}
		began := time.Now()
		var pushes sync.WaitGroup
		pushes.Go(func() { require.Equal(t, http.StatusOK, r.deliverNow(paid("e1", known, 1)).code) })
		synctest.Wait()
		require.Equal(t, http.StatusOK, r.deliverNow(paid("e2", known, 1)).code)
		require.Zero(t, time.Since(began))
		pushes.Wait()
		require.Equal(t, time.Second, time.Since(began))
	})
}

// TestDrainStartsNothingNew: a push that waits for a slot, its next attempt or its acknowledgement is
// refused, and handlers that run are finished.
func TestDrainStartsNothingNew(t *testing.T) {
	t.Parallel()
	filetest.Bubble(t, func(t *testing.T) {
		release := make(chan struct{})
		r := newRig(t, setup{
			live: true, queue: all(policyOf(times10(1), 5), inOrder, func(q *catalog.Queue) { q.Concurrency = 2 }),
		})
		r.fails = []error{errHandler, retry.After(time.Minute, errHandler)}
		r.do = func(ctx context.Context, event handler.Event) (handler.Effect, error) {
			<-release
			return credit(ctx, event)
		}
		var answers sync.Map
		var pushes sync.WaitGroup
		for _, event := range []string{"fails", "is-kept", "runs", "runs-too", "in-line"} {
			pushes.Go(func() { answers.Store(event, r.deliverNow(paid(event, known, 1).set("ordering_key", event))) })
			synctest.Wait()
		}
		answer := func(event string) string {
			got, ok := answers.Load(event)
			if !ok {
				return ""
			}
			return fmt.Sprint(got.(reply).code, got.(reply).Reason)
		}
		require.Empty(t, answer("fails")+answer("is-kept"))
		began := time.Now()
		r.Drain()
		synctest.Wait()
		require.Equal(t, "500handler_error", answer("fails"), "its own class")
		require.Equal(t, "503handler_error", answer("is-kept"), "the broker goes on holding its key")
		require.Equal(t, "503shutting_down", answer("in-line"))
		close(release)
		pushes.Wait()
		require.Zero(t, time.Since(began))
		require.Equal(t, "200done200done", answer("runs")+answer("runs-too"))
		require.EqualValues(t, 4, r.calls.Load())
		require.Equal(t, 1, r.keptMessages())
	})
}

// TestReleasedMessageGoesToItsQueueAloneAndRemovesItsLane: the other queues of a shared topic have had it,
// and a lane that stays costs each event a read.
func TestReleasedMessageGoesToItsQueueAloneAndRemovesItsLane(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(message) message{
		"processed done":      func(m message) message { return m.set(contract.AttrFirstPublished, "") },
		"expired message_ttl": func(m message) message { return m },
		"dead_lettered attributes_invalid": func(m message) message {
			return m.set("event_type", "order.refunded").without(contract.AttrFirstPublished)
		},
	} {
		r := newRig(t, setup{queue: all(budgeted, inOrder, func(q *catalog.Queue) {
			q.MessageTTL, q.SharedTopic, q.Bindings = time.Minute, "orders", []routing.Pattern{"order.*"}
		})})
		r.fails = []error{retry.After(2*time.Minute, errHandler)}
		require.True(t, r.deliverNow(paid("e1", known, 1).set("routing_key", "order.paid")).Delayed)
		require.Len(t, r.documents(lane.Delayed.Lanes()), 1)
		r.pass(2 * time.Minute)
		back := r.release(t)[0]
		require.Equal(t, "orders", back.attributes["queue"])
		r.deliverNow(change(back))
		outcome, _ := r.log.outcome()
		require.Equal(t, want, outcome)
		require.Empty(t, r.documents(lane.Delayed.Lanes()), want)
		require.Equal(t, want == "processed done", r.effects("e1") == 1)
	}
}

func TestMessageThatIsTooLargeToKeepStaysWithTheBroker(t *testing.T) {
	t.Parallel()
	patient := policyOf(retry.Policy{Schedule: []time.Duration{0, 20 * time.Minute}}, 3)
	r := newRig(t, setup{queue: all(patient, inOrder)})
	r.do = always(errHandler)
	padded := func(event string) message { return paid(event, known, 1).padded(contract.MaxKept + 1) }
	require.Equal(t, http.StatusInternalServerError, r.deliver(padded("e1")).code)
	require.Len(t, r.log.lines("message not kept for its wait"), 1)
	require.Equal(t, http.StatusOK, r.deliver(paid("e2", known, 1)).code)
	got := r.deliver(padded("e3"))
	require.Equal(t, []any{http.StatusServiceUnavailable, "behind_delayed"}, []any{got.code, got.Reason},
		"behind another message it cannot be kept either")
	require.Equal(t, "too_large_to_wait",
		r.deliver(padded("e4").set("deliver_at", "2026-03-02T11:15:00Z")).Reason)
	require.Equal(t, 1, r.keptMessages())
}

// exhaust delivers a message until it is a dead letter. It comes from the broker after its
// wait, or from its lane at the alarm.
func (r *rig) exhaust(t require.TestingT, m message, brokerWaits func(attempt int) time.Duration) reply {
	for delivery, tried := 1, 0; ; delivery++ {
		got := r.deliverNow(m.again(delivery))
		if got.Outcome == "dead_lettered" {
			return got
		}
		require.Less(t, delivery, 20)
		if tried = max(tried, got.Attempt); !got.Delayed {
			r.pass(brokerWaits(tried))
			continue
		}
		r.pass(r.alarms.at[len(r.alarms.at)-1].Sub(r.config.Now()))
		back := r.release(t)
		require.Len(t, back, 1)
		m, delivery = back[0], 0
	}
}

// TestAttemptsFollowThePolicyToTheSecond is the table of the times of all attempts of an event that fails
// until it is a dead letter. It comes from its lane at the alarm, or from the broker after its wait.
func TestAttemptsFollowThePolicyToTheSecond(t *testing.T) {
	t.Parallel()
	const second = time.Second
	policies := map[string]retry.Policy{
		"by the schedule of orders": {
			Schedule: []time.Duration{0, 5 * second, 30 * second, 120 * second, 600 * second},
		},
		"of base 1 s": times10(1), "of base 2 s": times10(2), "of base 3 s": times10(3),
		"of base 5 s": times10(5), "of base 10 s": times10(10),
		"of billing, half of the jitter": {Base: time.Minute, Multiplier: 2, Max: time.Hour, Jitter: 30 * second},
		"tripling":                       {Base: second, Multiplier: 3, Max: 600 * second},
		"of 10 minutes at most":          {Base: 5 * time.Minute, Multiplier: 2, Max: 10 * time.Minute},
		"of an hour at most":             {Base: 8 * time.Minute, Multiplier: 2, Max: time.Hour},
	}
	failing := map[string]error{
		"fails": errHandler, "fails, retry after 30m": retry.After(30*time.Minute, errHandler),
		"waits for another event": retry.Missing("order_not_seen", nil),
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
		r := newRig(t, setup{queue: func(q *catalog.Queue) {
			if policyOf(policy, attempts)(q); c["in order"] == inKeyOrder {
				inOrder(q)
			}
			if c["nacks are"] == "used up" {
				q.NackBudget = 10_000 * time.Hour
			}
		}})
		r.deliverNow(r.event().saying("{")) // is nacked, and uses up the budget for its time
		r.pass(time.Minute)
		m := r.event()
		began := r.config.Now()
		r.do = always(failing[c["the event"]])
		var looks func(context.Context)
		looks = func(context.Context) {
			at = append(at, fmt.Sprint(r.config.Now().Sub(began)))
			r.during = looks // in the next one, too
		}
		r.during = looks
		r.exhaust(t, m, func(attempt int) time.Duration { return policy.Wait(attempt, 0.5) })
		return strings.Join(at, " "), ""
	})
	filetest.Recorded(t, table, "testdata", "schedules.txt")
}

// TestEventThatKillsItsWorkersKillsEightAtMost: then it is dead-lettered, however often it failed before. A
// worker that is killed has written nothing, and the broker delivers again.
func TestEventThatKillsItsWorkersKillsEightAtMost(t *testing.T) {
	t.Parallel()
	for _, failures := range []int{0, 1, 3} {
		kills := 0
		r := newRig(t, setup{queue: budgeted})
		m := r.event()
		r.do = always(errHandler)
		var got reply
		for delivery := 1; got.Outcome != "dead_lettered"; delivery++ {
			require.Less(t, delivery, 20)
			r.during = func(context.Context) {
				if r.calls.Load() > int64(failures) {
					kills++
					r.faults.Down(true)
				}
			}
			got = r.deliver(m.again(delivery))
			r.faults.Down(false)
			if back := r.release(t); len(back) > 0 {
				m, delivery = back[0], 0
			}
			r.pass(10 * time.Minute)
		}
		require.Equal(t, []any{"worker_died", 5}, []any{got.Reason, got.Attempt})
		require.Positive(t, kills)
		require.LessOrEqual(t, kills, 8, "after %d failures", failures)
	}
}
