package push_test

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/contract"
	"billhook/internal/pipeline/handler"
	"billhook/internal/pipeline/lane"
	"billhook/internal/retry"
)

// budgeted gives a queue the broker's own policy and a budget of nacks.
func budgeted(q *catalog.Queue) { policyOf(times10(10), 5)(q) }

func (r *rig) keyLane(t *testing.T, key string) lane.Lane {
	t.Helper()
	lane, err := lane.Open(t.Context(), r.counter, lane.Name{Queue: "orders", Tenant: contract.DefaultTenant, OrderingKey: key})
	require.NoError(t, err)
	return lane
}

// TestOneMessageInTenSecondsIsNackedForItsOwnSake: beyond it the answer is 200 with the class in its body.
func TestOneMessageInTenSecondsIsNackedForItsOwnSake(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		credit  func(*rig, handler.Tx) handler.Tx
		product string
		class   int
		outcome string
		kept    bool
	}{
		"rejections": {nil, unknown, http.StatusBadRequest, "dead_lettered", false},
		"failures":   {always(errHandler), known, http.StatusInternalServerError, "retry", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, setup{queue: budgeted, credit: test.credit})
			for i := range 30 { // one a second
				got := r.deliverNow(paid(fmt.Sprint("e", i), test.product, 1))
				want := reply{Outcome: test.outcome, Status: test.class, code: http.StatusOK, Delayed: test.kept}
				if i%10 == 0 {
					want.code, want.Delayed = test.class, false
				}
				require.Equal(t, want, reply{Outcome: got.Outcome, Status: got.Status, code: got.code, Delayed: got.Delayed}, "%d: %s", i, got.text)
				require.Equal(t, 1, got.Attempt)
				r.pass(time.Second)
			}
			if test.kept {
				require.Equal(t, 27, r.keptMessages(t))
				require.Empty(t, r.letters())
				return
			}
			require.Len(t, r.letters(), 30, "each has its dead letter, also where it is acknowledged")
			require.Zero(t, r.keptMessages(t))
		})
	}
}

// TestWhatAllMessagesOfAQueueShareIsNacked: posts to one target are to one place, whatever their paths; a handler that
// calls many places is not.
func TestWhatAllMessagesOfAQueueShareIsNacked(t *testing.T) {
	t.Parallel()
	posts := func(q *catalog.Queue) {
		budgeted(q)
		for eventType, h := range q.Handlers {
			h.Post = catalog.Post{Target: "service", Path: "/" + eventType}
			q.Handlers[eventType] = h
		}
	}
	resting := retry.After(time.Hour, retry.Busy("callee_resting", nil))
	for name, test := range map[string]struct {
		queue  func(*catalog.Queue)
		many   bool
		nacked bool
	}{
		"posts to one target":   {queue: posts, nacked: true},
		"two handlers":          {queue: budgeted},
		"many places of a kind": {queue: posts, many: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			leased := repeats(func(context.Context, handler.Event) (string, error) { return "", resting })
			leased.ManyPlaces = test.many
			got := newRig(t, setup{queue: test.queue, leased: leased}).deliverNow(paid("e1", known, 1))
			require.Equal(t, test.nacked, got.code == http.StatusServiceUnavailable)
			require.Equal(t, !test.nacked, got.Delayed)
		})
	}
}

// TestAMessageThatWaitsInItsRequestHoldsNoSlot: with one slot, a second message is handled
// meanwhile.
func TestAMessageThatWaitsInItsRequestHoldsNoSlot(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		at := map[string][]time.Duration{}
		r := newRig(t, setup{live: true, timer: realTimer, queue: func(q *catalog.Queue) {
			policyOf(times10(1), 3)(q)
			q.Concurrency = 1
		}, credit: func(_ *rig, own handler.Tx) handler.Tx {
			return func(ctx context.Context, event handler.Event) (handler.Effect, error) {
				at[event.ID] = append(at[event.ID], time.Since(began))
				if event.ID == "e1" && event.Attempt == 1 {
					return handler.Effect{}, errHandler
				}
				return own(ctx, event)
			}
		}})
		var pushes sync.WaitGroup
		var first reply
		pushes.Go(func() { first = r.deliverNow(paid("e1", known, 1)) })
		synctest.Wait()
		second := r.deliverNow(paid("e2", known, 1))
		meanwhile := time.Since(began)
		pushes.Wait()
		require.Zero(t, meanwhile)
		require.Equal(t, []int{http.StatusOK, http.StatusOK}, []int{first.code, second.code})
		require.Equal(t, []time.Duration{0, time.Second}, at["e1"])
		require.Equal(t, []time.Duration{0}, at["e2"])
	})
}

// TestDrainingStartsNothingNew: what waits is refused, in a line for a slot, for its next
// attempt or for its acknowledgement, and what is under way is finished.
func TestDrainingStartsNothingNew(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release, calls := make(chan struct{}), 0
		r := newRig(t, setup{live: true, timer: realTimer, queue: func(q *catalog.Queue) {
			policyOf(times10(1), 5)(q)
			inOrder(q)
			q.Concurrency = 2
		}, credit: func(_ *rig, own handler.Tx) handler.Tx {
			return func(ctx context.Context, event handler.Event) (handler.Effect, error) {
				calls++
				switch event.ID {
				case "fails":
					return handler.Effect{}, errHandler
				case "asks":
					return handler.Effect{}, retry.After(time.Minute, errHandler)
				}
				<-release
				return own(ctx, event)
			}
		}})
		answers := map[string]reply{}
		var mu sync.Mutex
		var pushes sync.WaitGroup
		send := func(event string) {
			pushes.Go(func() {
				got := r.deliverNow(paid(event, known, 1).with(func(m *message) { m.attributes["ordering_key"] = event }))
				mu.Lock()
				defer mu.Unlock()
				answers[event] = got
			})
			synctest.Wait()
		}
		send("fails")
		send("asks")
		send("runs")
		send("runs-too")
		send("in-line")
		require.Empty(t, answers)
		began := time.Now()
		r.Drain()
		synctest.Wait()
		require.Equal(t, http.StatusInternalServerError, answers["fails"].code, "its own class")
		require.Equal(t, http.StatusServiceUnavailable, answers["asks"].code, "it is kept, and the broker goes on holding its key")
		require.Equal(t, []any{http.StatusServiceUnavailable, "shutting_down"}, []any{answers["in-line"].code, answers["in-line"].Reason})
		send("late")
		require.Equal(t, []any{http.StatusServiceUnavailable, "shutting_down"}, []any{answers["late"].code, answers["late"].Code})
		close(release)
		pushes.Wait()
		require.Zero(t, time.Since(began))
		require.Equal(t, http.StatusOK, answers["runs"].code)
		require.Equal(t, http.StatusOK, answers["runs-too"].code)
		require.Equal(t, 4, calls)
		require.Equal(t, 1, r.keptMessages(t))
	})
}

// failsFirst fails the event e1, and asks for the next attempt after a while.
func failsFirst(after time.Duration) func(*rig, handler.Tx) handler.Tx {
	return func(_ *rig, own handler.Tx) handler.Tx {
		return func(ctx context.Context, event handler.Event) (handler.Effect, error) {
			if event.ID == "e1" && event.Attempt == 1 {
				return handler.Effect{}, retry.After(after, errHandler)
			}
			return own(ctx, event)
		}
	}
}

// TestAMessageThatComesBackEndsItsLaneAlsoWhereItIsNotHandled: a lane that stays costs every event of the queue a read.
func TestAMessageThatComesBackEndsItsLaneAlsoWhereItIsNotHandled(t *testing.T) {
	t.Parallel()
	ticketed := func(t *testing.T, with setup, wait time.Duration) (*rig, message) {
		t.Helper()
		with.credit = failsFirst(wait)
		r := newRig(t, with)
		require.True(t, r.deliverNow(paid("e1", known, 1)).Delayed)
		require.True(t, r.keyLane(t, buyer).Exists())
		r.pass(wait)
		back := r.release(t)
		require.Len(t, back, 1)
		return r, back[0]
	}
	t.Run("where it has expired meanwhile", func(t *testing.T) {
		t.Parallel()
		r, back := ticketed(t, setup{queue: both(both(budgeted, inOrder), func(q *catalog.Queue) { q.MessageTTL = time.Minute })}, 2*time.Minute)
		require.Equal(t, http.StatusNoContent, r.deliverNow(back).code)
		require.False(t, r.keyLane(t, buyer).Exists())
		require.Zero(t, r.balance(t))
	})
	t.Run("where its contract has changed meanwhile", func(t *testing.T) {
		t.Parallel()
		r, back := ticketed(t, setup{queue: both(budgeted, inOrder)}, 2*time.Minute)
		back.attributes["event_type"] = "order.refunded"
		require.Equal(t, "dead_lettered", r.deliverNow(back).Outcome)
		require.False(t, r.keyLane(t, buyer).Exists())
	})
}

// TestARequestWaitsNoLongerThanItsAckDeadlineLets: what is due within a second waits for it in
// its request, unless the next attempt could then end after the ack deadline.
func TestARequestWaitsNoLongerThanItsAckDeadlineLets(t *testing.T) {
	t.Parallel()
	for timeout, kept := range map[time.Duration]bool{30 * time.Second: false, 51 * time.Second: false, 52 * time.Second: true, 59 * time.Second: true} {
		t.Run(timeout.String(), func(t *testing.T) {
			t.Parallel()
			r := newRig(t, setup{queue: func(q *catalog.Queue) {
				policyOf(retry.Policy{Base: time.Second, Multiplier: 1, Max: time.Second}, 5)(q)
				for eventType, h := range q.Handlers {
					h.Timeout = timeout
					q.Handlers[eventType] = h
				}
			}, credit: times(1, errHandler)})
			got := r.deliverNow(paid("e1", known, 1))
			require.Equal(t, kept, got.Delayed, "1 s of wait, 2 s for a slot and 5 s to write it down are to fit into 60 s")
			require.Equal(t, !kept, got.Outcome == "processed")
		})
	}
}

// TestARequestThatHasWaitedInVainDoesNotWaitAgain, whatever the clock says when its timer rings.
func TestARequestThatHasWaitedInVainDoesNotWaitAgain(t *testing.T) {
	t.Parallel()
	rings := 0
	r := newRig(t, setup{queue: policyOf(times10(1), 5), credit: always(errHandler), timer: func(time.Duration) (<-chan time.Time, func() bool) {
		rings++
		c := make(chan time.Time, 1)
		c <- start // and no time has passed
		return c, func() bool { return true }
	}})
	got := r.deliverNow(paid("e1", known, 1))
	require.Equal(t, []any{http.StatusOK, "not_due"}, []any{got.code, got.Reason}, "it is kept")
	require.Equal(t, 2, rings)
}
