package push

import (
	"context"
	"time"

	"billhook/catalog"
	"billhook/internal/contract"
	"billhook/internal/pipeline/dryrun"
	"billhook/internal/pipeline/handler"
	"billhook/internal/pipeline/lane"
)

// Try implements dryrun.Worker. It takes the steps of an attempt on a store that records writes and makes
// none. The service's own store must refuse commits, in case a handler commits by itself.
func (s *Service) Try(ctx context.Context, m dryrun.Message) (dryrun.Trial, error) {
	q, ok := s.queues[m.Queue]
	if !ok {
		return dryrun.Trial{}, dryrun.ErrNoQueue
	}
	t := dryrun.Trial{Tried: dryrun.Tried{Queue: q.ID, From: m.From}}
	t.Writes, t.Emits, t.Calls = []dryrun.Change{}, []dryrun.Emission{}, []handler.Call{}
	effects, worker := t.On(s.config.Store), *s
	worker.config.Store = effects
	d := worker.decode(q, envelope{
		message: s.whole(q, m.Message), messageID: "trial", publishedAt: m.PublishedAt, received: s.config.Now(),
	})
	d.handler = t.Planning(d.handler)
	d.lane, d.due = lane.Name{}, time.Time{} // a trial does not wait
	t.Tenant, t.EventID = d.record.Tenant, d.record.EventID
	t.EventType, t.OrderingKey = d.record.EventType, d.record.OrderingKey
	a := &attempt{delivery: d, run: d.begin(), delivered: true}
	f := a.decide(ctx, d.refused())
	if effects.Failed != nil {
		return t, effects.Failed
	}
	reply := f.answer
	if f.state != answered {
		if f.attempt = 0; d.broken == nil {
			f.attempt = a.run.Attempt()
		}
		f = f.exhausted(d.policy.MaxAttempts)
		reply, t.Detail = f.again(), detail(f.failure)
		if reply.Attempt = f.attempt; f.means.Class.Terminal() {
			reply.Outcome = d.buried()
		}
		t.Writes, t.Emits, t.Calls = []dryrun.Change{}, []dryrun.Emission{}, []handler.Call{}
	}
	t.Attempt, t.Outcome, t.Status, t.Reason = reply.Attempt, reply.Outcome, reply.Status, reply.Reason
	t.Result, t.Ref = reply.result, reply.Ref
	if t.Tries > 0 {
		if t.Handler = d.policy.Name; f.state == answered {
			t.Reason = ""
		}
	}
	if len(t.Calls) > 0 {
		t.Outcome, t.Status = dryrun.Calls, 0
	}
	return t, nil
}

// whole adds to a message without attributes those that its producer would have set.
func (s *Service) whole(q *queue, m contract.Message) contract.Message {
	if len(m.Attributes) > 0 {
		return m
	}
	made := contract.Attributes{}
	// a body that cannot be decoded is refused later
	if body, err := s.config.Catalog.Contracts.Decode(q.Contract, m.Data); err == nil {
		made = body.Attributes()
		made.RoutingKey = made.EventType
		m.OrderingKey = made.Order(body.OrderingKey(q.OrderingKey, &made))
	}
	m.Attributes = q.Addressed(made.Map())
	return m
}

// Queue finds a queue of the service's catalog by id or alias.
func (s *Service) Queue(name string) (catalog.Queue, bool) { return s.config.Catalog.Queue(name) }
