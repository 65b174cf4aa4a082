package push

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"

	"billhook/catalog"
	"billhook/internal/dedupe"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/pipeline/lane"
	"billhook/internal/platform/failpoint"
	"billhook/internal/platform/store"
	"billhook/internal/retry"
)

// settle carries out the disposition. If the record or the lane is not as assumed, it returns that as its
// finding.
func (a *attempt) settle(ctx context.Context, f finding) finding {
	ctx, cancel := bounded(ctx)
	defer cancel()
	if f.state == uncertain {
		// The commit's answer may be lost: if the store answers again, the record shows whether it was made.
		if seen, err := a.run.Look(ctx); err == nil && seen != dedupe.Fresh {
			return records(seen)
		}
	}
	if f.state == uncertain || f.state == held {
		// This takes back an attempt that was counted before it ran, if the event did not cause its failure. If
		// that fails, the attempt stays counted.
		if _, err := a.run.Uncount(ctx, f.means.Reason); err != nil {
			a.warn(ctx, "attempt not taken back", slog.String("reason", f.means.Reason))
		}
	}
	reply, kept := f.again(), dedupe.Kept{}
	switch f.then {
	case bury:
		return a.bury(ctx, f)
	case resume:
		reply.next.resume = f.due
	case keep:
		var err error
		switch kept, err = a.keep(ctx, f, &reply); {
		case err != nil && f.state == waiting:
			return unkept(f, err)
		case err != nil: // the broker keeps it
			a.warn(ctx, "message not kept for its wait",
				slog.String("reason", f.means.Reason), slog.String("cause", fmt.Sprintf("%T", err)))
		}
	case nack:
	}
	want := dedupe.Counted
	end := dedupe.Ending{
		Status: dedupe.Failed, Reason: f.means.Reason, Next: f.due, Uncounted: !f.means.Counts, Kept: kept,
	}
	switch {
	case f.state == early && kept.Ticket != "":
		end, want = dedupe.Ending{Kept: kept}, dedupe.Waiting
	case f.state != failed:
		return final(reply)
	}
	seen, err := a.release(ctx, end)
	switch {
	case err != nil:
		a.warn(ctx, "attempt not counted", slog.String("reason", f.means.Reason)) // and a lease not released
		return final(f.again())
	case seen == want:
		return final(reply)
	case f.state == failed && seen.Undecided():
		f.attempt = a.run.Attempt()
		return f
	default:
		return records(seen)
	}
}

// release records the end of an attempt, and releases its lease.
func (a *attempt) release(ctx context.Context, end dedupe.Ending) (seen dedupe.Seen, err error) {
	if a.leased() {
		failpoint.Hit(failpoint.LeasedRelease)
		seen, err = a.run.Conclude(ctx, end)
		failpoint.Hit(failpoint.LeasedReleased)
		return seen, err
	}
	failpoint.Hit(failpoint.TxFail)
	if seen, err = a.run.Conclude(ctx, end); seen == dedupe.Counted {
		failpoint.Hit(failpoint.TxFailed)
	}
	return seen, err
}

// keep puts the message into its lane. After an attempt it returns the writes, to be committed with the
// record; otherwise it commits them itself. It adds to the reply when the message is due.
func (a *attempt) keep(ctx context.Context, f finding, reply *answer) (kept dedupe.Kept, err error) {
	name, place := a.lane, a.at.lane
	// A message that waits for another event gets its own lane, as that event may be behind it. It returns there
	// if a worker with a fast clock released it too early.
	if f.means.Scope == retry.OtherEvent || (f.state == early && a.run.Found.DelayedBeside) {
		name.OrderingKey = ""
	}
	if f.state != waiting {
		if place, err = lane.Open(ctx, a.config.Store, name); err != nil {
			return kept, err
		}
	}
	key, isRecorded := name.OrderingKey, f.state == failed || f.state == early
	if isRecorded || key != "" || !place.Holds() { // else an earlier delivery has kept it
		message := a.message
		message.Attributes = a.queue.Addressed(message.Attributes)
		ticket, writes, err := place.Put(lane.Kept{
			Topic: a.queue.Topic(), Content: lane.Content{Message: message},
			Source: lane.Source{Tenant: a.event.Tenant, EventID: a.event.ID},
			DueAt:  f.due, Timer: f.state == waiting && !f.due.IsZero(), // it waits until its time of delivery
		}, a.publishedAt, a.messageID, a.config.Now())
		if err == nil && !isRecorded {
			_, err = a.config.Store.Commit(ctx, writes)
		}
		if err != nil {
			return kept, err
		}
		kept = dedupe.Kept{Ticket: ticket, Writes: writes, Beside: key == "" && a.lane.OrderingKey != ""}
	}
	reply.Delayed, reply.next.due = true, f.due
	if f.due.IsZero() && !place.Holds() { // else it is released with those before it
		reply.next.due = a.config.Now()
	}
	if f.state == waiting {
		reply.Status = http.StatusOK
	}
	reply.next.hold = a.mayMissLane() && !place.Exists() && key != ""
	return kept, nil
}

// unkept returns the finding for a message that has to wait but could not be kept. It is not handled.
func unkept(f finding, err error) finding {
	switch {
	case errors.Is(err, lane.ErrUnfit) && f.due.IsZero(): // the broker must hold it, and so its key
		return found(unanswered, retry.Busy(f.means.Reason, err))
	case errors.Is(err, lane.ErrUnfit):
		return found(failed, retry.Permanent("too_large_to_wait", err))
	case errors.Is(err, store.ErrExists), errors.Is(err, store.ErrStale):
		return finding{} // the lane is no longer as it was read
	default:
		return storeDown(err)
	}
}

// bury publishes the dead letter, and records it once the broker has confirmed it.
func (a *attempt) bury(ctx context.Context, f finding) finding {
	if a.broken != nil && a.event.ID != "" && a.queue.OnCorrected == catalog.Accept {
		// The record of the event that it names gets the dead letter, so that a corrected message can close it.
		record := a.record
		record.EventID = a.event.ID
		named := a.config.Begin(dedupe.Key(a.queue.ID, record.Tenant, record.EventID), record, a.queue.RememberFor)
		named.DeadLetters = a
		if err := named.Broken(ctx, f.means.Reason); err != nil {
			return found(unanswered, err)
		}
	}
	seen, err := a.run.Look(ctx)
	switch {
	case err != nil:
		return found(unanswered, err)
	case !seen.Undecided():
		return records(seen)
	}
	reply := f.again()
	reply.Outcome, reply.Attempt = a.buried(), a.run.Attempt()
	reply.quiet = f.means.Scope == retry.OtherEvent // the event that it waited for did not arrive
	// Attempts began and none ended: the last was counted before it ran, so this adds none.
	uncounted := seen == dedupe.Fresh && f.means.Reason == dedupe.Begun
	if uncounted {
		reply.Attempt--
	}
	failpoint.Hit(failpoint.BuryPublish)
	if reply.Outcome != retry.Dropped {
		dead := deadletter.Item{Detail: detail(f.failure)}
		dead.Data, dead.Attributes, dead.SourceMessageID = a.message.Data, a.message.Attributes, a.firstID
		dead.Reason, dead.Status, dead.Attempts = f.means.Reason, int64(f.means.Class), int64(reply.Attempt)
		dead.FirstPublished, dead.DeadLettered = a.publishedAt, a.config.Now()
		err = deadletter.Publish(ctx, a.config.Outbox.Publisher, a.queue.Queue, a.record.IdempotencyKey, dead)
	}
	if err == nil {
		failpoint.Hit(failpoint.BuryPublished)
		end := dedupe.Ending{Status: dedupe.DeadLettered, Reason: f.means.Reason, Uncounted: uncounted}
		_, err = a.run.Conclude(ctx, end)
	}
	if err != nil {
		f = found(unanswered, err)
		f.attempt = reply.Attempt
		return f
	}
	failpoint.Hit(failpoint.BuryMarked) // a conflict is ignored: another worker has written its end
	return final(reply)
}

// typeUnknown is the reason of a dead letter whose event type has no handler.
const typeUnknown = "event_type_unknown"

// buried is the outcome of a message after a terminal failure.
func (d *delivery) buried() retry.Outcome {
	if d.queue.DeadLetter.Drop {
		return retry.Dropped
	}
	return retry.DeadLettered
}

// Own implements dedupe.DeadLetters, as do Replaceable and Close.
func (d *delivery) Own() string {
	if d.queue.DeadLetter.Drop {
		return ""
	}
	return deadletter.ItemID(d.queue.Queue, d.firstID, d.message)
}

// Replaceable: a Tx handler without a record had no effect. The effect of a leased one is unknown.
func (d *delivery) Replaceable(dead dedupe.Record) bool {
	spec, _ := d.queue.Handler(dead.EventType)
	h, found := d.config.Handlers.Lookup(spec.Name)
	return d.queue.OnCorrected == catalog.Accept && (h.Tx != nil || !found && dead.LastError == typeUnknown)
}

// Close returns the writes that close the dead letters, as corrected by the delivered message.
func (d *delivery) Close(ids []string) (writes []store.Write) {
	now := d.config.Now()
	for _, id := range ids {
		writes = append(writes, deadletter.Correct(d.queue.Queue, id, d.event.ID, d.messageID, now))
	}
	return writes
}
