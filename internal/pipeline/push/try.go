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

// Try says what the service would do of a message, were it delivered now and first of its key: it passes the steps of a
// delivery that read, and asks the handler, a leased one for its plan alone. It claims, writes, publishes and calls nothing.
// The service's store must refuse commits, for a handler that commits by itself. It implements dryrun.Worker.
func (s *Service) Try(ctx context.Context, m dryrun.Message) (dryrun.Trial, error) {
	q, ok := s.queues[m.Queue]
	if !ok {
		return dryrun.Trial{}, dryrun.ErrNoQueue
	}
	a := &attempt{delivery: s.decode(q, envelope{message: s.whole(q, m.Message), messageID: m.ID, publishedAt: m.PublishedAt, received: s.config.Now()})}
	t := dryrun.Trial{
		Queue: q.ID, Tenant: a.record.Tenant, EventID: a.record.EventID, EventType: a.record.EventType, OrderingKey: a.record.OrderingKey,
		From: m.From, Writes: []dryrun.Change{}, Emits: []dryrun.Emission{}, Calls: []dryrun.Call{},
	}
	f, err := s.try(ctx, a, &t)
	if err != nil {
		return t, err
	}
	if f.state == answered {
		t.Outcome, t.Status, t.Reason, t.Result, t.Ref = f.answer.Outcome, f.answer.Status, f.answer.Reason, f.answer.result, f.answer.Ref
		return t, nil
	}
	t.Writes, t.Emits, t.Calls = []dryrun.Change{}, []dryrun.Emission{}, []dryrun.Call{}
	means, failure := a.exhausted(f.means, f.failure, t.Attempt)
	t.Outcome, t.Status, t.Reason, t.Detail = retry.Retry, int(means.Class), means.Reason, detail(failure)
	if means.Class.Terminal() {
		if t.Outcome = retry.DeadLettered; q.DeadLetter.Drop {
			t.Outcome = retry.Dropped
		}
	}
	return t, nil
}

// try takes the steps. The error says that the store did not answer.
func (s *Service) try(ctx context.Context, a *attempt, t *dryrun.Trial) (finding, error) {
	if f := s.dropped(a.delivery); f.state != goesOn {
		return f, nil
	}
	if a.broken != nil {
		return found(failed, a.broken), nil
	}
	s.begin(a)
	a.run.Letters(&trialLetters{deadLetters{service: s, delivery: a.delivery}})
	seen, err := a.run.Look(ctx)
	if err != nil {
		return finding{}, err
	}
	if t.Attempt = a.run.Attempt(); seen != dedupe.Fresh && seen != dedupe.Early && seen != dedupe.Waiting {
		f := s.read(a, seen)
		if f.state == answered {
			t.Attempt = 0
		}
		return f, nil
	}
	if !a.found {
		return found(failed, retry.Permanent(typeUnknown, nil)), nil
	}
	t.Handler = a.policy.Name
	ctx, cancel := context.WithTimeout(ctx, a.policy.Timeout)
	defer cancel()
	event := a.numbered()
	for ; event.Try < dedupe.MaxTry; event.Try++ {
		t.Tries = event.Try + 1
		if f, err := s.tried(ctx, a, event, t); !errors.Is(err, dryrun.ErrRefused) {
			return f, err
		}
	}
	return found(held, retry.Busy("contention", nil)), nil
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

// tried asks the handler, and shows what its effect would meet. The error is dryrun.ErrRefused where the commit would be.
func (s *Service) tried(ctx context.Context, a *attempt, event handler.Event, t *dryrun.Trial) (finding, error) {
	plan := handler.Plan{}
	ask := always(a.handler.Tx)
	if leased := a.handler.Leased; leased != nil && leased.Plan == nil {
		return found(failed, retry.Permanent("handler_without_plan", nil)), nil
	} else if leased != nil {
		ask = func(ctx context.Context, event handler.Event) (handler.Effect, bool, error) {
			planned, err := leased.Plan(ctx, event)
			plan = planned
			return planned.Effect, true, err
		}
	}
	effect, _, err := guarded(ctx, s.config.Log, event, grace, ask)
	if err != nil {
		return found(failed, err), nil
	}
	if t.Ask(plan.Calls); len(plan.Calls) > 0 {
		effect = handler.Effect{Writes: plan.Writes}
	}
	if _, err = s.emit(a, event, &effect); err != nil {
		return found(failed, err), nil
	}
	switch err = t.Show(ctx, s.config.Store, effect.Writes); {
	case errors.Is(err, store.ErrInvalid):
		return found(failed, retry.Permanent("effect_invalid", err)), nil
	case err != nil:
		return finding{}, err
	}
	reply := answer{Outcome: retry.Processed, Status: http.StatusOK, result: effect.Result, Ref: effect.Ref}
	switch {
	case len(plan.Calls) > 0:
		reply.Outcome, reply.Status = dryrun.Calls, 0
	case effect.Superseded:
		reply.Outcome, reply.Status = retry.Superseded, http.StatusNoContent
	}
	return final(reply), nil
}

// trialLetters is what a trial knows of the dead letters under its event's id. It asks no other service
// whether a dead-lettered payload was applied.
type trialLetters struct{ deadLetters }

// Replaceable implements dedupe.Letters. What a leased handler has done is not known.
func (l *trialLetters) Replaceable(ctx context.Context, dead dedupe.Record) (bool, error) {
	spec, _ := l.queue.Handler(dead.EventType)
	if h, ok := l.service.config.Handlers.Lookup(spec.Name); ok && h.Leased != nil {
		return false, nil
	}
	return l.deadLetters.Replaceable(ctx, dead)
}

// Queue finds a queue of the service's catalog by id or alias.
func (s *Service) Queue(name string) (catalog.Queue, bool) { return s.config.Catalog.Queue(name) }
