package serve_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"billhook/internal/platform/serve"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// running serves until stop is called. Then ended has Run's error.
func running(t *testing.T, server *serve.Server) (address string, stop context.CancelFunc, ended <-chan error) {
	t.Helper()
	server.Name, server.Log = "test", slog.New(slog.DiscardHandler)
	listener, err := serve.Listen(t.Context(), "127.0.0.1", "0")
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	result := make(chan error, 1)
	go func() { result <- server.Run(ctx, listener) }()
	return listener.Addr().String(), stop, result
}

// During the drain, new requests are told that the instance is shutting down. A refused
// connection would not say so, and /health/ready would never answer 503.
func TestRunFinishesRequestsInFlightAndRefusesNewOnes(t *testing.T) {
	t.Parallel()
	inside, release := make(chan struct{}), make(chan struct{})
	draining := make(chan struct{})
	server := &serve.Server{
		Drain: time.Minute, ReadTimeout: time.Minute, Longest: time.Minute,
		Draining: func() { close(draining) },
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			select {
			case <-draining:
				serve.Refuse(http.StatusServiceUnavailable, "shutting_down", "").Write(w)
				return
			default:
			}
			if r.URL.Path == "/slow" {
				close(inside)
				<-release
			}
			serve.WriteJSON(w, http.StatusOK, "done")
		}),
	}
	address, stop, ended := running(t, server)

	fresh, kept := &http.Transport{DisableKeepAlives: true}, &http.Transport{}
	defer kept.CloseIdleConnections()
	ask := func(over *http.Transport, path string) int {
		request, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+path, nil)
		response, err := over.RoundTrip(request)
		if err != nil {
			return 0
		}
		_, _ = io.Copy(io.Discard, response.Body) // or the connection is not reused
		_ = response.Body.Close()
		return response.StatusCode
	}
	require.Equal(t, http.StatusOK, ask(kept, "/"))
	answered := make(chan int, 1)
	go func() { answered <- ask(fresh, "/slow") }()
	<-inside
	stop()
	<-draining
	require.Equal(t, http.StatusServiceUnavailable, ask(fresh, "/"))
	require.Equal(t, http.StatusServiceUnavailable, ask(kept, "/"))
	close(release)
	require.Equal(t, http.StatusOK, <-answered)
	require.NoError(t, <-ended, "an idle connection does not delay the end")
}

func TestRunCutsOffRequestsThatOutlastTheDrain(t *testing.T) {
	t.Parallel()
	inside := make(chan struct{})
	server := &serve.Server{
		Drain: time.Millisecond, ReadTimeout: time.Minute, Longest: time.Minute, Draining: func() {},
		Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			close(inside)
			<-r.Context().Done()
		}),
	}
	address, stop, ended := running(t, server)
	cut := make(chan int, 1)
	go func() { cut <- ask(t, http.MethodGet, address, "/") }()
	<-inside
	stop()
	require.ErrorIs(t, <-ended, context.DeadlineExceeded)
	require.Zero(t, <-cut, "its sender gets no answer, and sends again")
}

func TestRunDoesNotWaitForAnUnusedConnection(t *testing.T) {
	t.Parallel()
	server := &serve.Server{Drain: time.Second, ReadTimeout: time.Minute, Longest: time.Minute, Handler: http.NotFoundHandler()}
	address, stop, ended := running(t, server)

	silent, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
	require.NoError(t, err)
	defer func() { _ = silent.Close() }()
	// Connections are accepted in order: once this one is answered, the silent one is accepted.
	require.Equal(t, http.StatusNotFound, ask(t, http.MethodGet, address, "/"))
	stop()
	require.NoError(t, <-ended)
}

// The server's write timeout starts before the body arrives. A request that uses all its time
// to arrive and all its time to be handled must still get its answer.
func TestTheWriteTimeoutHoldsTheLongestRequestAndItsWork(t *testing.T) {
	t.Parallel()
	timeouts := make(chan time.Duration, 1)
	server := &serve.Server{
		Drain: time.Minute, ReadTimeout: 20 * time.Second, Longest: 300 * time.Second,
		Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			timeouts <- r.Context().Value(http.ServerContextKey).(*http.Server).WriteTimeout
		}),
	}
	address, stop, ended := running(t, server)
	require.Equal(t, http.StatusOK, ask(t, http.MethodGet, address, "/"))
	require.Equal(t, 325*time.Second, <-timeouts)
	stop()
	require.NoError(t, <-ended)
}

func TestRecoverAnswersAProblemAndNeverPrintsThePanicsValue(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	handler := serve.Recover(slog.New(slog.NewJSONHandler(&log, nil)), http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		panic("marta@example.com")
	}))
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
	require.Equal(t, http.StatusInternalServerError, w.Code)
	require.Equal(t, "application/problem+json", w.Header().Get("Content-Type"))
	body, err := io.ReadAll(w.Body)
	require.NoError(t, err)
	var problem serve.Problem
	require.NoError(t, json.Unmarshal(body, &problem))
	require.Equal(t, "internal", problem.Code)
	require.NotContains(t, log.String()+string(body), "marta")
	require.Contains(t, log.String(), `"type":"string"`)
}

type coded int

func (c coded) Error() string { return "coded" }
func (c coded) ExitCode() int { return int(c) }

func TestAnErrorSaysItsExitCode(t *testing.T) {
	t.Parallel()
	for want, err := range map[int]error{
		1: errors.New("plain"), 2: coded(2), 3: fmt.Errorf("wrapped: %w", coded(3)), 4: errors.Join(errors.New("plain"), coded(4)),
	} {
		require.Equal(t, want, serve.ExitCode(err))
	}
}

func TestABudgetGrantsAClaimWholeOrNotAtAllHoweverManyAskAtOnce(t *testing.T) {
	t.Parallel()
	budget := serve.NewBudget(10)
	for _, step := range []struct {
		claim int64
		want  bool
		held  int64
	}{{0, true, 0}, {7, true, 7}, {4, false, 7}, {3, true, 10}, {1, false, 10}} {
		require.Equal(t, step.want, budget.Claim(step.claim))
		require.Equal(t, step.held, budget.Held(), "a claim in vain takes nothing")
	}
	budget.Release(10)
	var holding, given atomic.Int64
	var group sync.WaitGroup
	for range 64 {
		group.Go(func() {
			for range 500 {
				if !budget.Claim(3) {
					continue
				}
				given.Add(1)
				if holding.Add(3) > 10 {
					t.Error("more is held than there is")
				}
				holding.Add(-3)
				budget.Release(3)
			}
		})
	}
	group.Wait()
	require.Positive(t, given.Load())
	require.Zero(t, budget.Held())
}
