package worker_test

import (
	"context"
	"encoding/json"
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
	"billhook/internal/compose/worker"
	"billhook/internal/contract"
	"billhook/internal/pipeline/alarm"
	"billhook/internal/pipeline/delivery"
	"billhook/internal/pipeline/lane"
	"billhook/internal/platform/standin"
	"billhook/internal/platform/store"
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
	// takes is how long it takes for each request.
	takes time.Duration

	mu   sync.Mutex
	down bool
	// asked counts requests. applied counts, by event, those that were answered, the last at the
	// time in at.
	asked   int
	applied map[string]int
	at      map[string]time.Time
}

func newCallee(takes time.Duration) *callee {
	return &callee{takes: takes, applied: map[string]int{}, at: map[string]time.Time{}}
}

func (c *callee) RoundTrip(r *http.Request) (*http.Response, error) {
	c.mu.Lock()
	c.asked++
	c.mu.Unlock()
	select {
	case <-time.After(c.takes):
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.down {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	}
	if r.Method != http.MethodPost {
		return &http.Response{StatusCode: http.StatusNotFound, Body: http.NoBody, Request: r}, nil
	}
	var posted struct {
		ID string `json:"source_event_id"`
	}
	if err := json.NewDecoder(r.Body).Decode(&posted); err != nil {
		return nil, err
	}
	id := posted.ID
	c.applied[id]++
	c.at[id] = time.Now()
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

// site is a worker with a broker that pushes to it, and targets.
type site struct {
	simulator *standin.Simulator
	db        store.Store
	queues    []catalog.Queue
}

// startSite starts a worker for queues that are like that of payments' updates, and differ in
// what change says. Each event type of them is posted where places says.
func startSite(t *testing.T, queues []map[string]string, targets map[string]*callee, change func(*catalog.Queue)) *site {
	t.Helper()
	s := &site{}
	w, err := worker.New(config(t, func(c *worker.Config) {
		like, ok := c.Catalog.Queue("pay-subscription-update")
		require.True(t, ok)
		entry, _ := like.Handler("renewal")
		for i, places := range queues {
			q := like
			if i > 0 {
				q.ID, q.DeadLetter.Topic = fmt.Sprintf("other-%d", i), fmt.Sprintf("other-%d-dlq", i)
				change(&q)
			}
			q.Handlers = map[string]catalog.Handler{}
			for eventType, target := range places {
				post := entry
				post.Post = catalog.Post{Target: target, Path: "/" + eventType}
				post.Name = fmt.Sprint("post:", i, target, post.Post.Path)
				q.Handlers[eventType] = post
			}
			s.queues = append(s.queues, q)
		}
		c.Catalog = &catalog.Catalog{Contracts: c.Catalog.Contracts, Queues: s.queues}
		c.Targets = delivery.Targets{}
		for name, at := range targets {
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
			return s.simulator.Publish(ctx, topic, m)
		})
		s.db = c.Store
	}))
	require.NoError(t, err)
	s.simulator, err = standin.NewSimulator(standin.SimulatorConfig{
		ProjectID: "p", Subscriptions: standin.Topology(s.queues), PushBaseURL: "http://worker", Client: &http.Client{Transport: inProcess{w}},
	})
	require.NoError(t, err)
	t.Cleanup(func() { w.Drain(); require.NoError(t, s.simulator.Close()) })
	return s
}

// outage is a site of one queue and two targets, of which the first is down.
type outage struct {
	*site
	queue      catalog.Queue
	sick, well *callee
}

func startOutage(t *testing.T, places map[string]string) *outage {
	t.Helper()
	o := &outage{sick: newCallee(0), well: newCallee(0)}
	o.sick.is(true)
	o.site = startSite(t, []map[string]string{places}, map[string]*callee{"sick": o.sick, "well": o.well}, nil)
	o.queue = o.queues[0]
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
		o.send(t, o.queue, action, fmt.Sprintf("evt-%d", i))
	}
}

// send publishes one event of a subscription of its own.
func (s *site) send(t *testing.T, q catalog.Queue, action, id string) {
	t.Helper()
	data, err := contract.Of(&contract.Envelope{
		ID: id, Action: action, CreatedAt: "2026-03-02T10:15:00Z", Payload: contract.Payload{SubscriptionID: "subscription-" + id},
	}).Append(nil)
	require.NoError(t, err)
	_, err = s.simulator.Publish(t.Context(), q.Topic(), contract.Message{
		Data: data, OrderingKey: "subscription-" + id,
		Attributes: map[string]string{"event_id": id, "event_type": action, "contract": contract.EnvelopeV1, "ordering_key": "subscription-" + id},
	})
	require.NoError(t, err)
}

func (s *site) kept(t *testing.T) int {
	t.Helper()
	page, err := s.db.Query(t.Context(), store.Query{Collection: lane.Delayed.Entries(), Limit: 1000})
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
		// Five until it opens, those that were under way then, and one for each rest after that, and
		// as many questions: an event is asked about before it is posted again.
		require.LessOrEqual(t, asked, 5+o.queue.Concurrency+2*12)
		require.Positive(t, stats.PushBackoff, "the subscription slows down")
		require.LessOrEqual(t, o.kept(t), 5+o.queue.Concurrency, "what was not tried is not kept")
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
		require.LessOrEqual(t, asked, 5+o.queue.Concurrency, "those that were under way when it opened")
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

// TestWhatFloodsOrHangsOneQueueCostsAnotherNothing runs both in the time of a bubble, in which
// work takes no time: what one queue adds to another's waits is what it holds of what they share.
func TestWhatFloodsOrHangsOneQueueCostsAnotherNothing(t *testing.T) {
	t.Parallel()
	const payments, every = 100, 20 * time.Millisecond
	// One queue has two slots, and its target takes 200 ms: it handles 10 events a second. Beside
	// it, a queue has 50 events a second of its own.
	waits := func(t *testing.T, flood int, sick *callee) (worst time.Duration) {
		t.Helper()
		well := newCallee(50 * time.Millisecond)
		s := startSite(t, []map[string]string{{"renewal": "well"}, {"renewal": "sick"}}, map[string]*callee{"well": well, "sick": sick},
			func(q *catalog.Queue) { q.Concurrency = 2 })
		sent := map[string]time.Time{}
		for i := range payments {
			for n := range flood {
				s.send(t, s.queues[1], "renewal", fmt.Sprintf("flood-%d-%d", i, n))
			}
			id := fmt.Sprintf("evt-%d", i)
			sent[id] = time.Now()
			s.send(t, s.queues[0], "renewal", id)
			<-time.After(every)
		}
		<-time.After(10 * time.Second)
		synctest.Wait()
		_, applied := well.has()
		require.Equal(t, once(0, payments), applied)
		for id, at := range sent {
			worst = max(worst, well.at[id].Sub(at))
		}
		return worst
	}
	for name, sick := range map[string]func() *callee{
		"ten times what it can handle": func() *callee { return newCallee(200 * time.Millisecond) },
		"a target that hangs":          func() *callee { return newCallee(time.Hour) },
		"a target that is down": func() *callee {
			down := newCallee(0)
			down.is(true)
			return down
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				without := waits(t, 0, newCallee(0))
				require.Equal(t, without, waits(t, 2, sick()))
			})
		})
	}
}
