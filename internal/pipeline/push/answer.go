package push

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"billhook/catalog"
	"billhook/internal/dedupe"
	"billhook/internal/pipeline/lane"
	"billhook/internal/platform/store"
	"billhook/internal/retry"
)

// Reasons of duplicates.
const (
	processedBefore    = "processed_before"
	deadLetteredBefore = "dead_lettered_before"
	correctedBefore    = "corrected_before" // another payload has taken the place of its own
)

type answer struct {
	Outcome retry.Outcome `json:"outcome"`
	Status  int           `json:"status"` // the class of the outcome's table, also where the HTTP status acks
	Reason  string        `json:"reason"`
	EventID string        `json:"event_id"`
	Attempt int           `json:"attempt"`           // which of the event's attempts this was; 0 where it was none
	Delayed bool          `json:"delayed,omitempty"` // the message is kept for a later attempt, and the broker is done with it
	Ref     string        `json:"ref,omitempty"`     // the id of what the event made, now or before, such as an entry of the books

	next   next
	quiet  bool   // the message is acknowledged, also where its queue rejects
	result string // the handler's code for what was done, now or before
	cause  string // says more about a failure, for the log
}

// next is what is done before an answer is sent, or in its place.
type next struct {
	resume time.Time // when the attempt after this one is made in the same request; zero: it is not
	due    time.Time // when a message that is kept or emitted is to be released; zero: no release is needed
	relay  []string  // the lanes of what was emitted
	// hold: its lane is new, and may be unknown to an instance for noneWaitFor. So long the acknowledgement waits, and the
	// broker holds back later messages of the key.
	hold bool
}

// httpStatus is the one place where an outcome becomes an HTTP status: 200 and 204 acknowledge. A rejection beyond the
// queue's budget of nacks is acknowledged: its dead letter is confirmed either way.
func (reply answer) httpStatus(q *queue, now time.Time) int {
	switch reply.Outcome {
	case retry.Processed:
	case retry.Duplicate, retry.Expired, retry.Dropped, retry.Superseded:
		if reply.Ref == "" { // an answer of 204 has no body to say it in
			return http.StatusNoContent
		}
	case retry.DeadLettered:
		if q.OnTerminal == catalog.Reject && !reply.quiet && q.nacks.AllowN(now, 1) {
			return reply.Status
		}
	case retry.Retry:
		if !reply.Delayed {
			return reply.Status
		}
	}
	return http.StatusOK
}

// again answers that the message is to be delivered again.
func (f finding) again() answer {
	reply := answer{Outcome: retry.Retry, Status: int(f.means.Class), Reason: f.means.Reason, cause: cause(f.failure)}
	if f.state == unanswered || (f.state == failed && f.means.Counts) {
		reply.Attempt = f.attempt
	}
	return reply
}

// unsettled is the answer where record or lane were never as assumed.
func (f finding) unsettled() answer {
	if f.state = unanswered; !f.means.Counts {
		f.attempt = 0
	}
	return f.again()
}

// read turns what a record says into the answer, or into why the message is not handled.
func (d *delivery) read(run *dedupe.Run, f finding) (*dedupe.Run, finding) {
	reply := answer{Outcome: retry.Duplicate, Status: http.StatusNoContent}
	switch f.seen {
	case dedupe.Own:
		reply.Outcome, reply.Status = retry.Processed, http.StatusOK
		if run.Superseded() {
			reply.Outcome, reply.Status = retry.Superseded, http.StatusNoContent
		}
		reply.Reason, reply.result, reply.Ref, reply.Attempt = run.Result(), run.Result(), run.Ref(), run.Attempt()
		reply.next.due, reply.next.relay = f.emitted.Due, f.emitted.Lanes
	case dedupe.Done:
		reply.Reason, reply.result, reply.Ref = processedBefore, run.Result(), run.Ref()
	case dedupe.Gone:
		reply.Reason = deadLetteredBefore
	case dedupe.Replaced:
		reply.Reason = correctedBefore
	case dedupe.Waiting:
		// By a copy whose acknowledgement did not arrive: what comes behind it may come at once.
		reply.Reason, reply.next.hold = "delayed_before", d.mayMissLane()
	case dedupe.Differs:
		// Under a record of its own, so that its redelivery is known and acked.
		return run.Conflict(), found(failed, retry.Conflicting("payload_conflict", nil))
	case dedupe.Early:
		return run, found(early, retry.Busy("not_due", nil)).dueAt(run.Due())
	default: // by another worker, or waiting for its next delivery
		return run, found(held, retry.Busy("lease_held", nil)).dueAt(run.Due())
	}
	return run, final(reply)
}

// leave settles a replay that has ended, publishes the emissions, so that they come before those of a next event of the
// key, and removes the lane of its last message: while a lane is left, each event of its queue costs a read.
func (s *Service) leave(ctx context.Context, d *delivery, at position, run *dedupe.Run, reply answer) answer {
	if err := s.settleReplay(ctx, d, run, reply); err != nil {
		d.log.LogAttrs(ctx, slog.LevelWarn, "end of a replay not written")
		again := storeDown(err).again() // the redelivery comes by here again
		again.next.due = reply.next.due
		return again
	}
	ends := d.returned() && !at.waits && !reply.Delayed && d.laneKey != "" && (d.broken == nil || reply.Outcome != retry.Retry)
	if len(reply.next.relay) == 0 && !ends {
		return reply
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	for _, id := range reply.next.relay {
		if _, err := s.config.Outbox.Lane(ctx, id); err != nil {
			d.log.LogAttrs(ctx, slog.LevelWarn, "outbox left to the relay", slog.String("lane", id), slog.String("cause", cause(err)))
		}
	}
	if !ends {
		return reply
	}
	err := error(nil)
	if !at.read {
		at.lane, err = lane.Open(ctx, s.config.Store, d.lane(d.laneKey))
	}
	if last, over := at.lane.Over(d.message); err == nil && over {
		_, err = s.config.Store.Commit(ctx, []store.Write{last})
	}
	// Where this fails, the next message of the key ends the lane.
	if err != nil && !errors.Is(err, store.ErrStale) {
		d.log.LogAttrs(ctx, slog.LevelWarn, "lane not removed")
	}
	return reply
}
