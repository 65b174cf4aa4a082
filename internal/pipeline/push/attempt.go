package push

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"billhook/catalog"
	"billhook/internal/contract"
	"billhook/internal/dedupe"
	"billhook/internal/pipeline/dryrun"
	"billhook/internal/pipeline/handler"
	"billhook/internal/retry"
)

const (
	bookkeeping = 5 * time.Second // bounds each step that reads or writes around a handler, also after the caller has left
	maxRounds   = 3               // how often a message is settled because the record or the lane was not as assumed
	maxResumes  = 5               // how many attempts follow the first in one request, also where the clock stands still
)

// attempt is one attempt of a delivery: where its message stands in its lane, and what is recorded of its event.
type attempt struct {
	*delivery
	service  *Service
	position position
	run      run
	known    bool // the event was delivered before: its record is read first
	waited   bool // the request has just waited without an attempt, and does not wait for one again
	trial    bool // nothing may come of it, and nobody is asked outside
}

func (a *attempt) numbered() handler.Event {
	event := a.event
	event.Attempt, event.Try = a.run.Attempt(), a.run.Try()
	return event
}

// undecided reports whether the record leaves it to this attempt what becomes of the event.
func (a *attempt) undecided(seen dedupe.Seen) bool {
	return !a.run.Lost(seen) && (seen == dedupe.Fresh || seen == dedupe.Claimed)
}

// deliver takes one message to its answer. Where its next attempt is due soon, the request waits for it without a slot.
func (s *Service) deliver(ctx context.Context, q *queue, e envelope) (answer, *delivery) {
	d := s.decode(q, e)
	known, waited := e.number > 1 || d.returned || d.replayed, false
	if !known {
		s.config.Rates.Arrived(q.ID)
	}
	// Of an attempt that kills its worker nothing else is left.
	s.config.Log.LogAttrs(ctx, slog.LevelInfo, "received", about(d,
		slog.Int("delivery_attempt", e.number), slog.String("instance", s.config.Instance))...)
	for resumed := 0; ; resumed++ {
		a := &attempt{service: s, delivery: d, known: known, waited: waited}
		reply := s.attempt(ctx, a)
		reply.EventID = d.record.EventID
		if reply.next.resume.IsZero() || resumed == maxResumes || !s.sleep(ctx, reply.next.resume) {
			s.ring(ctx, a, reply)
			if reply.next.hold && !s.sleep(ctx, s.config.Now().Add(noneWaitFor)) {
				reply.Outcome, reply.Delayed, reply.Status = retry.Retry, false, http.StatusServiceUnavailable // the broker goes on holding the key
			}
			return reply, d
		}
		s.config.Log.LogAttrs(ctx, slog.LevelInfo, "attempt again", slog.String("queue", q.ID), slog.String("event_id", reply.EventID),
			slog.String("event_type", d.record.EventType), slog.String("message_id", d.messageID), slog.Int("attempt", reply.Attempt),
			slog.String("outcome", string(reply.Outcome)), slog.String("reason", reply.Reason), slog.Int("status", reply.Status), slog.String("cause", reply.cause))
		s.config.Rates.Ended(q.ID, reply.Outcome, reply.Attempt)
		known, waited = true, reply.Attempt == 0
	}
}

// ring asks for an alarm when what is kept is due, and when what was emitted is.
func (s *Service) ring(ctx context.Context, a *attempt, reply answer) {
	for _, due := range []time.Time{reply.next.due, a.run.emitted.Due} {
		if due.IsZero() {
			continue
		}
		if err := s.config.Alarm.At(context.WithoutCancel(ctx), due); err != nil {
			s.warn(ctx, "no alarm, left to the next run of release-delayed", a, slog.String("cause", cause(err)))
		}
	}
}

// sleep waits for a time, and reports whether it came before the service drains and before ctx ends.
func (s *Service) sleep(ctx context.Context, until time.Time) bool {
	wait := until.Sub(s.config.Now())
	if wait <= 0 {
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

func about(d *delivery, more ...slog.Attr) []slog.Attr {
	return append(more, slog.String("queue", d.queue.ID), slog.String("event_id", d.record.EventID), slog.String("message_id", d.messageID))
}

func (s *Service) warn(ctx context.Context, what string, a *attempt, more ...slog.Attr) {
	s.config.Log.LogAttrs(ctx, slog.LevelWarn, what, about(a.delivery, more...)...) //nolint:sloglint // Each caller gives a constant.
}

func (s *Service) attempt(ctx context.Context, a *attempt) answer {
	key := a.message.OrderingKey
	if key == "" {
		key = a.message.Attributes[contract.AttrOrderingKey]
	}
	if !a.queue.slots.acquire(ctx, key, len(a.message.Data), a.queue.SlotWait) {
		reason := "queue_full"
		if s.Draining() {
			reason = "shutting_down"
		}
		return found(unanswered, retry.Busy(reason, nil)).again()
	}
	defer a.queue.slots.release()
	f := s.steps(ctx, a)
	for settled := 0; f.state != answered && settled < maxRounds; {
		if f.state == moved {
			f = s.steps(ctx, a)
			continue
		}
		f = s.settle(ctx, a, f)
		settled++
	}
	if f.state == answered {
		return s.leave(ctx, a, f.answer)
	}
	if f.state = unanswered; !f.means.Counts {
		f.attempt = 0
	}
	return s.leave(ctx, a, f.again())
}

// steps takes the message through order, claim and perform, as far as it comes.
func (s *Service) steps(ctx context.Context, a *attempt) (f finding) {
	a.position = position{ends: a.returned}
	if f = s.dropped(a.delivery); f.state != goesOn {
		return f
	}
	if s.begin(a); a.broken != nil {
		return found(failed, a.broken)
	}
	if !a.trial {
		if a.position, f = s.order(ctx, a.delivery); f.state != goesOn {
			return f
		}
		if a.position.waits {
			return s.putOff(ctx, a)
		}
	}
	if a.handler.Leased == nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, a.policy.Timeout)
		defer cancel()
	}
	if f = s.claim(ctx, a); f.state != goesOn {
		return f
	}
	return s.perform(ctx, a)
}

// Try implements dryrun.Worker: it takes the steps of an attempt, with a store that takes no writes and shows what they
// would change. The service's own store must refuse commits, for a handler that commits by itself.
func (s *Service) Try(ctx context.Context, m dryrun.Message) (dryrun.Trial, error) {
	q, ok := s.queues[m.Queue]
	if !ok {
		return dryrun.Trial{}, dryrun.ErrNoQueue
	}
	t := dryrun.Trial{Queue: q.ID, From: m.From, Writes: []dryrun.Change{}, Emits: []dryrun.Emission{}, Calls: []handler.Call{}}
	effects, config := t.On(s.config.Store), s.config
	config.Store = effects
	s = &Service{config: config, queues: s.queues}
	a := &attempt{
		service:  s,
		delivery: s.decode(q, envelope{message: s.whole(q, m.Message), messageID: m.ID, publishedAt: m.PublishedAt, received: s.config.Now()}),
		known:    true, trial: true,
	}
	a.handler = t.Asking(a.handler)
	t.Tenant, t.EventID, t.EventType, t.OrderingKey = a.record.Tenant, a.record.EventID, a.record.EventType, a.record.OrderingKey
	f := s.steps(ctx, a)
	if effects.Failed != nil {
		return t, effects.Failed
	}
	if t.Tries > 0 {
		t.Handler = a.policy.Name
	}
	if reply := f.answer; f.state == answered {
		t.Attempt, t.Outcome, t.Status, t.Reason, t.Result, t.Ref = reply.Attempt, reply.Outcome, reply.Status, reply.Reason, reply.result, reply.Ref
		if t.Tries > 0 {
			t.Reason = ""
		}
		if len(t.Calls) > 0 {
			t.Outcome, t.Status = dryrun.Calls, 0
		}
		return t, nil
	}
	if a.broken == nil {
		t.Attempt = a.run.Attempt()
	}
	f.attempt = t.Attempt
	f = f.exhausted(a.allowed)
	t.Writes, t.Emits, t.Calls = []dryrun.Change{}, []dryrun.Emission{}, []handler.Call{}
	t.Outcome, t.Status, t.Reason, t.Detail = retry.Retry, int(f.means.Class), f.means.Reason, detail(f.failure)
	if f.means.Class.Terminal() {
		if t.Outcome = retry.DeadLettered; q.DeadLetter.Drop {
			t.Outcome = retry.Dropped
		}
	}
	return t, nil
}

// whole adds to a message that is its body alone the attributes that a producer's would have.
func (s *Service) whole(q *queue, m contract.Message) contract.Message {
	if len(m.Attributes) > 0 {
		return m
	}
	made := contract.Attributes{}
	if body, err := s.config.Catalog.Contracts.Decode(q.Contract, m.Data); err == nil { // else it is found broken
		made = body.Attributes()
		made.RoutingKey = made.EventType
		m.OrderingKey = made.Order(body.OrderingKey(q.OrderingKey, &made))
	}
	m.Attributes = q.Addressed(made.Map())
	return m
}

// Queue finds a queue of the service's catalog by id or alias.
func (s *Service) Queue(name string) (catalog.Queue, bool) { return s.config.Catalog.Queue(name) }
