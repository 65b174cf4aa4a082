package push

import (
	"context"
	"time"
)

// calmFor is how long an instance goes by what it has read: that no message of a queue
// waits in a lane. A message that is kept is acknowledged only after that time, so that
// whatever the broker delivers behind it finds its lane.
const calmFor = time.Second

// calm is what an instance knows of a queue: until when it goes by what it has read.
type calm struct {
	// one lets one caller at a time read; the others wait for what it finds.
	one   chan struct{}
	until time.Time
	found bool
}

func newCalm() *calm { return &calm{one: make(chan struct{}, 1)} }

// holds reports whether no message of the queue waits in a lane. It reads where that is
// not known, about once in calmFor, however many ask. That some message waits is known for
// as long: then every lane is looked at, which is never wrong.
func (c *calm) holds(ctx context.Context, now func() time.Time, read func(context.Context) (bool, error)) (bool, error) {
	select {
	case c.one <- struct{}{}:
		defer func() { <-c.one }()
	case <-ctx.Done():
		return false, ctx.Err()
	}
	// Before the read: what is kept while it goes on waits that much longer.
	begun := now()
	if begun.Before(c.until) {
		return c.found, nil
	}
	found, err := read(ctx)
	if err == nil {
		c.until, c.found = begun.Add(calmFor), found
	}
	return found, err
}
