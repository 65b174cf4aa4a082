package dedupe

import (
	"time"

	"billhook/internal/pipeline/handler"
	"billhook/internal/platform/store"
)

// Once makes runs whose effect happens once.
type Once struct {
	Store store.Store
	Now   func() time.Time
	// NewToken returns a random name for one attempt.
	NewToken func() string
	Instance string
}

// Run is one delivery of one event. It writes at the version that it has seen, and so never over another's success.
type Run struct {
	once        *Once
	key         store.Key
	token       string
	record      Record
	given       int64
	rememberFor time.Duration
	// version of the record as last read; 0: absent, as far as known.
	version store.Version
	// conflict: the key holds the payload's hash, so there is nothing to compare.
	conflict bool
	// other is the payload's hash that the record was found to have, where it Differs.
	other string
	// mine: the record counts this very attempt already.
	mine    bool
	claimed bool // it has held the lease
	// repeated: an attempt before this one was not completed, and may have had an effect outside.
	repeated    bool
	try         int         // how many of its commits have failed by a precondition
	deadLetters DeadLetters // nil: none is corrected
	ticket      string      // that of the delivered copy
	delivery    int64       // the broker's number of the delivery
	trace       string
	begun       time.Time
	// found is the record as last read; the zero record where none counts.
	found Record
}

// Begun is the last error of an attempt that was counted before it ran and has not ended.
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
	// Status is Completed, Failed or DeadLettered. Without one the event, which is Early, stays as it is, and is Kept.
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

// Kept is a message that waits elsewhere than with the broker, under a ticket: every other copy of it is Waiting.
type Kept struct {
	Ticket string
	Writes []store.Write
	// Beside: no other message waits for this one.
	Beside bool
}
