package standin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"billhook/catalog"
	"billhook/internal/pipeline/pause"
	"billhook/internal/platform/boltstore"
)

// Loaded counts the messages that a file held.
type Loaded struct {
	// Waiting counts messages that wait for delivery; Gone counts messages of subscriptions that are gone.
	Waiting, Gone int
}

// logged is one line of the file: a message that a subscription got, or is done with, or a change of Paused.
type logged struct {
	Subscription string   `json:"subscription"`
	Got          *Message `json:"got,omitempty"`
	Done         string   `json:"done,omitempty"`
	Paused       *bool    `json:"paused,omitempty"`
}

// Load loads an earlier simulator's file at the path, if there is one. From then on every change is written
// there before a publish is confirmed, so that waiting messages survive a killed process. Call it before
// Publish and PushTo. The number of failed pushes is written only at Close.
func (s *Simulator) Load(path string) (Loaded, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	loaded, err := s.load(path)
	if err == nil {
		err = s.rewrite(path)
	}
	if err == nil {
		s.log, err = os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0o600) //nolint:gosec // it is the caller's
	}
	if err != nil {
		return Loaded{}, fmt.Errorf("standin: load: %w", err)
	}
	return loaded, nil
}

// load enqueues the messages that were not done. It ignores a truncated last line, which was not confirmed.
func (s *Simulator) load(path string) (loaded Loaded, err error) {
	data, err := os.ReadFile(path) //nolint:gosec // the path is the caller's
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return loaded, err
	}
	var messages []logged
	done := map[logged]bool{}
	for line := range bytes.Lines(data) {
		if !bytes.HasSuffix(line, []byte{'\n'}) {
			break
		}
		var entry logged
		if err := json.Unmarshal(line, &entry); err != nil {
			return loaded, boltstore.Damaged(path)
		}
		switch sub := s.subs[entry.Subscription]; {
		case entry.Got != nil:
			messages = append(messages, entry)
		case entry.Paused == nil:
			done[entry] = true
		case sub != nil:
			sub.paused = *entry.Paused
		}
	}
	for _, entry := range messages {
		sub := s.subs[entry.Subscription]
		switch {
		case done[logged{Subscription: entry.Subscription, Done: entry.Got.ID}]:
			continue
		case sub == nil:
			loaded.Gone++
			continue
		case sub.Path != "":
			loaded.Waiting++
		}
		// New ids stay above loaded ones, even if the clock was set back.
		if id, err := strconv.ParseInt(entry.Got.ID, 10, 64); err == nil {
			s.nextID = max(s.nextID, id)
		}
		s.enqueue(sub, entry.Got)
	}
	return loaded, nil
}

func (s *Simulator) note(entry logged) {
	if s.log == nil || s.logFailed != nil {
		return
	}
	line, err := json.Marshal(entry)
	if err == nil {
		_, err = s.log.Write(append(line, '\n'))
	}
	s.logFailed = err
}

func (s *Simulator) rewrite(path string) error {
	var text bytes.Buffer
	lines := json.NewEncoder(&text)
	for id, sub := range s.subs {
		if sub.paused {
			if err := lines.Encode(logged{Subscription: id, Paused: &sub.paused}); err != nil {
				return err
			}
		}
		for _, d := range sub.inOrder() {
			if err := lines.Encode(logged{Subscription: id, Got: d}); err != nil {
				return err
			}
		}
	}
	if err := os.WriteFile(path+".new", text.Bytes(), 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

var (
	_ pause.Viewer = (*Simulator)(nil)
	_ pause.Switch = (*Simulator)(nil)
)

// Standing implements pause.Viewer. Nobody else can undo a pause of a simulator's subscription.
func (s *Simulator) Standing(_ context.Context, q catalog.Queue) (pause.Standing, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sub := s.subs[q.PushSubscription()]
	switch {
	case sub == nil:
		return pause.Missing, nil
	case sub.paused:
		return pause.Paused, nil
	default:
		return pause.Pushing, nil
	}
}

// Pause implements pause.Switch. A running push ends as usual.
func (s *Simulator) Pause(_ context.Context, q catalog.Queue, _ time.Time) error {
	return s.setPaused(q, true)
}

// Resume implements pause.Switch.
func (s *Simulator) Resume(_ context.Context, q catalog.Queue) error { return s.setPaused(q, false) }

func (s *Simulator) setPaused(q catalog.Queue, paused bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	sub := s.subs[q.PushSubscription()]
	if sub == nil {
		return fmt.Errorf("standin: no subscription %s", q.PushSubscription())
	}
	sub.paused = paused
	s.note(logged{Subscription: sub.ID, Paused: &paused})
	s.dispatch(sub)
	if s.logFailed != nil {
		return fmt.Errorf("standin: write: %w", s.logFailed)
	}
	return nil
}
