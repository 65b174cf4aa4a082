package push

import (
	"context"
	"log/slog"
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
	"billhook/internal/pii"
	"billhook/internal/retry"
)

// bookkeeping bounds what follows a handler: counting a failure, or confirming a
// dead letter and marking the record. It is not the handler's time, and it goes on
// where the caller has left.
const bookkeeping = 5 * time.Second

// attempt is one attempt of a delivery: what it is of, and what is known of it.
type attempt struct {
	queue    *queue
	delivery delivery
	event    handler.Event
	record   dedupe.Record
	run      *dedupe.Run
	// lane is where the message waits if it has to.
	lane delayed.Name
	// newLane: the message was kept in a lane that was not there before.
	newLane bool
	// known: the event is known to have been delivered before, so that its record is read
	// before anything is tried.
	known bool
}

// spec is the catalog's entry of the event's handler.
func (w *attempt) spec() catalog.Handler { return w.queue.Handlers[w.event.Type] }

// deliver runs one message to its outcome. The record has the ids of its event, as
// far as it has valid ones. What is due within a second or two waits for it here,
// without a slot: a nack would slow the whole subscription, and to keep the message
// would cost three round trips.
func (s *Service) deliver(ctx context.Context, q *queue, d delivery) (answer, dedupe.Record) {
	event, record, err := decodeEvent(s.config.Contracts, q, d)
	known := d.redelivered()
	for resumed := 0; ; resumed++ {
		a := s.inSlot(ctx, q, d, func() answer { return s.attempt(ctx, q, d, event, record, known, err) })
		a.EventID = record.EventID
		switch {
		case !a.resume.IsZero():
			// A clock that stands still would have it wait for ever.
			if resumed < maxResumes && s.until(ctx, a.resume) {
				s.config.Log.LogAttrs(ctx, slog.LevelInfo, "attempt again", slog.String("queue", q.ID), slog.String("event_id", a.EventID),
					slog.String("event_type", record.EventType), slog.String("message_id", d.messageID), slog.Int("attempt", a.Attempt),
					slog.String("outcome", string(a.Outcome)), slog.String("reason", a.Reason), slog.Int("status", a.Status), slog.String("cause", a.cause))
				known, d.looked = true, d.looked || a.Attempt == 0
				continue
			}
		case a.Delayed:
			s.ring(ctx, q, a)
		}
		if !s.until(ctx, a.hold) {
			a.Outcome, a.Delayed, a.Status = retry.Retry, false, http.StatusServiceUnavailable // the broker goes on holding the key
		}
		return a, record
	}
}

// inSlot runs an attempt in one of the queue's slots, which it waits for.
func (s *Service) inSlot(ctx context.Context, q *queue, d delivery, run func() answer) answer {
	key := d.message.OrderingKey
	if key == "" {
		key = d.message.Attributes[contract.AttrOrderingKey]
	}
	if !q.slots.acquire(ctx, key, len(d.message.Data), s.config.Timer, q.SlotWait, s.ended) {
		reason := "queue_full"
		if s.Draining() {
			reason = "shutting_down"
		}
		full := retry.Busy(reason, nil)
		return again(retry.Decide(full), full, 0)
	}
	defer q.slots.release()
	return run()
}

// attempt makes one attempt of a delivery.
func (s *Service) attempt(ctx context.Context, q *queue, d delivery, event handler.Event, record dedupe.Record, known bool, broken error) answer {
	switch {
	case !q.binding.Match(d.message.Attributes):
		// The broker's filter, which an emulator does not apply.
		return answer{Outcome: retry.Dropped, Status: http.StatusNoContent, Reason: "not_bound"}
	case q.MessageTTL > 0 && !d.replayed() && !d.firstPublished().IsZero() && s.config.Now().Sub(d.firstPublished()) > q.MessageTTL:
		s.leave(ctx, q, d)
		return answer{Outcome: retry.Expired, Status: http.StatusNoContent, Reason: "message_ttl"}
	}
	w := &attempt{queue: q, delivery: d, event: event, record: record, known: known}
	if broken != nil {
		a := s.broken(ctx, w, broken)
		if a.Outcome != retry.Retry {
			s.leave(ctx, q, d)
		}
		return a
	}
	w.run = s.begin(w, event)
	w.lane = delayed.Name{
		Queue: q.ID, OrderingKey: q.orderingKey(d), Message: dedupe.ConflictKey(q.ID, event.Tenant, event.ID, record.PayloadHash).ID,
	}
	return s.inTurn(ctx, w)
}

// firstID is the id that the message was delivered under first: what waited elsewhere than
// with the broker comes back under another.
func (d delivery) firstID() string {
	if id := d.message.Attributes[contract.AttrFirstMessageID]; pii.ID.Valid(id) {
		return id
	}
	return d.messageID
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
func (s *Service) handle(ctx context.Context, w *attempt) answer {
	h, ok := s.config.Handlers.Lookup(w.spec().Name)
	switch {
	case !ok:
		return s.bury(ctx, w, retry.Permanent(typeUnknown, nil))
	case h.Leased != nil:
		return s.leased(ctx, w, *h.Leased)
	default:
		return s.tx(ctx, w, h.Tx)
	}
}

// settle answers a delivery by what its run has done, or by what it found done.
func (s *Service) settle(ctx context.Context, w *attempt, seen dedupe.Seen) answer {
	run := w.run
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
		other := *w
		other.run = run.Conflict()
		return s.bury(ctx, &other, retry.Conflicting("payload_conflict", nil))
	case dedupe.Waiting:
		// By a copy whose acknowledgement did not arrive: what comes behind it may come at once.
		return answer{Outcome: retry.Duplicate, Status: http.StatusNoContent, Reason: "delayed_before", hold: s.unsettled(w)}
	case dedupe.Early:
		return s.early(ctx, w)
	case dedupe.Held:
		return s.busy(ctx, w, retry.Busy("lease_held", nil), run.Due())
	case dedupe.Fresh, dedupe.Counted, dedupe.Claimed:
	}
	return s.busy(ctx, w, retry.Busy("undecided", nil), time.Time{})
}

// allowed is how many attempts the event has: the message's own wish, in its
// attributes or in its body, bounded by the handler's.
func (w *attempt) allowed() int {
	attempts := w.spec().MaxAttempts
	if wished, err := strconv.Atoi(w.event.Attributes[contract.AttrMaxAttempts]); err == nil && wished >= 1 {
		attempts = min(attempts, wished)
	}
	if wished := w.event.Body.MaxAttempts(); wished >= 1 {
		attempts = min(attempts, wished)
	}
	return attempts
}

// bury makes the dead letter, confirmed first, then marks the record, then answers.
// reason carries a terminal verdict. Where the record already says what became of
// the message, that is the answer and there is no dead letter.
func (s *Service) bury(ctx context.Context, w *attempt, reason error) answer {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), bookkeeping)
	defer cancel()
	q, d, run := w.queue, w.delivery, w.run
	seen, err := run.Look(ctx)
	if err != nil {
		return again(retry.Decide(err), err, 0)
	}
	if run.Lost(seen) || (seen != dedupe.Fresh && seen != dedupe.Claimed) {
		return s.settle(ctx, w, seen)
	}
	verdict, attempts, outcome := retry.Decide(reason), run.Attempt(), retry.DeadLettered
	if seen == dedupe.Fresh && workersDied(reason) {
		attempts-- // the last was counted before it ran, and there is no other
	}
	failpoint.Hit(failpoint.BuryPublish)
	if q.DeadLetter.Drop {
		outcome = retry.Dropped
	} else if err := deadletter.Publish(ctx, s.config.DeadLetters, q.Queue, deadletter.Letter{
		Message: d.message, Reason: verdict.Reason, Status: int(verdict.Class), Detail: detail(reason),
		SourceQueue: q.ID, SourceSubscription: d.subscription, SourceMessageID: d.firstID(),
		Attempts: attempts, FirstPublishedAt: d.publishedAt, DeadLetteredAt: s.config.Now(),
	}); err != nil {
		err = retry.Outage("dead_letter_unconfirmed", err)
		return again(retry.Decide(err), err, attempts)
	}
	failpoint.Hit(failpoint.BuryPublished)
	if outcome == retry.DeadLettered {
		if err := s.park(ctx, w); err != nil {
			return again(retry.Decide(err), err, attempts)
		}
	}
	if _, err := run.Bury(ctx, verdict.Reason, attempts); err != nil {
		err = retry.Outage("store_unavailable", err)
		return again(retry.Decide(err), err, attempts)
	}
	failpoint.Hit(failpoint.BuryMarked)
	return answer{
		Outcome: outcome, Status: int(verdict.Class), Reason: verdict.Reason, Attempt: attempts, cause: cause(reason),
		// What waited in vain for another event was never nacked, and is not at its end.
		quiet: waitedForOther(reason),
	}
}
