package push_test

import (
	"billhook/catalog"
	"billhook/internal/contract"
	"billhook/internal/pipeline/handler"
	"billhook/internal/pipeline/lane"
	"billhook/internal/platform/standin"
	"billhook/internal/retry"
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
)

// world is a rig behind the simulator of Pub/Sub, with an alarm that releases what is kept, in the time of a bubble.
type world struct {
	*rig
	simulator *standin.Simulator
	// killed is set by a handler whose worker dies.
	killed atomic.Bool
	mu     sync.Mutex
	rings  map[time.Time]bool
}

// RoundTrip carries a push to the rig without a network. A worker that was killed gives no answer, and has written
// nothing.
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
		time.AfterFunc(time.Until(at), func() {
			relay := &lane.Relay{Of: lane.Delayed, Store: w.faults, Publisher: w.simulator, Now: time.Now}
			_, _ = relay.Due(context.Background(), 500, func(string, error) {}) // what failed is found again
		})
	}
	return nil
}

func newWorld(t *testing.T, with setup) *world {
	t.Helper()
	w := &world{rings: map[time.Time]bool{}}
	with.live, with.timer, with.alarm = true, realTimer, w
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

// publish publishes a message, lets time pass, and returns the message's id.
func (w *world) publish(t *testing.T, m message, wait time.Duration) string {
	t.Helper()
	id, err := w.simulator.Publish(t.Context(), "orders", contract.Message{Data: m.data(), Attributes: m.attributes, OrderingKey: m.attributes["ordering_key"]})
	require.NoError(t, err)
	<-time.After(wait)
	synctest.Wait()
	return id
}

// TestAttemptsFollowThePolicyToTheSecond runs failing events through the simulator until they are dead letters: the one
// that is looked at, and others that fail beside it, so that the budget of nacks is used up.
func TestAttemptsFollowThePolicyToTheSecond(t *testing.T) {
	t.Parallel()
	const second = time.Second
	for name, test := range map[string]struct {
		policy  retry.Policy
		failure error
		// want are the seconds of the attempts after the first.
		want []time.Duration
	}{
		"orders":                         {retry.Policy{Schedule: []time.Duration{0, 5 * second, 30 * second, 120 * second, 600 * second}}, errHandler, []time.Duration{0, 5, 35, 155, 755}},
		"of base 1 s":                    {times10(1), errHandler, []time.Duration{0, 1, 3}},
		"the contract's":                 {times10(10), errHandler, []time.Duration{0, 10, 30, 70, 150}},
		"billing":                        {retry.Policy{Base: time.Minute, Multiplier: 2, Max: time.Hour, Jitter: 30 * second}, errHandler, []time.Duration{0, 75, 210, 465, 960}}, // half of the jitter
		"tripling":                       {retry.Policy{Base: second, Multiplier: 3, Max: 600 * second}, errHandler, []time.Duration{0, 1, 4, 13, 40}},
		"of up to an hour":               {retry.Policy{Base: 8 * time.Minute, Multiplier: 2, Max: time.Hour}, errHandler, []time.Duration{0, 480, 1440, 3360, 6960}},
		"as long as asked":               {times10(60), retry.After(30*time.Minute, errHandler), []time.Duration{0, 1800, 3600}},
		"while another event is missing": {times10(10), retry.Missing("order_not_seen", nil), []time.Duration{0, 10, 30, 70, 150}},
	} {
		for _, ordered := range []bool{true, false} {
			for _, others := range []int{0, 8} {
				t.Run(fmt.Sprintf("%s, ordered %v, beside %d", name, ordered, others), func(t *testing.T) {
					t.Parallel()
					synctest.Test(t, func(t *testing.T) {
						var mu sync.Mutex
						at := map[string][]time.Time{}
						w := newWorld(t, setup{queue: func(q *catalog.Queue) {
							if policyOf(test.policy, len(test.want))(q); ordered {
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
						for i := range others {
							w.publish(t, paid(fmt.Sprint("other", i), known, 1).set("ordering_key", fmt.Sprint("key", i)), 0)
						}
						id := w.publish(t, paid("e1", known, 1), 3*time.Hour)
						require.Len(t, at["e1"], len(test.want))
						for i, want := range test.want {
							got, wait := at["e1"][i].Sub(at["e1"][0]), want*second
							require.GreaterOrEqual(t, got, want*second, "attempt %d came before its time", i+1)
							if i > 0 {
								wait -= test.want[i-1] * second
							}
							// What was late before is late again.
							require.LessOrEqual(t, got, want*second+time.Duration(i)*max(second, wait/10), "attempt %d", i+1)
						}
						require.Len(t, w.letters(), 1+others)
						for _, letter := range w.letters() {
							require.Equal(t, "attempts_exhausted", letter.Attributes["dead_letter_detail"])
							if letter.Attributes["event_id"] == "e1" {
								require.Equal(t, id, letter.Attributes["source_message_id"], "the first of the ids that it came back under")
							}
						}
						require.Zero(t, w.simulator.Stats()["orders-push"].Backlog)
						require.Zero(t, w.keptMessages())
					})
				})
			}
		}
	}
}

// TestEventThatKillsItsWorkersKillsEightAtMost: then it is dead-lettered by the worker, and others go on.
func TestEventThatKillsItsWorkersKillsEightAtMost(t *testing.T) {
	t.Parallel()
	for _, failures := range []int{0, 1, 3} { // before it kills
		synctest.Test(t, func(t *testing.T) {
			kills, calls := 0, 0
			var w *world
			w = newWorld(t, setup{queue: budgeted, credit: func(_ *rig, own handler.Tx) handler.Tx {
				return func(ctx context.Context, event handler.Event) (handler.Effect, error) {
					if event.ID != "e1" {
						return own(ctx, event)
					}
					if calls++; calls > failures {
						kills++
						w.killed.Store(true)
						w.faults.Down(true)
					}
					return handler.Effect{}, errHandler
				}
			}})
			w.publish(t, paid("e1", known, 1), 6*time.Hour)
			require.LessOrEqual(t, kills, 8)
			require.Len(t, w.letters(), 1)
			letter := w.letters()[0].Attributes
			require.Equal(t, []string{"worker_died", "attempts_exhausted", "5"}, []string{letter["dead_letter_reason"], letter["dead_letter_detail"], letter["delivery_attempts"]})
			require.Zero(t, w.simulator.Stats()["orders-push"].DeadLettered, "not by the broker")
			w.publish(t, paid("e2", known, 1), time.Hour)
			require.EqualValues(t, 1000, w.balance(t), "others go on")
		})
	}
}
