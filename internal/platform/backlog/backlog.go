// Package backlog owns the document that says how many messages of each queue wait in the broker, and since
// when. A task writes it; the webhook service and people read it. It refuses to guess: an old count is none.
package backlog

import (
	"context"
	"fmt"
	"time"

	"billhook/internal/platform/store"
)

// Collection has one document.
const Collection = "backlogs"

var key = store.Key{Collection: Collection, ID: "all"}

// GoodFor is how long a count is valid: the broker's own counts are up to three minutes late, the task runs
// every minute, and one run may fail.
const GoodFor = 5 * time.Minute

// Held counts the messages of a subscription that are not acknowledged.
type Held struct {
	Messages int64
	// Oldest is when the oldest of them was published; zero: there is none, or it is not known.
	Oldest time.Time
}

// Counter counts the messages in the broker.
type Counter interface {
	// Backlogs returns the counts of each subscription by its id, as far as known, and their time.
	Backlogs(ctx context.Context) (held map[string]Held, at time.Time, err error)
}

// Counted is how many messages wait.
type Counted struct {
	// At is when they were counted.
	At time.Time `store:"counted_at,required"`
	// Messages and Oldest have the count of each queue by its id, and the time of its oldest message, if known.
	Messages map[string]int64     `store:"messages"`
	Oldest   map[string]time.Time `store:"oldest,omitzero"`
}

// Of returns the count of a queue. It is not known if the queue was not counted, or the count is too old.
func (c Counted) Of(queue string, now time.Time) (held Held, known bool) {
	messages, known := c.Messages[queue]
	return Held{messages, c.Oldest[queue]}, known && now.Sub(c.At) <= GoodFor
}

// Write replaces the document by the counts of queues, by their ids.
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

// Read returns the last counts; none before the first run of the task.
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
