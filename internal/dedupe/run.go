package dedupe

import (
	"time"

	"billhook/internal/pipeline/handler"
	"billhook/internal/platform/store"
	"billhook/internal/retry"
)

// Once makes runs whose effect happens once.
type Once struct {
	Store store.Store
	Now   func() time.Time
	// NewToken returns a random name for one attempt.
	NewToken func() string
	Instance string
}

// Run is one delivery of one event. It writes at the version that it has seen, and so never over another's
// success.
type Run struct {
	begin
	// DeadLetters are the event's. nil: no payload takes another's place.
	DeadLetters DeadLetters
	// Line is the run's own in the log, but for its number.
	Line    Attempt
	claimed bool // it has held the lease
	// Repeated: an attempt before this one was not completed, and may have had an effect outside.
	Repeated bool
	// Try is how often the effect of this run has met a conflict; see handler.Event.
	Try int
	// version is that of the record as last read; 0: absent, as far as known.
	version store.Version
	// Found is the record as last read, the zero record where none counts, and Record is what the run would
	// write: once it is Own or Done, with what the effect was.
	Found, Record Record
}

// begin is what a run begins with, and keeps.
type begin struct {
	once        *Once
	key         store.Key
	token       string
	given       Record // what the delivery says of the event
	rememberFor time.Duration
	// conflict: the key holds the payload's hash, so there is nothing to compare.
	conflict bool
}

// MaxTry is how often one write of a run is tried, and how often its effect may meet a conflict.
const MaxTry = 3

// Begin starts the run of an event, and reads nothing. record carries the event's identity, the ticket of the
// delivered copy, and the attempts that were made before. With a rememberFor of 0 the record is not stored.
func (o *Once) Begin(key store.Key, record Record, rememberFor time.Duration) *Run {
	r := &Run{
		begin:  begin{once: o, key: key, token: o.NewToken(), given: record, rememberFor: rememberFor},
		Record: record,
	}
	r.Line = Attempt{MessageID: record.MessageID, Instance: o.Instance, Begun: o.Now()}
	r.Record.DelayTicket = ""
	return r
}

// Conflict gives a run whose payload Differs a record of its own, beside that of the id.
func (r *Run) Conflict() {
	record := r.given
	record.ConflictsWith, record.DelayTicket = r.Found.PayloadHash, ""
	key := Key(record.Queue, record.Tenant, record.EventID, record.PayloadHash)
	run := r.once.Begin(key, record, r.rememberFor)
	run.conflict, run.DeadLetters, run.Line = true, r.DeadLetters, r.Line
	*r = *run
}

// DeadLetters is what a run needs to know of its event's dead letters.
type DeadLetters interface {
	// Own returns the id of the delivered message's dead letter, which it has or would get; empty: it gets none.
	Own() string
	// Replaceable reports whether it is known that nothing of the dead-lettered payload was applied.
	Replaceable(dead Record) bool
	// Close returns the writes, without precondition, that close dead letters as corrected by the delivered
	// message.
	Close(ids []string) []store.Write
}

// mine reports whether the record counts this very attempt already.
func (r *Run) mine() bool { return r.Record.LeaseToken == r.token }

// Attempt returns which of the event's attempts this is, as far as known; 1 is the first.
func (r *Run) Attempt() int {
	if r.mine() {
		return int(r.Record.Attempts)
	}
	return int(r.Record.Attempts) + 1
}

// Superseded reports, of a run that is Own, whether its effect came too late.
func (r *Run) Superseded() bool {
	last := len(r.Record.Log) - 1
	return last >= 0 && r.Record.Log[last].Outcome == retry.Superseded
}

// Due returns when an event that is Early is due, and when the lease of one that is Held ends.
func (r *Run) Due() time.Time {
	if r.Found.Status == Processing {
		return r.Found.LeaseUntil
	}
	return r.Found.NextRetryAt
}

// Begun is the last error of an attempt that was counted before it ran and has not ended: so an event whose
// workers die uses its attempts up.
const Begun = "worker_died"

// Seen is what the record says of a delivery.
type Seen int

// What the record can say.
const (
	// Fresh: there is no record that counts, or one of an attempt that failed: go on.
	Fresh Seen = iota
	// Own: this very run has committed the effect.
	Own
	// Done: the same event with the same payload was completed before.
	Done
	// Gone: the event was dead-lettered before.
	Gone
	// Differs: the id was used before with another payload.
	Differs
	// Held: another worker holds the lease, or has had it since this run.
	Held
	// Counted: this very run has written its own failure.
	Counted
	// Claimed: this very run holds the lease.
	Claimed
	// Replaced: the payload was dead-lettered, and another has taken its place.
	Replaced
	// Waiting: another copy of the message is kept elsewhere until the next attempt is due.
	Waiting
	// Early: the next attempt is due at the time that Due returns, and no other copy waits.
	Early
)

// Undecided reports whether the record leaves it to the run what becomes of the event.
func (s Seen) Undecided() bool { return s == Fresh || s == Claimed }

// Ending is the end of a run.
type Ending struct {
	// Status is Completed, Failed or DeadLettered. Without one the event, which is Early, stays as it is, and is
	// Kept.
	Status Status
	// Effect is committed with what is Completed, and Emitted are its emissions.
	Effect  handler.Effect
	Emitted []handler.Emitted
	Reason  string
	Next    time.Time
	// Uncounted: the attempt was none of the event's own.
	Uncounted bool
	Kept      Kept
}

// Kept is a message that waits elsewhere than with the broker, under a ticket: every other copy of it is
// Waiting.
type Kept struct {
	Ticket string
	Writes []store.Write
	// Beside: no other message waits for this one.
	Beside bool
}
