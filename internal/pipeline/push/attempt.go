package push

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"billhook/internal/contract"
	"billhook/internal/retry"
)

const (
	bookkeeping = 5 * time.Second // bounds each step that reads or writes around a handler, also after the caller has left
	maxRounds   = 3               // how often a message is settled because the record or the lane was not as assumed
	maxResumes  = 5               // how many attempts follow the first in one request, also where the clock stands still
)

// bounded is the time of a step around a handler, which the caller's leaving does not end.
func bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), bookkeeping)
}

// past is what came before an attempt.
type past struct {
	delivered bool // the event was delivered before: its record is read first
	waited    bool // the request has just waited without an attempt, and does not wait for one again
}

// deliver takes one message to its answer. Where its next attempt is due soon, the request waits for it
// without a slot.
func (s *Service) deliver(ctx context.Context, d *delivery) answer {
	before := past{delivered: d.repeated()}
	// Of an attempt that kills its worker nothing else is left.
	d.log.LogAttrs(ctx, slog.LevelInfo, "received",
		slog.Int("delivery_attempt", d.number), slog.String("instance", s.config.Instance))
	for resumed := 0; ; resumed++ {
		reply := s.attempt(ctx, d, before)
		reply.EventID = d.record.EventID
		if reply.next.resume.IsZero() || resumed == maxResumes || !s.sleep(ctx, reply.next.resume) {
			return s.acknowledged(ctx, d, reply)
		}
		s.concluded(ctx, slog.LevelInfo, "attempt again", d, reply, slog.Int("status", reply.Status))
		before = past{delivered: true, waited: reply.Attempt == 0}
	}
}

// sleep reports whether a time has come before the service drains and before ctx ends.
func (s *Service) sleep(ctx context.Context, until time.Time) bool {
	left := until.Sub(s.config.Now())
	return left <= 0 || s.wait(ctx, left, nil)
}

// attempt takes the message through order, claim, perform and settle, as far as it comes.
func (s *Service) attempt(ctx context.Context, d *delivery, before past) answer {
	key := cmp.Or(d.message.OrderingKey, d.message.Attributes[contract.AttrOrderingKey]) // which shares the slots with others
	if !d.queue.slots.acquire(ctx, key, len(d.message.Data), d.queue.SlotWait) {
		reason := "queue_full"
		if s.Draining() {
			reason = "shutting_down"
		}
		return found(unanswered, retry.Busy(reason, nil)).again()
	}
	defer d.queue.slots.release()
	run, at, f := s.begin(d), position{}, s.refused(d)
	for settled := 0; ; settled++ {
		if f.state == goesOn {
			at, f = s.order(ctx, d, run)
		}
		if f.state == goesOn {
			f = d.claim(ctx, run, before.delivered)
		}
		if f.state == goesOn {
			f = s.perform(ctx, d, run)
		}
		if f.state == recorded {
			f = d.read(run, f)
		}
		if f.state == answered || settled == maxRounds {
			break
		}
		f = s.dispose(d, before.waited, f)
		f = s.settle(ctx, d, at, run, f)
	}
	return s.leave(ctx, d, at, f)
}
