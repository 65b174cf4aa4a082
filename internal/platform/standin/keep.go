package standin

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"time"

	"billhook/catalog"
	"billhook/internal/pipeline/pause"
)

// Loaded says what a saved file held.
type Loaded struct {
	// Waiting counts messages that wait for delivery. Gone counts messages of subscriptions
	// that no longer exist.
	Waiting, Gone int
}

// saved is one subscription in the file: its undelivered messages, or those that it holds.
type saved struct {
	Waiting []*delivery `json:"waiting,omitempty"`
	Held    []Message   `json:"held,omitempty"`
	Paused  bool        `json:"paused,omitempty"`
}

// logged is one line of the log beside the file: a message that a subscription got, the id of one
// that it has done with, or whether it is paused from then on.
type logged struct {
	Subscription string    `json:"subscription"`
	Got          *delivery `json:"got,omitempty"`
	Done         string    `json:"done,omitempty"`
	Paused       *bool     `json:"paused,omitempty"`
}

func logOf(path string) string { return path + ".log" }

// Load loads what an earlier simulator has kept at the path, if it has. From then on every change
// is in a log beside the file before a publish is confirmed, so that what waits outlives a killed
// process. Call it before Publish and PushTo. How often a push has failed is not in the log.
func (s *Simulator) Load(path string) (Loaded, error) {
	all, err := readKept(path)
	if err != nil {
		return Loaded{}, fmt.Errorf("standin: load: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var loaded Loaded
	for id, kept := range all {
		sub := s.subs[id]
		if sub == nil {
			loaded.Gone += len(kept.Waiting) + len(kept.Held)
			continue
		}
		sub.paused = kept.Paused
		for _, m := range kept.Held {
			sub.held = append(sub.held, m)
			s.skipID(m.ID)
		}
		for _, d := range kept.Waiting {
			s.skipID(d.ID)
			if sub.Path == "" { // the log does not tell them apart
				sub.held = append(sub.held, d.Message)
				continue
			}
			s.enqueue(sub, d)
			loaded.Waiting++
		}
	}
	if err := s.write(path); err != nil {
		return Loaded{}, fmt.Errorf("standin: load: %w", err)
	}
	s.log, err = os.OpenFile(logOf(path), os.O_CREATE|os.O_WRONLY|os.O_APPEND|os.O_TRUNC, 0o600)
	if err != nil {
		return Loaded{}, fmt.Errorf("standin: load: %w", err)
	}
	return loaded, nil
}

// readKept reads the file and the log behind it. A last line that was cut off is left out: its
// publish was not confirmed.
func readKept(path string) (map[string]saved, error) {
	all := map[string]saved{}
	data, err := os.ReadFile(path) //nolint:gosec // the path is the caller's
	if err == nil {
		err = json.Unmarshal(data, &all)
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	data, err = os.ReadFile(logOf(path))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	type place struct{ subscription, id string }
	done, got := map[place]bool{}, []logged(nil)
	for line := range bytes.Lines(data) {
		if !bytes.HasSuffix(line, []byte{'\n'}) {
			break
		}
		var entry logged
		if err := json.Unmarshal(line, &entry); err != nil {
			return nil, err
		}
		switch {
		case entry.Paused != nil:
			kept := all[entry.Subscription]
			kept.Paused = *entry.Paused
			all[entry.Subscription] = kept
		case entry.Got != nil:
			got = append(got, entry)
		default:
			done[place{entry.Subscription, entry.Done}] = true
		}
	}
	for id, kept := range all {
		kept.Waiting = slices.DeleteFunc(kept.Waiting, func(d *delivery) bool { return done[place{id, d.ID}] })
		all[id] = kept
		for _, d := range kept.Waiting {
			done[place{id, d.ID}] = true // a kill between the file and its log leaves it in both
		}
		for _, m := range kept.Held {
			done[place{id, m.ID}] = true
		}
	}
	for _, entry := range got {
		if kept := all[entry.Subscription]; !done[place{entry.Subscription, entry.Got.ID}] {
			kept.Waiting = append(kept.Waiting, entry.Got)
			all[entry.Subscription] = kept
		}
	}
	return all, nil
}

// note adds a line to the log, where there is one.
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

// Save replaces the file and its log with the closed simulator's undelivered and held messages. A
// message that was being pushed at Close is among them.
func (s *Simulator) Save(path string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		return errors.New("standin: save: the simulator is not closed")
	}
	err := s.write(path)
	if err == nil && s.log != nil {
		err = errors.Join(s.log.Close(), os.Remove(logOf(path)))
		s.log = nil
	}
	if err != nil {
		return fmt.Errorf("standin: save: %w", err)
	}
	return nil
}

// write replaces the file with what every subscription has.
func (s *Simulator) write(path string) error {
	all := map[string]saved{}
	for id, sub := range s.subs {
		// Ids rise, so they give the order of publishing.
		kept := saved{Paused: sub.paused, Held: sub.held, Waiting: slices.SortedFunc(maps.Keys(sub.waiting), func(a, b *delivery) int {
			return cmp.Or(len(a.ID)-len(b.ID), cmp.Compare(a.ID, b.ID))
		})}
		if len(kept.Waiting) > 0 || len(kept.Held) > 0 || kept.Paused {
			all[id] = kept
		}
	}
	data, err := json.Marshal(all)
	if err == nil {
		err = os.WriteFile(path+".new", data, 0o600)
	}
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	return err
}

// skipID keeps the next ids above a loaded one, also where the clock was set back.
func (s *Simulator) skipID(id string) {
	if n, err := strconv.ParseInt(id, 10, 64); err == nil {
		s.nextID = max(s.nextID, n)
	}
}

var (
	_ pause.Viewer = (*Simulator)(nil)
	_ pause.Switch = (*Simulator)(nil)
)

// Standing implements pause.Viewer. A subscription of the simulator is never undone or unmarked.
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

// Pause implements pause.Switch. A push that is under way ends as ever.
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
		return fmt.Errorf("standin: keep: %w", s.logFailed)
	}
	return nil
}
