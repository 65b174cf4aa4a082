// Package failpoint owns the named points at which a test ends the process, as a crash would. Without the
// build tag failpoints, Hit does nothing and the program contains no names: a release has no fail points.
package failpoint

// Fail points in the order in which an event passes them. As constants they do not get into a release.
const (
	// Before and after a Tx handler's effect is committed with its record.
	TxCommit    = "tx.commit"
	TxCommitted = "tx.committed"
	// Before and after a failed attempt of a Tx handler is counted.
	TxFail   = "tx.fail"
	TxFailed = "tx.failed"

	// Before a lane's next message is published, after all of them are published, and after they are removed.
	OutboxPublish   = "outbox.publish"
	OutboxPublished = "outbox.published"
	OutboxRemoved   = "outbox.removed"
	// After a commit that adds to-dos for copies, and after a copy is made, before its to-do is removed.
	MirrorCopy   = "mirror.copy"
	MirrorCopied = "mirror.copied"
	// Before and after a lane whose message could not be published is postponed.
	OutboxPutOff = "outbox.put_off"
	OutboxLater  = "outbox.later"

	// Before and after an event is claimed.
	LeasedClaim   = "leased.claim"
	LeasedClaimed = "leased.claimed"
	// After the called service has reported the outcome of an earlier attempt.
	LeasedReconciled = "leased.reconciled"
	// After the handler has returned, before its result is stored.
	LeasedDone = "leased.done"
	// After the record says that the effect took place.
	LeasedCompleted = "leased.completed"
	// Before and after a failed attempt releases the event.
	LeasedRelease  = "leased.release"
	LeasedReleased = "leased.released"

	// Before a dead letter is published, after it, and after the record says so.
	BuryPublish   = "bury.publish"
	BuryPublished = "bury.published"
	BuryMarked    = "bury.marked"
	// Before and after a dead letter is stored.
	DeadLetterKeep = "letter.keep"
	DeadLetterKept = "letter.kept"

	// Before a sweep republishes an orphan, after it, and after the record says so.
	SweepRepublish   = "sweep.republish"
	SweepRepublished = "sweep.republished"
	SweepMarked      = "sweep.marked"

	// Before and after a seal is committed.
	SealCommit    = "seal.commit"
	SealCommitted = "seal.committed"
)
