package failpoint

// The places, in the order in which an event comes by them. They are constants, which
// leave nothing in a program that does not use them.
const (
	// A Tx handler's effect is about to be committed with its record; it is.
	TxCommit    = "tx.commit"
	TxCommitted = "tx.committed"
	// A failed attempt of a Tx handler is about to be counted; it is.
	TxFail   = "tx.fail"
	TxFailed = "tx.failed"

	// A lane's next message is about to be published; all that were read are; they are
	// removed.
	OutboxPublish   = "outbox.publish"
	OutboxPublished = "outbox.published"
	OutboxRemoved   = "outbox.removed"
	// A message could not be published, and its lane is about to be put off; it is.
	OutboxPutOff = "outbox.put_off"
	OutboxLater  = "outbox.later"

	// An event is about to be claimed; it is.
	LeasedClaim   = "leased.claim"
	LeasedClaimed = "leased.claimed"
	// The other side has said what became of an earlier attempt.
	LeasedReconciled = "leased.reconciled"
	// The handler has returned, and nothing is written down.
	LeasedDone = "leased.done"
	// The record says that the effect took place.
	LeasedCompleted = "leased.completed"
	// A failed attempt is about to give the event back; it has.
	LeasedRelease  = "leased.release"
	LeasedReleased = "leased.released"

	// A dead letter is about to be published; it is; the record says so.
	BuryPublish   = "bury.publish"
	BuryPublished = "bury.published"
	BuryMarked    = "bury.marked"
	// A dead letter is about to be stored; it is.
	LetterKeep = "letter.keep"
	LetterKept = "letter.kept"

	// A sweep is about to put an orphan back on its queue; it has; the record says so.
	SweepRepublish   = "sweep.republish"
	SweepRepublished = "sweep.republished"
	SweepMarked      = "sweep.marked"
)
