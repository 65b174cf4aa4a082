package dedupe

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"billhook/internal/handler"
	"billhook/internal/retry"
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

// tries is how often one delivery commits an effect whose preconditions fail, before
// it leaves the rest to a redelivery.
const tries = 3

// Once runs handlers so that their effect happens once: Tx handlers by committing
// effect and record together, leased ones by a fenced lease.
type Once struct {
	Store Store
	Now   func() time.Time
	// NewToken returns a random name for one attempt.
	NewToken func() string
}

// Run is one delivery of one event on its way through the state machine. It knows
// what the store was last seen to hold, so that a failure is written at that
// version and never over somebody else's success.
type Run struct {
	once  *Once
	key   store.Key
	token string
	// record is what will be written; what the store held is in version and attempts.
	record      Record
	rememberFor time.Duration
	// version of the record as last read; 0: absent, as far as known.
	version store.Version
	// beside: the key holds the payload's hash, so there is nothing to compare.
	beside bool
	// other is the payload's hash that the record was found to have, where it Differs.
	other string
	// mine: the record counts this very attempt already.
	mine bool
	// claimed: this run has held the lease. Its record is somebody else's from the moment
	// that it is no longer its own.
	claimed bool
	// repeated: an attempt before this one began and was not completed. Only of an
	// effect outside does it matter: nobody knows whether it took place.
	repeated bool
	// letters are those of the event; nil: nobody keeps any, and none is corrected.
	letters Letters
	// ticket is that of the delivered copy, where it comes back from a long wait.
	ticket string
	// found is the record as last read; the zero record where none counts.
	found Record
	// kept is what Keep was called with.
	kept struct {
		ticket string
		writes []store.Write
	}
}

// Begin starts the run of an event. record carries the event's identity: queue,
// tenant, ids, type, payload hash, ordering key, and the ticket of the delivered copy.
// It reads nothing.
func (o *Once) Begin(key store.Key, record Record, rememberFor time.Duration) *Run {
	ticket := record.DelayTicket
	record.Attempts, record.Result, record.DelayTicket, record.CreatedAt = 0, "", "", time.Time{}
	record.Corrected, record.DeadLetters = nil, nil
	return &Run{once: o, key: key, token: o.NewToken(), record: record, rememberFor: rememberFor, ticket: ticket}
}

// Conflict starts the run of a payload that came under an id used before with
// another payload. Its record stands beside that of the id, has both hashes, and
// never Differs.
func (r *Run) Conflict() *Run {
	key := ConflictKey(r.record.Queue, r.record.Tenant, r.record.EventID, r.record.PayloadHash)
	record := r.record
	record.ConflictsWith = r.other
	run := r.once.Begin(key, record, r.rememberFor)
	run.beside, run.letters = true, r.letters
	return run
}

// Attempt returns which of the event's attempts this is, as far as known; 1 is the first.
func (r *Run) Attempt() int {
	if r.mine {
		return int(r.record.Attempts)
	}
	return int(r.record.Attempts) + 1
}

// Result returns the handler's code for what it did, once the run is Own or Done.
func (r *Run) Result() string { return r.record.Result }

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

// Look reads the record once and says what it means.
func (r *Run) Look(ctx context.Context) (Seen, error) {
	doc, err := r.once.Store.Get(ctx, r.key)
	switch {
	case errors.Is(err, store.ErrNotFound):
		r.known(0, Record{})
		return Fresh, nil
	case err != nil:
		return Fresh, retry.Outage("store_unavailable", fmt.Errorf("read record: %w", err))
	}
	found, err := FromDocument(doc)
	if err != nil {
		return Fresh, retry.Transient("record_unreadable", err)
	}
	now := r.once.Now()
	if !found.ExpireAt.IsZero() && !now.Before(found.ExpireAt) {
		// Removal by TTL is late, and emulators never do it: the field decides.
		r.known(doc.Version, Record{})
		return Fresh, nil
	}
	if found.PayloadHash != r.record.PayloadHash && !r.beside {
		if seen, err := r.correct(ctx, doc.Version, found); err != nil || seen != Differs {
			return seen, err
		}
		r.other = found.PayloadHash
		return Differs, nil
	}
	if found.Status == DeadLettered && r.record.Replays > found.Replays {
		// Somebody has replayed it: it has all its attempts again. What an attempt of then
		// has done outside, nobody knows.
		r.known(doc.Version, Record{CreatedAt: found.CreatedAt, Corrected: found.Corrected, DeadLetters: found.DeadLetters})
		r.repeated = true
		return Fresh, nil
	}
	own := found.LeaseToken == r.token
	if !own {
		r.repeated = found.Status == Failed || found.Status == Processing
	}
	r.known(doc.Version, found)
	r.mine = own
	waits := found.Status == Failed && !own && now.Before(found.NextRetryAt)
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

// Due returns when an event that is Early is to be tried again, and when the lease of one
// that is Held ends.
func (r *Run) Due() time.Time {
	if r.found.Status == Processing {
		return r.found.LeaseUntil
	}
	return r.found.NextRetryAt
}

// known takes over what the store holds; the zero record is none.
func (r *Run) known(version store.Version, found Record) {
	r.version, r.mine, r.found = version, false, found
	r.record.Attempts, r.record.Result, r.record.CreatedAt = found.Attempts, found.Result, found.CreatedAt
	r.record.Corrected, r.record.DeadLetters = found.Corrected, found.DeadLetters
	if found.Status == "" {
		r.repeated = false
	}
}

// Effect runs the handler and commits its writes together with the record. Without
// an error it says Own where this run committed, also where the answer of its commit
// was lost; else what it met instead. With an error nothing is known to be committed,
// and the error says what to do.
//
// A new event costs one commit and no read. With redelivered true the record is
// read first, which makes a duplicate one read, and a retry one read and one commit.
func (r *Run) Effect(ctx context.Context, event handler.Event, redelivered bool, h handler.Tx) (Seen, error) {
	if redelivered {
		if seen, err := r.Look(ctx); err != nil || seen != Fresh {
			return seen, err
		}
	}
	for event.Try < tries {
		event.Attempt = r.Attempt()
		effect, err := h(ctx, event)
		if err != nil {
			return Fresh, err
		}
		record := r.at(r.once.Now(), Completed)
		record.Attempts, record.Result, record.LastError, record.ProcessedAt = int64(r.Attempt()), effect.Result, "", record.UpdatedAt
		for _, emission := range effect.Emit {
			id, _ := emission.Body.Identity()
			record.Emitted = append(record.Emitted, id)
		}
		_, err = r.once.Store.Commit(ctx, slices.Concat([]store.Write{r.write(record)}, effect.Writes, r.closing()))
		switch {
		case err == nil:
			r.record, r.mine = record, true
			return Own, nil
		case errors.Is(err, store.ErrInvalid):
			// The writes themselves are wrong; they will be wrong again.
			return Fresh, retry.Permanent("effect_invalid", err)
		case !errors.Is(err, store.ErrExists) && !errors.Is(err, store.ErrStale):
			return Fresh, retry.Outage("store_unavailable", fmt.Errorf("commit effect: %w", err))
		}
		assumed := r.version
		if seen, err := r.Look(ctx); err != nil || seen != Fresh {
			return seen, err
		}
		if assumed != 0 || r.version == 0 {
			event.Try++
		} // else a record was found that nobody knew of: it alone may have been in the way
	}
	return Fresh, retry.Busy("contention", nil)
}

// Begun is the last error of an attempt that was counted before it ran, for as long as
// nothing else is known of it.
const Begun = "worker_died"

// Count counts an attempt before it runs, so that an event whose workers die uses its
// attempts up. It says Counted where it did; else the record is not what this run knew,
// see Fail.
func (r *Run) Count(ctx context.Context) (Seen, error) {
	return r.tally(ctx, int64(r.Attempt()), Begun)
}

// Uncount takes back what Count has counted, where the attempt turns out to be none of the
// event's own. It says Counted where it did; else see Fail. Where nothing was counted it is
// Fresh, and costs nothing.
func (r *Run) Uncount(ctx context.Context, reason string) (Seen, error) {
	if !r.mine || r.record.LastError != Begun {
		return Fresh, nil
	}
	return r.tally(ctx, r.record.Attempts-1, reason)
}

func (r *Run) tally(ctx context.Context, attempts int64, reason string) (Seen, error) {
	record := r.at(r.once.Now(), Failed)
	record.Attempts, record.LastError = attempts, reason
	versions, err := r.once.Store.Commit(ctx, []store.Write{r.write(record)})
	switch {
	case err == nil:
		r.record, r.version, r.mine = record, versions[0], true
		return Counted, nil
	case errors.Is(err, store.ErrExists), errors.Is(err, store.ErrStale):
		return r.Look(ctx)
	default:
		return Fresh, retry.Outage("store_unavailable", fmt.Errorf("count an attempt: %w", err))
	}
}

// Postpone writes what Keep was called with for an event that is Early, so that this copy
// waits elsewhere than with the broker. It says Waiting where it did; else see Fail.
func (r *Run) Postpone(ctx context.Context) (Seen, error) {
	record := r.found
	record.DelayTicket, record.UpdatedAt = r.kept.ticket, r.once.Now()
	switch written, err := r.put(ctx, record, r.kept.writes...); {
	case err != nil:
		return Fresh, err
	case written:
		return Waiting, nil
	default:
		return r.Look(ctx)
	}
}

// Keep says that the message waits for its next attempt elsewhere than with the
// broker, under a ticket, and what keeps it there: the next Fail or Release commits
// these writes with the record, or neither. Until the attempt is due, every copy of
// the message but the one with that ticket is Waiting.
func (r *Run) Keep(ticket string, writes []store.Write) {
	r.kept.ticket, r.kept.writes = ticket, writes
}

// Fail records a failed attempt and when the next is due. It says Counted where it
// did. Else the record is not what this run knew, and now it knows: Fresh asks to
// decide again, with what Attempt returns now; anything else stands.
func (r *Run) Fail(ctx context.Context, reason string, next time.Time) (Seen, error) {
	record := r.at(r.once.Now(), Failed)
	record.Attempts, record.LastError, record.NextRetryAt = int64(r.Attempt()), reason, next
	record.DelayTicket = r.kept.ticket
	written, err := r.put(ctx, record, r.kept.writes...)
	switch {
	case err != nil:
		return Fresh, err
	case written:
		return Counted, nil
	default:
		return r.Look(ctx)
	}
}

// Bury records that the event's dead letter is confirmed. It reports whether it
// did: where another worker has written the record in the meantime, that stands.
func (r *Run) Bury(ctx context.Context, reason string, attempts int) (bool, error) {
	record := r.at(r.once.Now(), DeadLettered)
	record.Attempts, record.LastError, record.ProcessedAt = int64(attempts), reason, record.UpdatedAt
	record.DeadLetters = r.own()
	return r.put(ctx, record, r.closing()...)
}

func (r *Run) put(ctx context.Context, record Record, also ...store.Write) (bool, error) {
	_, err := r.once.Store.Commit(ctx, append([]store.Write{r.write(record)}, also...))
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, store.ErrExists), errors.Is(err, store.ErrStale):
		return false, nil
	default:
		return false, fmt.Errorf("dedupe: write record: %w", err)
	}
}

func (r *Run) at(now time.Time, status Status) Record {
	record := r.record
	record.Status, record.LeaseToken = status, r.token
	record.LeaseUntil, record.NextRetryAt, record.Message, record.DelayTicket = time.Time{}, time.Time{}, nil, ""
	record.UpdatedAt, record.ExpireAt = now, now.Add(r.rememberFor)
	if status == Completed {
		record.DeadLetters = nil // closed in the same commit
	}
	if record.CreatedAt.IsZero() {
		record.CreatedAt = now
	}
	return record
}

func (r *Run) write(record Record) store.Write {
	if r.version == 0 {
		return store.Create(r.key, record.Fields())
	}
	return store.Update(r.key, r.version, record.Fields())
}
