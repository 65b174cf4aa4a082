package push

import (
	"context"

	"billhook/catalog"
	"billhook/internal/dedupe"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/platform/store"
	"billhook/internal/retry"
)

// The reasons of a duplicate, and of a dead letter whose event type has no handler.
const (
	processedBefore    = "processed_before"
	deadLetteredBefore = "dead_lettered_before"
	correctedBefore    = "corrected_before" // another payload has taken the place of its own
	typeUnknown        = "event_type_unknown"
)

// begin starts the run of an attempt. That of a broken message hangs on the message alone, so that it cannot use up an
// event's id. Where corrections are accepted, the id that it claims remembers its dead letter.
func (s *Service) begin(w *attempt) {
	q, d := w.queue, &w.delivery
	record := w.record
	record.EventID = w.event.ID
	w.run = s.once.Begin(dedupe.Key(q.ID, record.Tenant, record.EventID), record, q.RememberFor)
	w.run.Letters(&letters{service: s, attempt: w})
	w.run.Delivered(d.attempt, d.trace)
	if w.broken == nil {
		return
	}
	if w.claims = nil; record.EventID != "" && q.OnCorrected == catalog.Accept {
		w.claims = w.run
	}
	w.run = s.once.Begin(dedupe.MessageKey(q.ID, d.messageID, d.message.Data), w.record, q.RememberFor)
	w.run.Delivered(d.attempt, d.trace)
}

// letters is what a run knows of the dead letters under its event's id.
type letters struct {
	service *Service
	*attempt
}

// Own returns the id of the delivery's own dead letter.
func (l *letters) Own() string {
	if l.queue.DeadLetter.Drop {
		return ""
	}
	return deadletter.ItemID(l.queue.Queue, l.firstID, l.delivery.message)
}

// replayOf is the id of the dead letter that the message replays; empty: it is no replay.
func (w *attempt) replayOf() string {
	id := w.delivery.message.Attributes[deadletter.AttrReplayOf]
	if id != deadletter.ItemID(w.queue.Queue, w.firstID, w.delivery.message) {
		return "" // no replay, or somebody made it up
	}
	return id
}

// replayEnds returns the write, if any, that tells the dead letter of a replay that its event is completed.
func (s *Service) replayEnds(w *attempt) []store.Write {
	id := w.replayOf()
	if id == "" {
		return nil
	}
	end := deadletter.Ending{State: deadletter.Processed, Outcome: retry.Processed, EventID: w.event.ID, At: s.config.Now()}
	if w.superseded {
		end.Outcome = retry.Superseded
	}
	return []store.Write{deadletter.Ended(w.queue.Queue, id, end)}
}

// settleReplay tells the dead letter of a replay how that has ended, where it has committed nothing: the event was
// completed before, or the message is not for the queue. Where the event has another dead letter, this one is open again.
func (s *Service) settleReplay(ctx context.Context, w *attempt, a answer) error {
	id := w.replayOf()
	if id == "" {
		return nil
	}
	end := deadletter.Ending{State: deadletter.Processed, Outcome: a.Outcome, EventID: w.event.ID, At: s.config.Now()}
	switch {
	case a.Outcome == retry.Expired, a.Outcome == retry.Dropped:
	case a.Outcome != retry.Duplicate:
		return nil
	case a.Reason == processedBefore:
	case a.Reason == correctedBefore:
		end.State = deadletter.Corrected
	case a.Reason == deadLetteredBefore && w.broken == nil && !w.run.Buried(id): // else its own death is on its way
		end.State = deadletter.Open
	default:
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), bookkeeping)
	defer cancel()
	if err := deadletter.Settle(ctx, s.config.Store, w.delivery.message, end); err != nil {
		return retry.Outage("store_unavailable", err)
	}
	return nil
}

// Replaceable reports whether nothing of a dead-lettered payload was applied. A Tx handler's effect does not exist without
// its record. Only Reconcile can tell what a leased handler has done outside.
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
