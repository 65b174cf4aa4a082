// Package serve owns what every HTTP service of the program shares: listening,
// draining, health, problem documents and the last-resort recovery of a panic. It
// refuses to know any route's meaning.
package serve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"sync"
	"time"

	"github.com/go-chi/chi/v5"
)

// Server is one HTTP service.
type Server struct {
	// Name stands in the "listening" line.
	Name    string
	Handler http.Handler
	Log     *slog.Logger
	// Drain bounds how long requests in flight may take after ctx ends.
	Drain time.Duration
	// ReadTimeout bounds how long a sender may take for a whole request. It must be set:
	// without it a few slow senders hold the service for as long as they like.
	ReadTimeout time.Duration
	// Longest is the longest that the handler works at an answer once it has the request. It
	// must be set: whoever has not read the answer soon after it is cut off, and what is cut
	// off too early is done and not answered.
	Longest time.Duration
	// Draining is called when ctx ends: the handler says from then on that it is not ready,
	// and may refuse new work. If it is set, the listener stays open, so that it is heard,
	// until everything that came before has been answered.
	Draining func()
}

// toRead is how long a reader may take for an answer.
const toRead = 5 * time.Second

// Listen opens the port on every address; port 0 chooses one. host may be empty.
func Listen(ctx context.Context, host, port string) (net.Listener, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(host, port))
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	return listener, nil
}

// Run serves on the listener until ctx ends, then drains. It prints one line with
// the message "listening" and the address once requests are accepted, and returns
// nil when everything in flight was answered in time.
func (s *Server) Run(ctx context.Context, listener net.Listener) error {
	return s.run(ctx, listener, func() {})
}

// run calls listening once the line is printed.
func (s *Server) run(ctx context.Context, listener net.Listener, listening func()) error {
	switch {
	case s.ReadTimeout <= 0:
		return errors.Join(fmt.Errorf("%s: no read timeout", s.Name), listener.Close())
	case s.Longest <= 0:
		return errors.Join(fmt.Errorf("%s: no write timeout", s.Name), listener.Close())
	}
	flight := inFlight{none: make(chan struct{})}
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
		// What is still running is cut off: its sender gets no answer and sends again.
		err = errors.Join(fmt.Errorf("%s: drain: %w", s.Name, err), server.Close())
	}
	if ended := <-served; !errors.Is(ended, http.ErrServerClosed) {
		err = errors.Join(err, ended)
	}
	return err
}

// inFlight counts requests until the drain begins, and then how many of them are left.
type inFlight struct {
	mu       sync.Mutex
	draining bool
	requests int
	// none is closed when the drain has begun and none is left.
	none chan struct{}
}

func (f *inFlight) count(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if f.enter() {
			defer f.leave()
		}
		next.ServeHTTP(w, r)
	})
}

// enter reports whether the request came before the drain.
func (f *inFlight) enter() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.draining {
		f.requests++
	}
	return !f.draining
}

func (f *inFlight) leave() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.requests--; f.draining && f.requests == 0 {
		close(f.none)
	}
}

// drained begins the drain.
func (f *inFlight) drained() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.draining = true; f.requests == 0 {
		close(f.none)
	}
	return f.none
}

// unusedConns are connections that have not carried a request yet. A client's pool
// opens some in advance; Shutdown would wait five seconds for each, longer than a
// drain may take.
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
		_ = conn.Close() // nobody has said anything on it
	}
}

// Recover answers 500 when the handler panics, and logs where, but never the
// panic's value, which may hold anything.
func Recover(log *slog.Logger, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			switch value := recover(); value {
			case nil:
			case http.ErrAbortHandler:
				panic(value) // net/http's own way to cut a connection
			default:
				log.LogAttrs(r.Context(), slog.LevelError, "panic",
					slog.String("type", fmt.Sprintf("%T", value)), slog.String("stack", string(debug.Stack())))
				Refuse(http.StatusInternalServerError, "internal", "An internal error. Nothing was accepted; send it again.").Write(w)
			}
		}()
		next.ServeHTTP(w, r)
	})
}

// Health adds /health/live, which answers 200 for as long as the process can answer
// at all, and /health/ready, which answers 503 once draining reports true. It also
// turns chi's own answers to an unknown path or method into problem documents.
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
	plain(r)
}

// plain turns chi's own answers into problem documents.
func plain(r chi.Router) {
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
