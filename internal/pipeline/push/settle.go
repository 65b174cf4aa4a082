package push

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"billhook/catalog"
	"billhook/internal/dedupe"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/pipeline/lane"
	"billhook/internal/platform/failpoint"
	"billhook/internal/platform/store"
	"billhook/internal/retry"
)

// settle does what the table of dispositions says. Where the record or the lane is not as assumed, it returns what it found.
func (s *Service) settle(ctx context.Context, a *attempt, f finding) finding {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), bookkeeping)
	defer cancel()
	if f.state == failed {
		f = f.exhausted(a.allowed)
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
	default:
		return s.nack(ctx, a, f, then == resume)
	}
}

// nack leaves the message to the broker, unless its request resumes it itself when it is due.
func (s *Service) nack(ctx context.Context, a *attempt, f finding, resumes bool) finding {
	if other := s.count(ctx, a, f, dedupe.Kept{}); other.state != goesOn {
		return other
	}
	reply := f.again()
	if resumes {
		reply.next.resume = f.due
	}
	return final(reply)
}

// keep puts the message into its lane, in one commit with what is recorded of a failed attempt.
func (s *Service) keep(ctx context.Context, a *attempt, f finding) finding {
	key, place, kept, err := a.laneKey, a.position.lane, dedupe.Kept{}, error(nil)
	// What it waits for may be behind it. So may what a worker whose clock is ahead has released beside its key.
	if f.means.Scope == retry.OtherEvent || (f.state == early && a.run.Beside()) {
		key = ""
	}
	if f.state != waiting {
		place, err = lane.Open(ctx, s.config.Store, a.lane(key))
	}
	recorded := f.state == failed || f.state == early
	if err == nil && (recorded || key != "" || !place.Holds()) { // else an earlier delivery has kept it
		kept, err = s.put(a, f, place)
		if kept.Beside = key == "" && a.laneKey != ""; err == nil && !recorded {
			_, err = s.config.Store.Commit(ctx, kept.Writes)
		}
	}
	if err != nil {
		return s.unkept(ctx, a, f, err)
	}
	if other := s.count(ctx, a, f, kept); other.state != goesOn {
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
	reply.next.hold = a.mayMissLane && !place.Exists() && key != ""
	return final(reply)
}

func (s *Service) put(a *attempt, f finding, place lane.Lane) (kept dedupe.Kept, err error) {
	message := a.message
	message.Attributes = a.queue.Addressed(message.Attributes)
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
		return s.nack(ctx, a, f, false)
	case errors.Is(err, lane.ErrUnfit) && f.due.IsZero(): // the broker has to keep it, and with it the key
		return found(unanswered, retry.Busy(f.means.Reason, err))
	case errors.Is(err, lane.ErrUnfit):
		return found(failed, retry.Permanent("too_large_to_wait", err))
	case errors.Is(err, store.ErrExists), errors.Is(err, store.ErrStale):
		return found(moved, retry.Busy("contention", nil))
	default:
		return storeDown(err)
	}
}

// count records a failed attempt, or that a message which came early is kept. It returns what follows where it could not.
func (s *Service) count(ctx context.Context, a *attempt, f finding, kept dedupe.Kept) finding {
	end, want := dedupe.Ending{Status: dedupe.Failed, Reason: f.means.Reason, Next: f.due, Uncounted: !f.means.Counts, Kept: kept}, dedupe.Counted
	switch {
	case f.state == early && kept.Ticket != "":
		end, want = dedupe.Ending{Kept: kept}, dedupe.Waiting
	case f.state != failed:
		return finding{}
	}
	leased := a.handler.Leased != nil
	if leased {
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
		s.warn(ctx, "attempt not counted", a, slog.String("reason", f.means.Reason)) // and a lease not released
		return final(f.again())
	case seen == want:
		return finding{}
	case f.state == failed && seen.Undecided():
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
	case !seen.Undecided():
		return s.read(a, seen)
	}
	reply := f.again()
	reply.Outcome, reply.Attempt = a.buried(), a.run.Attempt()
	reply.quiet = f.means.Scope == retry.OtherEvent // the event that it waited for did not come
	// Attempts began, and none ended: the last was counted before it ran, and there is no other.
	uncounted := seen == dedupe.Fresh && f.means.Reason == dedupe.Begun
	if uncounted {
		reply.Attempt--
	}
	failpoint.Hit(failpoint.BuryPublish)
	if reply.Outcome != retry.Dropped {
		err = deadletter.Publish(ctx, s.config.Outbox.Publisher, a.queue.Queue, a.deadLetter(f, reply.Attempt, s.config.Now()))
	}
	if err == nil {
		failpoint.Hit(failpoint.BuryPublished)
		_, err = a.run.Conclude(ctx, dedupe.Ending{Status: dedupe.DeadLettered, Reason: f.means.Reason, Uncounted: uncounted})
	}
	if err != nil {
		f = found(unanswered, err)
		f.attempt = reply.Attempt
		return f
	}
	failpoint.Hit(failpoint.BuryMarked) // what somebody else has written stands
	return final(reply)
}

type answer struct {
	Outcome retry.Outcome `json:"outcome"`
	Status  int           `json:"status"` // the class of the outcome's table, also where the HTTP status acks
	Reason  string        `json:"reason"`
	EventID string        `json:"event_id"`
	Attempt int           `json:"attempt"`           // which of the event's attempts this was; 0 where it was none
	Delayed bool          `json:"delayed,omitempty"` // the message is kept for a later attempt, and the broker is done with it
	Ref     string        `json:"ref,omitempty"`     // the id of what the event made, now or before, such as an entry of the books

	next   next
	quiet  bool   // the message is acknowledged, also where its queue rejects
	result string // the handler's code for what was done, now or before
	cause  string // says more about a failure, for the log
}

// next is what is done before an answer is sent, or in its place.
type next struct {
	resume time.Time // when the attempt after this one is made in the same request; zero: it is not
	due    time.Time // when a message that is kept is to be released; zero: no release is needed
	// hold: its lane is new, and may be unknown to an instance for noneWaitFor. So long the acknowledgement waits, and the
	// broker holds back later messages of the key.
	hold bool
}

// httpStatus is the one place where an outcome becomes an HTTP status: 200 and 204 acknowledge. A rejection beyond the
// queue's budget of nacks is acknowledged: its dead letter is confirmed either way.
func (reply answer) httpStatus(q *queue, now time.Time) int {
	switch reply.Outcome {
	case retry.Processed:
	case retry.Duplicate, retry.Expired, retry.Dropped, retry.Superseded:
		if reply.Ref == "" { // an answer of 204 has no body to say it in
			return http.StatusNoContent
		}
	case retry.DeadLettered:
		if q.OnTerminal == catalog.Reject && !reply.quiet && q.nacks.AllowN(now, 1) {
			return reply.Status
		}
	case retry.Retry:
		if !reply.Delayed {
			return reply.Status
		}
	}
	return http.StatusOK
}

// again answers that the message is to be delivered again.
func (f finding) again() answer {
	reply := answer{Outcome: retry.Retry, Status: int(f.means.Class), Reason: f.means.Reason, cause: cause(f.failure)}
	if f.state == unanswered || (f.state == failed && f.means.Counts) {
		reply.Attempt = f.attempt
	}
	return reply
}

// read turns a look at the record into the answer, or into why the message is not handled.
func (s *Service) read(a *attempt, seen dedupe.Seen) finding {
	reply := answer{Outcome: retry.Duplicate, Status: http.StatusNoContent}
	switch seen {
	case dedupe.Own:
		reply = answer{Outcome: retry.Processed, Status: http.StatusOK, Reason: a.run.Result(), Attempt: a.run.Attempt(), Ref: a.run.Ref(), result: a.run.Result()}
		if a.run.superseded {
			reply.Outcome, reply.Status = retry.Superseded, http.StatusNoContent
		}
	case dedupe.Done:
		reply.Reason, reply.result, reply.Ref = processedBefore, a.run.Result(), a.run.Ref()
	case dedupe.Gone:
		reply.Reason = deadLetteredBefore
	case dedupe.Replaced:
		reply.Reason = correctedBefore
	case dedupe.Waiting:
		// By a copy whose acknowledgement did not arrive: what comes behind it may come at once.
		reply.Reason, reply.next.hold = "delayed_before", a.mayMissLane
	case dedupe.Differs:
		// Under a record of its own, so that its redelivery is known and acked.
		a.run.Run = a.run.Conflict()
		return found(failed, retry.Conflicting("payload_conflict", nil))
	case dedupe.Early:
		return found(early, retry.Busy("not_due", nil)).dueAt(a.run.Due())
	default: // by another worker, or waiting for its next delivery
		return found(held, retry.Busy("lease_held", nil)).dueAt(a.run.Due())
	}
	return final(reply)
}

// leave settles a replay that has ended, publishes the emissions, so that they come before those of a next event of the
// key, and removes the lane of its last message: while a lane is left, each event of its queue costs a read.
func (s *Service) leave(ctx context.Context, a *attempt, reply answer) answer {
	if err := s.settleReplay(ctx, a, reply); err != nil {
		s.warn(ctx, "end of a replay not written", a)
		return storeDown(err).again() // the redelivery comes by here again
	}
	ends := a.returned() && !a.position.waits && !reply.Delayed && a.laneKey != "" && (a.broken == nil || reply.Outcome != retry.Retry)
	if len(a.run.emitted.Lanes) == 0 && !ends {
		return reply
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), bookkeeping)
	defer cancel()
	for _, id := range a.run.emitted.Lanes {
		if _, err := s.config.Outbox.Lane(ctx, id); err != nil {
			s.warn(ctx, "outbox left to the relay", a, slog.String("lane", id), slog.String("cause", cause(err)))
		}
	}
	if !ends {
		return reply
	}
	place, err := a.position.lane, error(nil)
	if !a.position.read {
		place, err = lane.Open(ctx, s.config.Store, a.lane(a.laneKey))
	}
	if last, over := place.Over(a.message); err == nil && over {
		_, err = s.config.Store.Commit(ctx, []store.Write{last})
	}
	// Where this fails, the next message of the key ends the lane.
	if err != nil && !errors.Is(err, store.ErrStale) {
		s.warn(ctx, "lane not removed", a)
	}
	return reply
}
