// Package backlog keeps how many messages of each queue wait in the broker, as one document. A task
// counts them and writes it; the door and people read it. It owns the document. It refuses to
// guess: a count that is too old is none.
package backlog

import (
	"context"
	"errors"
	"fmt"
	"time"

	"billhook/internal/store"
)

// Collection has one document.
const Collection = "backlogs"

var key = store.Key{Collection: Collection, ID: "all"}

// GoodFor is how long a count is believed: the broker's own counts come late by up to three
// minutes, the task runs every minute, and one run may fail.
const GoodFor = 5 * time.Minute

// Counted is how many messages wait.
type Counted struct {
	// At is when they were counted.
	At time.Time `store:"counted_at,required"`
	// Messages has the number of each queue that could be counted, by its id.
	Messages map[string]any `store:"messages"`
}

// Of returns how many messages of a queue wait. It is not known where the queue was not counted, or
// the count is too old at the time.
func (c Counted) Of(queue string, now time.Time) (messages int64, known bool) {
	messages, known = c.Messages[queue].(int64)
	return messages, known && now.Sub(c.At) <= GoodFor
}

// Write replaces the document.
func Write(ctx context.Context, to store.Committer, at time.Time, messages map[string]int64) error {
	c := Counted{At: at, Messages: make(map[string]any, len(messages))}
	for queue, n := range messages {
		c.Messages[queue] = n
	}
	if _, err := to.Commit(ctx, []store.Write{store.Set(key, store.Encode(&c))}); err != nil {
		return fmt.Errorf("backlog: write: %w", err)
	}
	return nil
}

// Read returns what was counted last; nothing where nobody has counted yet.
func Read(ctx context.Context, from store.Getter) (Counted, error) {
	doc, err := from.Get(ctx, key)
	if errors.Is(err, store.ErrNotFound) {
		return Counted{}, nil
	}
	var c Counted
	if err == nil {
		err = store.Decode(doc.Fields, &c)
	}
	if err != nil {
		return Counted{}, fmt.Errorf("backlog: read: %w", err)
	}
	return c, nil
}
