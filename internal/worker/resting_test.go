package worker_test

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/alarm"
	"billhook/internal/contract"
	"billhook/internal/delivery"
	"billhook/internal/lane"
	"billhook/internal/standin"
	"billhook/internal/store"
	"billhook/internal/worker"
)

// inProcess makes a handler a server without a network, so that time in a bubble passes.
type inProcess struct{ http.Handler }

func (p inProcess) RoundTrip(r *http.Request) (*http.Response, error) {
	recorder := httptest.NewRecorder()
	p.ServeHTTP(recorder, r)
	return recorder.Result(), nil
}

// callee is a target without a network.
type callee struct {
	mu   sync.Mutex
	down bool
	// asked counts requests. applied counts, by event, those that were answered.
	asked   int
	applied map[string]int
}

func (c *callee) RoundTrip(r *http.Request) (*http.Response, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked++
	if c.down {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	}
	if r.Method != http.MethodPost {
		return &http.Response{StatusCode: http.StatusNotFound, Body: http.NoBody, Request: r}, nil
	}
	c.applied[r.Header["idempotency-key"][0]]++
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Request: r}, nil
}

func (c *callee) is(down bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.down = down
}

func (c *callee) has() (asked int, applied map[string]int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.asked, maps.Clone(c.applied)
}

// outage is a worker with a broker that pushes one queue to it, and two targets, of which the
// first is down. Types of the queue are posted to where places says.
type outage struct {
	simulator  *standin.Simulator
	db         store.Store
	queue      catalog.Queue
	sick, well *callee
}

func startOutage(t *testing.T, places map[string]string) *outage {
	t.Helper()
	o := &outage{sick: &callee{down: true, applied: map[string]int{}}, well: &callee{applied: map[string]int{}}}
	var simulator *standin.Simulator
	w, err := worker.New(config(t, func(c *worker.Config) {
		var ok bool
		o.queue, ok = c.Catalog.Queue("pay-subscription-update")
		require.True(t, ok)
		entry, _ := o.queue.Handler("renewal")
		o.queue.Handlers = map[string]catalog.Handler{}
		for eventType, target := range places {
			post := entry
			post.Post = catalog.Post{Target: target, Path: "/" + eventType}
			post.Name = "post:" + target + post.Post.Path
			o.queue.Handlers[eventType] = post
		}
		c.Catalog = &catalog.Catalog{Contracts: c.Catalog.Contracts, Queues: []catalog.Queue{o.queue}}
		c.Targets = delivery.Targets{}
		for name, at := range map[string]*callee{"sick": o.sick, "well": o.well} {
			target, err := delivery.New(delivery.Config{
				Target: catalog.Target{
					Name: name, Scheme: catalog.SchemeGeneric, Internal: true, Timeouts: catalog.Timeouts{Connect: time.Second, Total: 10 * time.Second},
					Breaker: catalog.Breaker{Failures: 5, Rest: 5 * time.Minute},
				},
				BaseURL: "http://" + name + ".example", Secret: "a-secret-of-more-than-24-bytes", Now: time.Now, Client: &http.Client{Transport: at},
			})
			require.NoError(t, err)
			c.Targets[name] = target
		}
		c.AfterFunc = alarm.AfterFunc
		c.Publisher = publisher(func(ctx context.Context, topic string, m contract.Message) (string, error) {
			return simulator.Publish(ctx, topic, m)
		})
		o.db = c.Store
	}))
	require.NoError(t, err)
	simulator, err = standin.NewSimulator(standin.SimulatorConfig{
		ProjectID: "p", Subscriptions: standin.Topology([]catalog.Queue{o.queue}), PushBaseURL: "http://worker", Client: &http.Client{Transport: inProcess{w}},
	})
	require.NoError(t, err)
	o.simulator = simulator
	t.Cleanup(func() { w.Drain(); require.NoError(t, simulator.Close()) })
	return o
}

// publisher is a function that publishes.
type publisher func(ctx context.Context, topic string, m contract.Message) (string, error)

func (p publisher) Publish(ctx context.Context, topic string, m contract.Message) (string, error) {
	return p(ctx, topic, m)
}

// publish sends an event of each number, each of a subscription of its own.
func (o *outage) publish(t *testing.T, action string, from, to int) {
	t.Helper()
	for i := from; i < to; i++ {
		id := fmt.Sprintf("evt-%d", i)
		data, err := contract.Of(&contract.Envelope{
			ID: id, Action: action, CreatedAt: "2026-03-02T10:15:00Z", Payload: contract.Payload{SubscriptionID: "subscription-" + id},
		}).Append(nil)
		require.NoError(t, err)
		_, err = o.simulator.Publish(t.Context(), o.queue.Topic(), contract.Message{
			Data: data, OrderingKey: "subscription-" + id,
			Attributes: map[string]string{"event_id": id, "event_type": action, "contract": contract.EnvelopeV1, "ordering_key": "subscription-" + id},
		})
		require.NoError(t, err)
	}
}

func (o *outage) kept(t *testing.T) int {
	t.Helper()
	page, err := o.db.Query(t.Context(), store.Query{Collection: lane.Delayed.Entries(), Limit: 1000})
	require.NoError(t, err)
	return len(page.Documents)
}

func once(from, to int) map[string]int {
	all := map[string]int{}
	for i := from; i < to; i++ {
		all[fmt.Sprintf("evt-%d", i)] = 1
	}
	return all
}

func TestTheBacklogOfTheOnlyTargetStaysWithTheBrokerWhileItsBreakerIsOpen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := startOutage(t, map[string]string{"initial": "sick", "renewal": "sick"})
		const events = 60
		o.publish(t, "initial", 0, events/2)
		o.publish(t, "renewal", events/2, events)
		<-time.After(2 * time.Hour)
		synctest.Wait()
		asked, applied := o.sick.has()
		stats := o.simulator.Stats()[o.queue.PushSubscription()]
		require.Empty(t, applied)
		// Five until it opens, and one for each rest after that; an event is asked about before it
		// is posted again.
		require.LessOrEqual(t, asked, 5+2*12)
		require.Positive(t, stats.PushBackoff, "the subscription slows down")
		require.LessOrEqual(t, o.kept(t), 5, "what was not tried is not kept")
		require.GreaterOrEqual(t, stats.Backlog, events-asked)
		o.sick.is(false)
		<-time.After(4 * time.Hour)
		synctest.Wait()
		_, applied = o.sick.has()
		require.Equal(t, once(0, events), applied)
		require.Empty(t, o.simulator.Held(o.queue.DeadLetterHold()))
		require.Zero(t, o.kept(t))
	})
}

func TestAnOpenBreakerKeepsItsMessagesAndLetsTheOthersThrough(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := startOutage(t, map[string]string{"initial": "sick", "renewal": "well"})
		const events = 60
		o.publish(t, "initial", 0, events/2)
		<-time.After(time.Minute)
		o.publish(t, "renewal", events/2, events)
		<-time.After(3 * time.Second)
		synctest.Wait()
		asked, applied := o.sick.has()
		require.Empty(t, applied)
		require.LessOrEqual(t, asked, 5)
		_, applied = o.well.has()
		require.Equal(t, once(events/2, events), applied, "within seconds, whatever rests")
		stats := o.simulator.Stats()[o.queue.PushSubscription()]
		require.Zero(t, stats.Backlog, "the broker is done with all of them")
		require.LessOrEqual(t, stats.Nacked, 1+60/10, "the budget of nacks holds")
		require.Equal(t, events/2, o.kept(t))
		o.sick.is(false)
		<-time.After(4 * time.Hour)
		synctest.Wait()
		_, applied = o.sick.has()
		require.Equal(t, once(0, events/2), applied)
		require.Zero(t, o.kept(t))
		require.Empty(t, o.simulator.Held(o.queue.DeadLetterHold()))
	})
}
