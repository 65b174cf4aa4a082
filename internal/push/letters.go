package push

import (
	"context"

	"billhook/catalog"
	"billhook/internal/deadletter"
	"billhook/internal/dedupe"
	"billhook/internal/retry"
	"billhook/internal/store"
)

// correctedBefore is the reason of a duplicate whose payload was dead-lettered, and which
// another payload under its id has taken the place of.
const correctedBefore = "corrected_before"

// typeUnknown is the reason of a dead letter whose event type has no handler.
const typeUnknown = "event_type_unknown"

// begin starts the run of an attempt. That of a broken message hangs on the message alone, so
// that it cannot use up an event's id. Where corrections are accepted, the id that it claims
// remembers its dead letter, for what corrects it to close.
func (s *Service) begin(w *attempt) {
	q, d := w.queue, &w.delivery
	record := w.record
	record.EventID = w.event.ID
	w.run = s.once.Begin(dedupe.Key(q.ID, record.Tenant, record.EventID), record, q.RememberFor)
	w.run.Letters(&letters{service: s, attempt: w})
	w.run.Delivered(d.attempt)
	if w.broken == nil {
		return
	}
	if w.claims = nil; record.EventID != "" && q.OnCorrected == catalog.Accept {
		w.claims = w.run
	}
	w.run = s.once.Begin(dedupe.MessageKey(q.ID, d.messageID, d.message.Data), w.record, q.RememberFor)
	w.run.Delivered(d.attempt)
}

// letters is what a run knows of the dead letters under its event's id.
type letters struct {
	service *Service
	*attempt
}

var _ dedupe.Letters = (*letters)(nil)

// Own returns the id of the delivery's own dead letter.
func (l *letters) Own() string {
	if l.queue.DeadLetter.Drop {
		return ""
	}
	return deadletter.ItemID(l.queue.Queue, l.firstID, l.delivery.message)
}

// Replaceable reports whether nothing of a dead-lettered payload was applied. A Tx handler's
// effect does not exist without its record. Only Reconcile can tell what a leased handler has
// done outside.
func (l *letters) Replaceable(ctx context.Context, dead dedupe.Record) (bool, error) {
	if l.queue.OnCorrected != catalog.Accept {
		return false, nil
	}
	spec, _ := l.queue.Handler(dead.EventType)
	h, ok := l.service.config.Handlers.Lookup(spec.Name)
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
	_, applied, err := guarded(ctx, l.service.config.Log, event, grace, h.Leased.Reconcile)
	if err != nil && retry.Decide(err).Class.Terminal() {
		return false, nil // it will never be known
	}
	return err == nil && !applied, err
}

// Close returns the writes that close dead letters as corrected.
func (l *letters) Close(ids []string) []store.Write {
	return deadletter.Correct(l.queue.Queue, ids, deadletter.Correction{
		EventID: l.event.ID, MessageID: l.delivery.messageID, At: l.service.config.Now(),
	})
}
