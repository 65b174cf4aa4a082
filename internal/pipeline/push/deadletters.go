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

// Reasons of duplicates, and of a dead letter whose event type has no handler.
const (
	processedBefore    = "processed_before"
	deadLetteredBefore = "dead_lettered_before"
	correctedBefore    = "corrected_before" // another payload has taken the place of its own
	typeUnknown        = "event_type_unknown"
)

// begin starts the run of an attempt.
func (s *Service) begin(a *attempt) {
	record := a.record
	record.EventID = a.event.ID
	a.run = run{Run: s.config.Begin(dedupe.Key(a.queue.ID, record.Tenant, record.EventID), record, a.queue.RememberFor)}
	a.run.Knows(a)
	a.run.Delivered(a.number, a.trace)
	if a.broken == nil {
		return
	}
	if record.EventID != "" && a.queue.OnCorrected == catalog.Accept {
		a.run.claims = a.run.Run
	}
	a.run.Run = s.config.Begin(dedupe.MessageKey(a.queue.ID, a.messageID, a.message.Data), a.record, a.queue.RememberFor)
	a.run.Delivered(a.number, a.trace)
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

// Own implements dedupe.DeadLetters, as Replaceable and Close do.
func (a *attempt) Own() string {
	if a.queue.DeadLetter.Drop {
		return ""
	}
	return deadletter.ItemID(a.queue.Queue, a.firstID(), a.message)
}

// settleReplay writes into the dead letter of a replay how that has ended: open again, where the event has another one.
func (s *Service) settleReplay(ctx context.Context, a *attempt, reply answer) error {
	id := a.message.Attributes[deadletter.AttrReplayOf]
	if id == "" || id != deadletter.ItemID(a.queue.Queue, a.firstID(), a.message) {
		return nil // no replay, or somebody made it up
	}
	end := deadletter.Ending{State: deadletter.Processed, Outcome: reply.Outcome, At: s.config.Now()}
	switch {
	case reply.Outcome == retry.DeadLettered, reply.Outcome == retry.Retry:
		return nil
	case reply.Reason == correctedBefore:
		end.State = deadletter.Corrected
	case reply.Reason == deadLetteredBefore && a.broken == nil && !a.run.Buried(id): // else its own death is on its way
		end.State = deadletter.Open
	case reply.Outcome == retry.Duplicate && reply.Reason != processedBefore:
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), bookkeeping)
	defer cancel()
	return deadletter.Settle(ctx, s.config.Store, a.message, end)
}

// Replaceable: a Tx handler's effect does not exist without its record. Nobody knows what a leased one has done outside.
func (a *attempt) Replaceable(dead dedupe.Record) bool {
	spec, _ := a.queue.Handler(dead.EventType)
	h, found := a.service.config.Handlers.Lookup(spec.Name)
	return a.queue.OnCorrected == catalog.Accept && (h.Tx != nil || !found && dead.LastError == typeUnknown)
}

// Close names the delivered message in them.
func (a *attempt) Close(ids []string) (writes []store.Write) {
	for _, id := range ids {
		writes = append(writes, deadletter.Correct(a.queue.Queue, id, a.event.ID, a.messageID, a.service.config.Now()))
	}
	return writes
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
