package push

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"billhook/internal/contract"
	"billhook/internal/dedupe"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/pipeline/lane"
	"billhook/internal/platform/failpoint"
	"billhook/internal/platform/store"
	"billhook/internal/retry"
)

const (
	maxResume = 2 * time.Second // how long a request waits for the next attempt of its message
	nextLook  = time.Second     // and for a message that another worker has
)

// settle is the step after a failure. It counts the attempt, keeps the message or dead-letters it, and makes the answer:
// it reads the record, publishes the dead letter, and writes the lane and the record. Where the record or the lane is not
// as assumed, settle returns that as the attempt's result.
func (s *Service) settle(ctx context.Context, w *attempt, v verdict) verdict {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), bookkeeping)
	defer cancel()
	a := again(v.means, v.failure)
	if v.course == nacked || (v.course == failed && v.means.Counts) {
		a.Attempt = v.attempt
	}
	letter := deadletter.Letter{
		Message: w.delivery.message, Reason: a.Reason, Status: a.Status, Detail: detail(v.failure),
		IdempotencyKey: w.record.IdempotencyKey,
		SourceQueue:    w.queue.ID, SourceSubscription: w.delivery.subscription, SourceMessageID: w.firstID,
		FirstPublishedAt: w.delivery.publishedAt, DeadLetteredAt: s.config.Now(),
	}
	reason := slog.String("reason", a.Reason)
	p := s.plan(w, v)
	end := dedupe.Ending{Status: dedupe.Failed, Reason: a.Reason, Next: p.due, Uncounted: !v.means.Counts}
	if p.way == never {
		a.Outcome, end = retry.DeadLettered, dedupe.Ending{Status: dedupe.DeadLettered, Reason: a.Reason}
		for _, marked := range marks(v.failure) {
			a.quiet = a.quiet || marked.Verdict.Scope == retry.OtherEvent          // it waited in vain
			end.Uncounted = end.Uncounted || marked.Verdict.Reason == dedupe.Begun // attempts began, and none ended
		}
	}

	// The record.
	switch {
	case p.way == never:
		if w.claims != nil {
			if err := w.claims.Broken(ctx, a.Reason); err != nil {
				return verdict{course: nacked, failure: err}
			}
		}
		seen, err := w.run.Look(ctx)
		switch {
		case err != nil:
			return verdict{course: nacked, failure: err}
		case w.run.Lost(seen) || (seen != dedupe.Fresh && seen != dedupe.Claimed):
			return verdict{course: recorded, seen: seen}
		}
		a.Attempt, end.Uncounted = w.run.Attempt(), end.Uncounted && seen == dedupe.Fresh
		if end.Uncounted {
			a.Attempt-- // the last was counted before it ran, and there is no other
		}
	case v.course == uncertain, v.course == busy:
		if v.course == uncertain {
			// A commit whose answer was lost is recognized, where the store answers again.
			if seen, err := w.run.Look(ctx); err == nil && seen != dedupe.Fresh {
				return verdict{course: recorded, seen: seen}
			}
		}
		// An attempt that was counted before it ran, and was none of the event's own, is taken back. Else it stays counted.
		if _, err := w.run.Uncount(ctx, a.Reason); err != nil {
			s.config.Log.LogAttrs(ctx, slog.LevelWarn, "attempt not taken back", about(w, reason)...)
		}
	}

	// The dead letter.
	if p.way == never {
		failpoint.Hit(failpoint.BuryPublish)
		if letter.Attempts = a.Attempt; w.queue.DeadLetter.Drop {
			a.Outcome = retry.Dropped
		} else if err := deadletter.Publish(ctx, s.config.DeadLetters, w.queue.Queue, letter); err != nil {
			return verdict{course: nacked, failure: retry.Outage("dead_letter_unconfirmed", err), attempt: a.Attempt}
		}
		failpoint.Hit(failpoint.BuryPublished)
	}

	// The lane.
	var place lane.Lane
	var err error
	if p.way == kept {
		if place = w.place; v.course != postponed {
			place, err = lane.Open(ctx, s.config.Store, p.name)
		}
	}
	switch counts := v.course == failed || v.course == early; {
	case p.way != kept, err != nil:
	case !counts && p.name.OrderingKey == "" && place.Holds(): // an earlier delivery has kept it
	default:
		message := w.delivery.message
		message.Attributes = w.queue.Addressed(message.Attributes)
		end.Kept.Beside = p.name.OrderingKey == "" && w.name.OrderingKey != ""
		end.Kept.Ticket, end.Kept.Writes, err = place.Put(lane.Waiting{
			Topic: w.queue.Topic(), Message: message, FirstPublished: w.delivery.publishedAt, MessageID: w.delivery.messageID,
			Tenant: w.event.Tenant, EventID: w.event.ID,
			Due: p.due, Timer: v.course == postponed && !p.due.IsZero(), // until its time of delivery
		}, s.config.Now())
		if err == nil && (v.course == postponed || v.course == busy) {
			_, err = s.config.Store.Commit(ctx, end.Kept.Writes)
		}
	}
	switch {
	case err == nil:
	case v.course != postponed:
		s.config.Log.LogAttrs(ctx, slog.LevelWarn, "message not kept for its wait", about(w, reason, slog.String("cause", fmt.Sprintf("%T", err)))...)
		p.way, end.Kept = redelivered, dedupe.Kept{}
	case errors.Is(err, lane.ErrUnfit) && p.due.IsZero(): // the broker has to keep it, and with it the key
		return verdict{course: nacked, failure: retry.Busy(a.Reason, err)}
	case errors.Is(err, lane.ErrUnfit):
		return verdict{course: failed, failure: retry.Permanent("too_large_to_wait", err)}
	case errors.Is(err, store.ErrExists), errors.Is(err, store.ErrStale):
		return verdict{course: arrived, failure: retry.Busy("contention", nil)}
	default:
		return verdict{course: nacked, failure: retry.Outage("store_unavailable", err)}
	}

	// The record.
	if v.course == failed || (v.course == early && p.way == kept) {
		leased := w.handler.Leased != nil
		switch {
		case v.course == early:
			end = dedupe.Ending{Kept: end.Kept}
		case p.way == never:
		case leased:
			failpoint.Hit(failpoint.LeasedRelease)
		default:
			failpoint.Hit(failpoint.TxFail)
		}
		seen, err := w.run.Conclude(ctx, end)
		v.attempt = w.run.Attempt()
		if leased && v.course == failed && p.way != never {
			failpoint.Hit(failpoint.LeasedReleased)
		}
		switch {
		case err != nil && p.way == never:
			return verdict{course: nacked, failure: err, attempt: a.Attempt}
		case err != nil && leased:
			s.config.Log.LogAttrs(ctx, slog.LevelWarn, "lease not released", about(w, reason)...)
			p.way = redelivered
		case err != nil:
			s.config.Log.LogAttrs(ctx, slog.LevelWarn, "attempt not counted", about(w, reason)...)
			p.way = redelivered
		case p.way == never: // what somebody else has written stands
			failpoint.Hit(failpoint.BuryMarked)
		case seen == dedupe.Counted && v.course == failed:
			if !leased {
				failpoint.Hit(failpoint.TxFailed)
			}
		case v.course == failed && !w.run.Lost(seen) && (seen == dedupe.Fresh || seen == dedupe.Claimed):
			return v
		case seen != dedupe.Waiting || v.course != early:
			return verdict{course: recorded, seen: seen}
		}
	}

	// The answer.
	switch p.way {
	case resumed:
		a.resume = p.due
	case kept:
		a.Delayed, a.due = true, p.due
		if p.due.IsZero() && !place.Holds() { // else it comes with those before it
			a.due = s.config.Now()
		}
		if v.course != failed {
			a.cause = ""
		}
		if v.course == postponed {
			a.Status = http.StatusOK
		}
		a.hold = w.calms && !place.Exists() && p.name.OrderingKey != ""
	case redelivered, never:
	}
	return verdict{course: final, answer: a}
}

// plan is how a message comes to its next attempt, when that is due, and the lane that keeps it meanwhile.
type plan struct {
	way  way
	due  time.Time
	name lane.Name
}

// way is how a message comes to its next attempt.
type way int

const (
	redelivered way = iota // by the broker
	resumed                // in this request
	kept                   // from a lane, when it is due
	never                  // it is dead-lettered
)

// plan decides how the message comes to its next attempt, and when that is due. A failure of what all messages share is
// nacked: the subscription slows down, and the backlog stays with the broker. Any other nack would slow messages that could
// succeed. So there is one only where the broker's own wait is the policy's, within the queue's budget.
func (s *Service) plan(w *attempt, v verdict) plan {
	now, q, received := s.config.Now(), w.queue, w.delivery.received
	// An attempt may be made in this request soon, and early enough to be answered by the ack deadline.
	latest := received.Add(min(maxResume, q.AckDeadline-q.SlotWait-w.policy.Timeout-bookkeeping-1))
	if s.Draining() {
		latest = time.Time{}
	}
	p := plan{way: redelivered, due: v.due, name: w.name}
	switch v.course {
	case postponed:
		p.way = kept
	case early:
		if p.way = kept; !w.waited && !p.due.After(latest) {
			p.way = resumed
		}
		if w.run.Beside() { // a worker whose clock is ahead has released it
			p.name.OrderingKey = ""
		}
	case busy:
		soon := received.Add(nextLook)
		// Not much later than the broker would come: it may be over before its time.
		if late := now.Add(max(w.policy.Backoff.Wait(1, 0), nextLook)); p.due.IsZero() || p.due.After(late) {
			p.due = late
		}
		switch {
		case !w.waited && soon.After(now) && !soon.After(latest):
			p.way, p.due = resumed, soon
		case !q.nacks.AllowN(now, 1):
			p.way = kept
		}
	case failed:
		wait, asked := w.policy.Backoff.Wait(v.attempt, s.config.Dice()), retry.Asked(v.failure)
		p.way, p.due = kept, now.Add(max(wait, asked))
		switch {
		case v.means.Class.Terminal():
			p.way = never
		case v.means.Scope == retry.OtherEvent:
			p.name.OrderingKey = "" // what it waits for may be behind it
		case v.means.Scope != retry.EveryMessage && !p.due.After(latest):
			p.way = resumed
		case !q.Remembers(): // to keep a message costs more than the record that is saved
			p.way = redelivered
		case asked > wait && (v.means.Counts || !q.oneTarget):
		case v.means.Scope == retry.EveryMessage, v.means.Class == retry.Unavailable && q.oneTarget,
			q.BrokerKeepsTime() && (w.delivery.attempt == 0 || w.delivery.attempt == v.attempt) && q.nacks.AllowN(now, 1):
			p.way = redelivered
		}
		if p.way == redelivered && !v.means.Counts {
			p.due = time.Time{} // nothing was tried: the broker's next delivery is in time
		}
	default:
	}
	return p
}

// again answers that the message is to be delivered again.
func again(means retry.Verdict, err error) answer {
	return answer{Outcome: retry.Retry, Status: int(means.Class), Reason: means.Reason, cause: cause(err)}
}

// detail is the text of a dead letter beside its reason, made of our own errors, which hold codes, field paths and ids.
func detail(err error) string {
	var invalid *contract.Invalid
	if errors.As(err, &invalid) {
		return invalid.Error()
	}
	var texts []string
	for i, marked := range marks(err) {
		if i > 0 { // the letter has the reason of the first
			texts = append(texts, marked.Verdict.Reason)
		}
		if len(marked.Subjects) > 0 {
			texts = append(texts, strings.Join(marked.Subjects, " "))
		}
	}
	if said := retry.Said(err); said != "" {
		texts = append(texts, said)
	}
	return strings.Join(texts, ": ")
}

// workerDied is the failure of an event whose last attempt ended with its worker.
var workerDied = retry.Exhausted(retry.Verdict{Reason: dedupe.Begun}, nil)

// marks are the marked errors in a chain of errors, the outermost first.
func marks(err error) (all []*retry.Error) {
	for marked := (*retry.Error)(nil); errors.As(err, &marked); err = marked.Err {
		all = append(all, marked)
	}
	return all
}

// cause is the log's text of a failure beside its reason: the detail, and the type of the error at the bottom.
func cause(err error) string {
	if err == nil {
		return ""
	}
	root := err
	for inner := err; inner != nil; inner = errors.Unwrap(inner) {
		root = inner
	}
	return strings.TrimPrefix(detail(err)+" "+fmt.Sprintf("%T", root), " ")
}
