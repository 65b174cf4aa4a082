package worker_test

import (
	"bufio"
	"context"
	"log/slog"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/internal/compose/worker"
	"billhook/internal/console/ops"
	"billhook/internal/platform/serve"
)

// A drain waits for the requests that are under way, and a tail would be one for ten minutes.
func TestADrainEndsTheTails(t *testing.T) {
	t.Parallel()
	w, err := worker.New(config(t, func(c *worker.Config) { c.Access = ops.Access{OpenOnLoopback: true} }))
	require.NoError(t, err)
	listener, err := serve.Listen(t.Context(), "127.0.0.1", "0")
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	server := &serve.Server{Name: "worker", Handler: w, Log: slog.New(slog.DiscardHandler), Drain: 20 * time.Second, ReadTimeout: time.Minute, Longest: w.Longest(), Draining: w.Drain}
	go func() { ended <- server.Run(ctx, listener) }()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+listener.Addr().String()+"/v1/ops/events/tail", nil)
	require.NoError(t, err)
	response, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(request)
	require.NoError(t, err)
	defer func() { _ = response.Body.Close() }()
	require.Equal(t, http.StatusOK, response.StatusCode)
	lines := bufio.NewScanner(response.Body)
	require.True(t, lines.Scan())
	require.Equal(t, "retry: 2000", lines.Text())
	stop()
	require.NoError(t, <-ended)
}
