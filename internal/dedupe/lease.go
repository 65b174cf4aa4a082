package dedupe

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"billhook/internal/contract"
	"billhook/internal/handler"
	"billhook/internal/retry"
	"billhook/internal/store"
)

// Claim takes the event for this run: from now on, and for the length of the lease,
// any other delivery of it is Held. It says Claimed where it did, also where the
// answer of its commit was lost; else what it met instead. An event whose lease has
// ended, or whose attempt failed, is taken over. keep, if not nil, stands in the
// record until the run is over.
//
// From the claim on, the record's version is the fence: Complete, Release and Bury
// write at the version that the claim returned, or not at all.
//
// A new event costs one commit. With redelivered true the record is read first.
func (r *Run) Claim(ctx context.Context, lease time.Duration, keep *contract.Message, redelivered bool) (Seen, error) {
	if redelivered {
		if seen, err := r.Look(ctx); err != nil || seen != Fresh {
			return seen, err
		}
	}
	for range tries {
		now := r.once.Now()
		record := r.at(now, Processing)
		record.Attempts, record.LeaseUntil, record.Message = int64(r.Attempt()), now.Add(lease), keep
		versions, err := r.once.Store.Commit(ctx, []store.Write{r.write(record)})
		refused := errors.Is(err, store.ErrExists) || errors.Is(err, store.ErrStale)
		switch {
		case err == nil:
			r.record, r.version, r.mine, r.claimed = record, versions[0], true, true
			return Claimed, nil
		case errors.Is(err, store.ErrInvalid):
			return Fresh, retry.Permanent("record_invalid", err)
		}
		seen, lookErr := r.Look(ctx)
		switch {
		case lookErr == nil && seen == Claimed:
			r.claimed = true
			return Claimed, nil // our own commit, whose answer was lost
		case !refused:
			// If the claim arrives later, its redelivery waits for the end of the lease.
			return Fresh, retry.Outage("store_unavailable", fmt.Errorf("claim: %w", err))
		case lookErr != nil || seen != Fresh:
			return seen, lookErr
		}
	}
	return Fresh, retry.Busy("contention", nil)
}

// Lost reports, of what a run has seen, whether it is of an event that the run had
// Claimed and has no more: it is not to be touched, whoever has it.
func (r *Run) Lost(seen Seen) bool { return r.claimed && (seen == Fresh || seen == Early) }

// Repeated reports, of a Claimed run, whether an attempt began before this one whose
// effect may have taken place.
func (r *Run) Repeated() bool { return r.repeated }

// Complete ends a Claimed run whose effect has taken place. It says Own where the
// record says so now. Anything else is what became of the event after this run lost
// it, and Fresh that it is somebody else's turn: this run has changed nothing.
func (r *Run) Complete(ctx context.Context, effect handler.Effect) (Seen, error) {
	record := r.at(r.once.Now(), Completed)
	record.Result, record.LastError, record.ProcessedAt = effect.Result, "", record.UpdatedAt
	return r.settle(ctx, record, slices.Concat(effect.Writes, r.closing())...)
}

// Release ends a Claimed run that failed, and says when the next attempt is due. With
// counted false the attempt is taken back. It says Counted where the record says so
// now, and Claimed where the run holds its lease still and what Keep was called with
// was refused; else see Complete.
func (r *Run) Release(ctx context.Context, reason string, next time.Time, counted bool) (Seen, error) {
	record := r.at(r.once.Now(), Failed)
	record.LastError, record.NextRetryAt, record.DelayTicket = reason, next, r.kept.ticket
	if !counted {
		record.Attempts--
	}
	return r.settle(ctx, record, r.kept.writes...)
}

// settle writes the end of a claim, at the claim's version. What it cannot know it
// tries again: a commit that happened is met as its own.
func (r *Run) settle(ctx context.Context, record Record, also ...store.Write) (Seen, error) {
	var unknown error
	for range tries {
		_, err := r.once.Store.Commit(ctx, append([]store.Write{store.Update(r.key, r.version, record.Fields())}, also...))
		switch {
		case err == nil:
			r.record = record
			if record.Status == Completed {
				return Own, nil
			}
			return Counted, nil
		case errors.Is(err, store.ErrInvalid):
			return Fresh, retry.Transient("record_invalid", err)
		case !errors.Is(err, store.ErrExists) && !errors.Is(err, store.ErrStale):
			unknown = err
			continue
		}
		// Claimed again: a sweep has touched the record, and nobody has taken it over.
		if seen, err := r.Look(ctx); err != nil || seen != Claimed || (record.Status == Failed && len(also) > 0) {
			return seen, err
		}
	}
	return Fresh, retry.Outage("store_unavailable", fmt.Errorf("end of the lease: %w", unknown))
}
