package push

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"billhook/catalog"
	"billhook/internal/contract"
	"billhook/internal/dedupe"
	"billhook/internal/pii"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/platform/store"
	"billhook/internal/retry"
)

// typeUnknown is the reason of a dead letter whose event type has no handler.
const typeUnknown = "event_type_unknown"

// begin starts the run of an attempt. That of a broken message hangs on the message alone, so that it cannot use up an
// event's id.
func (s *Service) begin(d *delivery) *dedupe.Run {
	if d.broken == nil {
		return s.beginEvent(d)
	}
	run := s.config.Begin(dedupe.MessageKey(d.queue.ID, d.messageID, d.message.Data), d.record, d.queue.RememberFor)
	run.Delivered(d.number, d.trace)
	return run
}

func (s *Service) beginEvent(d *delivery) *dedupe.Run {
	record := d.record
	record.EventID = d.event.ID
	run := s.config.Begin(dedupe.Key(d.queue.ID, record.Tenant, record.EventID), record, d.queue.RememberFor)
	run.Knows(deadLetters{d, s})
	run.Delivered(d.number, d.trace)
	return run
}

// claimBroken has the event which a broken message names remember its dead letter, where it may be corrected.
func (s *Service) claimBroken(ctx context.Context, d *delivery, reason string) error {
	if d.broken == nil || d.event.ID == "" || d.queue.OnCorrected != catalog.Accept {
		return nil
	}
	return s.beginEvent(d).Broken(ctx, reason)
}

// buried is the outcome of a message that no other attempt can help.
func (d *delivery) buried() retry.Outcome {
	if d.queue.DeadLetter.Drop {
		return retry.Dropped
	}
	return retry.DeadLettered
}

// firstID is the id of the message as it was first published.
func (d *delivery) firstID() string {
	if id := d.message.Attributes[contract.AttrFirstMessageID]; pii.ID.Valid(id) {
		return id
	}
	return d.messageID
}

// deadLetters implements dedupe.DeadLetters for the event of a delivery.
type deadLetters struct {
	*delivery
	service *Service
}

func (l deadLetters) Own() string {
	if l.queue.DeadLetter.Drop {
		return ""
	}
	return deadletter.ItemID(l.queue.Queue, l.firstID(), l.message)
}

// Replaceable: a Tx handler's effect does not exist without its record. Nobody knows what a leased one has done outside.
func (l deadLetters) Replaceable(dead dedupe.Record) bool {
	spec, _ := l.queue.Handler(dead.EventType)
	h, found := l.service.config.Handlers.Lookup(spec.Name)
	return l.queue.OnCorrected == catalog.Accept && (h.Tx != nil || !found && dead.LastError == typeUnknown)
}

// Close names the delivered message in them.
func (l deadLetters) Close(ids []string) (writes []store.Write) {
	for _, id := range ids {
		writes = append(writes, deadletter.Correct(l.queue.Queue, id, l.event.ID, l.messageID, l.service.config.Now()))
	}
	return writes
}

// settleReplay writes into the dead letter of a replay how that has ended: open again, where the event has another one.
func (s *Service) settleReplay(ctx context.Context, d *delivery, run *dedupe.Run, reply answer) error {
	id := d.message.Attributes[deadletter.AttrReplayOf]
	if id == "" || id != deadletter.ItemID(d.queue.Queue, d.firstID(), d.message) {
		return nil // no replay, or somebody made it up
	}
	end := deadletter.Ending{State: deadletter.Processed, Outcome: reply.Outcome, At: s.config.Now()}
	switch {
	case reply.Outcome == retry.DeadLettered, reply.Outcome == retry.Retry:
		return nil
	case reply.Reason == correctedBefore:
		end.State = deadletter.Corrected
	case reply.Reason == deadLetteredBefore && d.broken == nil && !run.Buried(id): // else its own death is on its way
		end.State = deadletter.Open
	case reply.Outcome == retry.Duplicate && reply.Reason != processedBefore:
		return nil
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	return deadletter.Settle(ctx, s.config.Store, d.message, end)
}

// deadLetter is the message as it goes to the dead letters.
func (d *delivery) deadLetter(f finding, attempts int, now time.Time) deadletter.Message {
	return deadletter.Message{
		Message: d.message, Reason: f.means.Reason, Status: int(f.means.Class), Detail: detail(f.failure), IdempotencyKey: d.record.IdempotencyKey,
		SourceMessageID: d.firstID(), Attempts: attempts, FirstPublishedAt: d.publishedAt, DeadLetteredAt: now,
	}
}

// workerDied is the failure of an event whose last attempt ended with its worker.
var workerDied = retry.Exhausted(retry.Verdict{Reason: dedupe.Begun}, nil)

// detail is the text of a dead letter beside its reason, made of our own errors, which hold codes, field paths and ids.
func detail(err error) string {
	var invalid *contract.Invalid
	if errors.As(err, &invalid) {
		return invalid.Error()
	}
	var texts []string
	var marked *retry.Error
	for at, first := err, true; errors.As(at, &marked); at, first = marked.Err, false {
		if !first { // the dead letter has the reason of the first
			texts = append(texts, marked.Verdict.Reason)
		}
		if len(marked.Subjects) > 0 {
			texts = append(texts, strings.Join(marked.Subjects, " "))
		}
	}
	if said := retry.Said(err); said != "" {
		texts = append(texts, said)
	}
	return strings.Join(texts, ": ")
}

// cause is the log's text of a failure beside its reason: the detail, and the type of another's error at the bottom.
func cause(err error) string {
	text, root := detail(err), err
	for inner := err; inner != nil; inner = errors.Unwrap(inner) {
		root = inner
	}
	if _, ours := errors.AsType[*retry.Error](root); root != nil && !ours {
		text += fmt.Sprintf(" %T", root)
	}
	return strings.TrimSpace(text)
}
