package push

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"

	"billhook/internal/dedupe"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/pipeline/lane"
	"billhook/internal/platform/failpoint"
	"billhook/internal/platform/store"
	"billhook/internal/retry"
)

// settle does what the table of dispositions says. Where the record or the lane is not as assumed, it returns what it found.
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
		// An attempt that was counted before it ran, and was none of the event's own, is taken back. Else it stays counted.
		if _, err := run.Uncount(ctx, f.means.Reason); err != nil {
			d.log.LogAttrs(ctx, slog.LevelWarn, "attempt not taken back", slog.String("reason", f.means.Reason))
		}
	}
	switch f.then {
	case bury:
		return s.bury(ctx, d, run, f)
	case keep:
		return s.keep(ctx, d, at, run, f)
	case resume:
		return d.resume(ctx, run, f)
	default:
		return d.nack(ctx, run, f)
	}
}

// resume has the request itself make the next attempt, when it is due.
func (d *delivery) resume(ctx context.Context, run *dedupe.Run, f finding) finding {
	if other := d.count(ctx, run, f, dedupe.Kept{}); other.state != goesOn {
		return other
	}
	reply := f.again()
	reply.next.resume = f.due
	return final(reply)
}

// nack leaves the message to the broker.
func (d *delivery) nack(ctx context.Context, run *dedupe.Run, f finding) finding {
	if other := d.count(ctx, run, f, dedupe.Kept{}); other.state != goesOn {
		return other
	}
	return final(f.again())
}

// keep puts the message into its lane, in one commit with what is recorded of a failed attempt.
func (s *Service) keep(ctx context.Context, d *delivery, at position, run *dedupe.Run, f finding) finding {
	key, place, kept, err := d.laneKey, at.lane, dedupe.Kept{}, error(nil)
	// What it waits for may be behind it. So may what a worker whose clock is ahead has released beside its key.
	if f.means.Scope == retry.OtherEvent || (f.state == early && run.Beside()) {
		key = ""
	}
	if f.state != waiting {
		place, err = lane.Open(ctx, s.config.Store, d.lane(key))
	}
	isRecorded := f.state == failed || f.state == early
	if err == nil && (isRecorded || key != "" || !place.Holds()) { // else an earlier delivery has kept it
		kept.Ticket, kept.Writes, err = place.Put(d.waiting(f), s.config.Now())
		kept.Beside = key == "" && d.laneKey != ""
		if err == nil && !isRecorded {
			_, err = s.config.Store.Commit(ctx, kept.Writes)
		}
	}
	if err != nil {
		return d.unkept(ctx, run, f, err)
	}
	if other := d.count(ctx, run, f, kept); other.state != goesOn {
		return other
	}
	reply := f.again()
	reply.Delayed, reply.next.due = true, f.due
	if f.due.IsZero() && !place.Holds() { // else it comes with those before it
		reply.next.due = s.config.Now()
	}
	if f.state == waiting {
		reply.Status = http.StatusOK
	}
	reply.next.hold = d.mayMissLane() && !place.Exists() && key != ""
	return final(reply)
}

// unkept goes on with a message that could not be kept. One that has to wait for others or for its time is not handled.
func (d *delivery) unkept(ctx context.Context, run *dedupe.Run, f finding, err error) finding {
	switch {
	case f.state != waiting:
		d.log.LogAttrs(ctx, slog.LevelWarn, "message not kept for its wait",
			slog.String("reason", f.means.Reason), slog.String("cause", fmt.Sprintf("%T", err)))
		return d.nack(ctx, run, f)
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

// count records a failed attempt, or that a message which came early is kept. It returns what follows where it could not.
func (d *delivery) count(ctx context.Context, run *dedupe.Run, f finding, kept dedupe.Kept) finding {
	want := dedupe.Counted
	end := dedupe.Ending{Status: dedupe.Failed, Reason: f.means.Reason, Next: f.due, Uncounted: !f.means.Counts, Kept: kept}
	switch {
	case f.state == early && kept.Ticket != "":
		end, want = dedupe.Ending{Kept: kept}, dedupe.Waiting
	case f.state != failed:
		return finding{}
	}
	if d.leased() {
		failpoint.Hit(failpoint.LeasedRelease)
	} else {
		failpoint.Hit(failpoint.TxFail)
	}
	seen, err := run.Conclude(ctx, end)
	if d.leased() {
		failpoint.Hit(failpoint.LeasedReleased)
	} else if seen == want {
		failpoint.Hit(failpoint.TxFailed)
	}
	switch {
	case err != nil:
		d.log.LogAttrs(ctx, slog.LevelWarn, "attempt not counted", slog.String("reason", f.means.Reason)) // and a lease not released
		return final(f.again())
	case seen == want:
		return finding{}
	case f.state == failed && seen.Undecided():
		f.attempt = run.Attempt()
		return f
	default:
		return records(seen)
	}
}

// bury publishes the dead letter, and records it once the broker has confirmed it.
func (s *Service) bury(ctx context.Context, d *delivery, run *dedupe.Run, f finding) finding {
	if err := s.claimBroken(ctx, d, f.means.Reason); err != nil {
		return found(unanswered, err)
	}
	seen, err := run.Look(ctx)
	switch {
	case err != nil:
		return found(unanswered, err)
	case !seen.Undecided():
		return records(seen)
	}
	reply := f.again()
	reply.Outcome, reply.Attempt = d.buried(), run.Attempt()
	reply.quiet = f.means.Scope == retry.OtherEvent // the event that it waited for did not come
	// Attempts began, and none ended: the last was counted before it ran, and there is no other.
	uncounted := seen == dedupe.Fresh && f.means.Reason == dedupe.Begun
	if uncounted {
		reply.Attempt--
	}
	failpoint.Hit(failpoint.BuryPublish)
	if reply.Outcome != retry.Dropped {
		dead := d.deadLetter(f, reply.Attempt, s.config.Now())
		err = deadletter.Publish(ctx, s.config.Outbox.Publisher, d.queue.Queue, dead)
	}
	if err == nil {
		failpoint.Hit(failpoint.BuryPublished)
		_, err = run.Conclude(ctx, dedupe.Ending{Status: dedupe.DeadLettered, Reason: f.means.Reason, Uncounted: uncounted})
	}
	if err != nil {
		f = found(unanswered, err)
		f.attempt = reply.Attempt
		return f
	}
	failpoint.Hit(failpoint.BuryMarked) // what somebody else has written stands
	return final(reply)
}
