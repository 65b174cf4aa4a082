package ops

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/go-json-experiment/json"
)

// toWrite is how long a client may take to take an event.
const toWrite = 5 * time.Second

// Stream writes server-sent events. An event that its client does not take within five seconds ends the
// stream with an error.
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
