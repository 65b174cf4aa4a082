package dedupe

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"billhook/internal/platform/store"
	"billhook/internal/retry"
)

// Look reads the record once and returns what it says. An event whose lease the run has lost is Held.
func (r *Run) Look(ctx context.Context) (Seen, error) {
	version, found, now, err := r.read(ctx)
	if err != nil {
		return Fresh, err
	}
	seen := r.means(version, found, now)
	if r.claimed && (seen == Fresh || seen == Early) {
		seen = Held
	}
	return seen, nil
}

// read reads the record, and returns the time of reading. An absent or expired record is zero.
func (r *Run) read(ctx context.Context) (store.Version, Record, time.Time, error) {
	switch {
	case r.rememberFor == 0 && r.mine():
		return r.version, r.Record, r.once.Now(), nil
	case r.rememberFor == 0:
		return 0, Record{}, r.once.Now(), nil
	}
	doc, err := r.once.Store.Get(ctx, r.key)
	now := r.once.Now()
	switch {
	case errors.Is(err, store.ErrNotFound):
		return 0, Record{}, now, nil
	case err != nil:
		return 0, Record{}, now, retry.Outage("store_unavailable", fmt.Errorf("read record: %w", err))
	}
	found, err := FromDocument(doc)
	if err != nil {
		return 0, Record{}, now, retry.Transient("record_unreadable", err)
	}
	// Removal by TTL is late, and emulators never do it: the field decides.
	if !found.ExpireAt.IsZero() && !now.Before(found.ExpireAt) {
		found = Record{}
	}
	return doc.Version, found, now, nil
}

// means adopts a record that was found, and returns what it says to the run.
func (r *Run) means(version store.Version, found Record, now time.Time) Seen {
	switch {
	case found.Status == "":
		r.adopt(version, found)
		return Fresh
	case found.PayloadHash != r.Record.PayloadHash && !r.conflict:
		return r.correct(version, found)
	case found.Status == DeadLettered && (r.Record.Replays > found.Replays || r.resent(found)):
		r.again(version, found)
		return Fresh
	}
	own := found.LeaseToken == r.token
	if !own {
		r.Repeated = found.Status == Failed || found.Status == Processing
	}
	r.adopt(version, found)
	waits := found.Status == Failed && now.Before(found.NextRetryAt)
	switch {
	case found.Status == Processing && own:
		return Claimed
	case found.Status == Completed && own:
		return Own
	case found.Status == Completed:
		return Done
	case found.Status == DeadLettered:
		return Gone
	case found.Status == Processing && now.Before(found.LeaseUntil):
		return Held
	case found.Status == Failed && own && found.LastError == Begun:
		return Fresh
	case found.Status == Failed && own:
		return Counted
	case waits && found.DelayTicket != "" && found.DelayTicket != r.given.DelayTicket:
		return Waiting
	case waits:
		return Early
	}
	return Fresh
}

// resent reports whether a dead-lettered payload came again in a message whose dead letter is not among the
// known ones, and may be tried again.
func (r *Run) resent(dead Record) bool {
	if r.DeadLetters == nil || r.conflict || len(dead.DeadLetters) == 0 {
		return false
	}
	own := r.DeadLetters.Own()
	return own != "" && !slices.Contains(dead.DeadLetters, own) && r.DeadLetters.Replaceable(dead)
}

// again starts over with a dead-lettered payload, which has all its attempts.
func (r *Run) again(version store.Version, dead Record) {
	r.adopt(version, Record{
		Times: Times{CreatedAt: dead.CreatedAt}, Tries: Tries{Log: dead.Log},
		Corrected: dead.Corrected, DeadLetters: dead.DeadLetters, Again: true,
	})
	r.Record.Replays = max(r.Record.Replays, dead.Replays)
	r.Repeated = true
}

// maxCorrected bounds how often the payload of one id is corrected, and how many dead letters a record names.
const maxCorrected = 20

// correct returns what a record says to a run with another payload: Fresh, Replaced or Differs.
func (r *Run) correct(version store.Version, found Record) Seen {
	switch broken := found.PayloadHash == ""; { // no payload was applied
	case slices.Contains(found.Corrected, r.Record.PayloadHash):
		return Replaced
	case found.Status != DeadLettered, len(found.Corrected) == maxCorrected,
		!broken && (r.DeadLetters == nil || !r.DeadLetters.Replaceable(found)):
		r.Found = found
		return Differs
	}
	r.adopt(version, Record{
		Times: Times{CreatedAt: found.CreatedAt}, Tries: Tries{Log: found.Log}, DeadLetters: found.DeadLetters,
		Corrected: append(slices.Clone(found.Corrected), found.PayloadHash),
	})
	return Fresh
}

// adopt copies from a record what the run's own record continues.
func (r *Run) adopt(version store.Version, found Record) {
	r.version, r.Found = version, found
	r.Record.LeaseToken, r.Record.Attempts, r.Record.CreatedAt = found.LeaseToken, found.Attempts,
		found.CreatedAt
	r.Record.Result, r.Record.Ref, r.Record.Log = found.Result, found.Ref, found.Log
	r.Record.Corrected, r.Record.DeadLetters, r.Record.Again = found.Corrected, found.DeadLetters, found.Again
	if found.Status == "" {
		r.Record.Attempts, r.Repeated = r.given.Attempts, false
	}
}
