package dedupe

import (
	"context"
	"time"

	"billhook/internal/handler"
	"billhook/internal/store"
)

// Store is what the state machine needs of the database.
type Store interface {
	// Get returns the document, or an error wrapping store.ErrNotFound.
	Get(ctx context.Context, key store.Key) (store.Document, error)
	// Commit applies all writes or none. An error wrapping store.ErrExists or
	// store.ErrStale means that a precondition failed and nothing was written; after
	// any other error nothing is known.
	Commit(ctx context.Context, writes []store.Write) ([]store.Version, error)
}

// Begun is the last error of an attempt that was counted before it ran, for as long as
// nothing else is known of it.
const Begun = "worker_died"

// Seen is what a look at the record says of a delivery.
type Seen int

// What a look can say.
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
	// Held: another worker holds the lease.
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

// Ending is what a run has come to.
type Ending struct {
	// Status is what the event is from now on: Completed, Failed or DeadLettered. Without one
	// the event, which is Early, stays as it is, and this copy of its message is Kept.
	Status Status
	// Effect is committed with what is Completed.
	Effect handler.Effect
	// Reason is the code of the failure.
	Reason string
	// Next is when the next attempt of what has Failed is due.
	Next time.Time
	// Uncounted: the attempt was none of the event's own.
	Uncounted bool
	Kept      Kept
}

// Kept is a message that waits for its next attempt elsewhere than with the broker, under a
// ticket: until the attempt is due, every other copy of the message is Waiting. Its writes
// keep it there, and are committed with the record, or neither is.
type Kept struct {
	Ticket string
	Writes []store.Write
}
