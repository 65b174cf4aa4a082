package serve_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/internal/platform/serve"
)

// line is a "listening" line of the log.
type line struct {
	Message string `json:"msg"`
	Address string `json:"address"`
	Service string `json:"service"`
}

// withMetrics runs a service and its metrics until end, which returns Run's error. It returns
// the two "listening" lines.
func withMetrics(t *testing.T, server *serve.Server, metrics http.Handler) (first, second line, end func() error) {
	t.Helper()
	reader, writer := io.Pipe()
	server.Log = slog.New(slog.NewJSONHandler(writer, nil))
	listener, err := serve.Listen(t.Context(), "127.0.0.1", "0")
	require.NoError(t, err)
	beside, err := serve.ListenMetrics(t.Context(), "127.0.0.1", "", "0")
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- server.RunWithMetrics(ctx, listener, metrics, beside) }()
	lines := bufio.NewScanner(reader)
	for _, said := range []*line{&first, &second} {
		require.True(t, lines.Scan())
		require.NoError(t, json.Unmarshal(lines.Bytes(), said))
	}
	require.Equal(t, listener.Addr().String(), first.Address)
	require.Equal(t, beside.Addr().String(), second.Address)
	return first, second, func() error {
		stop()
		return <-ended
	}
}

// ask returns the status of an answer; 0 where there is none.
func ask(t *testing.T, method, address, path string) int {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, "http://"+address+path, nil)
	if err != nil {
		return 0
	}
	response, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(request)
	if err != nil {
		return 0
	}
	_ = response.Body.Close()
	return response.StatusCode
}

func TestMetricsHaveAPortOfTheirOwnUntilTheServiceHasDrained(t *testing.T) {
	t.Parallel()
	inside, draining, release := make(chan struct{}), make(chan struct{}), make(chan struct{})
	first, second, end := withMetrics(t, &serve.Server{
		Name: "test", Drain: time.Minute, ReadTimeout: time.Minute, Longest: time.Minute, Draining: func() { close(draining) },
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/slow" {
				w.WriteHeader(http.StatusNotFound)
				return
			}
			close(inside)
			<-release
		}),
	}, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	require.Equal(t, line{"listening", first.Address, "test"}, first, "the first line is the service's")
	require.Equal(t, line{"listening", second.Address, "test-metrics"}, second)
	require.Equal(t, http.StatusNotFound, ask(t, http.MethodGet, first.Address, "/metrics"))
	require.Equal(t, http.StatusOK, ask(t, http.MethodGet, second.Address, "/metrics"))
	require.Equal(t, http.StatusNotFound, ask(t, http.MethodGet, second.Address, "/slow"), "the service is not there")
	require.Equal(t, http.StatusMethodNotAllowed, ask(t, http.MethodPost, second.Address, "/metrics"))

	slow := make(chan int, 1)
	go func() { slow <- ask(t, http.MethodGet, first.Address, "/slow") }()
	<-inside
	ended := make(chan error, 1)
	go func() { ended <- end() }()
	<-draining
	require.Equal(t, http.StatusOK, ask(t, http.MethodGet, second.Address, "/metrics"), "they can be read while it drains")
	close(release)
	require.Equal(t, http.StatusOK, <-slow)
	require.NoError(t, <-ended)
	require.Zero(t, ask(t, http.MethodGet, second.Address, "/metrics"), "and no longer")
}

// A scrape that hangs neither delays the end of the service nor makes it an error.
func TestAHangingScrapeIsCutOffAtTheEnd(t *testing.T) {
	t.Parallel()
	inside := make(chan struct{})
	_, second, end := withMetrics(t, &serve.Server{
		Name: "test", Drain: time.Minute, ReadTimeout: time.Minute, Longest: time.Minute, Handler: http.NotFoundHandler(),
	}, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(inside)
		<-r.Context().Done()
	}))
	scraped := make(chan int, 1)
	go func() { scraped <- ask(t, http.MethodGet, second.Address, "/metrics") }()
	<-inside
	require.NoError(t, end())
	require.Zero(t, <-scraped)
}

func TestAServiceWithoutItsMetricsOrItsTimeoutsEnds(t *testing.T) {
	t.Parallel()
	for says, server := range map[string]*serve.Server{
		"test-metrics: serve":    {ReadTimeout: time.Minute, Longest: time.Minute},
		"test: no read timeout":  {Longest: time.Minute},
		"test: no write timeout": {ReadTimeout: time.Minute},
	} {
		listener, err := serve.Listen(t.Context(), "127.0.0.1", "0")
		require.NoError(t, err)
		beside, err := serve.Listen(t.Context(), "127.0.0.1", "0")
		require.NoError(t, err)
		if server.ReadTimeout > 0 && server.Longest > 0 {
			require.NoError(t, beside.Close())
		}
		server.Name, server.Log, server.Handler = "test", slog.New(slog.DiscardHandler), http.NotFoundHandler()
		require.ErrorContains(t, server.RunWithMetrics(t.Context(), listener, http.NotFoundHandler(), beside), says)
		require.ErrorIs(t, beside.Close(), net.ErrClosed)
	}
}

func TestEachServerHasAPortOfItsOwn(t *testing.T) {
	t.Parallel()
	taken, err := serve.ListenMetrics(t.Context(), "127.0.0.1", "0", "8080")
	require.NoError(t, err)
	defer func() { _ = taken.Close() }()
	_, port, err := net.SplitHostPort(taken.Addr().String())
	require.NoError(t, err)
	_, err = serve.Listen(t.Context(), "127.0.0.1", port)
	require.ErrorIs(t, err, serve.ErrPortInUse)
	_, err = serve.ListenMetrics(t.Context(), "127.0.0.1", port, "8080")
	require.ErrorContains(t, err, "METRICS_PORT: port "+port, "a port that is taken is named by its variable")
	require.ErrorContains(t, (&serve.Server{Name: "test"}).RunOn(t.Context(), serve.Ports{Host: "127.0.0.1", Service: port}, nil), "PORT: port "+port)
	beside, err := serve.ListenMetrics(t.Context(), "127.0.0.1", "", "0")
	require.NoError(t, err, "where the service's own port is chosen, so is this")
	require.NoError(t, beside.Close())
	usual, err := serve.ListenMetrics(t.Context(), "127.0.0.1", "", "8080")
	if err != nil {
		require.ErrorContains(t, err, ":9090") // the port is in use
	} else {
		require.Equal(t, "127.0.0.1:9090", usual.Addr().String())
		require.NoError(t, usual.Close())
	}
	for ports, wrong := range map[serve.Ports]bool{
		{Service: "8080"}: false, {Service: "8080", Metrics: "8080"}: true, {Service: "9090"}: true, {Service: "9090", Metrics: "9091"}: false,
		{Service: "0"}: false, {Service: "0", Metrics: "0"}: false, {Service: "8080", Metrics: "0"}: false,
	} {
		require.Equal(t, wrong, ports.Check() != nil, ports)
	}
}
