package push_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/contract"
	"billhook/internal/pipeline/handler"
	"billhook/internal/pipeline/lane"
	"billhook/internal/platform/standin"
	"billhook/internal/retry"
)

// world is a rig behind the simulator of Pub/Sub, with an alarm that releases what is kept,
// in the time of a bubble.
type world struct {
	*rig
	simulator *standin.Simulator
	// killed is set by a handler whose worker dies.
	killed atomic.Bool
	mu     sync.Mutex
	rings  map[time.Time]bool
}

// RoundTrip carries a push to the rig without a network. A worker that was killed gives no
// answer, and has written nothing.
func (w *world) RoundTrip(request *http.Request) (*http.Response, error) {
	request.Header.Set("Authorization", "Bearer good")
	recorder := httptest.NewRecorder()
	w.http.ServeHTTP(recorder, request)
	if w.killed.CompareAndSwap(true, false) {
		w.faults.Down(false)
		return nil, errors.New("connection reset")
	}
	return recorder.Result(), nil
}

// At implements push.Alarm with a timer: one call for what is due in a quarter of a second.
func (w *world) At(_ context.Context, at time.Time) error {
	const quarter = 250 * time.Millisecond
	at = at.Add(quarter - 1).Truncate(quarter)
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.rings[at] {
		w.rings[at] = true
		time.AfterFunc(time.Until(at), w.releaseAll)
	}
	return nil
}

func (w *world) releaseAll() {
	relay := &lane.Relay{Of: lane.Delayed, Store: w.faults, Publisher: w.simulator, Now: time.Now}
	_, _ = relay.Due(context.Background(), 500, func(string, error) {}) // what failed is found again
}

// kill ends the worker in the middle of an attempt.
func (w *world) kill() error {
	w.killed.Store(true)
	w.faults.Down(true)
	return errHandler
}

// alarmOf gives a rig an alarm that does not exist yet.
type alarmOf struct{ w **world }

func (a alarmOf) At(ctx context.Context, at time.Time) error { return (*a.w).At(ctx, at) }

func realTimer(d time.Duration) (<-chan time.Time, func() bool) {
	t := time.NewTimer(d)
	return t.C, t.Stop
}

func newWorld(t *testing.T, with setup) *world {
	t.Helper()
	w := &world{rings: map[time.Time]bool{}}
	with.live, with.timer, with.alarm = true, realTimer, alarmOf{&w}
	w.rig = newRig(t, with)
	var err error
	w.simulator, err = standin.NewSimulator(standin.SimulatorConfig{
		ProjectID: "demo", Subscriptions: standin.Topology([]catalog.Queue{w.queue}),
		PushBaseURL: "http://worker.test", Client: &http.Client{Transport: w},
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, w.simulator.Close()) })
	return w
}

// publish publishes a message, and returns its id.
func (w *world) publish(t *testing.T, m message) string {
	t.Helper()
	key := m.attributes["ordering_key"]
	id, err := w.simulator.Publish(t.Context(), "orders", contract.Message{Data: m.data(), Attributes: m.attributes, OrderingKey: key})
	require.NoError(t, err)
	return id
}

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

// TestAttemptsFollowThePolicyToTheSecond runs failing events through the simulator until
// they are dead letters: the one that is looked at, and others that fail beside it, so that
// the budget of nacks is used up.
func TestAttemptsFollowThePolicyToTheSecond(t *testing.T) {
	t.Parallel()
	seconds := func(n ...float64) (all []time.Duration) {
		for _, s := range n {
			all = append(all, time.Duration(s*float64(time.Second)))
		}
		return all
	}
	schedule := retry.Policy{Schedule: seconds(0, 5, 30, 120, 600)}
	hourly := retry.Policy{Base: 8 * time.Minute, Multiplier: 2, Max: time.Hour}
	for name, test := range map[string]struct {
		policy  retry.Policy
		failure error
		// want are the moments of the attempts, after the first.
		want []time.Duration
	}{
		"orders":                       {schedule, errHandler, seconds(0, 5, 35, 155, 755)},
		"of base 1 s":                  {times10(1), errHandler, seconds(0, 1, 3)},
		"of base 2 s":                  {times10(2), errHandler, seconds(0, 2, 6, 14, 30)},
		"of base 3 s":                  {times10(3), errHandler, seconds(0, 3, 9, 21, 45)},
		"of base 5 s":                  {times10(5), errHandler, seconds(0, 5, 15, 35, 75)},
		"of base 10 s, the contract's": {times10(10), errHandler, seconds(0, 10, 30, 70, 150)},
		// The rig's dice fall on 0.5: half of the jitter.
		"billing":                        {retry.Policy{Base: time.Minute, Multiplier: 2, Max: time.Hour, Jitter: 30 * time.Second}, errHandler, seconds(0, 75, 210, 465, 960)},
		"tripling":                       {retry.Policy{Base: time.Second, Multiplier: 3, Max: 600 * time.Second}, errHandler, seconds(0, 1, 4, 13, 40)},
		"of 10 minutes at most":          {retry.Policy{Base: 5 * time.Minute, Multiplier: 2, Max: 10 * time.Minute}, errHandler, seconds(0, 300, 900, 1500)},
		"of up to an hour":               {hourly, errHandler, seconds(0, 480, 1440, 3360, 6960)},
		"as long as the callee asks":     {times10(60), retry.After(30*time.Minute, errHandler), seconds(0, 1800, 3600)},
		"while another event is missing": {times10(10), retry.Missing("order_not_seen", nil), seconds(0, 10, 30, 70, 150)},
	} {
		for _, order := range []string{"ordered", "unordered"} {
			for _, alone := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s, %s, alone %v", name, order, alone), func(t *testing.T) {
					t.Parallel()
					synctest.Test(t, func(t *testing.T) {
						var mu sync.Mutex
						at := map[string][]time.Time{}
						w := newWorld(t, setup{queue: func(q *catalog.Queue) {
							policyOf(test.policy, len(test.want))(q)
							if order == "ordered" {
								inOrder(q)
							}
						}, credit: func(*rig, handler.Tx) handler.Tx {
							return func(_ context.Context, event handler.Event) (handler.Effect, error) {
								mu.Lock()
								defer mu.Unlock()
								at[event.ID] = append(at[event.ID], time.Now())
								require.Len(t, at[event.ID], event.Attempt)
								return handler.Effect{}, test.failure
							}
						}})
						others := 0
						if !alone {
							others = 8
						}
						for i := range others {
							w.publish(t, paid(fmt.Sprint("other", i), known, 1).with(func(m *message) { m.attributes["ordering_key"] = fmt.Sprint("key", i) }))
						}
						id := w.publish(t, paid("e1", known, 1))
						<-time.After(3 * time.Hour)
						synctest.Wait()
						require.Len(t, at["e1"], len(test.want))
						for i, want := range test.want {
							got := at["e1"][i].Sub(at["e1"][0])
							require.GreaterOrEqual(t, got, want, "attempt %d came before its time", i+1)
							wait := want
							if i > 0 {
								wait -= test.want[i-1]
							}
							// What was late before is late again.
							require.LessOrEqual(t, got, want+time.Duration(i)*max(time.Second, wait/10), "attempt %d", i+1)
						}
						require.Len(t, w.letters(), 1+others)
						for _, letter := range w.letters() {
							require.Contains(t, []string{"handler_error", "order_not_seen"}, letter.Attributes["dead_letter_reason"])
							require.Equal(t, "attempts_exhausted", letter.Attributes["dead_letter_detail"])
							if letter.Attributes["event_id"] == "e1" {
								require.Equal(t, id, letter.Attributes["source_message_id"], "the first of the ids that it came back under")
							}
						}
						require.Zero(t, w.simulator.Stats()["orders-push"].Backlog)
						require.Zero(t, w.keptMessages(t))
					})
				})
			}
		}
	}
}

func TestAnEventThatKillsItsWorkersKillsEight(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		// first is what its first attempts do instead of killing.
		first int
		kills int
	}{
		"from the first attempt on": {0, 8},
		"after a failure":           {1, 8},
		"after three failures":      {3, 8},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				kills, calls := 0, 0
				var w *world
				w = newWorld(t, setup{queue: policyOf(times10(10), 5), credit: func(_ *rig, own handler.Tx) handler.Tx {
					return func(ctx context.Context, event handler.Event) (handler.Effect, error) {
						if event.ID != "e1" {
							return own(ctx, event)
						}
						if calls++; calls <= test.first {
							return handler.Effect{}, errHandler
						}
						kills++
						return handler.Effect{}, w.kill()
					}
				}})
				w.publish(t, paid("e1", known, 1))
				<-time.After(6 * time.Hour)
				synctest.Wait()
				require.LessOrEqual(t, kills, test.kills)
				letters := w.letters()
				require.Len(t, letters, 1)
				require.Equal(t, "worker_died", letters[0].Attributes["dead_letter_reason"])
				require.Equal(t, "attempts_exhausted", letters[0].Attributes["dead_letter_detail"])
				require.Equal(t, "5", letters[0].Attributes["delivery_attempts"])
				require.Zero(t, w.simulator.Stats()["orders-push"].DeadLettered, "by the worker, not by the broker")
				w.publish(t, paid("e2", known, 1))
				<-time.After(time.Hour)
				synctest.Wait()
				require.EqualValues(t, 1000, w.balance(t), "others go on")
			})
		})
	}
}
