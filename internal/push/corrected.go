package push

import (
	"context"
	"errors"

	"billhook/catalog"
	"billhook/internal/contract"
	"billhook/internal/deadletter"
	"billhook/internal/dedupe"
	"billhook/internal/handler"
	"billhook/internal/pii"
	"billhook/internal/retry"
	"billhook/internal/store"
)

// correctedBefore is the reason of a duplicate whose payload was dead-lettered, and which
// another payload under its id has taken the place of.
const correctedBefore = "corrected_before"

// typeUnknown is the reason of a dead letter whose event type has no handler.
const typeUnknown = "event_type_unknown"

// begin starts the run of a valid event.
func (s *Service) begin(w *attempt, event handler.Event) *dedupe.Run {
	run := s.once.Begin(dedupe.Key(w.queue.ID, event.Tenant, event.ID), w.record, w.queue.RememberFor)
	run.Letters(&letters{service: s, queue: w.queue, delivery: w.delivery, event: event})
	return run
}

// broken dead-letters a message without a valid event. Its record hangs on the message
// alone, so that a broken message cannot use up an event's id. Where corrections are
// accepted, the id that it claims remembers its dead letter, for what corrects it to close.
func (s *Service) broken(ctx context.Context, w *attempt, reason error) answer {
	q, d, record := w.queue, w.delivery, w.record
	if id := claimed(s.config.Contracts, q, d, record); id != "" && q.OnCorrected == catalog.Accept {
		event := handler.Event{Queue: q.ID, Tenant: record.Tenant, ID: id}
		claims := *w
		claims.record.EventID = id
		within, cancel := context.WithTimeout(context.WithoutCancel(ctx), bookkeeping)
		err := s.begin(&claims, event).Broken(within, retry.Decide(reason).Reason)
		cancel()
		if err != nil {
			return again(retry.Decide(err), err, 0)
		}
	}
	w.run = s.once.Begin(dedupe.MessageKey(q.ID, d.messageID, d.message.Data), record, q.RememberFor)
	return s.bury(ctx, w, reason)
}

// claimed is the id of the event that a message without a valid one claims to be: where its
// attributes and its body say two, or either of them none that is valid, it claims none. A
// body that cannot be read says nothing.
func claimed(contracts *contract.Set, q *queue, d delivery, record dedupe.Record) string {
	if tenant := d.message.Attributes[contract.AttrTenant]; tenant != "" && tenant != record.Tenant {
		return ""
	}
	body, attributes, err := contracts.Receive(q.Contract, q.OrderingKey, d.message, d.publishedAt)
	switch {
	case errors.Is(err, contract.ErrFormat):
		return "" // an id of somebody else's
	case err != nil:
		return record.EventID
	}
	id, _ := body.Identity()
	if said := attributes[contract.AttrEventID]; !pii.ID.Valid(id) || (said != "" && said != id) {
		return ""
	}
	return id
}

// letters is what a run knows of the dead letters under its event's id.
type letters struct {
	service  *Service
	queue    *queue
	delivery delivery
	event    handler.Event
}

var _ dedupe.Letters = (*letters)(nil)

// Own returns the id of the delivery's own dead letter.
func (l *letters) Own() string {
	if l.queue.DeadLetter.Drop {
		return ""
	}
	return deadletter.ItemID(l.queue.Queue, l.delivery.firstID(), l.delivery.message)
}

// Replaceable reports whether nothing of a dead-lettered payload was applied. Of a Tx
// handler's effect nothing is there without its record; what a leased one has done outside,
// its Reconcile knows, or nobody.
func (l *letters) Replaceable(ctx context.Context, dead dedupe.Record) (bool, error) {
	if l.queue.OnCorrected != catalog.Accept {
		return false, nil
	}
	h, ok := l.service.config.Handlers.Lookup(l.queue.Handlers[dead.EventType].Name)
	switch {
	case !ok: // there may have been one
		return dead.LastError == typeUnknown, nil
	case h.Leased == nil:
		return true, nil
	case h.Leased.Reconcile == nil:
		return false, nil
	}
	event := l.event
	event.Type, event.Attempt = dead.EventType, int(dead.Attempts)
	applied, err := guarded(ctx, l.service.config.Log, event, parting, func(ctx context.Context) (bool, error) {
		_, done, err := h.Leased.Reconcile(ctx, event)
		return done, err
	})
	if err != nil && retry.Decide(err).Class.Terminal() {
		return false, nil // nobody will ever know
	}
	return err == nil && !applied, err
}

// Close returns the writes that close dead letters as corrected.
func (l *letters) Close(ids []string) []store.Write {
	return deadletter.Correct(l.queue.Queue, ids, deadletter.Correction{
		EventID: l.event.ID, MessageID: l.delivery.messageID, At: l.service.config.Now(),
	})
}
