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

// settle is the step after a message was found not to be handled now. It looks up what becomes of the message, and does
// that. Where the record or the lane is not as assumed, what it finds is settled next.
func (s *Service) settle(ctx context.Context, a *attempt, f finding) finding {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), bookkeeping)
	defer cancel()
	if f.state == failed {
		f.means, f.failure = a.exhausted(f.means, f.failure, f.attempt)
	}
	var then disposition
	then, f.due = s.dispose(a, f)
	if f.state == uncertain {
		// A commit whose answer was lost is recognized, where the store answers again.
		if seen, err := a.run.Look(ctx); err == nil && seen != dedupe.Fresh {
			return s.read(a, seen)
		}
	}
	if f.state == uncertain || f.state == held {
		// An attempt that was counted before it ran, and was none of the event's own, is taken back. Else it stays counted.
		if _, err := a.run.Uncount(ctx, f.means.Reason); err != nil {
			s.warn(ctx, "attempt not taken back", a, slog.String("reason", f.means.Reason))
		}
	}
	switch then {
	case bury:
		return s.bury(ctx, a, f)
	case keep:
		return s.keep(ctx, a, f)
	case resume:
		return s.resume(ctx, a, f)
	default:
		return s.nack(ctx, a, f)
	}
}

// nack leaves the message to the broker.
func (s *Service) nack(ctx context.Context, a *attempt, f finding) finding {
	if f.state == failed {
		if other := s.count(ctx, a, f, dedupe.Kept{}); other.state != goesOn {
			return other
		}
	}
	return final(f.again())
}

// resume has the request make the next attempt, when it is due.
func (s *Service) resume(ctx context.Context, a *attempt, f finding) finding {
	if f.state == failed {
		if other := s.count(ctx, a, f, dedupe.Kept{}); other.state != goesOn {
			return other
		}
	}
	reply := f.again()
	reply.next.resume = f.due
	return final(reply)
}

// keep puts the message into its lane, in one commit with what is recorded of a failed attempt.
func (s *Service) keep(ctx context.Context, a *attempt, f finding) finding {
	name, place, err := a.lane, a.position.lane, error(nil)
	// What it waits for may be behind it. So may what a worker whose clock is ahead has released beside its key.
	if f.means.Scope == retry.OtherEvent || (f.state == early && a.run.Beside()) {
		name.OrderingKey = ""
	}
	if f.state != waiting {
		place, err = lane.Open(ctx, s.config.Store, name)
	}
	var kept dedupe.Kept
	counted := f.state == failed || f.state == early
	if err == nil && (counted || name.OrderingKey != "" || !place.Holds()) { // else an earlier delivery has kept it
		kept, err = s.put(a, f, name, place)
		if err == nil && !counted {
			_, err = s.config.Store.Commit(ctx, kept.Writes)
		}
	}
	if err != nil {
		return s.unkept(ctx, a, f, err)
	}
	if counted {
		if other := s.count(ctx, a, f, kept); other.state != goesOn {
			return other
		}
	}
	reply := f.again()
	reply.Delayed, reply.next.due = true, f.due
	if f.due.IsZero() && !place.Holds() { // else it comes with those before it
		reply.next.due = s.config.Now()
	}
	if f.state != failed {
		reply.cause = ""
	}
	if f.state == waiting {
		reply.Status = http.StatusOK
	}
	reply.next.hold = a.mayMissLane && !place.Exists() && name.OrderingKey != ""
	return final(reply)
}

// put makes the writes that put the message into a lane.
func (s *Service) put(a *attempt, f finding, name lane.Name, place lane.Lane) (kept dedupe.Kept, err error) {
	message := a.message
	message.Attributes = a.queue.Addressed(message.Attributes)
	kept.Beside = name.OrderingKey == "" && a.lane.OrderingKey != ""
	kept.Ticket, kept.Writes, err = place.Put(lane.Waiting{
		Topic: a.queue.Topic(), Message: message, FirstPublished: a.publishedAt, MessageID: a.messageID, Tenant: a.event.Tenant, EventID: a.event.ID,
		Due: f.due, Timer: f.state == waiting && !f.due.IsZero(), // until its time of delivery
	}, s.config.Now())
	return kept, err
}

// unkept goes on with a message that could not be kept. One that has to wait for others or for its time is not handled.
func (s *Service) unkept(ctx context.Context, a *attempt, f finding, err error) finding {
	switch {
	case f.state != waiting:
		s.warn(ctx, "message not kept for its wait", a, slog.String("reason", f.means.Reason), slog.String("cause", fmt.Sprintf("%T", err)))
		return s.nack(ctx, a, f)
	case errors.Is(err, lane.ErrUnfit) && f.due.IsZero(): // the broker has to keep it, and with it the key
		return found(unanswered, retry.Busy(f.means.Reason, err))
	case errors.Is(err, lane.ErrUnfit):
		return found(failed, retry.Permanent("too_large_to_wait", err))
	case errors.Is(err, store.ErrExists), errors.Is(err, store.ErrStale):
		return found(moved, retry.Busy("contention", nil))
	default:
		return found(unanswered, retry.Outage("store_unavailable", err))
	}
}

// count records a failed attempt, or that one which came early is kept. It returns what follows where it could not.
func (s *Service) count(ctx context.Context, a *attempt, f finding, kept dedupe.Kept) finding {
	end, want := dedupe.Ending{Status: dedupe.Failed, Reason: f.means.Reason, Next: f.due, Uncounted: !f.means.Counts, Kept: kept}, dedupe.Counted
	if f.state == early {
		end, want = dedupe.Ending{Kept: kept}, dedupe.Waiting
	}
	leased, unwritten := a.handler.Leased != nil, "attempt not counted"
	if leased {
		unwritten = "lease not released"
		failpoint.Hit(failpoint.LeasedRelease)
	} else {
		failpoint.Hit(failpoint.TxFail)
	}
	seen, err := a.run.Conclude(ctx, end)
	if leased {
		failpoint.Hit(failpoint.LeasedReleased)
	} else if seen == want {
		failpoint.Hit(failpoint.TxFailed)
	}
	switch {
	case err != nil:
		s.warn(ctx, unwritten, a, slog.String("reason", f.means.Reason))
		return final(f.again())
	case seen == want:
		return finding{}
	case f.state == failed && a.undecided(seen):
		f.attempt = a.run.Attempt()
		return f
	default:
		return s.read(a, seen)
	}
}

// bury publishes the dead letter, and records it once the broker has confirmed it.
func (s *Service) bury(ctx context.Context, a *attempt, f finding) finding {
	if a.run.claims != nil {
		if err := a.run.claims.Broken(ctx, f.means.Reason); err != nil {
			return found(unanswered, err)
		}
	}
	seen, err := a.run.Look(ctx)
	switch {
	case err != nil:
		return found(unanswered, err)
	case !a.undecided(seen):
		return s.read(a, seen)
	}
	end, reply := dedupe.Ending{Status: dedupe.DeadLettered, Reason: f.means.Reason}, f.again()
	reply.Outcome, reply.Attempt = retry.DeadLettered, a.run.Attempt()
	for _, marked := range marks(f.failure) {
		reply.quiet = reply.quiet || marked.Verdict.Scope == retry.OtherEvent // it waited in vain
		// Attempts began, and none ended: the last was counted before it ran, and there is no other.
		end.Uncounted = end.Uncounted || (seen == dedupe.Fresh && marked.Verdict.Reason == dedupe.Begun)
	}
	if end.Uncounted {
		reply.Attempt--
	}
	failpoint.Hit(failpoint.BuryPublish)
	if a.queue.DeadLetter.Drop {
		reply.Outcome = retry.Dropped
	} else if err := deadletter.Publish(ctx, s.config.DeadLetters, a.queue.Queue, a.deadLetter(f, reply.Attempt, s.config.Now())); err != nil {
		f = found(unanswered, retry.Outage("dead_letter_unconfirmed", err))
		f.attempt = reply.Attempt
		return f
	}
	failpoint.Hit(failpoint.BuryPublished)
	if _, err := a.run.Conclude(ctx, end); err != nil {
		f = found(unanswered, err)
		f.attempt = reply.Attempt
		return f
	}
	failpoint.Hit(failpoint.BuryMarked) // what somebody else has written stands
	return final(reply)
}
