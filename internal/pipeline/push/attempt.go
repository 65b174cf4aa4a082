package push

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"time"

	"billhook/catalog"
	"billhook/internal/contract"
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

// deliver takes one message to its answer. Where its next attempt is due soon, the request waits for it without a slot.
func (s *Service) deliver(ctx context.Context, q *queue, e envelope) (answer, *delivery) {
	d := s.decode(q, e)
	known, waited := e.number > 1 || d.returned() || d.replayed(), false
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
		s.concluded(ctx, slog.LevelInfo, "attempt again", d, reply, slog.Int("status", reply.Status))
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

// sleep reports whether a time has come before the service drains and before ctx ends.
func (s *Service) sleep(ctx context.Context, until time.Time) bool {
	left := until.Sub(s.config.Now())
	return left <= 0 || s.wait(ctx, left, nil)
}

func about(d *delivery, more ...slog.Attr) []slog.Attr {
	return append(more, slog.String("queue", d.queue.ID), slog.String("event_id", d.record.EventID), slog.String("message_id", d.messageID))
}

func (s *Service) warn(ctx context.Context, what string, a *attempt, more ...slog.Attr) {
	s.config.Log.LogAttrs(ctx, slog.LevelWarn, what, about(a.delivery, more...)...) //nolint:sloglint // Each caller gives a constant.
}

func (s *Service) attempt(ctx context.Context, a *attempt) answer {
	key := cmp.Or(a.message.OrderingKey, a.message.Attributes[contract.AttrOrderingKey])
	if !a.queue.slots.acquire(ctx, key, len(a.message.Data), a.queue.SlotWait) {
		reason := "queue_full"
		if s.Draining() {
			reason = "shutting_down"
		}
		return found(unanswered, retry.Busy(reason, nil)).again()
	}
	defer a.queue.slots.release()
	f := s.steps(ctx, a)
	for settled := 0; f.state != answered && settled < maxRounds; settled++ {
		if f = s.settle(ctx, a, f); f.state == moved {
			f = s.steps(ctx, a)
		}
	}
	if f.state != answered {
		if f.state = unanswered; !f.means.Counts {
			f.attempt = 0
		}
		f = final(f.again())
	}
	return s.leave(ctx, a, f.answer)
}

// steps takes the message through order, claim and perform, as far as it comes.
func (s *Service) steps(ctx context.Context, a *attempt) (f finding) {
	a.position = position{}
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
		delivery: s.decode(q, envelope{message: s.whole(q, m.Message), messageID: "trial", publishedAt: m.PublishedAt, received: s.config.Now()}),
		known:    true, trial: true,
	}
	a.handler = t.Asking(a.handler)
	t.Tenant, t.EventID, t.EventType, t.OrderingKey = a.record.Tenant, a.record.EventID, a.record.EventType, a.record.OrderingKey
	f := s.steps(ctx, a)
	if effects.Failed != nil {
		return t, effects.Failed
	}
	reply := f.answer
	if f.state != answered {
		if f.attempt = 0; a.broken == nil {
			f.attempt = a.run.Attempt()
		}
		f = f.exhausted(a.allowed)
		reply, t.Detail = f.again(), detail(f.failure)
		if reply.Attempt = f.attempt; f.means.Class.Terminal() {
			reply.Outcome = a.buried()
		}
		t.Writes, t.Emits, t.Calls = []dryrun.Change{}, []dryrun.Emission{}, []handler.Call{}
	}
	t.Attempt, t.Outcome, t.Status, t.Reason, t.Result, t.Ref = reply.Attempt, reply.Outcome, reply.Status, reply.Reason, reply.result, reply.Ref
	if t.Tries > 0 {
		if t.Handler = a.policy.Name; f.state == answered {
			t.Reason = ""
		}
	}
	if len(t.Calls) > 0 {
		t.Outcome, t.Status = dryrun.Calls, 0
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
