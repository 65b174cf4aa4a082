package dedupe

import (
	"time"

	"billhook/internal/pipeline/handler"
	"billhook/internal/platform/store"
	"billhook/internal/retry"
)

// Once makes runs whose effects are applied once.
type Once struct {
	Store store.Store
	Now   func() time.Time
	// NewToken returns a random name for one attempt.
	NewToken func() string
	Instance string
}

// Run is one delivery of one event. It writes at the version that it has read, so it never overwrites the
// success of another run.
type Run struct {
	begin
	// DeadLetters are the dead letters of the event; nil: no payload replaces another.
	DeadLetters DeadLetters
	// Line is the run's line in the log, without its number.
	Line    Attempt
	claimed bool // it has had the lease
	// Repeated: an earlier attempt was not completed, and may have had an external effect.
	Repeated bool
	// Try is how many conflicts the effect of this run had; see handler.Event.
	Try int
	// version is the version of the record as last read; 0: it is absent or was not read.
	version store.Version
	// Found is the record as last read; zero: no record counts. Record is the one to write; once it is Own or
	// Done, it has the result of the effect.
	Found, Record Record
}

// begin is the part of a run that does not change.
type begin struct {
	once        *Once
	key         store.Key
	token       string
	given       Record // from the delivery
	rememberFor time.Duration
	// conflict: the key includes the payload's hash, so there is nothing to compare.
	conflict bool
}

// MaxTry is how often one write of a run is tried, and how many conflicts its effect may have.
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

// Conflict gives a run whose payload Differs a record of its own.
func (r *Run) Conflict() {
	record := r.given
	record.ConflictsWith, record.DelayTicket = r.Found.PayloadHash, ""
	key := Key(record.Queue, record.Tenant, record.EventID, record.PayloadHash)
	run := r.once.Begin(key, record, r.rememberFor)
	run.conflict, run.DeadLetters, run.Line = true, r.DeadLetters, r.Line
	*r = *run
}

// DeadLetters are the dead letters of a run's event.
type DeadLetters interface {
	// Own returns the id of the dead letter that the delivered message has or would get; empty: it gets none.
	Own() string
	// Replaceable reports whether it is certain that nothing of the dead-lettered payload was applied.
	Replaceable(dead Record) bool
	// Close returns the writes, without precondition, that close dead letters as corrected by the delivered
	// message.
	Close(ids []string) []store.Write
}

// mine reports whether the record already counts this attempt.
func (r *Run) mine() bool { return r.Record.LeaseToken == r.token }

// Attempt returns the number of this attempt as far as known, from 1.
func (r *Run) Attempt() int {
	if r.mine() {
		return int(r.Record.Attempts)
	}
	return int(r.Record.Attempts) + 1
}

// Superseded reports whether the effect of a run that is Own was superseded.
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

// Begun is the last error of an attempt that was counted before it ran and has not ended, so that an event
// that kills its workers uses up its attempts.
const Begun = "worker_died"

// Seen is what the record says about a delivery.
type Seen int

// What the record can say.
const (
	// Fresh: no record counts, or the record of a failed attempt does: the run may handle the event.
	Fresh Seen = iota
	// Own: this run has committed the effect.
	Own
	// Done: the same event with the same payload was completed before.
	Done
	// Gone: the event was dead-lettered before.
	Gone
	// Differs: the id was used before with another payload.
	Differs
	// Held: another worker has the lease, or has had it after this run.
	Held
	// Counted: this run has written its own failure.
	Counted
	// Claimed: this run has the lease.
	Claimed
	// Replaced: the payload was dead-lettered, and another has replaced it.
	Replaced
	// Waiting: another copy of the message is kept until the next attempt is due.
	Waiting
	// Early: the next attempt is due at the time that Due returns, and no other copy waits.
	Early
)

// Undecided reports whether the run may handle the event.
func (s Seen) Undecided() bool { return s == Fresh || s == Claimed }

// Ending is the end of a run.
type Ending struct {
	// Status is Completed, Failed or DeadLettered. Without one, an Early event is Kept; any other is unchanged.
	Status Status
	// Effect is committed with the record of a Completed event, and Emitted are its emissions.
	Effect  handler.Effect
	Emitted []handler.Emitted
	Reason  string
	Next    time.Time
	// Uncounted: the event did not cause the failure, so the attempt does not count.
	Uncounted bool
	Kept      Kept
}

// Kept is a message that waits outside the broker, under a ticket: every other copy of it is Waiting.
type Kept struct {
	Ticket string
	Writes []store.Write
	// Beside: later messages with the same ordering key do not wait for this one.
	Beside bool
}
