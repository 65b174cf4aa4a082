package push

import (
	"context"
	"errors"
	"net/http"

	"billhook/catalog"
	"billhook/internal/contract"
	"billhook/internal/dedupe"
	"billhook/internal/pipeline/dryrun"
	"billhook/internal/pipeline/handler"
	"billhook/internal/platform/store"
	"billhook/internal/retry"
)

// Try says what the service would do of a message, were it delivered now and its turn: it passes the steps of a delivery
// that read, and asks the handler, a leased one for its plan alone. It claims, writes, publishes and calls nothing. The
// service's store must refuse commits, for a handler that commits by itself. It implements dryrun.Worker.
func (s *Service) Try(ctx context.Context, m dryrun.Message) (dryrun.Trial, error) {
	q, ok := s.queues[m.Queue]
	if !ok {
		return dryrun.Trial{}, dryrun.ErrNoQueue
	}
	w := s.decode(q, delivery{message: s.whole(q, m.Message), messageID: m.ID, publishedAt: m.PublishedAt, received: s.config.Now()})
	t := dryrun.Trial{
		Queue: q.ID, Tenant: w.record.Tenant, EventID: w.record.EventID, EventType: w.record.EventType, OrderingKey: w.record.OrderingKey,
		From: m.From, Writes: []dryrun.Change{}, Emits: []dryrun.Emission{}, Calls: []dryrun.Call{},
	}
	switch err := s.try(ctx, w, &t); {
	case errors.As(err, new(unreadError)):
		return t, err
	case err != nil:
		s.judge(&t, w, err)
	}
	return t, nil
}

// try fills in what becomes of a message, or returns why it is not handled.
func (s *Service) try(ctx context.Context, w *attempt, t *dryrun.Trial) error {
	if v := s.dropped(w, s.config.Now()); v.course == final {
		t.Outcome, t.Status, t.Reason = v.answer.Outcome, v.answer.Status, v.answer.Reason
		return nil
	}
	if w.broken != nil {
		return w.broken
	}
	s.begin(w)
	w.run.Letters(&sight{letters{service: s, attempt: w}})
	seen, err := w.run.Look(ctx)
	if err != nil {
		return unreadError{err}
	}
	if t.Attempt = w.run.Attempt(); seen != dedupe.Fresh && seen != dedupe.Early && seen != dedupe.Waiting {
		v := s.read(w, verdict{course: recorded, seen: seen})
		if v.course != final {
			return v.failure
		}
		t.Attempt, t.Outcome, t.Status, t.Reason = 0, v.answer.Outcome, v.answer.Status, v.answer.Reason
		t.Result, t.Ref = v.answer.result, v.answer.Ref
		return nil
	}
	if !w.found {
		return retry.Permanent(typeUnknown, nil)
	}
	t.Handler = w.policy.Name
	ctx, cancel := context.WithTimeout(ctx, w.policy.Timeout)
	defer cancel()
	for w.event.Attempt = t.Attempt; w.event.Try < dedupe.MaxTry; w.event.Try++ {
		t.Tries = w.event.Try + 1
		if err := s.tried(ctx, w, t); !errors.Is(err, dryrun.ErrRefused) {
			return err
		}
	}
	return retry.Busy("contention", nil)
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

// unreadError is the error of a store that did not answer a trial's own reads.
type unreadError struct{ error }

func (e unreadError) Unwrap() error { return e.error }

// tried asks the handler, and shows what its effect would meet.
func (s *Service) tried(ctx context.Context, w *attempt, t *dryrun.Trial) error {
	plan := handler.Plan{}
	ask := always(w.handler.Tx)
	if leased := w.handler.Leased; leased != nil && leased.Plan == nil {
		return retry.Permanent("handler_without_plan", nil)
	} else if leased != nil {
		ask = func(ctx context.Context, event handler.Event) (handler.Effect, bool, error) {
			planned, err := leased.Plan(ctx, event)
			plan = planned
			return planned.Effect, true, err
		}
	}
	effect, _, err := guarded(ctx, s.config.Log, w.event, grace, ask)
	if err != nil {
		return err
	}
	if t.Ask(plan.Calls); len(plan.Calls) > 0 {
		effect = handler.Effect{Writes: plan.Writes}
	}
	if _, err = s.emit(w, &effect); err != nil {
		return err
	}
	switch err = t.Show(ctx, s.config.Store, effect.Writes); {
	case errors.Is(err, store.ErrInvalid):
		return retry.Permanent("effect_invalid", err)
	case errors.Is(err, dryrun.ErrRefused):
		return err
	case err != nil:
		return unreadError{err}
	}
	t.Outcome, t.Status, t.Reason, t.Result = retry.Processed, http.StatusOK, "", effect.Result
	t.Ref = effect.Ref
	switch {
	case len(plan.Calls) > 0:
		t.Outcome, t.Status = dryrun.Calls, 0
	case effect.Superseded:
		t.Outcome, t.Status = retry.Superseded, http.StatusNoContent
	}
	return nil
}

// judge says what would become of a message after a failure.
func (s *Service) judge(t *dryrun.Trial, w *attempt, failure error) {
	t.Writes, t.Emits, t.Calls = []dryrun.Change{}, []dryrun.Emission{}, []dryrun.Call{}
	means, failure := w.exhausted(retry.Decide(failure), failure, t.Attempt)
	t.Outcome, t.Status, t.Reason, t.Detail, t.Result = retry.Retry, int(means.Class), means.Reason, detail(failure), ""
	switch {
	case !means.Class.Terminal():
	case w.queue.DeadLetter.Drop:
		t.Outcome = retry.Dropped
	default:
		t.Outcome = retry.DeadLettered
	}
}

// sight is what a trial knows of the dead letters under its event's id. It asks no other service
// whether a dead-lettered payload was applied.
type sight struct{ letters }

// Replaceable implements dedupe.Letters. What a leased handler has done is not known.
func (l *sight) Replaceable(ctx context.Context, dead dedupe.Record) (bool, error) {
	spec, _ := l.queue.Handler(dead.EventType)
	if h, ok := l.service.config.Handlers.Lookup(spec.Name); ok && h.Leased != nil {
		return false, nil
	}
	return l.letters.Replaceable(ctx, dead)
}

// Queue finds a queue of the service's catalog by id or alias.
func (s *Service) Queue(name string) (catalog.Queue, bool) { return s.config.Catalog.Queue(name) }
