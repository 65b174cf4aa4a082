package worker_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/compose/worker"
	"billhook/internal/contract"
	"billhook/internal/pipeline/handler"
	"billhook/internal/platform/standin/clocktest"
	"billhook/internal/platform/store"
	"billhook/internal/retry"
)

// fiveMinutes is how far apart the clocks of the two workers are.
const fiveMinutes = 5 * time.Minute

// apart is two workers on one store and one broker. The clock is that of the worker behind, and the other worker's is
// ahead of it.
type apart struct {
	t      *testing.T
	clock  *clocktest.Clock
	broker *shelves
	store  store.Store
	behind *worker.Worker
	ahead  *worker.Worker
	nth    int
}

func newApart(t *testing.T, change func(*worker.Config)) *apart {
	t.Helper()
	a := &apart{t: t, clock: clocktest.New(morning.Truncate(time.Hour)), broker: &shelves{}}
	c := config(t, change)
	c.Publisher, a.store = a.broker, c.Store
	var err error
	c.Now = a.clock.Now
	a.behind, err = worker.New(c)
	require.NoError(t, err)
	c.Now = func() time.Time { return a.clock.Now().Add(fiveMinutes) }
	a.ahead, err = worker.New(c)
	require.NoError(t, err)
	return a
}

// ours has a worker serve one queue, whose handler is the test's own.
func ours(register func(*handler.Registry)) func(*worker.Config) {
	return func(c *worker.Config) {
		q := catalog.Queue{
			ID: "ours", Enabled: true, Contract: contract.MessageV1, Pool: "p", Concurrency: 10, RememberFor: 48 * 24 * time.Hour, MaxAttempts: 5,
			AckDeadline: time.Minute, Lease: 2 * time.Minute, HandlerTimeout: 30 * time.Second, Backoff: retry.Policy{Schedule: []time.Duration{0, 30 * time.Second}},
			DeadLetter: catalog.DeadLetter{Topic: "ours-dlq", Retention: 14 * 24 * time.Hour},
		}
		q.Handlers = map[string]catalog.Handler{"order.confirmed": {Name: "ours", MaxAttempts: 5, Timeout: 30 * time.Second, Backoff: q.Backoff}}
		c.Catalog = &catalog.Catalog{Contracts: c.Catalog.Contracts, Queues: []catalog.Queue{q}}
		c.Handlers = register
	}
}

// message is one of message.v1.
func message(t *testing.T, id, eventType string, data, attributes map[string]any) contract.Message {
	t.Helper()
	body, err := json.Marshal(map[string]any{"id": id, "type": eventType, "timestamp": "2026-03-02T10:00:00Z", "version": 1, "data": data})
	require.NoError(t, err)
	m := contract.Message{Data: body, Attributes: map[string]string{
		"contract": contract.MessageV1, "event_id": id, "event_type": eventType, "routing_key": eventType, "ordering_key": "unknown",
	}}
	for name, value := range attributes {
		m.Attributes[name] = fmt.Sprint(value)
	}
	return m
}

// confirmed is an event of the test's own queue.
func confirmed(t *testing.T, id string, attributes map[string]any) contract.Message {
	t.Helper()
	return message(t, id, "order.confirmed", map[string]any{"order_id": id}, attributes)
}

// deliver pushes a message to a worker, and returns its answer's status, outcome and reason.
func (a *apart) deliver(w http.Handler, queue string, m contract.Message) (code int, outcome, reason string) {
	a.t.Helper()
	a.nth++
	return pushed(a.t, w, "/push/"+queue, fmt.Sprint("m", a.nth), a.clock.Now(), m)
}

// either has a subtest for each pair of the two workers: one that releases what waits, and one that handles it.
func either(t *testing.T, test func(t *testing.T, releases, handles string, pick func(*apart, string) *worker.Worker)) {
	t.Helper()
	for _, releases := range []string{"behind", "ahead"} {
		for _, handles := range []string{"behind", "ahead"} {
			t.Run(releases+" releases, "+handles+" handles", func(t *testing.T) {
				t.Parallel()
				test(t, releases, handles, func(a *apart, name string) *worker.Worker {
					return map[string]*worker.Worker{"behind": a.behind, "ahead": a.ahead}[name]
				})
			})
		}
	}
}

// TestWaitEndsOnceBetweenClocksFiveMinutesApart: what waits until a time is handled once, at most five minutes early or
// late, and no attempt is lost or counted twice. An alarm that rings early finds nothing due; the minute releases it.
func TestWaitEndsOnceBetweenClocksFiveMinutesApart(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		fails      int
		attributes map[string]any
		wait       time.Duration
	}{
		"a failed attempt":   {fails: 3, wait: 90 * time.Second},
		"a time of delivery": {attributes: map[string]any{"deliver_at": "2026-03-02T10:10:00Z"}, wait: 10 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			either(t, func(t *testing.T, releases, handles string, pick func(*apart, string) *worker.Worker) {
				calls := 0
				a := newApart(t, ours(func(r *handler.Registry) {
					r.Tx("ours", func(context.Context, handler.Event) (handler.Effect, error) {
						if calls++; calls <= test.fails {
							return handler.Effect{}, retry.Transient("not_yet", nil)
						}
						return handler.Effect{Result: "done"}, nil
					})
				}))
				a.deliver(a.behind, "ours", confirmed(t, "e1", test.attributes))
				took := time.Duration(-1)
				for step := range 40 {
					task(t, pick(a, releases), "release-delayed")
					for _, m := range a.broker.take("ours") {
						code, outcome, reason := a.deliver(pick(a, handles), "ours", m)
						require.Less(t, code, 300, reason)
						if outcome == "processed" {
							require.Negative(t, took, "once")
							took = time.Duration(step) * 30 * time.Second
						}
					}
					a.clock.Next(30 * time.Second)
				}
				require.Equal(t, test.fails+1, calls)
				most := float64(max(test.fails, 1))*fiveMinutes.Seconds() + 30
				require.InDelta(t, test.wait.Seconds(), took.Seconds(), most, "each wait is early or late by five minutes at most")
			})
		})
	}
}
