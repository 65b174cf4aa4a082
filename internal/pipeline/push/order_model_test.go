package push_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"billhook/catalog"
	"billhook/internal/contract"
	"billhook/internal/dedupe"
	"billhook/internal/pipeline/handler"
	"billhook/internal/pipeline/lane"
	"billhook/internal/pipeline/push"
	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
	"billhook/internal/retry"
)

// keyed is an ordered broker with two instances of a worker, and the model of their events.
type keyed struct {
	rig       *rig
	instances []http.Handler
	messages  int
	// queue has the messages of each key that the broker has yet to deliver, acked the acknowledged ones.
	queue, acked map[string][]message
	// published and done are event ids by key, in order.
	published, done map[string][]string
	fails           map[string]int
	earliest        map[string]time.Time
	// left: a release has ended between two of its calls, or the broker has repeated a message, whose copies end
	// in any order. A lane may then remain until the next message of the key, or until the TTL removes it.
	left bool
}

// Publish implements the relay's publisher.
func (w *keyed) Publish(_ context.Context, _ string, m contract.Message) (string, error) {
	w.messages++
	w.queue[m.OrderingKey] = append(w.queue[m.OrderingKey],
		arrived(fmt.Sprint("m", w.messages), m, w.rig.config.Now()).again(1))
	return "1", nil
}

// event publishes a new event, whose first attempts may fail, and which may have a time of delivery.
func (w *keyed) event(t *rapid.T) {
	key := rapid.SampledFrom([]string{"a", "a", "b"}).Draw(t, "key")
	id := fmt.Sprint(key, len(w.published[key])+1)
	m := paid(id, known, 1).set("ordering_key", key).without("paynow_customer_id")
	if rapid.IntRange(0, 4).Draw(t, "has a time of delivery") == 0 {
		w.earliest[id] = w.rig.config.Now().Add(rapid.SampledFrom([]time.Duration{time.Minute, time.Hour}).
			Draw(t, "in"))
		m.attributes["deliver_at"] = w.earliest[id].Format(time.RFC3339Nano)
	}
	w.fails[id] = rapid.SampledFrom([]int{0, 0, 0, 1, 2, 3, 4}).Draw(t, "fails")
	w.published[key] = append(w.published[key], id)
	_, _ = w.Publish(context.Background(), "",
		contract.Message{Data: m.data(), Attributes: m.attributes, OrderingKey: key})
}

// deliver pushes the first message of a key to one of the instances.
func (w *keyed) deliver(t *rapid.T, key string) {
	if len(w.queue[key]) == 0 {
		return
	}
	m := w.queue[key][0]
	id := m.attributes["event_id"]
	before, _ := w.rig.record(id)
	w.rig.http = w.instances[rapid.IntRange(0, 1).Draw(t, "instance")]
	got := w.rig.deliverNow(m)
	after, _ := w.rig.record(id)
	require.NotContains(t, []int{400, 422}, got.code, got.Reason)
	require.Len(t, after.Log, int(after.Attempts), "the log has the attempts that are counted")
	for i, line := range after.Log {
		require.EqualValues(t, i+1, line.Number)
		require.False(t, line.Ended.Before(line.Begun), "no attempt ends before it begins")
	}
	if after.Attempts > before.Attempts {
		require.False(t, w.rig.config.Now().Before(w.earliest[id]), "%s: tried before its time", id)
		w.earliest[id] = after.NextRetryAt
	}
	if before.Status != dedupe.Completed && after.Status == dedupe.Completed {
		w.done[key] = append(w.done[key], id)
		require.Equal(t, w.published[key][:len(w.done[key])], w.done[key], "events of a key are done in order")
		// The handler of a repeated message may run once more before its record is read, as the first time.
		require.GreaterOrEqual(t, after.Attempts, int64(w.fails[id]+1), "attempts go on from the record")
		require.False(t, !w.left && after.Attempts > int64(w.fails[id]+1), "and none is made twice")
	}
	if got.code == 200 || got.code == 204 {
		w.queue[key] = w.queue[key][1:]
		w.acked[key] = append(w.acked[key], m)
		return
	}
	w.queue[key][0].attempt++
}

// repeat has the broker deliver an acknowledged message again, and those that followed it, as Pub/Sub does.
func (w *keyed) repeat(t *rapid.T) {
	key := rapid.SampledFrom([]string{"a", "b"}).Draw(t, "key")
	from := len(w.acked[key]) - min(rapid.IntRange(1, 4).Draw(t, "messages"), len(w.acked[key]))
	w.queue[key] = append(slices.Clone(w.acked[key][from:]), w.queue[key]...)
	w.acked[key], w.left = w.acked[key][:from], true
}

// release runs release-delayed, which dies at a call, before it is made or after.
func (w *keyed) release(calls int, made bool) {
	call := func(do func() error) error {
		if calls--; calls >= 0 {
			return do()
		}
		w.left = true
		if calls == -1 && made {
			_ = do()
		}
		return errBroker
	}
	relay := &lane.Relay{
		Of: lane.Delayed, Now: w.rig.config.Now,
		Publisher: cutting{w, call},
		Store: &storetest.Faults{
			Store: w.rig.counter, OnRead: call,
			OnCommit: func(_ context.Context, _ []store.Write, do func() error) error { return call(do) },
		},
	}
	_, _ = relay.Due(context.Background(), 3, func(string, error) {}) // what failed is found again
}

// cutting is the publisher of a release that dies.
type cutting struct {
	*keyed
	call func(func() error) error
}

func (c cutting) Publish(ctx context.Context, topic string, m contract.Message) (string, error) {
	return "1", c.call(func() error { _, err := c.keyed.Publish(ctx, topic, m); return err })
}

// TestEventsOfAKeyAreDoneOnceAndInOrder drives an ordered queue whose events fail, wait and have times of
// delivery, while releases die between any two of their calls, and the broker repeats messages. The model of
// package lane drives two relays call by call beside each other.
func TestEventsOfAKeyAreDoneOnceAndInOrder(t *testing.T) {
	t.Parallel()
	policies := []retry.Policy{
		// lanes are read for each delivery
		{Schedule: []time.Duration{0, 20 * time.Minute, 30 * time.Second, 20 * time.Minute, time.Hour}},
		times10(10), // the broker's waits, so that they rarely are read
	}
	const whole = 1000
	rapid.Check(t, func(rt *rapid.T) {
		policy := policies[rapid.IntRange(0, 1).Draw(rt, "policy")]
		w := &keyed{
			queue: map[string][]message{}, acked: map[string][]message{}, published: map[string][]string{},
			done:  map[string][]string{},
			fails: map[string]int{}, earliest: map[string]time.Time{},
		}
		w.rig = newRig(t, setup{
			log: slog.DiscardHandler, queue: func(q *catalog.Queue) { inOrder(q); policyOf(policy, 9)(q) },
		})
		w.rig.do = func(_ context.Context, event handler.Event) (handler.Effect, error) {
			if event.Attempt <= w.fails[event.ID] {
				return handler.Effect{}, errHandler
			}
			return handler.Effect{Result: "done"}, nil
		}
		// with the store and the broker alone in common
		w.instances = []http.Handler{w.rig.http, routed(push.New(w.rig.config))}
		deliver := func(key string) func(*rapid.T) { return func(t *rapid.T) { w.deliver(t, key) } }
		rt.Repeat(map[string]func(*rapid.T){
			"an event": w.event, "an event +": w.event, "repeat": w.repeat,
			"deliver a": deliver("a"), "deliver a +": deliver("a"), "deliver a ++": deliver("a"),
			"deliver b": deliver("b"),
			"release":   func(*rapid.T) { w.release(whole, true) },
			"release +": func(t *rapid.T) {
				w.release(rapid.IntRange(0, 12).Draw(t, "calls"), rapid.Bool().Draw(t, "the last is made"))
			},
			"time passes": func(t *rapid.T) {
				w.rig.pass(rapid.SampledFrom([]time.Duration{
					time.Microsecond, time.Second, 10 * time.Minute, 21 * time.Minute, time.Hour,
				}).Draw(t, "time"))
			},
		})
		left := func() (n int) {
			for key := range w.published {
				n += len(w.published[key]) - len(w.done[key]) + len(w.queue[key])
			}
			return n
		}
		// a repeated message may wait, too
		for quiet, round := 0, 0; quiet <= 3 && round < 5*w.messages+3; round++ {
			if quiet++; left() > 0 {
				quiet = 0
			}
			w.rig.pass(time.Hour)
			w.release(whole, true)
			for _, key := range []string{"a", "b"} {
				for range 3 * len(w.queue[key]) {
					w.deliver(rt, key)
				}
			}
		}
		for key := range w.published {
			require.Empty(rt, w.queue[key])
			require.Equal(rt, w.published[key], w.done[key], "every event is done")
		}
		require.Empty(rt, w.rig.documents(lane.Delayed.Entries()))
		lanes := w.rig.documents(lane.Delayed.Lanes())
		require.False(rt, len(lanes) > 0 && !w.left, "no lane remains")
		for _, doc := range lanes {
			require.Nil(rt, doc.Fields["due_at"], "no relay reads it")
			require.NotNil(rt, doc.Fields["expire_at"], "the TTL removes it")
		}
	})
}
