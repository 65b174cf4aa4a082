package push

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"billhook/catalog"
	"billhook/internal/contract"
	"billhook/internal/dedupe"
	"billhook/internal/delayed"
	"billhook/internal/handler"
	"billhook/internal/retry"
	"billhook/internal/store"
)

// maxAhead is how far ahead a time of delivery may lie.
const maxAhead = 30 * 24 * time.Hour

// ticket is that of a delivery that comes back from a long wait; empty for any other.
func (d delivery) ticket() string { return delayed.Ticket(d.message) }

// redelivered reports whether the event is known to have been delivered before.
func (d delivery) redelivered() bool { return d.attempt > 1 || d.ticket() != "" || d.replayed() }

// orderingKey is the key that a delivery's queue keeps it in order by. An emulator
// says it in the attribute alone.
func (q *queue) orderingKey(d delivery) string {
	key := d.message.OrderingKey
	if key == "" && d.message.Attributes[contract.AttrOrderingKey] != contract.UnknownOrderingKey {
		key = d.message.Attributes[contract.AttrOrderingKey]
	}
	if !q.Ordered() {
		return ""
	}
	return key
}

// laneName is where a delivery waits if it has to.
func (q *queue) laneName(d delivery, event handler.Event, record dedupe.Record) delayed.Name {
	return delayed.Name{
		Queue: q.ID, OrderingKey: q.orderingKey(d), Message: dedupe.ConflictKey(q.ID, event.Tenant, event.ID, record.PayloadHash).ID,
	}
}

// inTurn handles a delivery when it is its turn: not before its time of delivery, and
// not before one of its key that waits. Whether one does is a read, in queues where
// one can. Until then the message is kept, and the delivery acknowledged.
func (s *Service) inTurn(ctx context.Context, q *queue, d delivery, event handler.Event, run *dedupe.Run, record dedupe.Record) answer {
	name := q.laneName(d, event, record)
	var due time.Time
	if wished := d.message.Attributes[contract.AttrDeliverAt]; wished != "" && d.ticket() == "" {
		// A contract's time. What comes back has waited for it already.
		if at, err := time.Parse(time.RFC3339Nano, wished); err == nil && at.After(s.config.Now()) {
			due = at
		}
	}
	if q.parks(name.OrderingKey) && d.replayed() {
		return s.resume(ctx, q, d, event, run, name)
	}
	switch {
	case due.IsZero() && (name.OrderingKey == "" || !q.waits):
		return s.handle(ctx, q, d, event, run, name)
	case !due.IsZero() && name.OrderingKey != "" && !q.waits:
		return s.bury(ctx, q, d, run, retry.Permanent("deliver_at_unsupported", nil))
	case due.Sub(s.config.Now()) > maxAhead:
		return s.bury(ctx, q, d, run, retry.Permanent("deliver_at_too_far", nil))
	}
	lane, a, wait := s.putAside(ctx, q, d, run, name, delayed.Waiting{
		Topic: q.Topic(), Message: d.message, FirstPublished: d.publishedAt, Tenant: event.Tenant, EventID: event.ID, Due: due,
	})
	if wait {
		return a
	}
	if q.parks(name.OrderingKey) && run.Corrects() {
		return s.resume(ctx, q, d, event, run, name)
	}
	a = s.handle(ctx, q, d, event, run, name)
	if last, over := lane.Over(d.message); over && !a.Delayed {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), bookkeeping)
		defer cancel()
		// Where this fails, the next message of the key takes the longer way, and ends it.
		if _, err := s.config.Store.Commit(ctx, []store.Write{last}); err != nil && !errors.Is(err, store.ErrStale) {
			s.config.Log.LogAttrs(ctx, slog.LevelWarn, "lane not removed", slog.String("queue", q.ID), slog.String("event_id", event.ID))
		}
	}
	return a
}

// putAside keeps a message that has to wait, and reports whether it had to; if not,
// the lane is as it was read.
func (s *Service) putAside(ctx context.Context, q *queue, d delivery, run *dedupe.Run, name delayed.Name, w delayed.Waiting) (delayed.Lane, answer, bool) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), bookkeeping)
	defer cancel()
	for range counting {
		lane, err := delayed.Open(ctx, s.config.Store, name)
		if err != nil {
			err = retry.Down("store_unavailable", err)
			return lane, again(retry.Decide(err), err, 0), true
		}
		if w.Due.IsZero() && !lane.Behind(d.message) {
			return lane, answer{}, false
		}
		// What was handled before, or is kept already, needs no place in line.
		if seen, err := run.Look(ctx); err != nil {
			return lane, again(retry.Decide(err), err, 0), true
		} else if q.parks(name.OrderingKey) && run.Corrects() {
			return lane, answer{}, false // its key waits for it, as for a replay
		} else if seen != dedupe.Fresh {
			return lane, s.met(ctx, q, d, run, seen), true
		}
		kept := answer{Outcome: retry.Retry, Status: http.StatusOK, Reason: "deliver_at", Delayed: true}
		if w.Due.IsZero() {
			kept.Reason = "behind_delayed" // or behind a dead letter
		}
		if name.OrderingKey == "" && lane.Holds() {
			return lane, kept, true // by an earlier delivery
		}
		_, writes, err := lane.Put(w, s.config.Now())
		if err != nil {
			if w.Due.IsZero() { // the broker has to keep it, and with it the key
				err = retry.Busy("behind_delayed", err)
				return lane, again(retry.Decide(err), err, 0), true
			}
			return lane, s.bury(ctx, q, d, run, retry.Permanent("too_large_to_wait", err)), true
		}
		switch _, err = s.config.Store.Commit(ctx, writes); {
		case err == nil:
			return lane, kept, true
		case !errors.Is(err, store.ErrExists) && !errors.Is(err, store.ErrStale):
			err = retry.Down("store_unavailable", err)
			return lane, again(retry.Decide(err), err, 0), true
		}
	}
	contention := retry.Busy("contention", nil)
	return delayed.Lane{}, again(retry.Decide(contention), contention, 0), true
}

// next decides when the next attempt is due, after the given one has failed, and who
// waits for it: the broker, or, where it would come too early, the message is kept:
// then the record's next write keeps it, and next reports so.
func (s *Service) next(ctx context.Context, q *queue, d delivery, event handler.Event, run *dedupe.Run, name delayed.Name, attempt int, failure error) (time.Time, bool) {
	now := s.config.Now()
	wait := q.Handlers[event.Type].Backoff.Wait(attempt, s.config.Dice())
	asked := retry.Asked(failure)
	keep := wait > catalog.BrokerMaxBackoff || asked > wait
	wait = max(wait, asked)
	run.Keep("", nil)
	if q.parks(name.OrderingKey) && (d.replayed() || run.Corrects()) {
		keep = false // behind itself
	}
	if keep && (name.OrderingKey == "" || q.waits) {
		lane, err := delayed.Open(ctx, s.config.Store, name)
		var ticket string
		var writes []store.Write
		if err == nil {
			ticket, writes, err = lane.Put(delayed.Waiting{
				Topic: q.Topic(), Message: d.message, FirstPublished: d.publishedAt, Tenant: event.Tenant, EventID: event.ID, Due: now.Add(wait),
			}, now)
		}
		if err == nil {
			run.Keep(ticket, writes)
			return now.Add(wait), true
		}
		s.config.Log.LogAttrs(ctx, slog.LevelWarn, "message not kept for its wait", slog.String("queue", q.ID),
			slog.String("event_id", event.ID), slog.String("cause", cause(err)))
	}
	return now.Add(min(wait, catalog.BrokerMaxBackoff)), false
}
