package push

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"billhook/catalog"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/pipeline/lane"
	"billhook/internal/platform/store"
	"billhook/internal/retry"
)

type answer struct {
	Outcome retry.Outcome `json:"outcome"`
	Status  int           `json:"status"` // of the outcome's class, even if the HTTP status acknowledges
	Reason  string        `json:"reason"`
	EventID string        `json:"event_id"`
	Attempt int           `json:"attempt"` // which of the event's attempts this was; 0: none
	// Delayed: the message is kept for a later attempt, and acknowledged.
	Delayed bool `json:"delayed,omitempty"`
	// Ref is the id of what the event has made, now or before, such as a ledger entry.
	Ref string `json:"ref,omitempty"`

	next   next
	quiet  bool   // acknowledged even if its queue rejects dead-lettered messages
	result string // the handler's code of the effect, now or before
	cause  string // says more about a failure, for the log
}

// next is what to do before an answer is sent, or instead of sending it.
type next struct {
	resume time.Time // when the next attempt is made in the same request; zero: it is not
	due    time.Time // when a kept or emitted message is to be released; zero: no release is needed
	relay  []string  // the lanes of the emissions
	reopen bool      // the replayed dead letter is opened again, because its event has another one
	// hold: the message's lane is new, and an instance may not know of it for noneWaitFor. The acknowledgement
	// waits that long, so that the broker holds back later messages of the key.
	hold bool
}

// status is a row of the table that turns an outcome into an HTTP status. The first row of the outcome whose
// condition holds decides. 200 and 204 acknowledge.
type status struct {
	of    []retry.Outcome
	when  string
	holds func(reply answer, q *queue, now time.Time) bool // nil: always
	code  int                                              // 0: the class of the failure
}

var noEffect = []retry.Outcome{retry.Duplicate, retry.Expired, retry.Dropped, retry.Superseded}

// statuses is that table. A rejection beyond the queue's budget of nacks is acknowledged: its dead letter is
// confirmed either way.
var statuses = []status{
	{of: []retry.Outcome{retry.Processed}, code: http.StatusOK},
	{
		noEffect, "the body says the id of what the event has made before",
		func(reply answer, _ *queue, _ time.Time) bool {
			return reply.Ref != "" // an answer of 204 has no body
		}, http.StatusOK,
	},
	{of: noEffect, code: http.StatusNoContent},
	{
		[]retry.Outcome{retry.DeadLettered},
		"its queue says `on_terminal: reject`, it did not wait for another event, and the queue's `nack_budget` " +
			"has one left",
		func(reply answer, q *queue, now time.Time) bool {
			return q.OnTerminal == catalog.Reject && !reply.quiet && q.nacks.AllowN(now, 1) // and takes it
		}, 0,
	},
	{of: []retry.Outcome{retry.DeadLettered}, code: http.StatusOK},
	{
		[]retry.Outcome{retry.Retry},
		"the message is kept until its next attempt, or behind another of its key (`\"delayed\":true`)",
		func(reply answer, _ *queue, _ time.Time) bool { return reply.Delayed }, http.StatusOK,
	},
	{of: []retry.Outcome{retry.Retry}},
}

func (reply answer) httpStatus(q *queue, now time.Time) int {
	row := slices.IndexFunc(statuses, func(row status) bool {
		return slices.Contains(row.of, reply.Outcome) && (row.holds == nil || row.holds(reply, q, now))
	})
	return cmp.Or(statuses[row].code, reply.Status)
}

// leave writes the end of a replay, publishes the emissions before the key's next event can emit any, and
// removes the lane after its last message, because while it exists each event of its queue costs a read.
func (a *attempt) leave(ctx context.Context, f finding) answer {
	reply := f.answer
	if f.state != answered { // record or lane were not as assumed in any round
		if f.state = unanswered; !f.means.Counts {
			f.attempt = 0
		}
		reply = f.again()
	}
	if err := a.settleReplay(ctx, reply); err != nil {
		a.warn(ctx, "end of a replay not written")
		again := storeDown(err).again() // the redelivery writes it
		again.next.due = reply.next.due
		return again
	}
	ends := a.returned() && a.lane.OrderingKey != "" && !a.at.waits() && !reply.Delayed
	if ends = ends && (a.broken == nil || reply.Outcome != retry.Retry); !ends && len(reply.next.relay) == 0 {
		return reply
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	for _, id := range reply.next.relay {
		if _, err := a.config.Outbox.Lane(ctx, id); err != nil {
			a.warn(ctx, "outbox left to the relay", slog.String("lane", id), slog.String("cause", cause(err)))
		}
	}
	if !ends {
		return reply
	}
	err := error(nil)
	if a.at.lane.ID() == "" {
		a.at.lane, err = lane.Open(ctx, a.config.Store, a.lane)
	}
	if last, over := a.at.lane.Over(a.message); err == nil && over {
		_, err = a.config.Store.Commit(ctx, []store.Write{last})
	}
	// If this fails, the lane is removed after the next message of the key.
	if err != nil && !errors.Is(err, store.ErrStale) {
		a.warn(ctx, "lane not removed")
	}
	return reply
}

// settleReplay writes a replay's end into its dead letter, which opens again if the event has another one.
func (d *delivery) settleReplay(ctx context.Context, reply answer) error {
	if d.replay == "" {
		return nil
	}
	state := deadletter.Processed
	switch {
	case reply.Outcome == retry.DeadLettered, reply.Outcome == retry.Retry:
		return nil
	case reply.Reason == correctedBefore:
		state = deadletter.Corrected
	case reply.next.reopen:
		state = deadletter.Open
	case reply.Outcome == retry.Duplicate && reply.Reason != processedBefore:
		return nil
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	return deadletter.Settle(ctx, d.config.Store, d.message, state, reply.Outcome, d.config.Now())
}

// acknowledged sets the alarm for a kept or emitted message, and delays the answer if it has to.
func (d *delivery) acknowledged(ctx context.Context, reply answer) answer {
	if due := reply.next.due; !due.IsZero() {
		if err := d.config.Alarm.At(context.WithoutCancel(ctx), due); err != nil {
			d.warn(ctx, "no alarm, left to the next run of release-delayed", slog.String("cause", cause(err)))
		}
	}
	if reply.next.hold && !d.sleep(ctx, d.config.Now().Add(noneWaitFor)) {
		// The broker continues to hold back the key.
		reply.Outcome, reply.Delayed, reply.Status = retry.Retry, false, http.StatusServiceUnavailable
	}
	return reply
}

// concluded logs and counts the outcome of a delivery, or of an attempt that its request will repeat.
func (d *delivery) concluded(
	ctx context.Context, level slog.Level, message string, reply answer, more ...slog.Attr,
) {
	d.config.Rates.Ended(d.queue.ID, reply.Outcome, reply.Attempt)
	if reply.Ref != "" {
		more = append(more, slog.String("ref", reply.Ref))
	}
	d.log.LogAttrs(ctx, level, message, append(more, //nolint:sloglint // Each caller gives a constant.
		slog.String("event_type", d.record.EventType), slog.String("instance", d.config.Instance),
		slog.String("ordering_key", d.record.OrderingKey), slog.String("correlation_id", d.record.CorrelationID),
		slog.Int("attempt", reply.Attempt), slog.Int("delivery_attempt", d.number),
		slog.String("outcome", string(reply.Outcome)), slog.String("reason", reply.Reason),
		slog.String("result", reply.result), slog.String("cause", reply.cause),
		slog.Bool("delayed", reply.Delayed))...)
}
