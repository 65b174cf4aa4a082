package dedupe

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"billhook/internal/contract"
	"billhook/internal/platform/store"
	"billhook/internal/retry"
)

// MaxTry is how often one write of a run is tried, and how often its effect may meet a conflict.
const MaxTry = 3

// Begin starts the run of an event, and reads nothing. record carries the event's identity, the ticket of the delivered
// copy, and the attempts that were made before. With a rememberFor of 0 the record is not stored.
func (o *Once) Begin(key store.Key, record Record, rememberFor time.Duration) *Run {
	ticket := record.DelayTicket
	record.Result, record.Ref, record.DelayTicket, record.CreatedAt = "", "", "", time.Time{}
	record.Corrected, record.DeadLetters, record.Again, record.Log = nil, nil, false, nil
	return &Run{
		once: o, key: key, token: o.NewToken(), record: record, given: record.Attempts, rememberFor: rememberFor, ticket: ticket, begun: o.Now(),
	}
}

// Conflict gives a run whose payload Differs a record of its own, beside that of the id.
func (r *Run) Conflict() {
	record := r.record
	record.ConflictsWith, record.Attempts = r.other, r.given
	run := r.once.Begin(ConflictKey(record.Queue, record.Tenant, record.EventID, record.PayloadHash), record, r.rememberFor)
	run.conflict, run.deadLetters, run.delivery, run.begun = true, r.deadLetters, r.delivery, r.begun
	*r = *run
}

// Attempt returns which of the event's attempts this is, as far as known; 1 is the first.
func (r *Run) Attempt() int {
	if r.mine {
		return int(r.record.Attempts)
	}
	return int(r.record.Attempts) + 1
}

// Try returns how often the effect of this run has met a conflict; see handler.Event.
func (r *Run) Try() int { return r.try }

// Result returns the handler's code for what it did, once the run is Own or Done.
func (r *Run) Result() string { return r.record.Result }

// Ref returns the id of what the effect made, once the run is Own or Done; it may be empty.
func (r *Run) Ref() string { return r.record.Ref }

// Superseded reports, of a run that is Own, whether its effect came too late.
func (r *Run) Superseded() bool {
	last := len(r.record.Log) - 1
	return last >= 0 && r.record.Log[last].Outcome == retry.Superseded
}

// Buried reports whether the record that was found names a dead letter of this id.
func (r *Run) Buried(id string) bool { return slices.Contains(r.found.DeadLetters, id) }

// Look reads the record once and says what it means. An event that the run had Claimed, and has no more, is Held.
func (r *Run) Look(ctx context.Context) (Seen, error) {
	seen, err := r.look(ctx)
	if r.claimed && (seen == Fresh || seen == Early) {
		seen = Held
	}
	return seen, err
}

func (r *Run) look(ctx context.Context) (Seen, error) {
	version, found, now, err := r.read(ctx)
	switch {
	case err != nil:
		return Fresh, err
	case found.Status == "":
		r.adopt(version, found)
		return Fresh, nil
	case found.PayloadHash != r.record.PayloadHash && !r.conflict:
		return r.correct(version, found), nil
	case found.Status == DeadLettered && r.record.Replays > found.Replays:
		r.again(version, found)
		return Fresh, nil
	case found.Status == DeadLettered && r.resent(found) && r.deadLetters.Replaceable(found):
		r.again(version, found)
		return Fresh, nil
	}
	own := found.LeaseToken == r.token
	if !own {
		r.repeated = found.Status == Failed || found.Status == Processing
	}
	r.adopt(version, found)
	r.mine = own
	waits := found.Status == Failed && now.Before(found.NextRetryAt)
	switch {
	case found.Status == Processing && own:
		return Claimed, nil
	case found.Status == Completed && own:
		return Own, nil
	case found.Status == Completed:
		return Done, nil
	case found.Status == DeadLettered:
		return Gone, nil
	case found.Status == Processing && now.Before(found.LeaseUntil):
		return Held, nil
	case found.Status == Failed && own && found.LastError == Begun:
		return Fresh, nil
	case found.Status == Failed && own:
		return Counted, nil
	case waits && found.DelayTicket != "" && found.DelayTicket != r.ticket:
		return Waiting, nil
	case waits:
		return Early, nil
	}
	return Fresh, nil
}

// read reads the record at the returned moment; it is zero where it is absent or has expired.
func (r *Run) read(ctx context.Context) (store.Version, Record, time.Time, error) {
	switch {
	case r.rememberFor == 0 && r.mine:
		return r.version, r.record, r.once.Now(), nil
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

// Due returns when an event that is Early is due, and when the lease of one that is Held ends.
func (r *Run) Due() time.Time {
	if r.found.Status == Processing {
		return r.found.LeaseUntil
	}
	return r.found.NextRetryAt
}

// Beside reports of an event that is Early whether its message was kept beside those of its key.
func (r *Run) Beside() bool { return r.found.DelayedBeside }

func (r *Run) resent(dead Record) bool {
	if r.deadLetters == nil || r.conflict || len(dead.DeadLetters) == 0 {
		return false
	}
	own := r.deadLetters.Own()
	return own != "" && !slices.Contains(dead.DeadLetters, own)
}

func (r *Run) again(version store.Version, dead Record) {
	r.adopt(version, Record{CreatedAt: dead.CreatedAt, Corrected: dead.Corrected, DeadLetters: dead.DeadLetters, Again: true, Log: dead.Log})
	r.record.Replays = max(r.record.Replays, dead.Replays)
	r.repeated = true
}

// correct returns what a record means to a run of another payload: Fresh, Replaced or Differs.
func (r *Run) correct(version store.Version, found Record) Seen {
	switch broken := found.PayloadHash == ""; { // it had no payload to apply
	case slices.Contains(found.Corrected, r.record.PayloadHash):
		return Replaced
	case found.Status != DeadLettered, len(found.Corrected) == maxCorrected,
		!broken && (r.deadLetters == nil || !r.deadLetters.Replaceable(found)):
		r.other = found.PayloadHash
		return Differs
	}
	r.adopt(version, Record{
		CreatedAt: found.CreatedAt, DeadLetters: found.DeadLetters, Log: found.Log,
		Corrected: append(slices.Clone(found.Corrected), found.PayloadHash),
	})
	return Fresh
}

func (r *Run) adopt(version store.Version, found Record) {
	r.version, r.mine, r.found = version, false, found
	r.record.Attempts, r.record.CreatedAt = found.Attempts, found.CreatedAt
	r.record.Result, r.record.Ref = found.Result, found.Ref
	r.record.Corrected, r.record.DeadLetters, r.record.Again, r.record.Log = found.Corrected, found.DeadLetters, found.Again, found.Log
	if found.Status == "" {
		r.record.Attempts, r.repeated = r.given, false
	}
}

// Repeated reports, of a Claimed run, whether an earlier attempt may have had its effect.
func (r *Run) Repeated() bool { return r.repeated }

// Claim takes the event for this run: for the length of the lease any other delivery of it is Held. It returns Claimed
// where it did, else what the record says. keep, if not nil and where a document may hold it, stands in the record until the
// run is over. With redelivered the record is read first.
func (r *Run) Claim(ctx context.Context, lease time.Duration, keep *contract.Message, redelivered bool) (Seen, error) {
	if redelivered {
		if seen, err := r.Look(ctx); err != nil || seen != Fresh {
			return seen, err
		}
	}
	for range MaxTry {
		now := r.once.Now()
		record := r.at(now, Processing)
		record.Attempts, record.LeaseUntil, record.Message = int64(r.Attempt()), now.Add(lease), keep
		record.Log = r.begins(record.Attempts)
		written, err := r.commit(ctx, record)
		switch {
		case written:
			r.claimed = true
			return Claimed, nil
		case errors.Is(err, store.ErrInvalid) && keep != nil:
			keep = nil // Pub/Sub takes names and bytes that no document may have
			continue
		case errors.Is(err, store.ErrInvalid):
			return Fresh, retry.Permanent("record_invalid", err)
		}
		seen, lookErr := r.Look(ctx)
		switch {
		case lookErr == nil && seen == Claimed:
			r.claimed = true
			return Claimed, nil // our own commit, whose answer was lost
		case err != nil:
			// If the claim arrives later, its redelivery waits for the end of the lease.
			return Fresh, retry.Outage("store_unavailable", fmt.Errorf("claim: %w", err))
		case lookErr != nil || seen != Fresh:
			return seen, lookErr
		}
	}
	return Fresh, retry.Busy("contention", nil)
}

// Count counts an attempt before it runs, so that an event whose workers die uses its attempts up.
func (r *Run) Count(ctx context.Context) (Seen, error) {
	return r.Conclude(ctx, Ending{Status: Failed, Reason: Begun})
}

// Uncount takes back what Count has counted. Where nothing was counted it returns Fresh without a commit.
func (r *Run) Uncount(ctx context.Context, reason string) (Seen, error) {
	if !r.mine || r.record.LastError != Begun {
		return Fresh, nil
	}
	return r.Conclude(ctx, Ending{Status: Failed, Reason: reason, Uncounted: true})
}

// Conclude writes the ending of the run, at the version of the record that the run knows, and returns Own for Completed,
// Counted for Failed, Gone for DeadLettered, and Waiting for an ending that is Kept alone. Else it returns what the record
// says now: Fresh, or Claimed of a claimed run, asks the caller to decide again, by Attempt and Try.
func (r *Run) Conclude(ctx context.Context, end Ending) (Seen, error) {
	var unknown error
	assumed, refused := r.version, false
	for try := 0; ; try++ {
		if refused {
			seen, err := r.Look(ctx)
			switch {
			case err != nil || !seen.Undecided():
				return seen, err
			case end.Status == Completed && (r.claimed || assumed != 0 || r.version == 0):
				if r.try++; r.try == MaxTry {
					return seen, retry.Busy("contention", nil)
				}
				return seen, nil
			default: // the record that was found may alone have been in the way
				return seen, nil
			}
		}
		if try == MaxTry {
			return Fresh, retry.Outage("store_unavailable", fmt.Errorf("end of the lease: %w", unknown))
		}
		assumed = r.version
		record, also, seen := r.ending(end)
		written, err := r.commit(ctx, record, also...)
		switch {
		case written:
			return seen, nil
		case errors.Is(err, store.ErrInvalid) && end.Status == Completed && (!r.claimed || len(end.Effect.Writes) > 0):
			// The writes themselves are wrong; they will be wrong again.
			return Fresh, retry.Permanent("effect_invalid", err)
		case errors.Is(err, store.ErrInvalid):
			return Fresh, retry.Transient("record_invalid", err)
		case err != nil && (!r.claimed || end.Status == DeadLettered): // its dead letter is made again
			return Fresh, retry.Outage("store_unavailable", fmt.Errorf("write record: %w", err))
		}
		if refused = err == nil; !refused {
			unknown = err // a commit that happened is seen as Own
		}
	}
}

func (r *Run) ending(end Ending) (record Record, also []store.Write, seen Seen) {
	if end.Status == "" {
		record = r.found
		record.DelayTicket, record.UpdatedAt = end.Kept.Ticket, r.once.Now()
		return record, end.Kept.Writes, Waiting
	}
	record = r.at(r.once.Now(), end.Status)
	record.Attempts, record.LastError = int64(r.Attempt()), end.Reason
	record.Log = r.ends(record.Attempts, end, record.UpdatedAt)
	if end.Uncounted {
		record.Attempts--
	}
	if end.Status == Failed {
		record.NextRetryAt, record.DelayTicket, record.DelayedBeside = end.Next, end.Kept.Ticket, end.Kept.Beside
		return record, end.Kept.Writes, Counted
	}
	record.ProcessedAt = record.UpdatedAt
	// A success ends the event's other dead letters, and a death those of other payloads.
	var own, others []string
	if r.deadLetters != nil && (end.Status == DeadLettered || len(record.DeadLetters) > 0) {
		if id := r.deadLetters.Own(); id != "" {
			own = []string{id}
		}
		others = slices.DeleteFunc(slices.Clone(r.record.DeadLetters), func(id string) bool { return slices.Contains(own, id) })
	}
	if end.Status == DeadLettered && record.Again {
		if len(others) == maxCorrected { // those that are left have the same payload
			also, others = r.deadLetters.Close(others[:1]), others[1:]
		}
		record.DeadLetters = slices.Concat(others, own)
		return record, also, Gone
	}
	if len(others) > 0 {
		also = r.deadLetters.Close(others)
	}
	if end.Status == DeadLettered {
		record.DeadLetters = own
		return record, also, Gone
	}
	record.Result, record.Ref, record.Entry = end.Effect.Result, end.Effect.Ref, end.Effect.Entry
	record.Emitted, record.DeadLetters, record.Again = end.Emitted, nil, false
	return record, slices.Concat(end.Effect.Writes, also), Own
}

// commit: written is false where the store holds another version.
func (r *Run) commit(ctx context.Context, record Record, also ...store.Write) (written bool, err error) {
	if r.rememberFor == 0 {
		if len(also) > 0 {
			if _, err = r.once.Store.Commit(ctx, also); errors.Is(err, store.ErrExists) || errors.Is(err, store.ErrStale) {
				return false, nil
			}
		}
		if err == nil {
			r.record, r.version, r.mine = record, r.version+1, true
		}
		return err == nil, err
	}
	write := store.Replace(r.key, r.version, record.Fields())
	if r.version == 0 {
		write = store.Create(r.key, write.Fields)
	}
	versions, err := r.once.Store.Commit(ctx, append(append(make([]store.Write, 0, 1+len(also)), write), also...))
	if errors.Is(err, store.ErrExists) || errors.Is(err, store.ErrStale) {
		return false, nil
	}
	if err == nil {
		r.record, r.version, r.mine = record, versions[0], true
	}
	return err == nil, err
}

func (r *Run) at(now time.Time, status Status) Record {
	record := r.record
	record.Status, record.LeaseToken = status, r.token
	record.LeaseUntil, record.NextRetryAt, record.Message = time.Time{}, time.Time{}, nil
	record.DelayTicket, record.DelayedBeside = "", false
	record.UpdatedAt, record.ExpireAt = now, now.Add(r.rememberFor)
	if record.CreatedAt.IsZero() {
		record.CreatedAt = now
	}
	return record
}
