package dedupe

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"billhook/internal/contract"
	"billhook/internal/platform/store"
	"billhook/internal/retry"
)

// Claim takes a lease on the event for this run; while it lasts, any other delivery is Held. It returns
// Claimed, or else what the record says. Until the run is over, the record has keep, unless it is nil or
// invalid in a document. With redelivered, the record is read first.
func (r *Run) Claim(
	ctx context.Context, lease time.Duration, keep *contract.Message, redelivered bool,
) (Seen, error) {
	if redelivered {
		if seen, err := r.Look(ctx); err != nil || seen != Fresh {
			return seen, err
		}
	}
	for range MaxTry {
		now := r.once.Now()
		record := r.at(now, Processing)
		record.Attempts, record.LeaseUntil, record.Message = int64(r.Attempt()), now.Add(lease), keep
		record.Log = r.log(record.Attempts, Ending{Status: Processing}, now)
		written, err := r.commit(ctx, record)
		switch {
		case errors.Is(err, store.ErrInvalid) && keep != nil:
			keep = nil // Pub/Sub accepts names and bytes that a document may not have
			continue
		case errors.Is(err, store.ErrInvalid):
			return Fresh, retry.Permanent("record_invalid", err)
		}
		seen, lookErr := Claimed, error(nil)
		if !written {
			seen, lookErr = r.Look(ctx)
		}
		switch {
		case lookErr == nil && seen == Claimed: // also by our own commit, whose answer was lost
			r.claimed = true
			return Claimed, nil
		case err != nil:
			// If the claim arrives later, its redelivery waits for the end of the lease.
			return Fresh, retry.Outage("store_unavailable", fmt.Errorf("claim: %w", err))
		case lookErr != nil || seen != Fresh:
			return seen, lookErr
		}
	}
	return Fresh, retry.Busy("contention", nil)
}

// Uncount takes back an attempt that was counted before it ran. If there is none, it commits nothing and
// returns Fresh.
func (r *Run) Uncount(ctx context.Context, reason string) (Seen, error) {
	if !r.mine() || r.Record.LastError != Begun {
		return Fresh, nil
	}
	return r.Conclude(ctx, Ending{Status: Failed, Reason: reason, Uncounted: true})
}

// Conclude writes the ending of the run, at the version of the record that the run knows. It returns Own for
// Completed, Counted for Failed, Gone for DeadLettered, and Waiting for an ending that has only Kept. If the
// record has changed, it returns what that says now: after Fresh, or Claimed of a claimed run, the caller
// decides again, by Attempt and Try.
func (r *Run) Conclude(ctx context.Context, end Ending) (Seen, error) {
	var unknown error // of a commit that may have succeeded: then the record shows it as Own
	for range MaxTry {
		assumed := r.version
		record, also, seen := r.ending(end)
		written, err := r.commit(ctx, record, also...)
		switch {
		case written:
			return seen, nil
		case err == nil: // another has written
			seen, err = r.Look(ctx)
			if err != nil || !seen.Undecided() || end.Status != Completed {
				return seen, err
			}
			// otherwise the record that was found may be the only cause of the conflict
			if r.claimed || assumed != 0 || r.version == 0 {
				r.Try++
			}
			if r.Try == MaxTry {
				return seen, retry.Busy("contention", nil)
			}
			return seen, nil
		case errors.Is(err, store.ErrInvalid) && end.Status == Completed &&
			(!r.claimed || len(end.Effect.Writes) > 0):
			// The writes themselves are invalid, and would be again.
			return Fresh, retry.Permanent("effect_invalid", err)
		case errors.Is(err, store.ErrInvalid):
			return Fresh, retry.Transient("record_invalid", err)
		case !r.claimed || end.Status == DeadLettered: // its dead letter is made again
			return Fresh, retry.Outage("store_unavailable", fmt.Errorf("write record: %w", err))
		}
		unknown = err
	}
	return Fresh, retry.Outage("store_unavailable", fmt.Errorf("end of the lease: %w", unknown))
}

// ending returns the writes of an ending, and what Conclude returns for it.
func (r *Run) ending(end Ending) (record Record, also []store.Write, seen Seen) {
	if end.Status == "" {
		record = r.Found
		record.DelayTicket, record.UpdatedAt = end.Kept.Ticket, r.once.Now()
		return record, end.Kept.Writes, Waiting
	}
	record = r.at(r.once.Now(), end.Status)
	record.Attempts, record.LastError = int64(r.Attempt()), end.Reason
	record.Log = r.log(record.Attempts, end, record.UpdatedAt)
	if end.Uncounted {
		record.Attempts--
	}
	if end.Status == Failed {
		record.Delay = Delay{end.Next, end.Kept.Ticket, end.Kept.Beside}
		return record, end.Kept.Writes, Counted
	}
	record.ProcessedAt = record.UpdatedAt
	record.DeadLetters, also = r.close(record, end.Status)
	if end.Status == DeadLettered {
		return record, also, Gone
	}
	record.Result, record.Ref, record.Entry = end.Effect.Result, end.Effect.Ref, end.Effect.Entry
	record.Emitted, record.Again = end.Emitted, false
	return record, append(slices.Clip(end.Effect.Writes), also...), Own
}

// close returns the dead letters that are open after the event's end, and the writes that close the others: a
// success closes all of them, a dead letter closes those of other payloads.
func (r *Run) close(record Record, status Status) (open []string, closed []store.Write) {
	if r.DeadLetters == nil || status == Completed && len(record.DeadLetters) == 0 {
		return nil, nil
	}
	own := r.DeadLetters.Own()
	others := slices.DeleteFunc(slices.Clone(record.DeadLetters), func(id string) bool { return id == own })
	if status == DeadLettered && record.Again { // the newest ones of the same payload
		most := max(0, len(others)-maxCorrected+1)
		open, others = others[most:], others[:most]
	}
	if len(others) > 0 {
		closed = r.DeadLetters.Close(others)
	}
	if status == DeadLettered && own != "" {
		open = append(open, own)
	}
	return open, closed
}

// commit writes the record, with the other writes. written is false if the store holds another version.
func (r *Run) commit(ctx context.Context, record Record, also ...store.Write) (written bool, err error) {
	version, writes := r.version+1, also
	if r.rememberFor != 0 {
		write := store.Replace(r.key, r.version, record.Fields())
		for _, w := range also { // the record gets the commit time of the entry, so that both can be counted by it
			if w.Stamp != "" {
				write = write.Stamped(w.Stamp)
			}
		}
		writes = append(append(make([]store.Write, 0, 1+len(also)), write), also...)
	}
	if len(writes) > 0 {
		versions, err := r.once.Store.Commit(ctx, writes)
		switch {
		case errors.Is(err, store.ErrExists) || errors.Is(err, store.ErrStale):
			return false, nil
		case err != nil:
			return false, err
		}
		if r.rememberFor != 0 {
			version = versions[0]
		}
	}
	r.Record, r.version = record, version
	return true, nil
}

// at returns the run's record with a status and a time.
func (r *Run) at(now time.Time, status Status) Record {
	record := r.Record
	record.Status, record.LeaseToken = status, r.token
	record.LeaseUntil, record.Message, record.Delay = time.Time{}, nil, Delay{}
	record.UpdatedAt, record.ExpireAt = now, now.Add(r.rememberFor)
	record.CreatedAt = cmp.Or(record.CreatedAt, now)
	return record
}

// log returns the log after an ending at a time, without an attempt that does not count.
func (r *Run) log(number int64, end Ending, now time.Time) []Attempt {
	log := slices.Clone(r.Record.Log)
	if last := len(log) - 1; r.mine() && last >= 0 && log[last].Ended.IsZero() && log[last].Number == number {
		log = log[:last] // the run's own line, which is written anew
	}
	if end.Uncounted {
		return log
	}
	own := r.Line
	own.Number = number
	switch {
	case end.Status == Processing, end.Status == Failed && end.Reason == Begun: // it runs now
	case end.Status == Completed && end.Effect.Superseded:
		own.Outcome = retry.Superseded
	case end.Status == Completed:
		own.Outcome = retry.Processed
	case end.Status == Failed:
		own.Outcome = retry.Retry
	case r.DeadLetters != nil && r.DeadLetters.Own() == "":
		own.Outcome = retry.Dropped
	default:
		own.Outcome = retry.DeadLettered
	}
	if own.Outcome != "" {
		own.Ended, own.Reason, own.Next = now, end.Reason, end.Next
	}
	log = append(log, own)
	return log[max(0, len(log)-MaxLog):]
}

// Broken records the dead letter of a message that broke the contract under its event id, so that a later
// valid message closes it. A known event that is not dead-lettered is not changed.
func (r *Run) Broken(ctx context.Context, reason string) error {
	own := r.DeadLetters.Own()
	if own == "" {
		return nil
	}
	for range MaxTry {
		version, found, now, err := r.read(ctx)
		if err != nil {
			return err
		}
		r.version = version
		record := r.at(now, DeadLettered)
		record.PayloadHash, record.LastError, record.ProcessedAt = "", reason, now
		if found.Status != "" {
			full := len(found.DeadLetters) == maxCorrected || slices.Contains(found.DeadLetters, own)
			if full || found.Status != DeadLettered {
				return nil
			}
			record = found
			record.UpdatedAt = now
		}
		record.DeadLetters = append(slices.Clone(found.DeadLetters), own)
		switch written, err := r.commit(ctx, record); {
		case written:
			return nil
		case err != nil:
			return retry.Outage("store_unavailable", fmt.Errorf("write record: %w", err))
		}
	}
	return retry.Busy("contention", nil)
}
