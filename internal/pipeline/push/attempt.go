package push

import (
	"context"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"billhook/catalog"
	"billhook/internal/contract"
	"billhook/internal/dedupe"
	"billhook/internal/pii"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/pipeline/handler"
	"billhook/internal/pipeline/lane"
	"billhook/internal/pipeline/rates"
	"billhook/internal/platform/store"
	"billhook/internal/retry"
)

const (
	// bookkeeping bounds each step that reads or writes around a handler. It goes on after the caller has left.
	bookkeeping = 5 * time.Second
	// maxRounds is how often a step may run because the record or the lane was not as assumed.
	maxRounds = 3
	// maxResumes is how many attempts follow the first in one request, also where the clock stands still.
	maxResumes = 5
	// maxKept is the largest message that a record keeps: half of what a document holds.
	maxKept = 512 << 10
)

// attempt is one attempt of a delivery, with all that is known of it. It passes through the steps decode, turn, claim,
// perform, settle and leave.
type attempt struct {
	queue    *queue
	delivery delivery
	event    handler.Event
	record   dedupe.Record
	// broken is why the message has no valid event.
	broken error
	// policy is the catalog's entry of the event's handler, and handler the registered one, if found.
	policy  catalog.Handler
	handler handler.Handler
	found   bool
	// allowed is how many attempts the event has, and before those that were made elsewhere.
	allowed, before int
	// republished is the message that a claim keeps, for a sweep to publish it again.
	republished *contract.Message

	// known: the event was delivered before, so that its record is read first. returned: the message comes back from a
	// wait elsewhere than with the broker. replayed: it is a dead letter again. waited: the request has just waited
	// without an attempt, and does not wait for one again.
	known, returned, replayed, waited bool
	// published is when the message was published first, and firstID its first message id, as far as its attributes tell.
	published time.Time
	firstID   string
	// calms: instances may go by the queue's calm, and not know of a new lane for calmFor.
	calms bool
	// name is that of the lane where the message waits if it has to.
	name lane.Name

	// run is the event's or, of a broken message, the message's own. claims is then that of the event which it names.
	run, claims *dedupe.Run
	// repeated: an attempt before this one may have had its effect outside.
	repeated bool
	// place is the lane as it was read, if opened; ends: the lane is removed after the last of its messages.
	place        lane.Lane
	opened, ends bool
	// waits: it has to wait, behind another of its key or until due where that is set.
	waits bool
	due   time.Time
	// superseded: its effect came too late. lanes are those of its emissions, and released is when the first of the
	// delayed ones is due.
	superseded bool
	lanes      []string
	released   time.Time
	// until is the deadline of a Tx handler whose record was read first; zero: it was not.
	until time.Time
}

// course is what comes next for an attempt.
type course int

const (
	arrived   course = iota // turn, again where the lane was not as assumed
	ready                   // claim: the message may be handled, or has to wait
	claimed                 // perform: the event is claimed or counted, where it has to be
	recorded                // the answer follows from the record
	nacked                  // the broker delivers it again, and nothing is written
	busy                    // another worker has it, until the time due or for a moment
	postponed               // it is kept, until the time due or behind others of its key
	early                   // its next attempt is due at the time due
	failed                  // it is counted, or dead-lettered
	uncertain               // its effect may have been committed
	final                   // it is answered
)

// verdict is the result of a step of an attempt.
type verdict struct {
	course course
	// seen is the last look at the record.
	seen dedupe.Seen
	// failure is why the event is not handled, and means its meaning, where that is not the failure's own.
	failure error
	means   retry.Verdict
	// attempt is which of the event's attempts has failed; 0: none.
	attempt int
	due     time.Time
	answer  answer
}

// decode is the first step. It reads the delivery, and finds its handler in the catalog and in the registry.
func (s *Service) decode(q *queue, d delivery) *attempt {
	w := &attempt{queue: q, delivery: d, published: d.publishedAt, firstID: d.messageID}
	w.event, w.record, w.broken = decodeEvent(s.config.Catalog.Contracts, q, d)
	attributes := d.message.Attributes
	w.record.DelayTicket = lane.Ticket(d.message)
	w.returned, w.replayed = w.record.DelayTicket != "", attributes[deadletter.AttrReplayOf] != ""
	w.known = d.attempt > 1 || w.returned || w.replayed
	if at, err := time.Parse(time.RFC3339Nano, attributes[contract.AttrFirstPublished]); err == nil {
		w.published = at
	}
	if at, err := time.Parse(time.RFC3339Nano, attributes[contract.AttrDoorReceived]); err == nil {
		w.record.DoorReceivedAt = at
		if s.config.Now().Sub(at) < rates.GoodFor { // what comes late tells of a door that may be gone
			s.config.Rates.Door(attributes[contract.AttrDoorRelease])
		}
	}
	if id := attributes[contract.AttrFirstMessageID]; pii.ID.Valid(id) {
		w.firstID = id
	}
	w.record.PublishedAt = w.published
	w.name.Queue, w.name.Tenant = q.ID, w.record.Tenant
	if q.Ordered() {
		w.name.OrderingKey = d.message.OrderingKey
		if key := attributes[contract.AttrOrderingKey]; w.name.OrderingKey == "" && key != contract.UnknownOrderingKey {
			w.name.OrderingKey = key // an emulator sends it in the attribute alone
		}
	}
	w.calms = w.name.OrderingKey != "" && !q.waits // else lanes are looked at every time
	if w.broken != nil {
		return w
	}
	w.name.Message = dedupe.ConflictKey(q.ID, w.event.Tenant, w.event.ID, w.record.PayloadHash).ID
	w.policy, _ = q.Handler(w.event.Type)
	w.handler, w.found = s.config.Handlers.Lookup(w.policy.Name)
	// The message may ask for fewer attempts than the handler's, in an attribute or in its body.
	w.allowed = w.policy.MaxAttempts
	asked, _ := strconv.Atoi(w.event.Attributes[contract.AttrMaxAttempts])
	for _, n := range [...]int{asked, w.event.Body.MaxAttempts()} {
		if n >= 1 {
			w.allowed = min(w.allowed, n)
		}
	}
	if !w.replayed { // a replay has all its attempts
		// There is one attempt at the least: whoever sent it here wanted it tried.
		w.before = max(0, min(w.event.Body.Attempted(), w.allowed-1))
		w.record.Attempts = int64(w.before)
	}
	if w.handler.Leased != nil && len(d.message.Data) <= maxKept {
		// Pub/Sub takes names and bytes that no document may have. An orphan of such a message is reported.
		as := store.Set(store.Key{Collection: dedupe.Collection, ID: d.messageID}, store.Encode(&d.message))
		if store.CheckWrites([]store.Write{as}) == nil {
			w.republished = &w.delivery.message
		}
	}
	return w
}

// deliver takes one message to its answer. Where its next attempt is due within a second or two, the request waits for it
// without a slot: a nack would slow the whole subscription, and keeping the message would cost three round trips.
func (s *Service) deliver(ctx context.Context, q *queue, d delivery) (answer, dedupe.Record) {
	w := s.decode(q, d)
	if !w.known {
		s.config.Rates.Arrived(q.ID)
	}
	// Of an attempt that kills its worker nothing else is left.
	s.config.Log.LogAttrs(ctx, slog.LevelInfo, "received", about(w, slog.Int("delivery_attempt", d.attempt), slog.String("instance", s.config.Instance))...)
	for resumed := 0; ; resumed++ {
		a := s.attempt(ctx, w)
		a.EventID = w.record.EventID
		if !a.resume.IsZero() && resumed < maxResumes && s.wait(ctx, a.resume) {
			s.config.Log.LogAttrs(ctx, slog.LevelInfo, "attempt again", slog.String("queue", w.queue.ID), slog.String("event_id", a.EventID),
				slog.String("event_type", w.record.EventType), slog.String("message_id", w.delivery.messageID), slog.Int("attempt", a.Attempt),
				slog.String("outcome", string(a.Outcome)), slog.String("reason", a.Reason), slog.Int("status", a.Status), slog.String("cause", a.cause))
			s.config.Rates.Ended(q.ID, a.Outcome, a.Attempt)
			w.known, w.waited = true, a.Attempt == 0
			continue
		}
		for _, due := range []time.Time{a.due, w.released} {
			if due.IsZero() {
				continue
			}
			if err := s.config.Alarm.At(context.WithoutCancel(ctx), due); err != nil {
				s.config.Log.LogAttrs(ctx, slog.LevelWarn, "no alarm, left to the next run of release-delayed", about(w, slog.String("cause", cause(err)))...)
			}
		}
		if a.hold && !s.wait(ctx, s.config.Now().Add(calmFor)) {
			a.Outcome, a.Delayed, a.Status = retry.Retry, false, http.StatusServiceUnavailable // the broker goes on holding the key
		}
		return a, w.record
	}
}

// exhausted makes the failure of an event's last attempt a terminal one.
func (w *attempt) exhausted(means retry.Verdict, failure error, attempt int) (retry.Verdict, error) {
	if !means.Class.Terminal() && means.Counts && attempt >= w.allowed {
		failure = retry.Exhausted(means, failure)
		means = retry.Decide(failure)
	}
	return means, failure
}

// about is what the log says of an attempt, and more.
func about(w *attempt, more ...slog.Attr) []slog.Attr {
	return append(more, slog.String("queue", w.queue.ID), slog.String("event_id", w.record.EventID), slog.String("message_id", w.delivery.messageID))
}

// attempt makes one attempt of a delivery, in one of the queue's slots.
func (s *Service) attempt(ctx context.Context, w *attempt) answer {
	key, d := w.delivery.message.OrderingKey, &w.delivery
	if key == "" {
		key = d.message.Attributes[contract.AttrOrderingKey]
	}
	if !w.queue.slots.acquire(ctx, key, len(d.message.Data), w.queue.SlotWait) {
		reason := "queue_full"
		if s.Draining() {
			reason = "shutting_down"
		}
		full := retry.Busy(reason, nil)
		return again(retry.Decide(full), full)
	}
	defer w.queue.slots.release()
	var v verdict
	var rounds [final + 1]int
	for {
		if rounds[v.course]++; rounds[v.course] > maxRounds {
			if v.course = nacked; !v.means.Counts {
				v.attempt = 0
			}
		}
		switch v.course {
		case arrived:
			v = s.turn(ctx, w)
		case ready:
			v = s.claim(ctx, w)
		case claimed:
			v = s.perform(ctx, w)
		case recorded:
			v = s.read(w, v)
		case nacked, busy, postponed, early, failed, uncertain:
			if v.means == (retry.Verdict{}) {
				v.means = retry.Decide(v.failure)
			}
			if v.course == failed {
				v.means, v.failure = w.exhausted(v.means, v.failure, v.attempt)
			}
			v = s.settle(ctx, w, v)
		case final:
			return s.leave(ctx, w, v.answer)
		}
	}
}
