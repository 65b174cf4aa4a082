package push

import (
	"context"
	"net/http"
	"time"

	"billhook/internal/contract"
	"billhook/internal/lane"
	"billhook/internal/retry"
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

// maxAhead is how far ahead a time of delivery may lie.
const maxAhead = 30 * 24 * time.Hour

// turn is the second step. It drops what is not for the queue or too old. It finds whether it
// is the message's turn: not before its time of delivery, and not before one of its key that
// waits.
func (s *Service) turn(ctx context.Context, w *attempt) verdict {
	q, d, now := w.queue, &w.delivery, s.config.Now()
	w.waits, w.opened, w.ends, w.until = false, false, false, time.Time{}
	w.frees = w.parks && w.replayed
	switch {
	case !q.Takes(d.message.Attributes):
		// The broker's filter, which an emulator does not apply.
		return verdict{course: final, answer: answer{Outcome: retry.Dropped, Status: http.StatusNoContent, Reason: "not_bound"}}
	case q.MessageTTL > 0 && !w.replayed && !w.published.IsZero() && now.Sub(w.published) > q.MessageTTL:
		w.ends = w.returned
		return verdict{course: final, answer: answer{Outcome: retry.Expired, Status: http.StatusNoContent, Reason: "message_ttl"}}
	}
	if s.begin(w); w.broken != nil {
		w.ends = w.returned
		return verdict{course: failed, failure: w.broken}
	}
	var due time.Time
	if wished := d.message.Attributes[contract.AttrDeliverAt]; wished != "" && !w.returned {
		// A contract's time. What comes back has waited for it already.
		if at, err := time.Parse(time.RFC3339Nano, wished); err == nil && at.After(now) {
			due = at
		}
	}
	if w.frees || (w.name.OrderingKey == "" && due.IsZero()) {
		return verdict{course: ready}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), bookkeeping)
	defer cancel()
	// Only its lane can tell whether one of its key waits. In a queue where messages wait by
	// policy, one always may, and what comes back has a lane. Elsewhere that is rare, and known
	// for the whole queue at once.
	looks := q.waits || w.returned || !due.IsZero()
	if !looks {
		calm, err := q.calm.holds(ctx, s.config.Now, func(ctx context.Context) (bool, error) {
			return lane.Calm(ctx, s.config.Store, q.ID)
		})
		if err != nil {
			return verdict{course: nacked, failure: retry.Outage("store_unavailable", err)}
		}
		looks = !calm
	}
	switch {
	case due.Sub(now) > maxAhead:
		return verdict{course: failed, failure: retry.Permanent("deliver_at_too_far", nil)}
	case looks:
		var err error
		if w.place, err = lane.Open(ctx, s.config.Store, w.name); err != nil {
			return verdict{course: nacked, failure: retry.Outage("store_unavailable", err)}
		}
		w.opened = true
		w.waits, w.due = !due.IsZero() || w.place.Behind(d.message), due
		w.ends = !w.waits
	}
	return verdict{course: ready}
}
