package push_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"billhook/catalog"
	"billhook/internal/contract"
	"billhook/internal/dedupe"
	"billhook/internal/pipeline/handler"
	"billhook/internal/pipeline/lane"
	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
	"billhook/internal/retry"
)

// call is what becomes of one call of a relay.
type call string

const (
	answered call = "answered"
	refused  call = "refused"
	lost     call = "done, answer lost"
	crash    call = "never made, and the relay is gone"
	severed  call = "done, and then the relay is gone"
)

// releaser is a run of release-delayed that stops before every call. It relays lanes side by
// side: their calls are made one at a time.
type releaser struct {
	one     sync.Mutex
	w       *keyed
	next    chan call
	stopped chan struct{}
	running bool
	gone    bool
}

func (a *releaser) call(do func() error) error {
	a.one.Lock()
	defer a.one.Unlock()
	if a.gone {
		return errBroker
	}
	a.stopped <- struct{}{}
	next := <-a.next
	a.gone = next == crash || next == severed
	a.w.tell("a call of the relay is %s", next)
	if next == refused || next == crash {
		return errBroker
	}
	if err := do(); err != nil || next == answered {
		return err
	}
	return errBroker
}

// store is the relay's store.
func (a *releaser) store() store.Store {
	return &storetest.Faults{Store: a.w.rig.counter, OnRead: a.call, OnCommit: func(_ context.Context, _ []store.Write, do func() error) error { return a.call(do) }}
}

func (a *releaser) Publish(_ context.Context, _ string, m contract.Message) (string, error) {
	return "1", a.call(func() error {
		a.w.publish(m)
		return nil
	})
}

func (a *releaser) start() {
	a.running, a.gone, a.stopped = true, false, make(chan struct{})
	relay := &lane.Relay{Of: lane.Delayed, Store: a.store(), Publisher: a, Now: func() time.Time { return time.Unix(0, a.w.rig.now.Load()).UTC() }}
	stopped := a.stopped
	go func() {
		defer close(stopped)
		_, _ = relay.Due(context.Background(), 3, func(string, error) {}) // what failed is found again
	}()
	_, a.running = <-stopped
}

func (a *releaser) step(next call) {
	a.next <- next
	_, a.running = <-a.stopped
}

// keyed is an ordered broker around a worker, and what must be true of it.
type keyed struct {
	rig *rig
	// instances of the worker take the pushes in turn, as it is drawn.
	instances []http.Handler
	drawn     func() int
	releasers []*releaser
	messages  int
	// queue is what the broker holds of each key, acked what it was told to forget.
	queue, acked map[string][]message
	// published and done are event ids by key, in order.
	published, done map[string][]string
	fails           map[string]int
	earliest        map[string]time.Time
	// early are the keys of which a message came back before the relay had noted that it is published:
	// its lane is then left to the next message of the key, or to the TTL.
	early map[string]bool
	// story is what has happened, for a failure to tell.
	story []string
}

func (w *keyed) tell(format string, args ...any) {
	w.story = append(w.story, fmt.Sprintf(format, args...))
}

func (w *keyed) at() time.Time { return time.Unix(0, w.rig.now.Load()).UTC() }

func (w *keyed) publish(m contract.Message) {
	w.messages++
	w.tell("published %s %s", m.Attributes["event_id"], m.Attributes["delay_ticket"])
	w.queue[m.OrderingKey] = append(w.queue[m.OrderingKey], message{
		id: fmt.Sprint("m", w.messages), body: string(m.Data), attributes: m.Attributes, published: w.at(), attempt: 1,
	})
}

// event publishes a new event, which fails some times, and may have a time of delivery.
func (w *keyed) event(t *rapid.T) {
	key := rapid.SampledFrom([]string{"a", "a", "b"}).Draw(t, "key")
	id := fmt.Sprint(key, len(w.published[key])+1)
	m := paid(id, known, 1).with(func(m *message) { m.attributes["ordering_key"] = key; delete(m.attributes, "paynow_customer_id") })
	if rapid.IntRange(0, 4).Draw(t, "has a time of delivery") == 0 {
		w.earliest[id] = w.at().Add(rapid.SampledFrom([]time.Duration{time.Minute, time.Hour}).Draw(t, "in"))
		m.attributes["deliver_at"] = w.earliest[id].Format(time.RFC3339Nano)
	}
	w.fails[id] = rapid.SampledFrom([]int{0, 0, 0, 1, 2, 3, 4}).Draw(t, "fails")
	w.published[key] = append(w.published[key], id)
	w.publish(contract.Message{Data: m.data(), Attributes: m.attributes, OrderingKey: key})
}

// deliver pushes the first message of a key.
func (w *keyed) deliver(t require.TestingT, key string) {
	if len(w.queue[key]) == 0 {
		return
	}
	m := w.queue[key][0]
	id := m.attributes["event_id"]
	before, _ := w.rig.record(t, id)
	w.rig.http = w.instances[w.drawn()]
	got := w.rig.deliverNow(m)
	after, _ := w.rig.record(t, id)
	w.tell("%s %s: %s %s", id, m.attributes["delay_ticket"], got.Outcome, got.Reason)
	require.NotContains(t, []int{400, 422}, got.code, got.Reason)
	require.Len(t, after.Log, int(after.Attempts), "the log has the attempts that are counted")
	for i, line := range after.Log {
		require.EqualValues(t, i+1, line.Number)
		require.NotContains(t, line.Ended.Sub(line.Begun).String(), "-", "no attempt ends before it begins")
	}
	if after.Attempts > before.Attempts {
		require.False(t, w.at().Before(w.earliest[id]), "%s: tried before its time", id)
		w.earliest[id] = after.NextRetryAt
	}
	if before.Status != dedupe.Completed && after.Status == dedupe.Completed {
		w.done[key] = append(w.done[key], id)
		require.Equal(t, w.published[key][:len(w.done[key])], w.done[key], "events of a key are done in order: %s", strings.Join(w.story, "\n"))
		require.EqualValues(t, w.fails[id]+1, after.Attempts, "attempts go on from the record")
	}
	if m.attributes["delay_ticket"] != "" && slices.ContainsFunc(w.releasers, func(a *releaser) bool { return a.running }) {
		w.early[key] = true
	}
	if got.code == 200 || got.code == 204 {
		w.queue[key] = w.queue[key][1:]
		w.acked[key] = append(w.acked[key], m)
		return
	}
	w.queue[key][0].attempt++
}

func (w *keyed) pass(t *rapid.T) {
	w.rig.pass(rapid.SampledFrom([]time.Duration{time.Microsecond, time.Second, 10 * time.Minute, 21 * time.Minute, time.Hour}).Draw(t, "time"))
}

// repeat has the broker deliver again what it was told to forget: as Pub/Sub does, with
// all of the key that came after it.
func (w *keyed) repeat(t *rapid.T) {
	key := rapid.SampledFrom([]string{"a", "b"}).Draw(t, "key")
	n := min(rapid.IntRange(1, 4).Draw(t, "messages"), len(w.acked[key]))
	again := slices.Clone(w.acked[key][len(w.acked[key])-n:])
	w.acked[key] = w.acked[key][:len(w.acked[key])-n]
	w.queue[key] = append(again, w.queue[key]...)
	w.tell("%s: the last %d again", key, n)
}

func (w *keyed) release(i int) func(*rapid.T) {
	return func(t *rapid.T) {
		a := w.releasers[i]
		if !a.running {
			a.start()
			return
		}
		a.step(rapid.SampledFrom([]call{answered, answered, answered, answered, answered, refused, lost, crash, severed}).Draw(t, "the call is"))
	}
}

// TestWhateverWaitsEventsOfAKeyAreDoneInOrderOnce drives an ordered queue whose events
// fail, wait and have times of delivery, while two runs of release-delayed go on call by
// call, fail and die, and the broker repeats itself.
func TestWhateverWaitsEventsOfAKeyAreDoneInOrderOnce(t *testing.T) {
	t.Parallel()
	policies := map[string]retry.Policy{
		"by a schedule, so that lanes are always looked at": {Schedule: []time.Duration{0, 20 * time.Minute, 30 * time.Second, 20 * time.Minute, time.Hour}},
		"by the broker's waits, so that they rarely are":    times10(10),
	}
	rapid.Check(t, func(rt *rapid.T) {
		policy := policies[rapid.SampledFrom(slices.Sorted(maps.Keys(policies))).Draw(rt, "policy")]
		w := &keyed{
			queue: map[string][]message{}, acked: map[string][]message{}, published: map[string][]string{}, done: map[string][]string{},
			fails: map[string]int{}, earliest: map[string]time.Time{}, early: map[string]bool{},
		}
		w.rig = newRig(t, setup{
			log: slog.DiscardHandler,
			queue: func(q *catalog.Queue) {
				q.OrderingKey = []string{"uid"}
				policyOf(policy, 9)(q)
			},
			credit: func(*rig, handler.Tx) handler.Tx {
				return func(_ context.Context, event handler.Event) (handler.Effect, error) {
					if event.Attempt <= w.fails[event.ID] {
						return handler.Effect{}, errHandler
					}
					return handler.Effect{Result: "done"}, nil
				}
			},
		})
		w.instances = []http.Handler{w.rig.http, w.rig.another()}
		w.drawn = func() int { return rapid.IntRange(0, 1).Draw(rt, "instance") }
		for range 2 {
			w.releasers = append(w.releasers, &releaser{w: w, next: make(chan call)})
		}
		settle := func() {
			for _, a := range w.releasers {
				for a.running {
					a.step(answered)
				}
			}
		}
		defer settle()
		rt.Repeat(map[string]func(*rapid.T){
			"an event":      w.event,
			"an event +":    w.event,
			"deliver a":     func(t *rapid.T) { w.deliver(t, "a") },
			"deliver a +":   func(t *rapid.T) { w.deliver(t, "a") },
			"deliver a ++":  func(t *rapid.T) { w.deliver(t, "a") },
			"deliver b":     func(t *rapid.T) { w.deliver(t, "b") },
			"release one":   w.release(0),
			"release one +": w.release(0),
			"release two":   w.release(1),
			"repeat":        w.repeat,
			"time passes":   w.pass,
		})
		settle()
		left := func() (n int) {
			for key := range w.published {
				n += len(w.published[key]) - len(w.done[key]) + len(w.queue[key])
			}
			return n
		}
		quiet := 0
		for range 5*w.messages + 3 {
			if quiet++; left() > 0 {
				quiet = 0
			} else if quiet > 3 { // what was delivered twice may wait, too
				break
			}
			w.rig.pass(time.Hour)
			w.releasers[0].start()
			settle()
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
		for collection, most := range map[string]int{lane.Delayed.Entries(): 0, lane.Delayed.Lanes(): len(w.early)} {
			page, err := w.rig.counter.Query(context.Background(), store.Query{Collection: collection, Limit: 10})
			require.NoError(rt, err)
			require.LessOrEqual(rt, len(page.Documents), most, "nothing stays behind: %s", strings.Join(w.story, "\n"))
			for _, doc := range page.Documents {
				require.Nil(rt, doc.Fields["due_at"], "no relay looks at it")
				require.NotNil(rt, doc.Fields["expire_at"], "the TTL removes it")
			}
		}
	})
}
