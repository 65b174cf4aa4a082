package delivery_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/pipeline/delivery"
	"billhook/internal/pipeline/rates"
	"billhook/internal/retry"
)

// limited is a target with limits, in the time of its test's bubble.
type limited struct {
	*delivery.Target
	status, asked int
	// told is what its watcher was told.
	told []string
	// holds has the next request wait for its answer, or for its caller to leave.
	holds  bool
	answer chan int
	leave  context.CancelFunc
	ended  chan error
}

func limit(t *testing.T, change func(*catalog.Target)) *limited {
	t.Helper()
	l := &limited{status: http.StatusOK, answer: make(chan int), ended: make(chan error, 1)}
	l.Target = offline(t, change, func(r *http.Request) (*http.Response, error) {
		l.asked++
		status := l.status
		if l.holds {
			l.holds = false
			select {
			case status = <-l.answer:
			case <-r.Context().Done():
				return nil, r.Context().Err()
			}
		}
		return &http.Response{StatusCode: status, Body: http.NoBody, Request: r}, nil
	})
	delivery.Targets{service.Name: l.Target}.Watch(l)
	return l
}

// Answered implements delivery.Watcher.
func (l *limited) Answered(target string, status int, code string, took time.Duration) {
	l.told = append(l.told, fmt.Sprint(target, " ", status, " ", code, " ", took))
}

// move is what happens to a target with limits.
type move string

const (
	posts    move = "" // an event is posted
	begins   move = "a request goes out and has no answer yet"
	answered move = "that request is answered"
	leaves   move = "the caller of that request leaves"
)

// step is a move after a time, the answer that the target would give, the reason of the error, and how long the
// message is then to wait.
type step struct {
	after  time.Duration
	move   move
	status int
	want   string
	wait   time.Duration
}

// make makes the move of a step.
func (l *limited) make(t *testing.T, s step) error {
	t.Helper()
	switch s.move {
	case begins:
		var ctx context.Context
		ctx, l.leave = context.WithCancel(t.Context())
		l.holds = true
		go func() {
			_, err := l.Post(payment).Do(ctx, event())
			l.ended <- err
		}()
		synctest.Wait()
		return nil
	case answered:
		l.answer <- s.status
		return <-l.ended
	case leaves:
		l.leave()
		return <-l.ended
	default:
		l.status = s.status
		_, err := l.Post(payment).Do(t.Context(), event())
		return err
	}
}

func TestTheLimitsOfATargetHoldItsRequestsBack(t *testing.T) {
	t.Parallel()
	const failed, resting, rested = "callee_failed_503", "callee_resting", time.Minute + 1
	breaks := func(failures int) func(*catalog.Target) {
		return func(c *catalog.Target) { c.Breaker = catalog.Breaker{Failures: failures, Rest: time.Minute} }
	}
	for sentence, test := range map[string]struct {
		declare func(*catalog.Target)
		steps   []step
	}{
		"a target is asked no more often than its rate": {func(c *catalog.Target) { c.RatePerSecond, c.Burst = 2, 3 }, []step{
			{status: 200}, {status: 200}, {status: 200},
			{want: "callee_rate", wait: 500 * time.Millisecond}, {want: "callee_rate", wait: 500 * time.Millisecond}, // that took no turn
			{after: 500 * time.Millisecond, status: 200}, {want: "callee_rate", wait: 500 * time.Millisecond},
		}},
		"a target has no more requests at once than it takes": {func(c *catalog.Target) { c.Concurrency = 1 }, []step{
			{move: begins}, {want: "callee_crowded"}, {move: answered, status: 200}, {status: 200},
		}},
		"a target that fails is left alone": {breaks(3), []step{
			{status: 503, want: failed}, {status: 408, want: "callee_timeout_408"},
			{status: 422, want: "callee_refused_422"}, // an answer about the message: the target is well
			{status: 503, want: failed}, {status: 401, want: "callee_unauthorized_401"}, {status: 429, want: "callee_busy_429"},
			{want: resting, wait: time.Minute}, {after: 20 * time.Second, want: resting, wait: 40 * time.Second},
			{after: 40*time.Second + 1, status: 503, want: failed}, {want: resting, wait: time.Minute}, // one a rest
			{after: rested, status: 410, want: "callee_gone_410"}, {status: 200}, // it answers again
			{status: 503, want: failed}, {status: 503, want: failed}, {status: 200},
		}},
		"an open breaker lets one request through, and the others wait for what becomes of it": {breaks(1), []step{
			{status: 503, want: failed}, {after: rested, move: begins}, {want: resting, wait: time.Minute}, {want: resting, wait: time.Minute},
			{move: answered, status: 200}, {status: 200},
		}},
		"a caller that leaves neither opens a breaker nor holds it open": {breaks(1), []step{
			{move: begins}, {move: leaves, want: "canceled"}, {status: 503, want: failed}, {want: resting, wait: time.Minute},
			{after: rested, move: begins}, {move: leaves, want: "canceled"}, {status: 200},
		}},
		"a failure of a request that was sent before the breaker opened does not lengthen the rest": {breaks(1), []step{
			{move: begins}, {status: 503, want: failed}, {after: 30 * time.Second, move: answered, status: 503, want: failed},
			{want: resting, wait: 30 * time.Second},
		}},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				l := limit(t, test.declare)
				for i, s := range test.steps {
					<-time.After(s.after)
					asked := l.asked
					err := l.make(t, s)
					if s.want == "" {
						require.NoError(t, err, i)
						continue
					}
					verdict := retry.Decide(err)
					require.Equal(t, []any{s.want, s.wait}, []any{verdict.Reason, retry.Asked(err)}, i)
					if s.status == 0 && s.move == posts {
						require.False(t, verdict.Counts, "what was not sent was not tried")
						require.Equal(t, asked, l.asked, i)
					}
				}
			})
		})
	}
}

func TestAnswersAndOpenBreakersAreTold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := limit(t, func(c *catalog.Target) { c.Breaker = catalog.Breaker{Failures: 2, Rest: time.Minute} })
		stands := func(want ...rates.Breaker) {
			t.Helper()
			require.Equal(t, want, delivery.Targets{service.Name: l.Target}.Breakers())
		}
		require.NoError(t, l.make(t, step{status: 200}))
		require.Error(t, l.make(t, step{status: 503}))
		stands()
		require.Error(t, l.make(t, step{status: 503}))
		opened := time.Now().UTC()
		stands(rates.Breaker{Target: service.Name, State: "open", Since: opened})
		require.Error(t, l.make(t, step{status: 503}))
		<-time.After(time.Minute + 1)
		stands(rates.Breaker{Target: service.Name, State: "half_open", Since: opened}) // it is the same failure
		require.NoError(t, l.make(t, step{status: 200}))
		stands()
		require.Equal(t, []string{"service 200  0s", "service 503 callee_failed_503 0s", "service 503 callee_failed_503 0s", "service 200  0s"}, l.told,
			"what was not sent has no answer")
	})
}
