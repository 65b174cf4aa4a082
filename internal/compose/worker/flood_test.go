package worker_test

import (
	"context"
	"encoding/json"
	"fmt"
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
	"billhook/internal/platform/standin"
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
	// takes is how long it takes for each request; 0: it is down.
	takes time.Duration
	mu    sync.Mutex
	// at is when an event was applied.
	at map[string]time.Time
}

func (c *callee) RoundTrip(r *http.Request) (*http.Response, error) {
	select {
	case <-time.After(c.takes):
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
	if c.takes == 0 {
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
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at[posted.ID] = time.Now()
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Request: r}, nil
}

// publisher is a function that publishes.
type publisher func(ctx context.Context, topic string, m contract.Message) (string, error)

func (p publisher) Publish(ctx context.Context, topic string, m contract.Message) (string, error) {
	return p(ctx, topic, m)
}

// waits is the longest wait of the events of a queue beside another queue, which gets so many events for each of the
// first one's and posts them to a sick target.
func waits(t *testing.T, flood int, sick *callee) (worst time.Duration) {
	t.Helper()
	const events, every = 100, 20 * time.Millisecond
	well := &callee{takes: 50 * time.Millisecond, at: map[string]time.Time{}}
	var queues []catalog.Queue
	var simulator *standin.Simulator
	w := open(t, func(c *worker.Config) {
		like, ok := c.Catalog.Queue("pay-subscription-update")
		require.True(t, ok)
		entry, _ := like.Handler("renewal")
		c.Targets = delivery.Targets{}
		for name, at := range map[string]*callee{"well": well, "sick": sick} {
			q := like
			if entry.Name, entry.Post = "post:"+name, (catalog.Post{Target: name, Path: "/"}); name == "sick" {
				q.ID, q.DeadLetter.Topic, q.Concurrency = "sick", "sick-dlq", 2
			}
			q.Handlers = map[string]catalog.Handler{"renewal": entry}
			queues = append(queues, q)
			var err error
			c.Targets[name], err = delivery.New(delivery.Config{
				Target: catalog.Target{
					Name: name, Scheme: catalog.SchemeGeneric, Internal: true, Timeouts: catalog.Timeouts{Connect: time.Second, Total: 10 * time.Second},
					Breaker: catalog.Breaker{Failures: 5, Rest: 5 * time.Minute},
				},
				BaseURL: "http://" + name + ".example", Secret: secret, Now: time.Now, Client: &http.Client{Transport: at},
			})
			require.NoError(t, err)
		}
		c.Catalog = &catalog.Catalog{Contracts: c.Catalog.Contracts, Queues: queues}
		c.AfterFunc = alarm.AfterFunc
		c.Publisher = publisher(func(ctx context.Context, topic string, m contract.Message) (string, error) {
			return simulator.Publish(ctx, topic, m)
		})
	})
	var err error
	simulator, err = standin.NewSimulator(standin.SimulatorConfig{
		ProjectID: "p", Subscriptions: standin.Topology(queues), PushBaseURL: "http://worker", Client: &http.Client{Transport: inProcess{w}},
	})
	require.NoError(t, err)
	t.Cleanup(func() { w.Drain(); require.NoError(t, simulator.Close()) })
	send := func(topic, id string) {
		data, err := asks(id, "renewal", contract.Payload{SubscriptionID: "subscription-" + id}).Append(nil)
		require.NoError(t, err)
		_, err = simulator.Publish(t.Context(), topic, contract.Message{Data: data, OrderingKey: "subscription-" + id, Attributes: map[string]string{
			"event_id": id, "event_type": "renewal", "contract": contract.EnvelopeV1, "ordering_key": "subscription-" + id,
		}})
		require.NoError(t, err)
	}
	sent := map[string]time.Time{}
	for i := range events {
		for n := range flood {
			send("sick", fmt.Sprintf("flood-%d-%d", i, n))
		}
		id := fmt.Sprint("evt-", i)
		sent[id] = time.Now()
		send("pay-subscription-update", id)
		<-time.After(every)
	}
	<-time.After(10 * time.Second)
	synctest.Wait()
	require.Len(t, well.at, events)
	for id, at := range sent {
		worst = max(worst, well.at[id].Sub(at))
	}
	return worst
}

// TestQueueThatIsFloodedOrHangsCostsAnotherNothing runs both in the time of a bubble, in which work takes no time: what
// one queue adds to another's waits is what it holds of what they share. The one has two slots.
func TestQueueThatIsFloodedOrHangsCostsAnotherNothing(t *testing.T) {
	t.Parallel()
	for name, takes := range map[string]time.Duration{"ten times what it can handle": 200 * time.Millisecond, "a target that hangs": time.Hour, "a target that is down": 0} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				without := waits(t, 0, &callee{})
				require.Equal(t, without, waits(t, 2, &callee{takes: takes, at: map[string]time.Time{}}))
			})
		})
	}
}
