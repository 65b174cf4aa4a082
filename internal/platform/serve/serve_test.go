package serve_test

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sync/semaphore"

	"billhook/internal/filetest"
	"billhook/internal/pii"
	"billhook/internal/platform/serve"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type line struct {
	Message string `json:"msg"`
	Address string `json:"address"`
	Service string `json:"service"`
}

func running(
	t *testing.T, server *serve.Server, metrics http.HandlerFunc,
) (address, beside string, stop context.CancelFunc, ended <-chan error) {
	t.Helper()
	reader, writer := io.Pipe()
	server.Name, server.Log = "test", slog.New(slog.NewJSONHandler(writer, nil))
	server.Drain, server.ReadTimeout = cmp.Or(server.Drain, time.Minute), cmp.Or(server.ReadTimeout, time.Minute)
	server.Longest = cmp.Or(server.Longest, time.Minute)
	listener, on := filetest.Both(serve.Ports{Host: "127.0.0.1", Service: "0"}.Listen(t.Context()))(t)
	ctx, stop := context.WithCancel(t.Context())
	result := make(chan error, 1)
	go func() { result <- server.Run(ctx, listener, metrics, on) }()
	lines := bufio.NewScanner(reader)
	for _, want := range []line{
		{"listening", listener.Addr().String(), "test"}, {"listening", on.Addr().String(), "test-metrics"},
	} {
		require.True(t, lines.Scan())
		require.Equal(t, want, filetest.JSON[line](t, lines.Bytes()), "the service logs the first line")
	}
	return listener.Addr().String(), on.Addr().String(), stop, result
}

func nothing(http.ResponseWriter, *http.Request) {}

func until(inside chan<- struct{}) http.HandlerFunc {
	return func(_ http.ResponseWriter, r *http.Request) {
		close(inside)
		<-r.Context().Done()
	}
}

var fresh = &http.Transport{DisableKeepAlives: true}

func ask(t *testing.T, over http.RoundTripper, method, address, path string) int {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, "http://"+address+path, nil)
	if err != nil {
		return 0
	}
	response, err := over.RoundTrip(request)
	if err != nil {
		return 0
	}
	_, _ = io.Copy(io.Discard, response.Body) // or the connection is not reused
	_ = response.Body.Close()
	return response.StatusCode
}

// During the drain, new requests are answered that the instance is shutting down. A refused connection would
// not say so, and /health/ready would never answer 503. The metrics can be read until it has ended.
func TestAServiceThatDrainsFinishesItsRequestsAndRefusesNewOnes(t *testing.T) {
	t.Parallel()
	inside, draining, release := make(chan struct{}), make(chan struct{}), make(chan struct{})
	address, beside, stop, ended := running(t, &serve.Server{
		Draining: func() { close(draining) },
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			select {
			case <-draining:
				serve.Refuse(http.StatusServiceUnavailable, "shutting_down", "").Write(w)
				return
			default:
			}
			switch r.URL.Path {
			case "/slow":
				close(inside)
				<-release
			case "/metrics":
				w.WriteHeader(http.StatusNotFound)
			}
			serve.WriteJSON(w, http.StatusOK, "done")
		}),
	}, nothing)
	kept := &http.Transport{}
	defer kept.CloseIdleConnections()
	get := func(over *http.Transport, address, path string) int {
		return ask(t, over, http.MethodGet, address, path)
	}
	require.Equal(t, http.StatusOK, get(kept, address, "/"))
	require.Equal(t, http.StatusNotFound, get(fresh, address, "/metrics"), "metrics have a port of their own")
	require.Equal(t, http.StatusOK, get(fresh, beside, "/metrics"))
	require.Equal(t, http.StatusNotFound, get(fresh, beside, "/slow"), "the port of metrics has no other route")
	require.Equal(t, http.StatusMethodNotAllowed, ask(t, fresh, http.MethodPost, beside, "/metrics"))
	answered := make(chan int, 1)
	go func() { answered <- get(fresh, address, "/slow") }()
	<-inside
	stop()
	<-draining
	require.Equal(t, http.StatusServiceUnavailable, get(fresh, address, "/"))
	require.Equal(t, http.StatusServiceUnavailable, get(kept, address, "/"))
	require.Equal(t, http.StatusOK, get(fresh, beside, "/metrics"))
	close(release)
	require.Equal(t, http.StatusOK, <-answered)
	require.NoError(t, <-ended, "an idle connection does not delay the end")
	require.Zero(t, get(fresh, beside, "/metrics"))
}

// A scrape that hangs neither delays the end nor makes it a failure.
func TestRequestsThatOutlastTheDrainAreCutOff(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		drain time.Duration
		want  error
	}{"a request": {time.Millisecond, context.DeadlineExceeded}, "a scrape": {time.Minute, nil}} {
		inside, hung := make(chan struct{}), make(chan struct{})
		server, metrics := &serve.Server{Drain: test.drain, Draining: func() {}, Handler: http.NotFoundHandler()},
			until(inside)
		if test.want != nil {
			server.Handler, metrics = until(inside), nothing
		}
		address, beside, stop, ended := running(t, server, metrics)
		go func() {
			defer close(hung)
			if ask(t, fresh, http.MethodGet, map[bool]string{true: address, false: beside}[test.want != nil],
				"/metrics") != 0 {
				t.Error("the request got an answer")
			}
		}()
		<-inside
		stop()
		require.ErrorIs(t, <-ended, test.want, name)
		<-hung
	}
}

// The server's write timeout starts before the body arrives. A request that uses all its time to arrive and
// all its time to be handled must still get its answer. A connection without a request is not waited for.
func TestTheWriteTimeoutAllowsForTheLongestRequestAndItsHandling(t *testing.T) {
	t.Parallel()
	timeouts := make(chan time.Duration, 1)
	address, _, stop, ended := running(t, &serve.Server{
		Drain: time.Second, ReadTimeout: 20 * time.Second, Longest: 300 * time.Second,
		Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			timeouts <- r.Context().Value(http.ServerContextKey).(*http.Server).WriteTimeout
		}),
	}, nothing)
	silent := filetest.Must((&net.Dialer{}).DialContext(t.Context(), "tcp", address))(t)
	defer func() { _ = silent.Close() }()
	// Connections are accepted in order: once this one is answered, the silent one is accepted.
	require.Equal(t, http.StatusOK, ask(t, fresh, http.MethodGet, address, "/"))
	require.Equal(t, 325*time.Second, <-timeouts)
	stop()
	require.NoError(t, <-ended)
}

func TestAServiceWithoutMetricsOrTimeoutsDoesNotStart(t *testing.T) {
	t.Parallel()
	for server, says := range map[*serve.Server]string{
		{ReadTimeout: time.Minute, Longest: time.Minute}: "test-metrics: serve",
		{Longest: time.Minute}:                           "test: no timeouts",
		{ReadTimeout: time.Minute}:                       "test: no timeouts",
	} {
		listener, beside := filetest.Both(serve.Ports{Host: "127.0.0.1", Service: "0"}.Listen(t.Context()))(t)
		if server.ReadTimeout > 0 && server.Longest > 0 {
			require.NoError(t, beside.Close())
		}
		server.Name, server.Log, server.Handler = "test", slog.New(slog.DiscardHandler), http.NotFoundHandler()
		require.ErrorContains(t, server.Run(t.Context(), listener, http.NotFoundHandler(), beside), says)
		require.ErrorIs(t, beside.Close(), net.ErrClosed)
	}
}

//nolint:paralleltest // the settings are the whole process's
func TestAServiceCollectsSeldomWithinItsMemoryUnlessTheEnvironmentSetsIt(t *testing.T) {
	for _, test := range []struct {
		environment string
		percent     int
		limit       int64
	}{{"", 400, 384 << 20}, {"off", 100, math.MaxInt64}} {
		t.Setenv("GOGC", test.environment)
		t.Setenv("GOMEMLIMIT", test.environment)
		_, _, stop, ended := running(t, &serve.Server{}, nothing)
		stop()
		require.NoError(t, <-ended)
		require.Equal(t, test.percent, debug.SetGCPercent(100))
		require.Equal(t, test.limit, debug.SetMemoryLimit(math.MaxInt64))
	}
}

func TestEachServerHasAPortOfItsOwn(t *testing.T) {
	t.Parallel()
	taken := filetest.Must(serve.Listen(t.Context(), "127.0.0.1", "0"))(t)
	defer func() { _ = taken.Close() }()
	_, port, err := net.SplitHostPort(taken.Addr().String())
	require.NoError(t, err)
	for of, ports := range map[string]serve.Ports{
		"PORT": {Service: port}, "METRICS_PORT": {Service: "0", Metrics: port},
	} {
		ports.Host = "127.0.0.1"
		_, _, err = ports.Listen(t.Context())
		require.EqualError(t, err, of+": port "+port+" is in use: another program listens there")
	}
	service, usual, err := serve.Ports{Host: "127.0.0.1", Service: "00"}.Listen(t.Context()) // a free one too
	if err != nil {
		require.ErrorContains(t, err, "9090") // the port is in use
	} else {
		require.Equal(t, "127.0.0.1:9090", usual.Addr().String())
		require.NoError(t, errors.Join(service.Close(), usual.Close()))
	}
	for ports, wrong := range map[serve.Ports]bool{
		{Service: "8080"}: false, {Service: "8080", Metrics: "8080"}: true, {Service: "9090"}: true,
		{Service: "9090", Metrics: "9091"}: false,
		{Service: "0"}:                     false, {Service: "0", Metrics: "0"}: false,
		{Service: "8080", Metrics: "0"}: false,
	} {
		require.Equal(t, wrong, ports.Check() != nil, ports)
	}
}

func TestRecoverAnswersAProblemAndNeverPrintsThePanicsValue(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	handler := serve.Recover(slog.New(slog.NewJSONHandler(&log, nil)),
		http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			panic("marta@example.com")
		}))
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
	require.Equal(t, http.StatusInternalServerError, w.Code)
	require.Equal(t, "application/problem+json", w.Header().Get("Content-Type"))
	body := filetest.Must(io.ReadAll(w.Body))(t)
	require.Equal(t, "internal", filetest.JSON[serve.Problem](t, body).Code)
	require.NotContains(t, log.String()+string(body), "marta")
	require.Contains(t, log.String(), `"type":"string"`)
}

type coded int

func (c coded) Error() string { return "coded" }
func (c coded) ExitCode() int { return int(c) }

func TestAnErrorHasItsExitCode(t *testing.T) {
	t.Parallel()
	for want, err := range map[int]error{
		1: errors.New("plain"), 2: coded(2), 3: fmt.Errorf("wrapped: %w", coded(3)),
		4: errors.Join(errors.New("plain"), coded(4)),
	} {
		require.Equal(t, want, serve.ExitCode(err))
	}
}

func TestABodyClaimsItsMemoryBeforeItIsRead(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		size, room int
		announced  bool
		want       error
	}{
		"a body that fits":                   {9000, 50_000, false, nil},
		"one that says its size":             {9000, 50_000, true, nil},
		"one for which there is no room":     {1, 100, false, serve.ErrNoRoom},
		"one that grows out of the room":     {9000, 10_000, false, serve.ErrNoRoom},
		"one that is too large":              {10_001, 50_000, false, serve.ErrTooLarge},
		"one that says that it is too large": {10_001, 0, true, serve.ErrTooLarge},
	} {
		budget, text := semaphore.NewWeighted(int64(test.room)), strings.Repeat("x", test.size)
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader(text))
		if !test.announced {
			r.ContentLength = -1
		}
		var body serve.Body
		require.ErrorIs(t, body.Read(httptest.NewRecorder(), r, 10_000, budget), test.want, name)
		if test.want == nil {
			require.Equal(t, text, string(body.Bytes()), name)
			require.False(t, budget.TryAcquire(int64(test.room-test.size)), name)
		}
		body.Release(budget, 0)
		require.True(t, budget.TryAcquire(int64(test.room)), name)
	}
}

var (
	errGone    = errors.New("gone")
	errRefused = errors.New("refused")
	mapping    = serve.ErrorMapping{
		Known: []serve.KnownError{
			{Of: errGone, As: serve.Refuse(http.StatusNotFound, "gone", "It is not here.")},
			{Of: errRefused, As: serve.Refuse(http.StatusUnprocessableEntity, "refused", "")},
		},
		Last: serve.Refuse(http.StatusServiceUnavailable, "down", "Ask again.").After(5),
	}
)

func TestAnErrorIsAnsweredAsItsMappingSays(t *testing.T) {
	t.Parallel()
	own := serve.Refuse(http.StatusConflict, "own", "As it says itself.")
	for name, test := range map[string]struct {
		err  error
		want *serve.Problem
	}{
		"the first":         {errGone, mapping.Known[0].As},
		"one that wraps it": {fmt.Errorf("read: %w", errGone), mapping.Known[0].As},
		"the first of two":  {errors.Join(errRefused, errGone), mapping.Known[0].As},
		"one that says why": {
			fmt.Errorf("%w: too long", errRefused), serve.Refuse(http.StatusUnprocessableEntity, "refused",
				"too long"),
		},
		"any other":                          {errors.New("marta@example.com"), mapping.Last},
		"a problem":                          {own, own},
		"one that wraps a problem":           {fmt.Errorf("read: %w", own), own},
		"a problem before every known error": {errors.Join(errGone, own), own},
	} {
		require.Equal(t, test.want, mapping.Problem(test.err), name)
	}
	for want, failure := range map[string]error{`{"n":1}`: nil, `"code":"gone"`: errGone} {
		w := httptest.NewRecorder()
		does := func(*http.Request) (map[string]int, error) { return map[string]int{"n": 1}, failure }
		refuse := func(w http.ResponseWriter, _ *http.Request, err error) { mapping.Problem(err).Write(w) }
		serve.Answer(http.StatusCreated, does, refuse)(w, nil)
		require.Equal(t, failure == nil, w.Code == http.StatusCreated)
		require.Contains(t, w.Body.String(), want)
	}
}

func TestAProblemIsADocumentWithItsHeaders(t *testing.T) {
	t.Parallel()
	p := serve.Refuse(http.StatusServiceUnavailable, "down", "Ask again.").After(5)
	p.Authenticate, p.Violations = "Bearer", []pii.Violation{{Path: "a.b", Rule: "id"}}
	w := httptest.NewRecorder()
	p.Write(w)
	require.Equal(t, http.StatusServiceUnavailable, w.Code)
	require.Equal(t, []string{"5", "Bearer", "application/problem+json", "no-store"}, []string{
		w.Header().Get("Retry-After"), w.Header().Get("WWW-Authenticate"), w.Header().Get("Content-Type"),
		w.Header().Get("Cache-Control"),
	})
	require.JSONEq(t, `{"type":"urn:billhook:problem:down","title":"Service Unavailable","status":503,`+
		`"detail":"Ask again.","code":"down","violations":[{"path":"a.b","rule":"id"}]}`, w.Body.String())

	w = httptest.NewRecorder()
	mapping.Known[0].As.Write(w)
	require.NotContains(t, w.Header(), "Retry-After")
	require.NotContains(t, w.Header(), "Www-Authenticate")
}
