package standin

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"time"

	"billhook/internal/contract"
)

// Loaded says what a saved file held.
type Loaded struct {
	// Waiting counts messages that wait for delivery. Gone counts messages of subscriptions
	// that no longer exist.
	Waiting, Gone int
}

// savedMessage is one message in the file.
type savedMessage struct {
	ID          string            `json:"id"`
	PublishTime time.Time         `json:"publish_time"`
	OrderingKey string            `json:"ordering_key,omitempty"`
	Attributes  map[string]string `json:"attributes,omitempty"`
	Data        []byte            `json:"data,omitempty"`
	Failures    int               `json:"failures,omitempty"`
}

// saved is one subscription in the file: its undelivered messages, or those that it holds.
type saved struct {
	Waiting []savedMessage `json:"waiting,omitempty"`
	Held    []savedMessage `json:"held,omitempty"`
}

func save(m Message, failures int) savedMessage {
	return savedMessage{ID: m.ID, PublishTime: m.PublishTime, OrderingKey: m.OrderingKey, Attributes: m.Attributes, Data: m.Data, Failures: failures}
}

func (m savedMessage) message() Message {
	return Message{ID: m.ID, PublishTime: m.PublishTime, Message: contract.Message{Data: m.Data, Attributes: m.Attributes, OrderingKey: m.OrderingKey}}
}

// Save replaces the file with the closed simulator's undelivered and held messages. A message
// that was being pushed at Close is among them.
func (s *Simulator) Save(path string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		return errors.New("standin: save: the simulator is not closed")
	}
	all := map[string]saved{}
	for id, sub := range s.subs {
		var kept saved
		// Ids rise, so they give the order of publishing.
		for _, d := range slices.SortedFunc(maps.Keys(sub.waiting), func(a, b *delivery) int { return cmp.Or(len(a.ID)-len(b.ID), cmp.Compare(a.ID, b.ID)) }) {
			kept.Waiting = append(kept.Waiting, save(d.Message, d.failures))
		}
		for _, m := range sub.held {
			kept.Held = append(kept.Held, save(m, 0))
		}
		if kept.Waiting != nil || kept.Held != nil {
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
	if err != nil {
		return fmt.Errorf("standin: save: %w", err)
	}
	return nil
}

// Load loads what Save has written, if the file exists. Call it before Publish and PushTo. The
// file stays: if the process is killed before the next Save, its messages are delivered again.
func (s *Simulator) Load(path string) (Loaded, error) {
	data, err := os.ReadFile(path) //nolint:gosec // the path is the caller's
	if errors.Is(err, os.ErrNotExist) {
		return Loaded{}, nil
	}
	all := map[string]saved{}
	if err == nil {
		err = json.Unmarshal(data, &all)
	}
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
		for _, m := range kept.Held {
			sub.held = append(sub.held, m.message())
			s.skipID(m.ID)
		}
		for _, m := range kept.Waiting {
			s.enqueue(sub, &delivery{Message: m.message(), failures: m.Failures})
			s.skipID(m.ID)
		}
		loaded.Waiting += len(kept.Waiting)
	}
	return loaded, nil
}

// skipID keeps the next ids above a loaded one, also where the clock was set back.
func (s *Simulator) skipID(id string) {
	if n, err := strconv.ParseInt(id, 10, 64); err == nil {
		s.nextID = max(s.nextID, n)
	}
}
