// Package serve owns what every HTTP service of the program shares: listening, draining, health, problem
// documents and the recovery of panics. It does not know the meaning of a route.
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
	"sync/atomic"
	"syscall"
	"time"

	"github.com/go-chi/chi/v5"
)

// Server is one HTTP service.
type Server struct {
	Name    string
	Handler http.Handler
	Log     *slog.Logger
	// Drain bounds how long requests in flight may take after ctx ends.
	Drain time.Duration
	// ReadTimeout bounds the time in which a request must arrive. It is required, because otherwise a few slow
	// senders could occupy the service.
	ReadTimeout time.Duration
	// Longest is the most time from the request's arrival to the handler's answer. It is required. A slow reader
	// is cut off soon after it. If it is too short, the handler's work is done but its answer is lost.
	Longest time.Duration
	// Draining is called when ctx ends. From then on the handler reports that it is not ready, and may refuse
	// new work; for this the listener stays open until all earlier requests are answered.
	Draining func()
}

// toRead is the time that a client has to read an answer.
const toRead = 5 * time.Second

// Listen opens the port; 0 chooses a free one. An empty host means every address.
func Listen(ctx context.Context, host, port string) (net.Listener, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(host, port))
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("port %s is in use: another program listens there", port)
	}
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	return listener, nil
}

func (s *Server) run(ctx context.Context, listener net.Listener, listening func()) error {
	var early sync.RWMutex // requests that began before the drain hold a read lock
	server := s.server(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if early.TryRLock() {
			defer early.RUnlock()
		}
		s.Handler.ServeHTTP(w, r)
	}), s.ReadTimeout, s.Longest)
	// Connections that clients opened in advance, without a request: Shutdown would wait five seconds for each.
	var unused sync.Map
	var closing atomic.Bool
	server.ConnState = func(conn net.Conn, state http.ConnState) {
		if state != http.StateNew {
			unused.Delete(conn)
			return
		}
		unused.Store(conn, nil)
		if closing.Load() {
			_ = conn.Close() // accepted while the listener was closing
		}
	}
	server.RegisterOnShutdown(func() {
		closing.Store(true)
		for conn := range unused.Range {
			if _, still := unused.LoadAndDelete(conn); still {
				_ = conn.(net.Conn).Close() // it has carried no request
			}
		}
	})
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	collectSeldom()
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
		drained := make(chan struct{})
		go func() {
			early.Lock() // once it waits, no request gets the read lock
			close(drained)
		}()
		select {
		case <-drained:
		case <-drain.Done():
		}
	}
	err := server.Shutdown(drain)
	if err != nil {
		// Running requests are cut off. Their senders get no answer and retry.
		err = errors.Join(fmt.Errorf("%s: drain: %w", s.Name, err), server.Close())
	}
	if ended := <-served; !errors.Is(ended, http.ErrServerClosed) {
		err = errors.Join(err, ended)
	}
	return err
}

// collectSeldom trades memory for the processor, of which garbage takes a tenth under load. It is called once
// the service has started, which needs little memory. Its limit is three quarters of an instance.
func collectSeldom() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400)
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(3 * DefaultBodyBudget)
	}
}

// server returns a server for a handler. The write timeout begins at the end of the headers.
func (s *Server) server(h http.Handler, read, longest time.Duration) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       read,
		WriteTimeout:      read + longest + toRead,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    32 << 10,
		ErrorLog:          slog.NewLogLogger(s.Log.Handler(), slog.LevelDebug),
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
				Refuse(http.StatusInternalServerError, "internal",
					"An internal error. Nothing was accepted; send it again.").Write(w)
			}
		}()
		next.ServeHTTP(w, r)
	})
}

// Health adds /health/live, which always answers 200, and /health/ready, which answers 503 once draining
// reports true. It also replaces chi's answers to an unknown path or method by problem documents.
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

// Main is the main function of a program. It calls run with a context that ends on SIGINT or SIGTERM. It
// prints an error after the name, and exits with its code; see ExitCode.
func Main(name string, run func(ctx context.Context) error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, name+":", err)
		os.Exit(ExitCode(err))
	}
}

// ExitCode returns the exit code of a program that ends with the error: from the method ExitCode of the error
// or of one that it wraps, else 1. By convention 2 means wrong use, and 1 a failure.
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

// Ports holds the addresses of a service.
type Ports struct {
	// Host is the address of both ports; empty: every address of the machine.
	Host string
	// Service and Metrics are port numbers; see Listen. An empty Metrics means 9090, or any free port if Service
	// is 0, since several services are then likely to run on the machine.
	Service, Metrics string
}

func (p Ports) metrics() string {
	if p.Service == "0" {
		return cmp.Or(p.Metrics, "0")
	}
	return cmp.Or(p.Metrics, "9090")
}

// Check refuses the same port for both servers.
func (p Ports) Check() error {
	if p.Service != "0" && p.Service == p.metrics() {
		return errors.New("METRICS_PORT: must be another port than PORT")
	}
	return nil
}

// Listen opens the service's port and its metrics port, which is not reachable from outside.
func (p Ports) Listen(ctx context.Context) (service, metrics net.Listener, err error) {
	if service, err = Listen(ctx, p.Host, p.Service); err != nil {
		return nil, nil, fmt.Errorf("PORT: %w", err)
	}
	if metrics, err = Listen(ctx, p.Host, p.metrics()); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("METRICS_PORT: %w", err), service.Close())
	}
	return service, metrics, nil
}

// Run serves on the listener until ctx ends, then drains, and returns nil if all requests in flight were
// answered in time. On a second listener it serves GET /metrics until the service has drained, so that
// scrapes take no connections of the service. It logs a line "listening" with the address of each.
func (s *Server) Run(
	ctx context.Context, listener net.Listener, metrics http.Handler, on net.Listener,
) error {
	if s.ReadTimeout <= 0 || s.Longest <= 0 { // slow clients could occupy it for ever
		return errors.Join(fmt.Errorf("%s: no timeouts", s.Name), listener.Close(), on.Close())
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	router := chi.NewRouter()
	router.Use(func(next http.Handler) http.Handler { return Recover(s.Log, next) })
	router.Method(http.MethodGet, "/metrics", metrics)
	problemsOfRouting(router)
	beside, ended := s.server(router, 5*time.Second, 5*time.Second), make(chan error, 1)
	err := s.run(ctx, listener, func() {
		s.Log.Info("listening", "address", on.Addr().String(), "service", s.Name+"-metrics")
		go func() {
			ended <- beside.Serve(on)
			stop() // a service without metrics must not continue
		}()
	})
	err = errors.Join(err, beside.Close()) // a scrape is cut off; the scraper tries again
	if failed := <-ended; !errors.Is(failed, http.ErrServerClosed) {
		err = errors.Join(err, fmt.Errorf("%s-metrics: serve: %w", s.Name, failed))
	}
	return err
}
