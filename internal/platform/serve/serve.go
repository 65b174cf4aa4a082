// Package serve owns what every HTTP service of the program shares: listening, draining, health, problem documents and
// the recovery of panics. It refuses to know the meaning of a route.
package serve

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"runtime/debug"
	"sync"
	"syscall"
	"time"

	"github.com/go-chi/chi/v5"
)

// Server is one HTTP service.
type Server struct {
	Name    string
	Handler http.Handler
	Log     *slog.Logger
	// Drain bounds requests in flight after ctx ends.
	Drain time.Duration
	// ReadTimeout bounds the time in which a request must arrive. It is required: otherwise a
	// few slow senders occupy the service.
	ReadTimeout time.Duration
	// Longest is the handler's longest time for an answer once the request has arrived. It is required. A slow reader is
	// cut off soon after it. If it is too short, work is done and its answer is lost.
	Longest time.Duration
	// Draining is called when ctx ends. From then on the handler reports that it is not ready, and may refuse new work. If
	// Draining is set, the listener stays open for these answers until all earlier requests are answered.
	Draining func()
}

// toRead is how long a client may take to read an answer.
const toRead = 5 * time.Second

// ErrPortInUse is the error of a port on which another program listens.
var ErrPortInUse = errors.New("another program listens there")

// Listen opens the port; 0 chooses a free one. An empty host is every address. The error of a
// port that is taken wraps ErrPortInUse.
func Listen(ctx context.Context, host, port string) (net.Listener, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(host, port))
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("port %s is in use: %w", port, ErrPortInUse)
	}
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	return listener, nil
}

// Run serves on the listener until ctx ends, then drains. It logs one line with the message "listening" and the address
// once requests are accepted. It returns nil when all requests in flight were answered in time.
func (s *Server) Run(ctx context.Context, listener net.Listener) error {
	return s.run(ctx, listener, func() {})
}

func (s *Server) run(ctx context.Context, listener net.Listener, listening func()) error {
	switch {
	case s.ReadTimeout <= 0:
		return errors.Join(fmt.Errorf("%s: no read timeout", s.Name), listener.Close())
	case s.Longest <= 0:
		return errors.Join(fmt.Errorf("%s: no write timeout", s.Name), listener.Close())
	}
	var flight inFlight
	server := &http.Server{
		Handler:           flight.count(s.Handler),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       s.ReadTimeout,
		WriteTimeout:      s.ReadTimeout + s.Longest + toRead, // net/http counts from the end of the headers
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    32 << 10,
		ErrorLog:          slog.NewLogLogger(s.Log.Handler(), slog.LevelDebug),
	}
	unused := unusedConns{conns: map[net.Conn]struct{}{}}
	server.ConnState = unused.track
	server.RegisterOnShutdown(unused.close)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	s.Log.Info("listening", "address", listener.Addr().String(), "service", s.Name)
	listening()

	select {
	case err := <-served:
		return fmt.Errorf("%s: serve: %w", s.Name, err)
	case <-ctx.Done():
	}
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.Drain)
	defer cancel()
	if s.Draining != nil {
		s.Draining()
		select {
		case <-flight.drained():
		case <-drain.Done():
		}
	}
	err := server.Shutdown(drain)
	if err != nil {
		// Running requests are cut off. Their senders get no answer and try again.
		err = errors.Join(fmt.Errorf("%s: drain: %w", s.Name, err), server.Close())
	}
	if ended := <-served; !errors.Is(ended, http.ErrServerClosed) {
		err = errors.Join(err, ended)
	}
	return err
}

type inFlight struct {
	mu       sync.Mutex
	draining bool
	requests sync.WaitGroup
}

func (f *inFlight) count(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.mu.Lock()
		if !f.draining {
			f.requests.Add(1)
			defer f.requests.Done()
		}
		f.mu.Unlock()
		next.ServeHTTP(w, r)
	})
}

func (f *inFlight) drained() <-chan struct{} {
	f.mu.Lock()
	f.draining = true
	f.mu.Unlock()
	none := make(chan struct{})
	go func() {
		f.requests.Wait()
		close(none)
	}()
	return none
}

// unusedConns are connections that clients opened in advance. Shutdown would wait five seconds for each.
type unusedConns struct {
	mu     sync.Mutex
	closed bool
	conns  map[net.Conn]struct{}
}

func (u *unusedConns) track(conn net.Conn, state http.ConnState) {
	u.mu.Lock()
	defer u.mu.Unlock()
	switch {
	case state != http.StateNew:
		delete(u.conns, conn)
	case u.closed:
		_ = conn.Close() // accepted while the listener was closing
	default:
		u.conns[conn] = struct{}{}
	}
}

func (u *unusedConns) close() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.closed = true
	for conn := range u.conns {
		_ = conn.Close() // it has carried no request
	}
}

// Recover answers 500 when the handler panics. It logs the stack, but never the panic's value,
// which may hold personal data.
func Recover(log *slog.Logger, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			switch value := recover(); value {
			case nil:
			case http.ErrAbortHandler:
				panic(value) // net/http uses it to cut a connection
			default:
				log.LogAttrs(r.Context(), slog.LevelError, "panic",
					slog.String("type", fmt.Sprintf("%T", value)), slog.String("stack", string(debug.Stack())))
				Refuse(http.StatusInternalServerError, "internal", "An internal error. Nothing was accepted; send it again.").Write(w)
			}
		}()
		next.ServeHTTP(w, r)
	})
}

// Health adds /health/live, which always answers 200, and /health/ready, which answers 503 once draining reports true.
// It also makes problem documents of chi's answers to an unknown path or method.
func Health(r chi.Router, draining func() bool) {
	r.Get("/health/live", func(w http.ResponseWriter, _ *http.Request) {
		WriteJSON(w, http.StatusOK, map[string]string{"status": "live"})
	})
	r.Get("/health/ready", func(w http.ResponseWriter, _ *http.Request) {
		if draining() {
			Refuse(http.StatusServiceUnavailable, "shutting_down", "This instance is shutting down.").Write(w)
			return
		}
		WriteJSON(w, http.StatusOK, map[string]string{"status": "ready"})
	})
	problemsOfRouting(r)
}

func problemsOfRouting(r chi.Router) {
	r.NotFound(func(w http.ResponseWriter, _ *http.Request) {
		Refuse(http.StatusNotFound, "not_found", "There is nothing at this path.").Write(w)
	})
	r.MethodNotAllowed(func(w http.ResponseWriter, request *http.Request) {
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			if r.Match(chi.NewRouteContext(), method, request.URL.Path) {
				w.Header().Add("Allow", method)
			}
		}
		Refuse(http.StatusMethodNotAllowed, "method_not_allowed", "This path does not take that method.").Write(w)
	})
}

// Main is the main function of a program. It calls run with a context that ends on SIGINT or
// SIGTERM. It prints an error behind the name, and exits with its code; see ExitCode.
func Main(name string, run func(ctx context.Context) error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, name+":", err)
		os.Exit(ExitCode(err))
	}
}

// ExitCode is the exit code of a program that ends with the error: what its method ExitCode says,
// or that of one that it wraps, and else 1. By convention 2 is wrong use, and 1 is a failure.
func ExitCode(err error) int {
	var coded interface {
		error
		ExitCode() int
	}
	if errors.As(err, &coded) {
		return coded.ExitCode()
	}
	return 1
}

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

// ListenMetrics opens the port of a service's metrics, which is not reachable from outside. An empty port is 9090, or a
// free one where the service's port is 0: other services are likely on the machine. Port 0 is a free one.
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

// RunWithMetrics is Run, and serves GET /metrics on a listener of its own until the service has drained: scrapes take
// no connection of the service.
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
