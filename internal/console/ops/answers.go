package ops

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"

	"billhook/internal/platform/store"
)

// HeaderSkipped is the header that says how many unreadable documents the lists of an answer leave out, and the first keys.
const HeaderSkipped = "Billhook-Skipped"

const maxSkipped = 10

// Skipped collects the documents that lists have left out. It is safe for concurrent use.
type Skipped struct {
	mu    sync.Mutex
	count int
	keys  []string
	// around hears of them too: a page makes several requests.
	around *Skipped
}

type skippedKey struct{}

// CollectSkipped returns a context whose queries tell the collector.
func CollectSkipped(ctx context.Context) (context.Context, *Skipped) {
	s := &Skipped{}
	s.around, _ = ctx.Value(skippedKey{}).(*Skipped)
	return context.WithValue(ctx, skippedKey{}, s), s
}

// Skip tells the collector of a context, if it has one, of a document that was left out.
func Skip(ctx context.Context, key store.Key) {
	s, _ := ctx.Value(skippedKey{}).(*Skipped)
	for ; s != nil; s = s.around {
		s.mu.Lock()
		if s.count++; len(s.keys) < maxSkipped {
			s.keys = append(s.keys, key.Collection+"/"+url.PathEscape(key.ID))
		}
		s.mu.Unlock()
	}
}

// String is what the header says; empty: nothing was left out.
func (s *Skipped) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.count == 0 {
		return ""
	}
	return fmt.Sprintf("%d: %s", s.count, strings.Join(s.keys, ", "))
}

func saying(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, skipped := CollectSkipped(r.Context())
		next.ServeHTTP(&sayer{ResponseWriter: w, skipped: skipped}, r.WithContext(ctx))
	})
}

type sayer struct {
	http.ResponseWriter
	skipped *Skipped
	begun   bool
}

// Unwrap gives a stream its connection.
func (s *sayer) Unwrap() http.ResponseWriter { return s.ResponseWriter }

func (s *sayer) WriteHeader(status int) {
	if said := s.skipped.String(); said != "" && !s.begun {
		s.Header().Set(HeaderSkipped, said)
	}
	s.begun = true
	s.ResponseWriter.WriteHeader(status)
}

func (s *sayer) Write(part []byte) (int, error) {
	if !s.begun {
		s.WriteHeader(http.StatusOK)
	}
	return s.ResponseWriter.Write(part)
}

const toWrite = 5 * time.Second

// Stream writes server-sent events.
type Stream struct {
	to    http.ResponseWriter
	by    *http.ResponseController
	begun bool
}

// NewStream is a stream that has not begun: until the first event another answer can be given.
func NewStream(w http.ResponseWriter) *Stream {
	return &Stream{to: w, by: http.NewResponseController(w)}
}

// Begun reports whether anything was written.
func (s *Stream) Begun() bool { return s.begun }

// Send writes an event with its data as JSON. An empty id leaves the client's last one.
func (s *Stream) Send(id, event string, data any) error {
	text, err := json.Marshal(data, json.Deterministic(true))
	if err != nil {
		return err
	}
	if id != "" {
		id = "id: " + id + "\n"
	}
	return s.write(id + "event: " + event + "\ndata: " + string(text) + "\n\n")
}

// Beat writes a comment, by which both sides learn that the other is still there.
func (s *Stream) Beat() error { return s.write(":\n\n") }

func (s *Stream) write(text string) error {
	if !s.begun {
		s.begun = true
		header := s.to.Header()
		header.Set("Content-Type", "text/event-stream")
		header.Set("Cache-Control", "no-store")
		header.Set("X-Content-Type-Options", "nosniff")
		header.Set("X-Accel-Buffering", "no") // a proxy passes on what is written
		// The request has arrived, and its connection is read for its end alone.
		if err := s.by.SetReadDeadline(time.Time{}); err != nil && !errors.Is(err, http.ErrNotSupported) {
			return err
		}
		text = fmt.Sprintf("retry: %d\n\n", TailEvery.Milliseconds()) + text
	}
	if err := s.by.SetWriteDeadline(time.Now().Add(toWrite)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	if _, err := s.to.Write([]byte(text)); err != nil {
		return err
	}
	return s.by.Flush()
}
