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
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/platform/failpoint"
	"billhook/internal/platform/store"
	"billhook/internal/retry"
)

// typeUnknown is the reason of a dead letter whose event type has no handler.
const typeUnknown = "event_type_unknown"

// named is the run of the event that a broken message names.
func (s *Service) named(d *delivery) *dedupe.Run {
	record := d.record
	record.EventID = d.event.ID
	run := s.config.Begin(dedupe.Key(d.queue.ID, record.Tenant, record.EventID), record, d.queue.RememberFor)
	run.Knows(deadLetters{d, s})
	return run
}

// bury publishes the dead letter, and records it once the broker has confirmed it.
func (s *Service) bury(ctx context.Context, d *delivery, run *dedupe.Run, f finding) finding {
	if d.broken != nil && d.event.ID != "" && d.queue.OnCorrected == catalog.Accept {
		// The event that it names remembers its dead letter, which a corrected message may close.
		if err := s.named(d).Broken(ctx, f.means.Reason); err != nil {
			return found(unanswered, err)
		}
	}
	seen, err := run.Look(ctx)
	switch {
	case err != nil:
		return found(unanswered, err)
	case !seen.Undecided():
		return records(seen)
	}
	reply := f.again()
	reply.Outcome, reply.Attempt = d.buried(), run.Attempt()
	reply.quiet = f.means.Scope == retry.OtherEvent // the event that it waited for did not come
	// Attempts began, and none ended: the last was counted before it ran, and there is no other.
	uncounted := seen == dedupe.Fresh && f.means.Reason == dedupe.Begun
	if uncounted {
		reply.Attempt--
	}
	failpoint.Hit(failpoint.BuryPublish)
	if reply.Outcome != retry.Dropped {
		dead := d.deadLetter(f, reply.Attempt, s.config.Now())
		err = deadletter.Publish(ctx, s.config.Outbox.Publisher, d.queue.Queue, dead)
	}
	if err == nil {
		failpoint.Hit(failpoint.BuryPublished)
		end := dedupe.Ending{Status: dedupe.DeadLettered, Reason: f.means.Reason, Uncounted: uncounted}
		_, err = run.Conclude(ctx, end)
	}
	if err != nil {
		f = found(unanswered, err)
		f.attempt = reply.Attempt
		return f
	}
	failpoint.Hit(failpoint.BuryMarked) // what somebody else has written stands
	return final(reply)
}

// buried is the outcome of a message that no other attempt can help.
func (d *delivery) buried() retry.Outcome {
	if d.queue.DeadLetter.Drop {
		return retry.Dropped
	}
	return retry.DeadLettered
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
	return deadletter.ItemID(l.queue.Queue, l.firstID, l.message)
}

// Replaceable: a Tx handler's effect does not exist without its record. Nobody knows what a leased one has
// done outside.
func (l deadLetters) Replaceable(dead dedupe.Record) bool {
	spec, _ := l.queue.Handler(dead.EventType)
	h, found := l.service.config.Handlers.Lookup(spec.Name)
	return l.queue.OnCorrected == catalog.Accept && (h.Tx != nil || !found && dead.LastError == typeUnknown)
}

// Close names the delivered message in them.
func (l deadLetters) Close(ids []string) (writes []store.Write) {
	now := l.service.config.Now()
	for _, id := range ids {
		writes = append(writes, deadletter.Correct(l.queue.Queue, id, l.event.ID, l.messageID, now))
	}
	return writes
}

// deadLetter is the message as it goes to the dead letters.
func (d *delivery) deadLetter(f finding, attempts int, now time.Time) deadletter.Message {
	return deadletter.Message{
		Message: d.message, Reason: f.means.Reason, Status: int(f.means.Class), Detail: detail(f.failure), IdempotencyKey: d.record.IdempotencyKey,
		SourceMessageID: d.firstID, Attempts: attempts, FirstPublishedAt: d.publishedAt, DeadLetteredAt: now,
	}
}

// workerDied is the failure of an event whose last attempt ended with its worker.
var workerDied = retry.Exhausted(retry.Verdict{Reason: dedupe.Begun}, nil)

// detail is the text of a dead letter beside its reason, made of our own errors, which hold codes, field
// paths and ids.
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

// cause is the log's text of a failure beside its reason: the detail, and the type of another's error at the
// bottom.
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
