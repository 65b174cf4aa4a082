package serve

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/go-chi/chi/v5"
)

// defaultMetricsPort is used where METRICS_PORT is empty.
const defaultMetricsPort = "9090"

// Ports holds the addresses of a service.
type Ports struct {
	// Host is the address of both ports; empty: every address of the machine.
	Host string
	// Service and Metrics are port numbers; see Listen and ListenMetrics.
	Service, Metrics string
}

// Check refuses one port for two servers.
func (p Ports) Check() error {
	if p.Service != "0" && p.Service == cmp.Or(p.Metrics, defaultMetricsPort) {
		return errors.New("METRICS_PORT: must be another port than PORT")
	}
	return nil
}

// RunOn opens the ports of the service and its metrics, and calls RunWithMetrics.
func (s *Server) RunOn(ctx context.Context, ports Ports, metrics http.Handler) error {
	listener, err := Listen(ctx, ports.Host, ports.Service)
	if err != nil {
		return fmt.Errorf("PORT: %w", err)
	}
	on, err := ListenMetrics(ctx, ports.Host, ports.Metrics, ports.Service)
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	return s.RunWithMetrics(ctx, listener, metrics, on)
}

// ListenMetrics opens the port of a service's metrics, which is not reachable from outside. An
// empty port is 9090, or a free one where the service's port is 0: other services are likely on
// the machine. Port 0 is a free one.
func ListenMetrics(ctx context.Context, host, port, ofService string) (net.Listener, error) {
	if port == "" && ofService != "0" {
		port = defaultMetricsPort
	}
	listener, err := Listen(ctx, host, port)
	if err != nil {
		return nil, fmt.Errorf("METRICS_PORT: %w", err)
	}
	return listener, nil
}

// RunWithMetrics is Run, and serves GET /metrics on a listener of its own. Slow or frequent
// scrapes take no connection of the service. The metrics have a "listening" line of their own,
// in which the service is the name with "-metrics" appended. They are served until the service
// has drained.
func (s *Server) RunWithMetrics(ctx context.Context, listener net.Listener, metrics http.Handler, on net.Listener) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	router := chi.NewRouter()
	router.Use(func(next http.Handler) http.Handler { return Recover(s.Log, next) })
	router.Method(http.MethodGet, "/metrics", metrics)
	problemsOfRouting(router)
	metricsServer := &Server{Name: s.Name + "-metrics", Handler: router, Log: s.Log, ReadTimeout: 5 * time.Second, Longest: 5 * time.Second}
	ended := make(chan error, 1)
	began := false
	err := s.run(ctx, listener, func() {
		began = true
		go func() {
			ended <- metricsServer.Run(life, on)
			stop() // a service without metrics must not go on
		}()
	})
	if !began {
		return errors.Join(err, on.Close())
	}
	end()
	metricsErr := <-ended
	if errors.Is(metricsErr, context.DeadlineExceeded) {
		metricsErr = nil // a scrape was cut off; the scraper tries again
	}
	return errors.Join(err, metricsErr)
}
