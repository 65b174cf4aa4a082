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
	delayed "billhook/internal/lane"
	"billhook/internal/retry"
	"billhook/internal/store"
)

const (
	// maxAhead is how far ahead a time of delivery may lie.
	maxAhead = 30 * 24 * time.Hour
	// maxResume is how long a request waits for the next attempt of its message.
	maxResume = 2 * time.Second
	// maxResumes is how many attempts follow the first in one request.
	maxResumes = 5
	// nextLook is when a message that somebody else has to let go is looked at once more.
	nextLook = time.Second
)

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

// inTurn handles a delivery when it is its turn: not before its time of delivery, and
// not before one of its key that waits. Until then the message is kept, and the delivery
// acknowledged.
func (s *Service) inTurn(ctx context.Context, w *attempt) answer {
	d := w.delivery
	var due time.Time
	if wished := d.message.Attributes[contract.AttrDeliverAt]; wished != "" && d.ticket() == "" {
		// A contract's time. What comes back has waited for it already.
		if at, err := time.Parse(time.RFC3339Nano, wished); err == nil && at.After(s.config.Now()) {
			due = at
		}
	}
	if w.queue.parks(w.lane.OrderingKey) && d.replayed() {
		return s.resume(ctx, w)
	}
	behind, err := s.mayBeBehind(ctx, w)
	switch {
	case err != nil:
		return again(retry.Decide(err), err, 0)
	case due.IsZero() && !behind:
		return s.handle(ctx, w)
	case due.Sub(s.config.Now()) > maxAhead:
		return s.bury(ctx, w, retry.Permanent("deliver_at_too_far", nil))
	}
	lane, a, wait := s.putAside(ctx, w, due)
	if wait {
		return a
	}
	if w.letsGo() {
		return s.resume(ctx, w)
	}
	if a = s.handle(ctx, w); !a.Delayed {
		s.end(ctx, lane, d)
	}
	return a
}

// end removes the lane of a message that has been delivered, where it was the last of it.
func (s *Service) end(ctx context.Context, lane delayed.Lane, d delivery) {
	last, over := lane.Over(d.message)
	if !over {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), bookkeeping)
	defer cancel()
	// Where this fails, the next message of the key takes the longer way, and ends it.
	if _, err := s.config.Store.Commit(ctx, []store.Write{last}); err != nil && !errors.Is(err, store.ErrStale) {
		s.config.Log.LogAttrs(ctx, slog.LevelWarn, "lane not removed", slog.String("queue", lane.Queue()), slog.String("message_id", d.messageID))
	}
}

// leave ends the lane of a message that has come back and is not handled any more: while a
// lane is left, each event of its queue costs a read.
func (s *Service) leave(ctx context.Context, q *queue, d delivery) {
	key := q.orderingKey(d)
	if d.ticket() == "" || key == "" {
		return
	}
	reading, cancel := context.WithTimeout(context.WithoutCancel(ctx), bookkeeping)
	defer cancel()
	lane, err := delayed.Open(reading, s.config.Store, delayed.Name{Queue: q.ID, OrderingKey: key})
	if err != nil {
		s.config.Log.LogAttrs(ctx, slog.LevelWarn, "lane not removed", slog.String("queue", q.ID), slog.String("message_id", d.messageID))
		return
	}
	s.end(ctx, lane, d)
}

// mayBeBehind reports whether a message of the delivery's key may wait, which only its
// lane can tell. In a queue where messages wait by policy, one always may, and what comes
// back has a lane. Elsewhere that is rare, and known for the whole queue at once.
func (s *Service) mayBeBehind(ctx context.Context, w *attempt) (bool, error) {
	switch {
	case w.lane.OrderingKey == "":
		return false, nil
	case w.queue.waits, w.delivery.ticket() != "": // what comes back ends its lane
		return true, nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), bookkeeping)
	defer cancel()
	calm, err := w.queue.calm.holds(ctx, s.config.Now, func(ctx context.Context) (bool, error) {
		return delayed.Calm(ctx, s.config.Store, w.queue.ID)
	})
	if err != nil {
		return false, retry.Outage("store_unavailable", err)
	}
	return !calm, nil
}

// putAside keeps a message that has to wait, and reports whether it had to; if not,
// the lane is as it was read. due is its time of delivery, zero where it has none.
func (s *Service) putAside(ctx context.Context, w *attempt, due time.Time) (delayed.Lane, answer, bool) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), bookkeeping)
	defer cancel()
	reason := "deliver_at"
	if due.IsZero() {
		reason = "behind_delayed" // or behind a dead letter
	}
	for range counting {
		lane, err := delayed.Open(ctx, s.config.Store, w.lane)
		if err != nil {
			err = retry.Outage("store_unavailable", err)
			return lane, again(retry.Decide(err), err, 0), true
		}
		if due.IsZero() && !lane.Behind(w.delivery.message) {
			return lane, answer{}, false
		}
		// What was handled before, or is kept already, needs no place in line.
		if seen, err := w.run.Look(ctx); err != nil {
			return lane, again(retry.Decide(err), err, 0), true
		} else if w.letsGo() {
			return lane, answer{}, false // its key waits for it, as for a replay
		} else if seen != dedupe.Fresh {
			return lane, s.settle(ctx, w, seen), true
		}
		kept, err := s.keepIn(ctx, w, lane, due)
		switch {
		case err == nil:
			kept.Status, kept.Reason = http.StatusOK, reason
			return lane, kept, true
		case errors.Is(err, delayed.ErrUnfit) && due.IsZero(): // the broker has to keep it, and with it the key
			err = retry.Busy(reason, err)
			return lane, again(retry.Decide(err), err, 0), true
		case errors.Is(err, delayed.ErrUnfit):
			return lane, s.bury(ctx, w, retry.Permanent("too_large_to_wait", err)), true
		case !errors.Is(err, store.ErrExists) && !errors.Is(err, store.ErrStale):
			err = retry.Outage("store_unavailable", err)
			return lane, again(retry.Decide(err), err, 0), true
		}
	}
	contention := retry.Busy("contention", nil)
	return delayed.Lane{}, again(retry.Decide(contention), contention, 0), true
}

// waiting is the delivery as its lane keeps it.
func (s *Service) waiting(w *attempt, due time.Time) delayed.Waiting {
	return delayed.Waiting{
		Topic: w.queue.Topic(), Message: w.delivery.message, FirstPublished: w.delivery.publishedAt, MessageID: w.delivery.messageID,
		Tenant: w.event.Tenant, EventID: w.event.ID, Due: due,
	}
}

// keepIn keeps the message in its lane, as that was read, and nothing else. The errors are
// delayed.ErrUnfit and the store's.
func (s *Service) keepIn(ctx context.Context, w *attempt, lane delayed.Lane, due time.Time) (answer, error) {
	if w.lane.OrderingKey == "" && lane.Holds() {
		return s.kept(w, due), nil // by an earlier delivery
	}
	_, writes, err := lane.Put(s.waiting(w, due), s.config.Now())
	if err != nil {
		return answer{}, err
	}
	if _, err := s.config.Store.Commit(ctx, writes); err != nil {
		return answer{}, err
	}
	w.newLane = !lane.Exists()
	a := s.kept(w, due)
	if due.IsZero() && lane.Holds() {
		a.due = time.Time{} // it comes with those before it
	}
	return a, nil
}

// kept is the answer for a message that has been kept just now, until it is due.
func (s *Service) kept(w *attempt, due time.Time) answer {
	a := answer{Outcome: retry.Retry, Delayed: true, due: due}
	if due.IsZero() {
		a.due = s.config.Now()
	}
	if w.newLane {
		a.hold = s.unsettled(w)
	}
	return a
}

// unsettled is until when an instance may take the queue for calm that has a new lane since
// now, and the acknowledgement waits: until then the broker holds back what comes behind.
// Where lanes are looked at every time it is the zero time.
func (s *Service) unsettled(w *attempt) time.Time {
	if w.lane.OrderingKey == "" || w.queue.waits {
		return time.Time{}
	}
	return s.config.Now().Add(calmFor)
}

// busy answers a delivery that somebody else has to let go, at the given time or soon:
// it is looked at again in this request, else nacked within the budget, else kept.
func (s *Service) busy(ctx context.Context, w *attempt, reason error, until time.Time) answer {
	verdict := retry.Decide(reason)
	a := again(verdict, reason, 0)
	now := s.config.Now()
	soon := w.delivery.received.Add(nextLook)
	// Not much later than the broker would come: it may be over before its time.
	late := now.Add(max(w.spec().Backoff.Wait(1, 0), nextLook))
	if until.IsZero() || until.After(late) {
		until = late
	}
	switch {
	case !w.delivery.looked && soon.After(now) && s.fits(w, soon):
		a.resume = soon
		return a
	case w.letsGo(), s.mayNack(w.queue):
		return a
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), bookkeeping)
	defer cancel()
	lane, err := delayed.Open(ctx, s.config.Store, w.lane)
	if err != nil {
		return a
	}
	kept, err := s.keepIn(ctx, w, lane, until)
	if err != nil {
		return a
	}
	kept.Status, kept.Reason = a.Status, a.Reason
	return kept
}

// early answers a delivery that comes before the event's next attempt is due: it waits
// for it here, else the message is kept.
func (s *Service) early(ctx context.Context, w *attempt) answer {
	due := w.run.Due()
	tooEarly := retry.Busy("not_due", nil)
	a := again(retry.Decide(tooEarly), tooEarly, 0)
	if !w.delivery.looked && s.fits(w, due) {
		a.resume = due
		return a
	}
	if w.letsGo() {
		return a // it is what its key waits for
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), bookkeeping)
	defer cancel()
	for range counting {
		if !s.keep(ctx, w, w.lane, due) {
			return a
		}
		switch seen, err := w.run.Postpone(ctx); {
		case err != nil:
			return a
		case seen == dedupe.Waiting:
			kept := s.kept(w, due)
			kept.Status, kept.Reason = a.Status, a.Reason
			return kept
		case seen != dedupe.Early:
			return s.settle(ctx, w, seen)
		}
	}
	return a
}

// keep has the record's next write keep the message in a lane, and reports whether it can
// be kept.
func (s *Service) keep(ctx context.Context, w *attempt, name delayed.Name, due time.Time) bool {
	lane, err := delayed.Open(ctx, s.config.Store, name)
	var ticket string
	var writes []store.Write
	w.newLane = !lane.Exists() && name.OrderingKey != ""
	if err == nil {
		ticket, writes, err = lane.Put(s.waiting(w, due), s.config.Now())
	}
	if err != nil {
		s.config.Log.LogAttrs(ctx, slog.LevelWarn, "message not kept for its wait", slog.String("queue", w.queue.ID),
			slog.String("event_id", w.event.ID), slog.String("cause", cause(err)))
		return false
	}
	w.run.Keep(ticket, writes)
	return true
}

// way is how a message comes to its next attempt.
type way int

const (
	nacked  way = iota // the broker delivers it again
	resumed            // this request makes it
	kept               // it is kept, and published when it is due
)

// next decides when the next attempt is due, after the given one has failed, and how the
// message comes to it. Where it is kept, the record's next write keeps it.
//
// What all messages share and is down is nacked: the subscription's slowing down is the
// right brake then, and the backlog stays with the broker. Else a nack would slow every
// other message, so there is one only where the broker's own wait is the policy's, and as
// the queue's budget has it.
func (s *Service) next(ctx context.Context, w *attempt, failed int, verdict retry.Verdict, failure error) (time.Time, way) {
	wait, asked := w.spec().Backoff.Wait(failed, s.config.Dice()), retry.Asked(failure)
	due := s.config.Now().Add(max(wait, asked))
	w.run.Keep("", nil)
	lane := w.lane
	behindItself := w.letsGo()
	switch {
	case verdict.Scope == retry.OtherEvent:
		lane.OrderingKey = "" // what it waits for may be behind it
	case s.fits(w, due) && verdict.Scope != retry.EveryMessage:
		return due, resumed
	case behindItself:
		return due, nacked
	case asked > wait:
	case verdict.Scope == retry.EveryMessage, verdict.Class == retry.Unavailable && w.queue.oneTarget:
		return due, nacked
	case w.queue.BrokerKeepsTime() && (w.delivery.attempt == 0 || w.delivery.attempt == failed) && s.mayNack(w.queue):
		return due, nacked
	}
	if s.keep(ctx, w, lane, due) {
		return due, kept
	}
	return due, nacked
}

// follow is the answer to an attempt that has failed and is counted.
func (s *Service) follow(w *attempt, verdict retry.Verdict, failure error, failed int, due time.Time, how way) answer {
	a := again(verdict, failure, failed)
	switch how {
	case resumed:
		a.resume = due
	case kept:
		k := s.kept(w, due)
		a.Delayed, a.due, a.hold = true, k.due, k.hold
	case nacked:
	}
	return a
}

// fits reports whether an attempt may be made in this request at the given time: soon, and
// early enough to be answered by the ack deadline.
func (s *Service) fits(w *attempt, at time.Time) bool {
	received := w.delivery.received
	return !s.Draining() && at.Sub(received) <= maxResume &&
		at.Sub(received)+w.queue.SlotWait+w.spec().Timeout+bookkeeping < w.queue.AckDeadline
}

// mayNack reports whether the queue's budget has a nack left for the sake of a single
// message, and takes it.
func (s *Service) mayNack(q *queue) bool { return q.nacks.AllowN(s.config.Now(), 1) }

// until waits for a time, without a slot, and reports whether it came before the service
// drains and before ctx ends.
func (s *Service) until(ctx context.Context, at time.Time) bool {
	wait := at.Sub(s.config.Now())
	if at.IsZero() || wait <= 0 {
		return true
	}
	c, stop := s.config.Timer(wait)
	defer stop()
	select {
	case <-c:
		return true
	case <-s.ended:
	case <-ctx.Done():
	}
	return false
}

// ring asks for a kept message to be released when it is due, where nobody has yet.
func (s *Service) ring(ctx context.Context, q *queue, a answer) {
	if a.due.IsZero() {
		return
	}
	if err := s.config.Alarm.At(context.WithoutCancel(ctx), a.due); err != nil {
		s.config.Log.LogAttrs(ctx, slog.LevelWarn, "no alarm, left to the next run of release-delayed", slog.String("queue", q.ID),
			slog.String("event_id", a.EventID), slog.String("cause", cause(err)))
	}
}

// waits reports whether messages of an ordered queue wait as a rule, so that each of its
// deliveries has to look for one before it: by a policy that is not the broker's, because
// what a leased handler calls may ask for it, or behind dead letters.
func waits(q catalog.Queue, leased bool) bool {
	return q.Ordered() && (q.OnPoison == catalog.Park || leased || !q.BrokerKeepsTime())
}
