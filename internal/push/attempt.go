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
	"billhook/internal/handler"
	"billhook/internal/lane"
	"billhook/internal/pii"
	"billhook/internal/retry"
	"billhook/internal/store"
)

// bookkeeping bounds what is read and written around a handler, step by step: the place in
// line, the claim, the dead letter, the record. It is not the handler's time, and it goes on
// where the caller has left.
const bookkeeping = 5 * time.Second

// counting is how often a step is decided anew because the record or the lane was not what it
// was thought to be. Once is usual where the broker does not say that it delivers again.
const counting = 3

// attempt is one attempt of a delivery: what it is of, what is known of it, and the policy
// that it goes by. It passes through the steps: decode, turn, claim, perform, settle, leave.
type attempt struct {
	queue    *queue
	delivery delivery
	event    handler.Event
	record   dedupe.Record
	// broken is why the message has no valid event.
	broken error
	// policy is the catalog's entry of the event's handler, and handler what is registered;
	// found: something is.
	policy  catalog.Handler
	handler handler.Handler
	found   bool
	// allowed is how many attempts the event has.
	allowed int
	// republished is the message that a claim keeps, for a sweep to publish it again.
	republished *contract.Message

	// known: the event is known to have been delivered before, so that its record is read
	// before anything is tried.
	known bool
	// returned: the message comes back from a wait elsewhere than with the broker.
	returned bool
	// replayed: it is a dead letter again. It is what its key waits for, and waits for nobody.
	replayed bool
	// parks: a dead letter of its key holds up what comes after it.
	parks bool
	// looked: the request has waited once for what is no attempt, and does not again.
	looked bool
	// published is when the message was published first, and firstID the id under which it was
	// delivered first, as far as it says so: a wait elsewhere and a replay publish it anew.
	published time.Time
	firstID   string
	// calms: instances take it for calm, for a while, that no message of its key waits.
	calms bool
	// name is that of the lane where the message waits if it has to.
	name lane.Name

	// run is the event's, or, of a broken message, the message's own. claims is then that of
	// the event which the message claims to be, if it claims one.
	run, claims *dedupe.Run
	// repeated: an attempt before this one may have had its effect outside.
	repeated bool
	// place is the lane as it was read, if it was opened; ends: it is removed after the last of
	// its messages.
	place        lane.Lane
	opened, ends bool
	// waits: it has to wait its turn, behind another, or until due where that is set.
	waits bool
	due   time.Time
	// frees: the key waits for just this message.
	frees bool
	// superseded: its effect came too late; lanes are those of what it has emitted.
	superseded bool
	lanes      []string
	// until is when the time of a Tx handler is up that has waited for its record; zero: it
	// has not.
	until time.Time
}

// course is what comes next for an attempt.
type course int

const (
	// arrived: its turn, also where its lane was not what it was thought to be.
	arrived course = iota
	// ready: its claim. It is its turn, or it has to wait for that.
	ready
	// claimed: its handler. The event is claimed or counted, where it has to be.
	claimed
	// recorded: the answer by what its record was seen to say.
	recorded
	// nacked: the broker delivers it again, and nothing is written.
	nacked
	// busy: somebody else has to let go of it, at the time due or soon.
	busy
	// postponed: it is kept, until the time due or behind those of its key.
	postponed
	// early: its next attempt is due at the time due.
	early
	// failed: it is counted, or dead-lettered.
	failed
	// uncertain: nobody knows whether its effect was committed.
	uncertain
	// final: it is answered.
	final
)

// verdict is what a step of an attempt has come to.
type verdict struct {
	course course
	// seen is what the record was seen to say.
	seen dedupe.Seen
	// failure is why the event is not handled, and means what that means, where it does not say
	// so itself.
	failure error
	means   retry.Verdict
	// attempt is which of the event's attempts has failed; 0: none.
	attempt int
	due     time.Time
	answer  answer
}

// decode is the first step: it reads all that the delivery says, and finds what the catalog
// and the registry have for it.
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
	if id := attributes[contract.AttrFirstMessageID]; pii.ID.Valid(id) {
		w.firstID = id
	}
	w.name.Queue = q.ID
	if q.Ordered() {
		w.name.OrderingKey = d.message.OrderingKey
		if said := attributes[contract.AttrOrderingKey]; w.name.OrderingKey == "" && said != contract.UnknownOrderingKey {
			w.name.OrderingKey = said // an emulator says it in the attribute alone
		}
	}
	w.parks = q.OnPoison == catalog.Park && w.name.OrderingKey != ""
	w.calms = w.name.OrderingKey != "" && !q.waits // else lanes are looked at every time
	if w.broken != nil {
		return w
	}
	w.name.Message = dedupe.ConflictKey(q.ID, w.event.Tenant, w.event.ID, w.record.PayloadHash).ID
	w.policy, _ = q.Handler(w.event.Type)
	w.handler, w.found = s.config.Handlers.Lookup(w.policy.Name)
	// The message's own wish, in its attributes or in its body, is bounded by the handler's.
	w.allowed = w.policy.MaxAttempts
	if wished, err := strconv.Atoi(w.event.Attributes[contract.AttrMaxAttempts]); err == nil && wished >= 1 {
		w.allowed = min(w.allowed, wished)
	}
	if wished := w.event.Body.MaxAttempts(); wished >= 1 {
		w.allowed = min(w.allowed, wished)
	}
	if w.handler.Leased != nil && q.OnOrphan == catalog.Republish && len(d.message.Data) <= maxKept {
		// Pub/Sub takes names of attributes, and bytes, that no document may have. An orphan of
		// such a message is reported.
		as := store.Set(store.Key{Collection: dedupe.Collection, ID: d.messageID}, store.Encode(&d.message))
		if store.CheckWrites([]store.Write{as}) == nil {
			w.republished = &w.delivery.message
		}
	}
	return w
}

// maxKept is the largest message that a record keeps: half of what a document holds.
const maxKept = 512 << 10

// deliver runs one message to its answer. What is due within a second or two waits for it
// here, without a slot: a nack would slow the whole subscription, and to keep the message
// would cost three round trips.
func (s *Service) deliver(ctx context.Context, q *queue, d delivery) (answer, dedupe.Record) {
	w := s.decode(q, d)
	for resumed := 0; ; resumed++ {
		a := s.attempt(ctx, w)
		a.EventID = w.record.EventID
		if !a.resume.IsZero() && resumed < maxResumes && s.wait(ctx, a.resume) { // a clock that stands still would have it wait for ever
			s.config.Log.LogAttrs(ctx, slog.LevelInfo, "attempt again", slog.String("queue", w.queue.ID), slog.String("event_id", a.EventID),
				slog.String("event_type", w.record.EventType), slog.String("message_id", w.delivery.messageID), slog.Int("attempt", a.Attempt),
				slog.String("outcome", string(a.Outcome)), slog.String("reason", a.Reason), slog.Int("status", a.Status), slog.String("cause", a.cause))
			w.known, w.looked = true, w.looked || a.Attempt == 0
			continue
		}
		if !a.due.IsZero() {
			if err := s.config.Alarm.At(context.WithoutCancel(ctx), a.due); err != nil {
				s.warn(ctx, w, "no alarm, left to the next run of release-delayed", slog.String("cause", cause(err)))
			}
		}
		if a.hold && !s.wait(ctx, s.config.Now().Add(calmFor)) {
			a.Outcome, a.Delayed, a.Status = retry.Retry, false, http.StatusServiceUnavailable // the broker goes on holding the key
		}
		return a, w.record
	}
}

// warn logs what went wrong beside an attempt.
func (s *Service) warn(ctx context.Context, w *attempt, what string, more ...slog.Attr) {
	s.config.Log.LogAttrs(ctx, slog.LevelWarn, what, append([]slog.Attr{
		slog.String("queue", w.queue.ID), slog.String("event_id", w.record.EventID), slog.String("message_id", w.delivery.messageID),
	}, more...)...)
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
		if rounds[v.course]++; rounds[v.course] > counting { // nothing stays as it is
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
			if v.course == failed && !v.means.Class.Terminal() && v.means.Counts && v.attempt >= w.allowed {
				v.failure = retry.Permanent("attempts_exhausted", &retry.Error{Verdict: v.means})
				v.means = retry.Decide(v.failure)
			}
			v = s.settle(ctx, w, v)
		case final:
			return s.leave(ctx, w, v.answer)
		}
	}
}
