// Package backlog owns the document with the number of messages that wait in the broker, and the age of the
// oldest, for each queue. A task writes it; the webhook service and people read it. An old count is unknown.
package backlog

import (
	"context"
	"fmt"
	"time"

	"billhook/internal/platform/store"
)

// Collection has a single document.
const Collection = "backlogs"

var key = store.Key{Collection: Collection, ID: "all"}

// GoodFor is how long a count is valid: the broker's own counts are up to three minutes late, the task runs
// every minute, and one run may fail.
const GoodFor = 5 * time.Minute

// Held counts the unacknowledged messages of a subscription.
type Held struct {
	Messages int64
	// Oldest is when the oldest of them was published; zero: none, or unknown.
	Oldest time.Time
}

// Counter counts the messages in the broker.
type Counter interface {
	// Backlogs returns the known counts by subscription id, and the time of the count.
	Backlogs(ctx context.Context) (held map[string]Held, at time.Time, err error)
}

// Counted has the waiting messages of all queues.
type Counted struct {
	// At is when they were counted.
	At time.Time `store:"counted_at,required"`
	// Messages has the count by queue id, and Oldest the time of the queue's oldest message, if known.
	Messages map[string]int64     `store:"messages"`
	Oldest   map[string]time.Time `store:"oldest,omitzero"`
}

// Of returns a queue's count. It is unknown if the queue was not counted or the count is too old.
func (c Counted) Of(queue string, now time.Time) (held Held, known bool) {
	messages, known := c.Messages[queue]
	return Held{messages, c.Oldest[queue]}, known && now.Sub(c.At) <= GoodFor
}

// Write replaces the document by new counts, by queue id.
func Write(ctx context.Context, to store.Committer, at time.Time, queues map[string]Held) error {
	c := Counted{At: at, Messages: map[string]int64{}, Oldest: map[string]time.Time{}}
	for queue, held := range queues {
		c.Messages[queue] = held.Messages
		if !held.Oldest.IsZero() {
			c.Oldest[queue] = held.Oldest
		}
	}
	if _, err := to.Commit(ctx, []store.Write{store.Set(key, store.Encode(&c))}); err != nil {
		return fmt.Errorf("backlog: write: %w", err)
	}
	return nil
}

// Read returns the last counts, or the zero value before the task's first run.
func Read(ctx context.Context, from store.Getter) (Counted, error) {
	doc, err := store.Find(ctx, from, key)
	var c Counted
	if err == nil && doc.Version > 0 {
		err = store.Decode(doc.Fields, &c)
	}
	if err != nil {
		return Counted{}, fmt.Errorf("backlog: read: %w", err)
	}
	return c, nil
}
