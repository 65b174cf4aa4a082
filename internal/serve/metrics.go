package serve

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/go-chi/chi/v5"
)

// defaultMetricsPort is where metrics are unless METRICS_PORT says otherwise.
const defaultMetricsPort = "9090"

// Ports is where a service listens.
type Ports struct {
	// Host is the address of both; empty: every address of the machine.
	Host string
	// Service and Metrics are port numbers; see Listen and ListenMetrics.
	Service, Metrics string
}

// RunOn opens the service's port and that of its metrics, and is then RunWithMetrics.
func (s *Server) RunOn(ctx context.Context, ports Ports, metrics http.Handler) error {
	listener, err := Listen(ctx, ports.Host, ports.Service)
	if err != nil {
		return err
	}
	on, err := ListenMetrics(ctx, ports.Host, ports.Metrics, ports.Service)
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	return s.RunWithMetrics(ctx, listener, metrics, on)
}

// ListenMetrics opens the port of a service's metrics, which nothing is routed to from
// outside. An empty one is 9090; beside a service that has its own port chosen, it is
// chosen too, since there are likely others on the machine. Port 0 chooses one.
func ListenMetrics(ctx context.Context, host, port, ofService string) (net.Listener, error) {
	switch {
	case port != "":
	case ofService == "0":
		port = "0"
	default:
		port = defaultMetricsPort
	}
	listener, err := Listen(ctx, host, port)
	if err != nil {
		return nil, fmt.Errorf("METRICS_PORT: %w", err)
	}
	return listener, nil
}

// RunWithMetrics is Run, and serves GET /metrics on a listener of its own meanwhile, so
// that who reads them, however slowly or often, takes no connection and no port of the
// service. A second line with the message "listening" tells their address; its service is
// the name with "-metrics" behind it. They can be read until the service has drained.
func (s *Server) RunWithMetrics(ctx context.Context, listener net.Listener, metrics http.Handler, on net.Listener) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	router := chi.NewRouter()
	router.Use(func(next http.Handler) http.Handler { return Recover(s.Log, next) })
	router.Method(http.MethodGet, "/metrics", metrics)
	plain(router)
	beside := &Server{Name: s.Name + "-metrics", Handler: router, Log: s.Log, ReadTimeout: 5 * time.Second, Longest: 5 * time.Second}
	ended := make(chan error, 1)
	began := false
	err := s.run(ctx, listener, func() {
		began = true
		go func() {
			ended <- beside.Run(life, on)
			stop() // a service that nobody can watch does not go on
		}()
	})
	if !began {
		return errors.Join(err, on.Close())
	}
	end()
	besides := <-ended
	if errors.Is(besides, context.DeadlineExceeded) {
		besides = nil // a scrape was cut off, and comes again
	}
	return errors.Join(err, besides)
}
