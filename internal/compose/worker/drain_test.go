package worker_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/compose/worker"
	"billhook/internal/contract"
	"billhook/internal/pipeline/handler"
	"billhook/internal/platform/serve"
	"billhook/internal/platform/store"
	"billhook/internal/retry"
)

// ending is a worker that is told to stop while an event is under way, and its successor
// on the same store, later by whatever passes. What the first one's handler does after the
// drain is what a killed process does: nothing, until the test is over.
type ending struct {
	t       *testing.T
	clock   atomic.Int64
	configs worker.Config
	// inside is told once by what is under way.
	inside chan struct{}
	// over is closed at the end of the test.
	over chan struct{}
}

func newEnding(t *testing.T, queue catalog.Queue) *ending {
	t.Helper()
	e := &ending{t: t, inside: make(chan struct{}, 1), over: make(chan struct{})}
	e.clock.Store(time.Date(2026, 3, 2, 10, 15, 0, 0, time.UTC).UnixNano())
	queue.ID, queue.Enabled, queue.Contract, queue.Pool = "orders", true, contract.PayNowV1, "p"
	queue.Concurrency, queue.RememberFor, queue.MaxAttempts = 10, 30*24*time.Hour, 5
	queue.AckDeadline, queue.Lease, queue.HandlerTimeout = time.Minute, 2*time.Minute, 30*time.Second
	queue.DeadLetter = catalog.DeadLetter{Topic: "orders-dlq", Retention: 14 * 24 * time.Hour}
	queue.Handlers = map[string]catalog.Handler{"order.paid": {Name: "ours", MaxAttempts: 5, Timeout: 30 * time.Second, Backoff: queue.Backoff, Emits: queue.Handlers["order.paid"].Emits}}
	e.configs = config(t, func(c *worker.Config) {
		c.Catalog = &catalog.Catalog{Contracts: c.Catalog.Contracts, Queues: []catalog.Queue{queue}, OutboundTopics: []catalog.Topic{{ID: "told"}}}
		c.Now = func() time.Time { return time.Unix(0, e.clock.Load()).UTC() }
		c.Publisher = somewhere{}
	})
	return e
}

// worker is one with these handlers and this broker.
func (e *ending) worker(change func(*worker.Config)) *worker.Worker {
	e.t.Helper()
	c := e.configs
	change(&c)
	w, err := worker.New(c)
	require.NoError(e.t, err)
	return w
}

// cut delivers the event to the worker, and stops it when the event is under way: by the
// end of its drain the answer is cut off.
func (e *ending) cut(first *worker.Worker) {
	e.t.Helper()
	listener, err := serve.Listen(e.t.Context(), "127.0.0.1", "0")
	require.NoError(e.t, err)
	ctx, stop := context.WithCancel(e.t.Context())
	ended, answered := make(chan error, 1), make(chan error, 1)
	server := &serve.Server{
		Name: "worker", Handler: first, Log: slog.New(slog.DiscardHandler), Drain: time.Millisecond,
		ReadTimeout: time.Minute, Longest: first.Longest(), Draining: first.Drain,
	}
	go func() { ended <- server.Run(ctx, listener) }()
	go func() {
		request := e.push()
		sent, err := http.NewRequestWithContext(e.t.Context(), http.MethodPost, "http://"+listener.Addr().String()+"/push/orders", request.Body)
		if err == nil {
			var response *http.Response
			if response, err = (&http.Transport{DisableKeepAlives: true}).RoundTrip(sent); err == nil {
				err = response.Body.Close()
			}
		}
		answered <- err
	}()
	<-e.inside
	stop()
	require.ErrorIs(e.t, <-ended, context.DeadlineExceeded)
	require.Error(e.t, <-answered, "the broker hears nothing, and delivers again")
}

func (e *ending) push() *http.Request {
	e.t.Helper()
	data, err := contract.Of(&contract.PayNow{
		EventID: "e1", EventType: "order.paid", Timestamp: "2026-03-02T10:15:00Z",
		Data: contract.PayNowData{Order: &contract.Order{ID: "o1", CustomerID: "c1", Items: []contract.Item{{ProductID: "p1", Quantity: 1}}}},
	}).Append(nil)
	require.NoError(e.t, err)
	return pushOf(e.t, "/push/orders", "1", morning, contract.Message{Data: data, Attributes: map[string]string{
		"event_id": "e1", "event_type": "order.paid", "ordering_key": "unknown",
	}})
}

// redelivered is how the worker answers the event that comes again.
func (e *ending) redelivered(w *worker.Worker) int {
	e.t.Helper()
	answer := httptest.NewRecorder()
	w.ServeHTTP(answer, e.push())
	return answer.Code
}

func (e *ending) pass(d time.Duration) { e.clock.Add(int64(d)) }

// effects is a Tx handler whose effect is one document, created if absent.
func effects(before func()) handler.Tx {
	return func(context.Context, handler.Event) (handler.Effect, error) {
		before()
		return handler.Effect{Result: "done", Writes: []store.Write{store.Create(store.Key{Collection: "effects", ID: "e1"}, map[string]any{"n": int64(1)})}}, nil
	}
}

func (e *ending) happened() bool {
	_, err := e.configs.Store.Get(e.t.Context(), store.Key{Collection: "effects", ID: "e1"})
	return err == nil
}

// Before its commit an event that is cut off has done nothing, and nobody has counted it.
func TestATxEventThatADrainCutsOffIsDoneByTheNextWorkerOrNotAtAll(t *testing.T) {
	t.Parallel()
	e := newEnding(t, catalog.Queue{})
	defer close(e.over)
	first := e.worker(func(c *worker.Config) {
		c.Handlers = func(r *handler.Registry) {
			r.Tx("ours", effects(func() {
				e.inside <- struct{}{}
				<-e.over
			}))
		}
	})
	e.cut(first)
	require.False(t, e.happened())
	next := e.worker(func(c *worker.Config) {
		c.Handlers = func(r *handler.Registry) { r.Tx("ours", effects(func() {})) }
	})
	require.Equal(t, http.StatusOK, e.redelivered(next))
	require.True(t, e.happened())
	require.Equal(t, http.StatusNoContent, e.redelivered(next), "once")
}

// Behind its commit an event is done, whether somebody heard of it or not; what it has
// emitted is in the outbox, and published by the task.
func TestWhatATxEventHasEmittedBeforeItsDrainIsPublishedByTheTask(t *testing.T) {
	t.Parallel()
	e := newEnding(t, catalog.Queue{Handlers: map[string]catalog.Handler{"order.paid": {Emits: []string{"told"}}}})
	defer close(e.over)
	emits := func(r *handler.Registry) {
		r.Tx("ours", func(ctx context.Context, event handler.Event) (handler.Effect, error) {
			effect, err := effects(func() {})(ctx, event)
			effect.Emit = []handler.Emission{{To: "told", Body: contract.Of(&contract.Envelope{Action: "renewal"})}}
			return effect, err
		}, "told")
	}
	first := e.worker(func(c *worker.Config) { c.Handlers, c.Publisher = emits, stuck{e} })
	e.cut(first)
	require.True(t, e.happened())

	broker := &shelf{}
	next := e.worker(func(c *worker.Config) { c.Handlers, c.Publisher = emits, broker })
	require.Equal(t, http.StatusNoContent, e.redelivered(next), "it is known")
	require.Empty(t, broker.taken)
	e.pass(time.Hour)
	require.EqualValues(t, 1, task(t, next, "relay-outbox")["published"])
	require.Len(t, broker.taken, 1)
	e.pass(time.Hour)
	require.EqualValues(t, 0, task(t, next, "relay-outbox")["published"])
}

// stuck is a broker that does not answer any more.
type stuck struct{ e *ending }

func (s stuck) Publish(context.Context, string, contract.Message) (string, error) {
	s.e.inside <- struct{}{}
	<-s.e.over
	return "", context.Canceled
}

// The lease of a leased event stands: nobody runs beside what may still go on outside.
// When it has ended, the other side is asked before anything is done again.
func TestTheLeaseOfAnEventThatADrainCutsOffStandsAndThenTheOtherSideIsAsked(t *testing.T) {
	t.Parallel()
	for name, done := range map[string]bool{"it was done": true, "it was not": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newEnding(t, catalog.Queue{})
			late := make(chan struct{})
			finish := sync.OnceFunc(func() { close(e.over); <-late })
			first := e.worker(func(c *worker.Config) {
				c.Handlers = func(r *handler.Registry) {
					r.Leased("ours", handler.Leased{SafeToRepeat: true, Do: func(context.Context, handler.Event) (handler.Effect, error) {
						defer close(late)
						e.inside <- struct{}{}
						<-e.over
						return handler.Effect{Result: "late"}, nil
					}})
				}
			})
			defer finish()
			e.cut(first)

			var asked, did atomic.Int64
			next := e.worker(func(c *worker.Config) {
				c.Handlers = func(r *handler.Registry) {
					r.Leased("ours", handler.Leased{
						Reconcile: func(context.Context, handler.Event) (handler.Effect, bool, error) {
							asked.Add(1)
							return handler.Effect{Result: "reconciled"}, done, nil
						},
						Do: func(context.Context, handler.Event) (handler.Effect, error) {
							did.Add(1)
							return handler.Effect{Result: "done"}, nil
						},
					})
				}
			})
			require.Equal(t, http.StatusServiceUnavailable, e.redelivered(next), "the lease stands")
			require.Zero(t, asked.Load()+did.Load())
			e.pass(2*time.Minute + time.Second)
			require.Equal(t, http.StatusOK, e.redelivered(next))
			require.EqualValues(t, 1, asked.Load())
			require.Equal(t, done, did.Load() == 0)
			finish() // a process that was not killed after all
			require.Equal(t, http.StatusNoContent, e.redelivered(next))
			require.EqualValues(t, 1, asked.Load())
		})
	}
}

// What is kept for later is a document: no process has to live for it.
func TestWhatIsKeptForLaterOutlivesItsWorker(t *testing.T) {
	t.Parallel()
	e := newEnding(t, catalog.Queue{Backoff: retry.Policy{Base: time.Hour, Max: time.Hour, Multiplier: 1}})
	handlers := func(r *handler.Registry) {
		r.Tx("ours", func(context.Context, handler.Event) (handler.Effect, error) {
			return handler.Effect{}, retry.Transient("not_today", nil)
		})
	}
	first := e.worker(func(c *worker.Config) { c.Handlers = handlers })
	require.Equal(t, http.StatusOK, e.redelivered(first), "kept, and acknowledged")
	first.Drain()
	require.Equal(t, http.StatusServiceUnavailable, e.redelivered(first))

	broker := &shelf{}
	next := e.worker(func(c *worker.Config) { c.Handlers, c.Publisher = handlers, broker })
	require.EqualValues(t, 0, task(t, next, "release-delayed")["published"])
	e.pass(time.Hour + time.Second)
	require.EqualValues(t, 1, task(t, next, "release-delayed")["published"])
	require.Len(t, broker.taken, 1)
	require.Equal(t, "e1", broker.taken[0].Attributes["event_id"])
}
