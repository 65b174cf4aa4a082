package worker_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/apps/journal"
	"billhook/internal/apps/orders"
	"billhook/internal/compose/worker"
	"billhook/internal/contract"
	"billhook/internal/dedupe"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/pipeline/handler"
	"billhook/internal/pipeline/lane"
	"billhook/internal/pipeline/pause"
	"billhook/internal/pipeline/tasks"
	"billhook/internal/platform/audit"
	"billhook/internal/platform/gcp/auth"
	"billhook/internal/platform/signature"
	"billhook/internal/platform/standin"
	"billhook/internal/platform/standin/clocktest"
	"billhook/internal/platform/store"
	"billhook/internal/retry"
)

// fiveMinutes is how far apart the clocks of the two workers are.
const fiveMinutes = 5 * time.Minute

// shelves is a broker that keeps what is published until somebody takes it.
type shelves struct {
	mu    sync.Mutex
	taken []published
}

type published struct {
	topic   string
	message contract.Message
}

func (s *shelves) Publish(_ context.Context, topic string, m contract.Message) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.taken = append(s.taken, published{topic, m})
	return "1", nil
}

// take returns what is on the shelves of a topic, and empties them all.
func (s *shelves) take(topic string) (messages []contract.Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.taken {
		if p.topic == topic {
			messages = append(messages, p.message)
		}
	}
	s.taken = nil
	return messages
}

// apart is two workers on one store and one broker. The clock is that of the worker behind, and the
// other worker's is ahead of it.
type apart struct {
	t      *testing.T
	clock  *clocktest.Clock
	broker *shelves
	store  store.Store
	behind *worker.Worker
	ahead  *worker.Worker
	nth    int
}

func newApart(t *testing.T, by time.Duration, change func(*worker.Config)) *apart {
	t.Helper()
	a := &apart{t: t, clock: clocktest.New(time.Date(2026, 3, 2, 10, 0, 0, 0, time.UTC)), broker: &shelves{}}
	c := config(t, change)
	c.Publisher, a.store = a.broker, c.Store
	open := func(now func() time.Time) *worker.Worker {
		own := c
		own.Now = now
		w, err := worker.New(own)
		require.NoError(t, err)
		return w
	}
	a.behind = open(a.clock.Now)
	a.ahead = open(func() time.Time { return a.clock.Now().Add(by) })
	return a
}

// ours has the workers serve one queue, whose handler is the test's own.
func ours(register func(*handler.Registry), change func(*catalog.Queue)) func(*worker.Config) {
	return func(c *worker.Config) {
		q := catalog.Queue{
			ID: "ours", Enabled: true, Contract: contract.MessageV1, Pool: "p", Concurrency: 10, RememberFor: 48 * 24 * time.Hour, MaxAttempts: 5,
			AckDeadline: time.Minute, Lease: 2 * time.Minute, HandlerTimeout: 30 * time.Second, Backoff: retry.Policy{Schedule: []time.Duration{0, 30 * time.Second}},
			DeadLetter: catalog.DeadLetter{Topic: "ours-dlq", Retention: 14 * 24 * time.Hour},
		}
		if change != nil {
			change(&q)
		}
		q.Handlers = map[string]catalog.Handler{"order.confirmed": {Name: "ours", MaxAttempts: 5, Timeout: 30 * time.Second, Backoff: q.Backoff}}
		c.Catalog, c.Handlers = &catalog.Catalog{Contracts: c.Catalog.Contracts, Queues: []catalog.Queue{q}}, register
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

// deliver pushes a message to a worker, and returns its answer's status, outcome and reason.
func (a *apart) deliver(w http.Handler, queue string, m contract.Message) (code int, outcome, reason string) {
	a.t.Helper()
	a.nth++
	return pushed(a.t, w, "/push/"+queue, fmt.Sprint("m", a.nth), a.clock.Now(), m)
}

// task has a worker do a task, and returns what it did.
func (a *apart) task(w http.Handler, name string) map[string]any { return task(a.t, w, name) }

// task has a worker do a task, and returns what it did.
func task(t *testing.T, w http.Handler, name string) map[string]any {
	t.Helper()
	server := httptest.NewServer(w)
	defer server.Close()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+"/tasks/"+name, nil)
	require.NoError(t, err)
	done, err := tasks.Call(server.Client(), request)
	require.NoError(t, err)
	return done
}

// either has a subtest for each of the two workers.
func either(t *testing.T, test func(t *testing.T, name string, pick func(*apart) *worker.Worker)) {
	t.Helper()
	for name, pick := range map[string]func(*apart) *worker.Worker{
		"behind": func(a *apart) *worker.Worker { return a.behind }, "ahead": func(a *apart) *worker.Worker { return a.ahead },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, name, pick)
		})
	}
}

// TestTheTimeoutOfAnOrderBetweenClocksFiveMinutesApart has each of the workers create the order, release
// its timeout and handle it. The order is cancelled by its timeout, at most five minutes early or late, or
// confirmed by a payment that comes in between: it never waits for ever.
func TestTheTimeoutOfAnOrderBetweenClocksFiveMinutesApart(t *testing.T) {
	t.Parallel()
	const queue = "orders-process"
	either(t, func(t *testing.T, creates string, creator func(*apart) *worker.Worker) {
		either(t, func(t *testing.T, releases string, releaser func(*apart) *worker.Worker) {
			either(t, func(t *testing.T, handles string, handler func(*apart) *worker.Worker) {
				for _, paid := range []bool{false, true} {
					a := newApart(t, fiveMinutes, nil)
					_, err := (&orders.Keeper{Store: a.store, Now: a.clock.Now, NewID: func() string { return "op" }}).
						Set(t.Context(), dedupe.DefaultTenant, "cap", 5, orders.Change{Who: "token", Why: "test"})
					require.NoError(t, err)
					created := message(t, "e1", "order.created", map[string]any{
						"order_id": "o1", "user_id": "usr_42", "total": 100, "items_count": 1, "items": []any{map[string]any{"product_id": "cap", "quantity": 2}},
					}, map[string]any{"order_id": "o1", "ordering_key": "o1"})
					code, _, reason := a.deliver(creator(a), queue, created)
					require.Equal(t, http.StatusOK, code, reason)
					state := func() orders.State {
						o, err := orders.Find(t.Context(), a.store, dedupe.DefaultTenant, "o1")
						require.NoError(t, err)
						return o.State
					}
					early, cancelled := 0, time.Duration(0)
					for minute := range 31 {
						a.task(releaser(a), "release-delayed")
						for _, m := range a.broker.take("orders") {
							code, _, reason := a.deliver(handler(a), queue, m)
							require.Less(t, code, 300, "the broker is done with it: it is kept, or handled")
							if reason == "not_due" {
								early++
							}
							if early == 2 && paid { // kept a second time: once by the order, once by its record
								code, _, reason = a.deliver(handler(a), queue, message(t, "e2", "order.payment_confirmed",
									map[string]any{"order_id": "o1", "payment_id": "p1"}, map[string]any{"order_id": "o1", "ordering_key": "o1"}))
								require.Equal(t, []any{http.StatusOK, "confirmed"}, []any{code, reason}, "it does not wait behind the timeout")
							}
						}
						if cancelled == 0 && state() == orders.OrderCancelled {
							cancelled = time.Duration(minute) * time.Minute
						}
						a.clock.Next(time.Minute)
					}
					require.Equal(t, releases == "ahead" && handles == "behind", early > 0, "only then a timeout comes early")
					if paid && early > 0 {
						require.Equal(t, orders.OrderConfirmed, state())
						continue
					}
					require.Equal(t, orders.OrderCancelled, state())
					require.InDelta(t, 15, cancelled.Minutes(), 5)
					stock, err := (&orders.Keeper{Store: a.store}).Get(t.Context(), dedupe.DefaultTenant, "cap")
					require.NoError(t, err)
					require.EqualValues(t, 0, stock.Reserved)
				}
				_ = creates
			})
		})
	})
}

// confirmed is an event of the test's own queue.
func confirmed(t *testing.T, id string, attributes map[string]any) contract.Message {
	t.Helper()
	return message(t, id, "order.confirmed", map[string]any{"order_id": id}, attributes)
}

// tally counts effects: Tx handlers' by their documents, others by the calls that a callee took for new.
type tally struct {
	mu    sync.Mutex
	calls int
	fails int // of the next calls
}

func (c *tally) tx(r *handler.Registry) {
	r.Tx("ours", func(_ context.Context, event handler.Event) (handler.Effect, error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.calls++; c.calls <= c.fails {
			return handler.Effect{}, retry.Transient("not_yet", nil)
		}
		return handler.Effect{Result: "done", Writes: []store.Write{store.Create(store.Key{Collection: "effects", ID: event.ID}, map[string]any{"n": int64(1)})}}, nil
	})
}

// TestWaitsBetweenClocksFiveMinutesApart: what waits until a time is handled once, at most five minutes early or
// late, and no attempt is lost or counted twice.
func TestWaitsBetweenClocksFiveMinutesApart(t *testing.T) {
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
			either(t, func(t *testing.T, _ string, releaser func(*apart) *worker.Worker) {
				either(t, func(t *testing.T, _ string, handles func(*apart) *worker.Worker) {
					count := &tally{fails: test.fails}
					a := newApart(t, fiveMinutes, ours(count.tx, nil))
					a.deliver(a.behind, "ours", confirmed(t, "e1", test.attributes))
					took := time.Duration(-1)
					for step := range 40 {
						a.task(releaser(a), "release-delayed")
						for _, m := range a.broker.take("ours") {
							code, outcome, reason := a.deliver(handles(a), "ours", m)
							require.Less(t, code, 300, reason)
							if outcome == "processed" {
								require.Negative(t, took, "once")
								took = time.Duration(step) * 30 * time.Second
							}
						}
						a.clock.Next(30 * time.Second)
					}
					require.Equal(t, test.fails+1, count.calls)
					require.InDelta(t, test.wait.Seconds(), took.Seconds(), float64(max(test.fails, 1))*fiveMinutes.Seconds()+30, "each wait is early or late by five minutes at most")
				})
			})
		})
	}
}

// TestALeaseBetweenClocksThatDiffer: a worker that runs has its event to itself as long as clocks differ by less
// than its lease is longer than its handler's time. Beyond, the other asks before it calls, under the same id, and
// the first cannot write any more.
func TestALeaseBetweenClocksThatDiffer(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		by    time.Duration
		taken bool
	}{
		"84 seconds":   {84 * time.Second, false},
		"five minutes": {fiveMinutes, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inside, release := make(chan struct{}), make(chan struct{})
			var asked []string
			done := map[string]int{} // by the id that the callee recognizes
			var mu sync.Mutex
			a := newApart(t, test.by, ours(func(r *handler.Registry) {
				r.Leased("ours", handler.Leased{
					Reconcile: func(_ context.Context, event handler.Event) (handler.Effect, bool, error) {
						mu.Lock()
						defer mu.Unlock()
						asked = append(asked, event.ID)
						return handler.Effect{Result: "reconciled"}, done[event.ID] > 0, nil
					},
					Do: func(_ context.Context, event handler.Event) (handler.Effect, error) {
						if event.Attempt == 1 { // it hangs before its effect
							close(inside)
							<-release
						}
						mu.Lock()
						defer mu.Unlock()
						done[event.ID]++
						return handler.Effect{Result: "done"}, nil
					},
				})
			}, nil))
			first := make(chan int, 1)
			m := confirmed(t, "e1", nil)
			go func() {
				code, _, _ := a.deliver(a.behind, "ours", m)
				first <- code
			}()
			<-inside
			a.clock.Next(36*time.Second - time.Millisecond) // its time, its grace, and the writing of its claim
			again := &apart{t: t, clock: a.clock, nth: 100}
			code, outcome, reason := again.deliver(a.ahead, "ours", m)
			swept := a.task(a.ahead, "sweep-leases")
			require.EqualValues(t, 0, swept["republished"], "the sweep waits longer than that")
			require.EqualValues(t, 0, swept["reported"])
			if !test.taken {
				require.Equal(t, "lease_held", reason)
				require.Empty(t, asked)
				close(release)
				require.Equal(t, http.StatusOK, <-first)
				require.Equal(t, map[string]int{"e1": 1}, done)
				return
			}
			require.Equal(t, []any{http.StatusOK, "processed"}, []any{code, outcome})
			require.Equal(t, []string{"e1"}, asked, "before it calls")
			close(release)
			require.Equal(t, http.StatusNoContent, <-first, "its record is written at the version of its own claim, or not")
			record, err := a.store.Get(t.Context(), dedupe.Key("ours", dedupe.DefaultTenant, "e1"))
			require.NoError(t, err)
			require.EqualValues(t, 2, record.Fields["attempts"])
		})
	}
	shipped, err := catalog.Load("")
	require.NoError(t, err)
	page, err := os.ReadFile("../../../docs/exactly-once.md")
	require.NoError(t, err)
	for _, q := range shipped.Queues {
		for _, spec := range q.Handlers {
			allowed := fmt.Sprintf("%.0f seconds", (q.Lease - spec.Timeout - 6*time.Second).Seconds())
			require.Contains(t, string(page), allowed, "docs say by how much clocks may differ for queue %s", q.ID)
		}
	}
}

// TestARecordBetweenClocksFiveMinutesApart: a worker forgets an event five minutes before another does.
func TestARecordBetweenClocksFiveMinutesApart(t *testing.T) {
	t.Parallel()
	count := &tally{}
	a := newApart(t, fiveMinutes, ours(count.tx, nil))
	m := confirmed(t, "e1", nil)
	code, _, reason := a.deliver(a.behind, "ours", m)
	require.Equal(t, []any{http.StatusOK, "done"}, []any{code, reason})
	a.clock.Next(48*24*time.Hour - fiveMinutes - time.Second)
	for _, w := range []*worker.Worker{a.behind, a.ahead} {
		code, _, _ = a.deliver(w, "ours", m)
		require.Equal(t, http.StatusNoContent, code)
		require.EqualValues(t, 0, a.task(w, "cleanup")["removed"])
	}
	require.Equal(t, 1, count.calls-2, "a new event's effect is tried before its record is read")
}

// TestANotificationBetweenClocksFiveMinutesApart: it is stale for one worker five minutes before it is for another.
func TestANotificationBetweenClocksFiveMinutesApart(t *testing.T) {
	t.Parallel()
	count := &tally{}
	a := newApart(t, fiveMinutes, ours(count.tx, func(q *catalog.Queue) { q.MessageTTL = 24 * time.Hour }))
	made := map[string]any{"first_published_at": "2026-03-02T10:00:00Z"}
	a.clock.Next(24*time.Hour - fiveMinutes)
	code, _, _ := a.deliver(a.ahead, "ours", confirmed(t, "e1", made))
	require.Equal(t, http.StatusOK, code)
	a.clock.Next(time.Second)
	code, _, _ = a.deliver(a.ahead, "ours", confirmed(t, "e2", made))
	require.Equal(t, http.StatusNoContent, code, "expired")
	code, _, _ = a.deliver(a.behind, "ours", confirmed(t, "e3", made))
	require.Equal(t, http.StatusOK, code)
	require.Equal(t, 2, count.calls)
}

// TestAReplayBetweenClocksFiveMinutesApart: each takes the other for dead, and no item is replayed twice.
func TestAReplayBetweenClocksFiveMinutesApart(t *testing.T) {
	t.Parallel()
	a := newApart(t, fiveMinutes, ours((&tally{}).tx, nil))
	for n := range 5 {
		a.deliver(a.behind, "ours", message(t, fmt.Sprint("e", n), "order.cancelled", map[string]any{"order_id": "o", "reason": "no"}, nil))
	}
	for _, m := range a.broker.take("ours-dlq") {
		code, _, _ := a.deliver(a.behind, "dead-letters/ours", m)
		require.Equal(t, http.StatusNoContent, code)
	}
	replays := &shelves{}
	var operators [2]*deadletter.Operator
	other := 0
	var operation deadletter.Operation
	for i, ahead := range []time.Duration{0, fiveMinutes} {
		n := 0
		relay := &lane.Relay{Of: lane.Outbox, Store: a.store, Publisher: replays, Now: a.clock.Now}
		operators[i] = &deadletter.Operator{
			Store: a.store, Now: func() time.Time { return a.clock.Now().Add(ahead) }, NewID: func() string { n++; return fmt.Sprint("op-", i, "-", n) },
			Queue: func(string) (catalog.Queue, bool) { return catalog.Queue{ID: "ours", Enabled: true}, true },
			Relay: func(ctx context.Context, id string) error { _, err := relay.Lane(ctx, id); return err },
			Wait: func(ctx context.Context, _ time.Duration) error {
				if other++; other < 4 { // the other one goes on with it meanwhile
					_, _ = operators[1-i].Run(ctx, operation.ID)
				}
				return nil
			},
		}
	}
	operation, err := operators[0].Begin(t.Context(), deadletter.Operation{Kind: deadletter.Replay, Filter: deadletter.Filter{Queue: "ours"}, Why: "mended", Rate: 1}, audit.Author{Proof: audit.SharedToken}, 5)
	require.NoError(t, err)
	for range 10 {
		for _, o := range operators {
			_, _ = o.Run(t.Context(), operation.ID)
		}
	}
	ended, err := operators[0].Operation(t.Context(), operation.ID)
	require.NoError(t, err)
	require.Equal(t, []any{deadletter.Finished, int64(5)}, []any{ended.Progress, ended.Done})
	require.Len(t, replays.take("ours"), 5)
}

// TestTokensAndSignaturesOfAClockThatDiffers: a push's token counts from its making, half a minute of difference
// aside, for an hour; a signature counts for five minutes to both sides. What is refused comes again.
func TestTokensAndSignaturesOfAClockThatDiffers(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 2, 10, 0, 0, 0, time.UTC)
	issuer, err := standin.NewIssuer(func() time.Time { return now })
	require.NoError(t, err)
	keys := httptest.NewServer(issuer)
	t.Cleanup(keys.Close)
	token, err := issuer.Token("worker", "push@example.iam.gserviceaccount.com")
	require.NoError(t, err)
	signer, err := signature.NewSigner(signature.Generic, "a-secret-of-more-than-24-bytes")
	require.NoError(t, err)
	headers := http.Header{}
	for name, value := range signer.Sign("e1", []byte("{}"), now) {
		headers.Set(name, value)
	}
	for by, accepted := range map[time.Duration][2]bool{ // of the token, of the signature
		-fiveMinutes - time.Second: {false, false}, -fiveMinutes: {false, true}, -31 * time.Second: {false, true}, -30 * time.Second: {true, true}, 0: {true, true},
		fiveMinutes: {true, true}, fiveMinutes + time.Second: {true, false}, time.Hour: {true, false}, time.Hour + 31*time.Second: {false, false},
	} {
		own := func() time.Time { return now.Add(by) }
		verifier, err := auth.New(auth.Config{Mode: auth.ModeOIDC, Audience: "worker", ServiceAccount: "push@example.iam.gserviceaccount.com", KeysURL: keys.URL, Now: own})
		require.NoError(t, err)
		require.Equal(t, accepted[0], verifier.Verify(t.Context(), "Bearer "+token) == nil, "token, %s", by)
		producers, err := signature.NewVerifier(signature.Generic, []string{"a-secret-of-more-than-24-bytes"}, fiveMinutes, own)
		require.NoError(t, err)
		require.Equal(t, accepted[1], producers.Verify(headers.Values, []byte("{}")) == nil, "signature, %s", by)
	}
}

// pushing is a broker whose subscriptions push, whatever was asked of them.
type pushing struct{}

func (pushing) Standing(context.Context, catalog.Queue) (pause.Standing, error) {
	return pause.Pushing, nil
}

// TestOtherTimesBetweenClocksFiveMinutesApart: when usage is in the future, from when a closed month takes no
// entries, and when a pause that does not hold is told of.
func TestOtherTimesBetweenClocksFiveMinutesApart(t *testing.T) {
	t.Parallel()
	a := newApart(t, fiveMinutes, func(c *worker.Config) { c.Subscriptions = pushing{} })
	ahead := func() time.Time { return a.clock.Now().Add(fiveMinutes) }
	usage := func(id string, at time.Time) contract.Message {
		return message(t, id, "usage_tracking", map[string]any{"subscription_id": "s-1", "meter": "calls", "quantity": 1, "occurred_at": at.Format(time.RFC3339)}, nil)
	}
	code, _, reason := a.deliver(a.behind, "events-high", usage("e1", ahead()))
	require.Equal(t, http.StatusOK, code, reason)
	_, _, reason = a.deliver(a.behind, "events-high", usage("e2", ahead().Add(time.Second)))
	require.Equal(t, "usage_in_the_future", reason)

	id := 0
	newID := func() string { id++; return fmt.Sprint("change-", id) }
	periods := &journal.Periods{Store: a.store, Now: a.clock.Now, NewID: newID}
	_, err := periods.Close(t.Context(), dedupe.DefaultTenant, "2026-02", journal.Change{Who: audit.Author{Proof: audit.SharedToken}, Why: "done"})
	require.NoError(t, err)
	for _, test := range []struct {
		wait          time.Duration
		behind, ahead bool
	}{{0, false, true}, {journal.Notice - time.Second, false, true}, {time.Second, true, true}} {
		a.clock.Next(test.wait)
		for i, now := range []func() time.Time{a.clock.Now, ahead} {
			closed, err := journal.NewCalendar(a.store, now).Closed(t.Context(), dedupe.DefaultTenant, "2026-02")
			require.NoError(t, err)
			require.Equal(t, []bool{test.behind, test.ahead}[i], closed)
		}
	}

	keeper := &pause.Keeper{Store: a.store, Now: ahead, NewID: newID}
	_, err = keeper.Pause(t.Context(), catalog.Queue{ID: "events-high", Enabled: true}, pause.Change{Who: "token", Why: "test"})
	require.NoError(t, err)
	require.EqualValues(t, 0, a.task(a.ahead, "count-backlogs")["pauses_undone"])
	a.clock.Next(time.Minute)
	require.EqualValues(t, 1, a.task(a.ahead, "count-backlogs")["pauses_undone"])
	require.EqualValues(t, 0, a.task(a.behind, "count-backlogs")["pauses_undone"])
	a.clock.Next(fiveMinutes)
	require.EqualValues(t, 1, a.task(a.behind, "count-backlogs")["pauses_undone"])
}
