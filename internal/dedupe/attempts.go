package dedupe

import (
	"slices"
	"time"

	"billhook/internal/retry"
)

// MaxLog is how many attempts the log of a record holds: the newest.
const MaxLog = 20

// Attempt is one attempt in the log of a record. The log has those that the record counts: one under a
// lease, or counted before it ran, from its begin on, any other once it has ended.
type Attempt struct {
	// Number is which of the event's attempts it is; 1 is the first. After a replay, and after a
	// correction, the numbers begin anew.
	Number int64 `json:"number" store:"number"`
	// Delivery is the broker's number of the delivery that the attempt is part of, as it counts those of one
	// message; 0: it sent none.
	Delivery int64 `json:"delivery,omitzero" store:"delivery,omitzero"`
	// MessageID is that message.
	MessageID string `json:"message_id,omitempty" store:"message_id,omitzero"`
	// Instance names the process that made the attempt.
	Instance string    `json:"instance,omitempty" store:"instance,omitzero"`
	Begun    time.Time `json:"begun_at,omitzero" store:"begun_at,omitzero"`
	// Ended is zero where the attempt is under way, or its end is not known.
	Ended time.Time `json:"ended_at,omitzero" store:"ended_at,omitzero"`
	// Outcome is processed, superseded, retry, dead_lettered or dropped; empty until the end.
	Outcome retry.Outcome `json:"outcome,omitempty" store:"outcome,omitzero"`
	// Reason is the code of the failure.
	Reason string `json:"reason,omitempty" store:"reason,omitzero"`
	// Next is when the attempt after this one is due.
	Next time.Time `json:"next_at,omitzero" store:"next_at,omitzero"`
	// Trace is the id of the trace that the delivery is part of: 32 hexadecimal digits; empty: it
	// came with none.
	Trace string `json:"trace,omitempty" store:"trace,omitzero"`
}

// Delivered sets the broker's number of the delivery that the run is part of, 0 where it sent none,
// and the id of the trace, which may be empty.
func (r *Run) Delivered(number int, trace string) { r.delivery, r.trace = int64(number), trace }

// begins returns the log with the run's own attempt in it, which has not ended.
func (r *Run) begins(number int64) []Attempt {
	if r.listed() {
		return r.record.Log
	}
	log := append(slices.Clone(r.record.Log), Attempt{
		Number: number, Delivery: r.delivery, MessageID: r.record.MessageID, Instance: r.once.Instance, Begun: r.begun, Trace: r.trace,
	})
	return log[max(0, len(log)-MaxLog):]
}

// ends returns the log after an ending at a time. An attempt that was none of the event's own is
// not in it.
func (r *Run) ends(number int64, end Ending, now time.Time) []Attempt {
	switch {
	case end.Uncounted && r.listed():
		return slices.Clone(r.record.Log[:len(r.record.Log)-1])
	case end.Uncounted:
		return r.record.Log
	}
	log := slices.Clone(r.begins(number))
	if end.Status == Failed && end.Reason == Begun { // it runs now
		return log
	}
	own := &log[len(log)-1]
	own.Ended, own.Reason, own.Next = now, end.Reason, end.Next
	switch {
	case end.Status == Completed && end.Effect.Superseded:
		own.Outcome = retry.Superseded
	case end.Status == Completed:
		own.Outcome = retry.Processed
	case end.Status == Failed:
		own.Outcome = retry.Retry
	case r.letters != nil && r.letters.Own() == "":
		own.Outcome = retry.Dropped
	default:
		own.Outcome = retry.DeadLettered
	}
	return log
}

func (r *Run) listed() bool {
	last := len(r.record.Log) - 1
	return r.mine && last >= 0 && r.record.Log[last].Ended.IsZero() && r.record.Log[last].Number == r.record.Attempts
}
