package push

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"billhook/catalog"
	"billhook/internal/contract"
	"billhook/internal/deadletter"
	"billhook/internal/dedupe"
	"billhook/internal/delayed"
	"billhook/internal/failpoint"
	"billhook/internal/handler"
	"billhook/internal/retry"
)

// bookkeeping bounds what follows a handler: counting a failure, or confirming a
// dead letter and marking the record. It is not the handler's time, and it goes on
// where the caller has left.
const bookkeeping = 5 * time.Second

// deliver runs one message to its outcome. The record has the ids of its event, as
// far as it has valid ones.
func (s *Service) deliver(ctx context.Context, q *queue, d delivery) (answer, dedupe.Record) {
	event, record, err := decodeEvent(q, d)
	var a answer
	select {
	case q.slots <- struct{}{}:
		defer func() { <-q.slots }()
		switch {
		case !q.binding.Match(d.message.Attributes):
			// The broker's filter, which an emulator does not apply.
			a = answer{Outcome: retry.Dropped, Status: http.StatusNoContent, Reason: "not_bound"}
		case q.MessageTTL > 0 && !d.replayed() && !d.firstPublished().IsZero() && s.config.Now().Sub(d.firstPublished()) > q.MessageTTL:
			a = answer{Outcome: retry.Expired, Status: http.StatusNoContent, Reason: "message_ttl"}
		case err != nil:
			a = s.broken(ctx, q, d, record, err)
		default:
			a = s.inTurn(ctx, q, d, event, s.begin(q, d, event, record), record)
		}
	default:
		full := retry.Busy("queue_full", nil)
		a = again(retry.Decide(full), full, 0)
	}
	a.EventID = record.EventID
	return a, record
}

// firstPublished is when the message was published first, as far as it says so: a wait
// that was not the broker's, and a replay, publish it anew.
func (d delivery) firstPublished() time.Time {
	if at, err := time.Parse(time.RFC3339Nano, d.message.Attributes[contract.AttrFirstPublished]); err == nil {
		return at
	}
	return d.publishedAt
}

// handle runs a valid event's handler once and decides what follows.
func (s *Service) handle(ctx context.Context, q *queue, d delivery, event handler.Event, run *dedupe.Run, name delayed.Name) answer {
	spec := q.Handlers[event.Type]
	h, ok := s.config.Handlers.Lookup(spec.Name)
	if !ok {
		return s.bury(ctx, q, d, run, retry.Permanent(typeUnknown, nil))
	}
	if h.Leased != nil {
		return s.leased(ctx, q, d, event, run, name, *h.Leased)
	}
	return s.tx(ctx, q, d, event, run, name, h.Tx)
}

// met answers a delivery by what its run has done, or by what it found done.
func (s *Service) met(ctx context.Context, q *queue, d delivery, run *dedupe.Run, seen dedupe.Seen) answer {
	if run.Lost(seen) {
		seen = dedupe.Held // by somebody else, or waiting for its next delivery
	}
	switch seen {
	case dedupe.Own:
		return answer{Outcome: retry.Processed, Status: http.StatusOK, Reason: run.Result(), Attempt: run.Attempt(), result: run.Result()}
	case dedupe.Done:
		return answer{Outcome: retry.Duplicate, Status: http.StatusNoContent, Reason: "processed_before", result: run.Result()}
	case dedupe.Gone:
		return answer{Outcome: retry.Duplicate, Status: http.StatusNoContent, Reason: "dead_lettered_before"}
	case dedupe.Replaced:
		return answer{Outcome: retry.Duplicate, Status: http.StatusNoContent, Reason: correctedBefore}
	case dedupe.Differs:
		// Under a record of its own, so that its redelivery is known and acked.
		return s.bury(ctx, q, d, run.Conflict(), retry.Conflicting("payload_conflict", nil))
	case dedupe.Waiting:
		return answer{Outcome: retry.Duplicate, Status: http.StatusNoContent, Reason: "delayed_before"}
	case dedupe.Held:
		held := retry.Busy("lease_held", nil)
		return again(retry.Decide(held), held, 0)
	case dedupe.Fresh, dedupe.Counted, dedupe.Claimed:
	}
	undecided := retry.Busy("undecided", nil)
	return again(retry.Decide(undecided), undecided, 0)
}

// allowed is how many attempts the event has: the message's own wish, in its
// attributes or in its envelope, bounded by the handler's.
func allowed(spec catalog.Handler, event handler.Event) int {
	attempts := spec.MaxAttempts
	if wished, err := strconv.Atoi(event.Attributes[contract.AttrMaxAttempts]); err == nil && wished >= 1 {
		attempts = min(attempts, wished)
	}
	if envelope, ok := event.Body.(*contract.Envelope); ok && envelope.MaxAttempts >= 1 {
		attempts = min(attempts, int(envelope.MaxAttempts))
	}
	return attempts
}

// bury makes the dead letter, confirmed first, then marks the record, then answers.
// reason carries a terminal verdict. Where the record already says what became of
// the message, that is the answer and there is no dead letter.
func (s *Service) bury(ctx context.Context, q *queue, d delivery, run *dedupe.Run, reason error) answer {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), bookkeeping)
	defer cancel()
	seen, err := run.Look(ctx)
	if err != nil {
		return again(retry.Decide(err), err, 0)
	}
	if run.Lost(seen) || (seen != dedupe.Fresh && seen != dedupe.Claimed) {
		return s.met(ctx, q, d, run, seen)
	}
	verdict, attempt, outcome := retry.Decide(reason), run.Attempt(), retry.DeadLettered
	failpoint.Hit(failpoint.BuryPublish)
	if q.DeadLetter.Drop {
		outcome = retry.Dropped
	} else if err := deadletter.Publish(ctx, s.config.DeadLetters, q.Queue, deadletter.Letter{
		Message: d.message, Reason: verdict.Reason, Status: int(verdict.Class), Detail: detail(reason),
		SourceQueue: q.ID, SourceSubscription: d.subscription, SourceMessageID: d.messageID,
		Attempts: attempt, FirstPublishedAt: d.publishedAt, DeadLetteredAt: s.config.Now(),
	}); err != nil {
		err = retry.Down("dead_letter_unconfirmed", err)
		return again(retry.Decide(err), err, attempt)
	}
	failpoint.Hit(failpoint.BuryPublished)
	if outcome == retry.DeadLettered {
		if err := s.park(ctx, q, d); err != nil {
			return again(retry.Decide(err), err, attempt)
		}
	}
	if _, err := run.Bury(ctx, verdict.Reason, attempt); err != nil {
		err = retry.Down("store_unavailable", err)
		return again(retry.Decide(err), err, attempt)
	}
	failpoint.Hit(failpoint.BuryMarked)
	return answer{Outcome: outcome, Status: int(verdict.Class), Reason: verdict.Reason, Attempt: attempt, cause: cause(reason)}
}
