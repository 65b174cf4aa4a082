package delivery_test

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/pipeline/delivery"
	"billhook/internal/pipeline/handler"
	"billhook/internal/retry"
)

// breakable is a target with a breaker, in the time of its test's bubble.
type breakable struct {
	handler.Leased
	mu     sync.Mutex
	status int
	asked  int
	// target is what posts, and told has what its watcher was told.
	target *delivery.Target
	told   []string
	// inside, if set, is sent to by each request, which goes on when over is closed.
	inside, over chan struct{}
}

func breaks(t *testing.T, failures int, rest time.Duration) *breakable {
	t.Helper()
	b := &breakable{status: http.StatusOK}
	declared := service
	declared.Breaker = catalog.Breaker{Failures: failures, Rest: rest}
	target, err := delivery.New(delivery.Config{
		Target: declared, BaseURL: "http://service.example", Secret: secret, Now: time.Now,
		Client: &http.Client{Transport: exchange(func(r *http.Request) (*http.Response, error) {
			b.mu.Lock()
			b.asked++
			status, inside, over := b.status, b.inside, b.over
			b.mu.Unlock()
			if inside != nil {
				inside <- struct{}{}
				select {
				case <-over:
				case <-r.Context().Done():
					return nil, r.Context().Err()
				}
			}
			return &http.Response{StatusCode: status, Body: http.NoBody, Request: r}, nil
		})},
	})
	require.NoError(t, err)
	b.target = target
	delivery.Targets{"service": target}.Watch(b)
	b.Leased = target.Post(payment)
	return b
}

// Answered implements delivery.Watcher.
func (b *breakable) Answered(target string, status int, code string, took time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.told = append(b.told, fmt.Sprint(target, " ", status, " ", code, " ", took))
}

func TestAnswersAndOpenBreakersAreTold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := breaks(t, 2, time.Minute)
		all := delivery.Targets{service.Name: b.target}
		b.posts(t, 200, "", 0)
		b.posts(t, 503, "callee_failed_503", 0)
		require.Empty(t, all.Breakers(), "one failure opens none")
		b.posts(t, 503, "callee_failed_503", 0)
		opened := time.Now().UTC()
		require.Equal(t, []delivery.Breaker{{Target: service.Name, State: "open", Since: opened}}, all.Breakers())
		b.posts(t, 503, "callee_resting", time.Minute)
		<-time.After(time.Minute + 1)
		require.Equal(t, []delivery.Breaker{{Target: service.Name, State: "half_open", Since: opened}}, all.Breakers(), "it is the same failure")
		b.posts(t, 200, "", 0)
		require.Empty(t, all.Breakers())
		name := service.Name
		require.Equal(t, []string{name + " 200  0s", name + " 503 callee_failed_503 0s", name + " 503 callee_failed_503 0s", name + " 200  0s"}, b.told,
			"what was not sent has no answer")
	})
}

// exchange is a callee without a network that may not answer.
type exchange func(*http.Request) (*http.Response, error)

func (e exchange) RoundTrip(r *http.Request) (*http.Response, error) { return e(r) }

// posts delivers one event and requires the reason, and how long it is to wait.
func (b *breakable) posts(t *testing.T, status int, reason string, wait time.Duration) {
	t.Helper()
	b.mu.Lock()
	b.status = status
	asked := b.asked
	b.mu.Unlock()
	_, err := b.Do(t.Context(), event())
	b.mu.Lock()
	defer b.mu.Unlock()
	if reason == "" {
		require.NoError(t, err)
		require.Equal(t, asked+1, b.asked)
		return
	}
	verdict := retry.Decide(err)
	require.Equal(t, reason, verdict.Reason)
	require.Equal(t, wait, retry.Asked(err))
	if reason == "callee_resting" {
		require.False(t, verdict.Counts, "what was not sent was not tried")
		require.Equal(t, asked, b.asked)
	}
}

func TestATargetThatFailsIsLeftAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := breaks(t, 3, time.Minute)
		b.posts(t, 503, "callee_failed_503", 0)
		b.posts(t, 408, "callee_timeout_408", 0)
		b.posts(t, 422, "callee_refused_422", 0) // an answer about the message: the target is well
		b.posts(t, 503, "callee_failed_503", 0)
		b.posts(t, 401, "callee_unauthorized_401", 0)
		b.posts(t, 429, "callee_busy_429", 0)
		b.posts(t, 200, "callee_resting", time.Minute)
		<-time.After(20 * time.Second)
		b.posts(t, 200, "callee_resting", 40*time.Second)
		<-time.After(40*time.Second + 1)
		b.posts(t, 503, "callee_failed_503", 0) // one a rest
		b.posts(t, 200, "callee_resting", time.Minute)
		<-time.After(time.Minute + 1)
		b.posts(t, 410, "callee_gone_410", 0) // it answers again
		b.posts(t, 200, "", 0)
		b.posts(t, 503, "callee_failed_503", 0)
		b.posts(t, 503, "callee_failed_503", 0)
		b.posts(t, 200, "", 0)
	})
}

func TestAnOpenBreakerLetsOneThrough(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := breaks(t, 1, time.Minute)
		b.posts(t, 503, "callee_failed_503", 0)
		<-time.After(time.Minute + 1)
		b.mu.Lock()
		b.status, b.inside, b.over = 200, make(chan struct{}), make(chan struct{})
		b.mu.Unlock()
		probed := make(chan error, 1)
		go func() {
			_, err := b.Do(t.Context(), event())
			probed <- err
		}()
		<-b.inside
		for range 3 {
			b.posts(t, 200, "callee_resting", time.Minute) // others wait for what becomes of the first
		}
		close(b.over)
		require.NoError(t, <-probed)
		b.mu.Lock()
		b.inside = nil
		b.mu.Unlock()
		b.posts(t, 200, "", 0)
	})
}

// A worker that stops, or a broker that has hung up, says nothing of the target.
func TestACallerThatLeavesNeitherOpensNorHoldsABreaker(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := breaks(t, 1, time.Minute)
		leave := func() {
			b.mu.Lock()
			b.inside, b.over = make(chan struct{}), make(chan struct{})
			b.mu.Unlock()
			ctx, cancel := context.WithCancel(t.Context())
			left := make(chan error, 1)
			go func() {
				_, err := b.Do(ctx, event())
				left <- err
			}()
			<-b.inside
			cancel()
			require.ErrorIs(t, <-left, context.Canceled)
			b.mu.Lock()
			b.inside = nil
			b.mu.Unlock()
		}
		leave()
		b.posts(t, 503, "callee_failed_503", 0)
		b.posts(t, 200, "callee_resting", time.Minute)
		<-time.After(time.Minute + 1)
		leave() // the one that was let through
		b.posts(t, 200, "", 0)
	})
}

// What was sent before the breaker opened fails after it: that is the same failure.
func TestALateFailureDoesNotLengthenTheRest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := breaks(t, 1, time.Minute)
		b.mu.Lock()
		b.status, b.inside, b.over = 503, make(chan struct{}), make(chan struct{})
		b.mu.Unlock()
		late := make(chan error, 1)
		go func() {
			_, err := b.Do(t.Context(), event())
			late <- err
		}()
		<-b.inside
		b.mu.Lock()
		b.inside = nil
		b.mu.Unlock()
		b.posts(t, 503, "callee_failed_503", 0)
		<-time.After(30 * time.Second)
		close(b.over)
		require.EqualError(t, <-late, "callee_failed_503")
		b.posts(t, 200, "callee_resting", 30*time.Second)
	})
}
