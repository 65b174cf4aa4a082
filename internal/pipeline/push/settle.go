package push

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"

	"billhook/internal/dedupe"
	"billhook/internal/pipeline/lane"
	"billhook/internal/platform/store"
	"billhook/internal/retry"
)

// settle does what the table of dispositions says. Where the record or the lane is not as assumed, it returns
// what it found.
func (s *Service) settle(ctx context.Context, d *delivery, at position, run *dedupe.Run, f finding) finding {
	ctx, cancel := bounded(ctx)
	defer cancel()
	if f.state == uncertain {
		// A commit whose answer was lost is recognized, where the store answers again.
		if seen, err := run.Look(ctx); err == nil && seen != dedupe.Fresh {
			return records(seen)
		}
	}
	if f.state == uncertain || f.state == held {
		// An attempt that was counted before it ran, and was none of the event's own, is taken back. Else it stays
		// counted.
		if _, err := run.Uncount(ctx, f.means.Reason); err != nil {
			d.warn(ctx, "attempt not taken back", slog.String("reason", f.means.Reason))
		}
	}
	reply, kept := f.again(), dedupe.Kept{}
	switch f.then {
	case resume:
		reply.next.resume = f.due
	case keep:
		var err error
		switch kept, reply, err = s.keep(ctx, d, at, run.Beside(), f); {
		case err != nil && f.state == waiting:
			return unkept(f, err)
		case err != nil: // the broker has it
			d.warn(ctx, "message not kept for its wait",
				slog.String("reason", f.means.Reason), slog.String("cause", fmt.Sprintf("%T", err)))
		}
	case nack:
	case bury:
		return s.bury(ctx, d, run, f)
	}
	want := dedupe.Counted
	end := dedupe.Ending{Status: dedupe.Failed, Reason: f.means.Reason, Next: f.due, Uncounted: !f.means.Counts}
	end.Kept = kept
	switch {
	case f.state == early && kept.Ticket != "":
		end, want = dedupe.Ending{Kept: kept}, dedupe.Waiting
	case f.state != failed:
		return final(reply)
	}
	seen, err := release(ctx, run, d.leased(), end, want)
	switch {
	case err != nil:
		d.warn(ctx, "attempt not counted", slog.String("reason", f.means.Reason)) // and a lease not released
		return final(f.again())
	case seen == want:
		return final(reply)
	case f.state == failed && seen.Undecided():
		f.attempt = run.Attempt()
		return f
	default:
		return records(seen)
	}
}

// keep puts the message into its lane. What an attempt leaves is to be recorded in the same commit, by the
// writes that are returned; else it is committed. beside: a worker whose clock is ahead may have released
// what it waits for beside its key.
func (s *Service) keep(
	ctx context.Context, d *delivery, at position, beside bool, f finding,
) (kept dedupe.Kept, reply answer, err error) {
	name, place, reply := d.lane, at.lane, f.again()
	if f.means.Scope == retry.OtherEvent || (f.state == early && beside) { // what it waits for may be behind it
		name.OrderingKey = ""
	}
	if f.state != waiting {
		if place, err = lane.Open(ctx, s.config.Store, name); err != nil {
			return kept, reply, err
		}
	}
	key, isRecorded := name.OrderingKey, f.state == failed || f.state == early
	if isRecorded || key != "" || !place.Holds() { // else an earlier delivery has kept it
		message := d.message
		message.Attributes = d.queue.Addressed(message.Attributes)
		ticket, writes, err := place.Put(lane.Waiting{
			Topic: d.queue.Topic(), Message: message, FirstPublished: d.publishedAt, MessageID: d.messageID,
			Tenant: d.event.Tenant, EventID: d.event.ID,
			Due: f.due, Timer: f.state == waiting && !f.due.IsZero(), // until its time of delivery
		}, s.config.Now())
		if err == nil && !isRecorded {
			_, err = s.config.Store.Commit(ctx, writes)
		}
		if err != nil {
			return kept, reply, err
		}
		kept = dedupe.Kept{Ticket: ticket, Writes: writes, Beside: key == "" && d.lane.OrderingKey != ""}
	}
	reply.Delayed, reply.next.due = true, f.due
	if f.due.IsZero() && !place.Holds() { // else it comes with those before it
		reply.next.due = s.config.Now()
	}
	if f.state == waiting {
		reply.Status = http.StatusOK
	}
	reply.next.hold = d.mayMissLane() && !place.Exists() && key != ""
	return kept, reply, nil
}

// unkept goes on with a message that has to wait for others or for its time and could not be kept: it is not
// handled.
func unkept(f finding, err error) finding {
	switch {
	case errors.Is(err, lane.ErrUnfit) && f.due.IsZero(): // the broker has to keep it, and with it the key
		return found(unanswered, retry.Busy(f.means.Reason, err))
	case errors.Is(err, lane.ErrUnfit):
		return found(failed, retry.Permanent("too_large_to_wait", err))
	case errors.Is(err, store.ErrExists), errors.Is(err, store.ErrStale):
		return finding{} // the lane is no longer as it was read
	default:
		return storeDown(err)
	}
}
