package push_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/contract"
	"billhook/internal/delayed"
	"billhook/internal/embedded"
	"billhook/internal/embedded/clocktest"
	"billhook/internal/handler"
	"billhook/internal/outbox"
	"billhook/internal/retry"
)

// doors carries pushes to a rig without a network, and keeps its clock.
type doors struct {
	*rig
	clock *clocktest.Clock
}

func (d doors) RoundTrip(request *http.Request) (*http.Response, error) {
	d.now.Store(d.clock.Now().UnixNano())
	request.Header.Set("Authorization", "Bearer good")
	recorder := httptest.NewRecorder()
	d.http.ServeHTTP(recorder, request)
	return recorder.Result(), nil
}

// TestAttemptsFollowThePolicyToTheSecond runs a failing event through the simulator, with
// release-delayed every minute, until it is a dead letter.
func TestAttemptsFollowThePolicyToTheSecond(t *testing.T) {
	t.Parallel()
	minutes := func(n ...time.Duration) (all []time.Duration) {
		for _, m := range n {
			all = append(all, m*time.Minute)
		}
		return all
	}
	for name, test := range map[string]struct {
		policy   retry.Policy
		failure  error
		attempts int
		// want are the moments of the attempts.
		want []time.Duration
	}{
		"doubling, by the broker": {
			retry.Policy{Base: 10 * time.Second, Multiplier: 2, Max: 600 * time.Second}, errHandler, 5,
			[]time.Duration{0, 10 * time.Second, 30 * time.Second, 70 * time.Second, 150 * time.Second},
		},
		"of 10 minutes at most, by the broker": {
			retry.Policy{Base: 5 * time.Minute, Multiplier: 2, Max: 10 * time.Minute}, errHandler, 4, minutes(0, 5, 15, 25),
		},
		"of up to an hour, by the broker and then kept": {
			retry.Policy{Base: 8 * time.Minute, Multiplier: 2, Max: time.Hour}, errHandler, 5, minutes(0, 8, 24, 56, 116),
		},
		"as long as the callee asks, kept": {
			retry.Policy{Base: time.Minute, Multiplier: 2, Max: 10 * time.Minute}, retry.After(30*time.Minute, errHandler), 3, minutes(0, 30, 60),
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var mu sync.Mutex
			var at []time.Duration
			clock := clocktest.New(start)
			r := newRig(t, setup{queue: func(q *catalog.Queue) {
				q.Backoff, q.MaxAttempts, q.MessageRetention = test.policy, test.attempts, 7*24*time.Hour
				for eventType, h := range q.Handlers {
					h.Backoff, h.MaxAttempts = test.policy, test.attempts
					q.Handlers[eventType] = h
				}
			}, credit: func(*rig, handler.Tx) handler.Tx {
				return func(_ context.Context, event handler.Event) (handler.Effect, error) {
					mu.Lock()
					defer mu.Unlock()
					require.Equal(t, len(at)+1, event.Attempt)
					at = append(at, clock.Now().Sub(start))
					return handler.Effect{}, test.failure
				}
			}})
			simulator, err := embedded.NewSimulator(embedded.SimulatorConfig{
				ProjectID: "demo", Subscriptions: embedded.Topology([]catalog.Queue{r.queue}), Clock: clock,
				PushBaseURL: "http://worker.test", Client: &http.Client{Transport: doors{r, clock}},
			})
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, simulator.Close()) })
			release := func() outbox.Report {
				report, err := delayed.NewRelay(r.faults, simulator, clock.Now).Due(t.Context(), 10, func(string, error) {})
				require.NoError(t, err)
				return report
			}
			m := paid("e1", known, 1)
			_, err = simulator.Publish(t.Context(), "orders", contract.Message{Data: m.data(), Attributes: m.attributes})
			require.NoError(t, err)
			for range 130 { // minutes
				for left := time.Minute; left > 0; {
					require.NoError(t, simulator.Settled(t.Context()))
					moved, _ := clock.Next(left)
					left -= moved
				}
				require.NoError(t, simulator.Settled(t.Context()))
				release()
				require.NoError(t, simulator.Settled(t.Context()))
			}
			require.Equal(t, test.want, at)
			letters := r.letters()
			require.Len(t, letters, 1)
			require.Equal(t, "attempts_exhausted", letters[0].Attributes["dead_letter_reason"])
			require.Zero(t, simulator.Stats()["orders-push"].Backlog)
		})
	}
}
