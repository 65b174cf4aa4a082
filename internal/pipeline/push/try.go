package push

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"

	"billhook/catalog"
	"billhook/internal/contract"
	"billhook/internal/dedupe"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/pipeline/dryrun"
	"billhook/internal/pipeline/handler"
	"billhook/internal/platform/store"
	"billhook/internal/retry"
)

// Try says what the service would do of a message, were it delivered now and first of its key. It takes the steps of an
// attempt, with a store that takes no writes and shows what they would change. A leased handler is asked for its plan alone.
// The service's own store must refuse commits, for a handler that commits by itself. It implements dryrun.Worker.
func (s *Service) Try(ctx context.Context, m dryrun.Message) (dryrun.Trial, error) {
	q, ok := s.queues[m.Queue]
	if !ok {
		return dryrun.Trial{}, dryrun.ErrNoQueue
	}
	t := dryrun.Trial{Queue: q.ID, From: m.From, Writes: []dryrun.Change{}, Emits: []dryrun.Emission{}, Calls: []dryrun.Call{}}
	shows := &shows{Getter: s.config.Store, trial: &t}
	s = &Service{config: s.config, queues: s.queues, once: &dedupe.Once{Store: shows, Now: s.config.Now, NewToken: s.config.NewToken}}
	a := &attempt{
		delivery: s.decode(q, envelope{message: s.whole(q, m.Message), messageID: m.ID, publishedAt: m.PublishedAt, received: s.config.Now()}),
		known:    true, trial: true,
	}
	a.handler = handler.Handler{Tx: planned(a.handler, &t)}
	t.Tenant, t.EventID, t.EventType, t.OrderingKey = a.record.Tenant, a.record.EventID, a.record.EventType, a.record.OrderingKey
	f := s.steps(ctx, a)
	if shows.failed != nil {
		return t, shows.failed
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
	t.Writes, t.Emits, t.Calls = []dryrun.Change{}, []dryrun.Emission{}, []dryrun.Call{}
	t.Outcome, t.Status, t.Reason, t.Detail = retry.Retry, int(f.means.Class), f.means.Reason, detail(f.failure)
	if f.means.Class.Terminal() {
		if t.Outcome = retry.DeadLettered; q.DeadLetter.Drop {
			t.Outcome = retry.Dropped
		}
	}
	return t, nil
}

// planned asks a handler as a trial does.
func planned(h handler.Handler, t *dryrun.Trial) handler.Tx {
	return func(ctx context.Context, event handler.Event) (handler.Effect, error) {
		t.Tries = event.Try + 1
		switch {
		case h.Leased == nil:
			return h.Tx(ctx, event)
		case h.Leased.Plan == nil:
			return handler.Effect{}, retry.Permanent("handler_without_plan", nil)
		}
		plan, err := h.Leased.Plan(ctx, event)
		if t.Calls = t.Calls[:0]; len(plan.Calls) > 0 {
			t.Ask(plan.Calls)
			plan.Effect = handler.Effect{Writes: plan.Writes}
		}
		return plan.Effect, err
	}
}

// shows is a store that takes no writes, and shows in a trial what those of an effect would change.
type shows struct {
	store.Getter
	trial  *dryrun.Trial
	failed error
}

// Get reads a document. No event waits for its next attempt.
func (s *shows) Get(ctx context.Context, key store.Key) (store.Document, error) {
	doc, err := s.Getter.Get(ctx, key)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		s.failed = cmp.Or(s.failed, err)
	}
	if key.Collection == dedupe.Collection && err == nil {
		doc.Fields = maps.Clone(doc.Fields)
		delete(doc.Fields, "next_retry_at")
	}
	return doc, err
}

// Commit shows what the commit would change, but for what is recorded of the event.
func (s *shows) Commit(ctx context.Context, writes []store.Write) ([]store.Version, error) {
	err := s.trial.Show(ctx, s.Getter, slices.DeleteFunc(slices.Clone(writes), func(w store.Write) bool {
		return w.Key.Collection == dedupe.Collection || w.Key.Collection == deadletter.Collection
	}))
	switch {
	case errors.Is(err, dryrun.ErrRefused):
		return nil, store.ErrStale
	case err != nil && !errors.Is(err, store.ErrInvalid):
		s.failed = cmp.Or(s.failed, err)
	}
	return make([]store.Version, len(writes)), err
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
