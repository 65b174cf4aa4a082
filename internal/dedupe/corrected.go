package dedupe

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"billhook/internal/retry"
	"billhook/internal/store"
)

// maxCorrected bounds how often the payload of one id is corrected, and how many dead
// letters a record names. Beyond it a correction is a conflict.
const maxCorrected = 20

// Letters is what a run needs to know of its event's dead letters.
type Letters interface {
	// Own returns the id of the dead letter that the delivered message has, or gets if it
	// fails for good; empty: it gets none.
	Own() string
	// Replaceable reports whether another payload may take the place of the one that was
	// dead-lettered: nothing of it was applied. The error leaves that open.
	Replaceable(ctx context.Context, dead Record) (bool, error)
	// Close returns the writes that close dead letters as corrected by the delivered
	// message, whatever they are. They have no precondition.
	Close(ids []string) []store.Write
}

// Letters says what dead letters the event has. Without it no payload takes another's place.
func (r *Run) Letters(letters Letters) { r.letters = letters }

// Corrects reports whether the run's payload has taken, or takes, the place of another that
// was dead-lettered, as far as known.
func (r *Run) Corrects() bool { return len(r.record.Corrected) > 0 }

// correct says what a record means to a run of another payload: Fresh where the run's own
// may take the place of the one that was dead-lettered, with all attempts, at the version
// that was read; Replaced where that has happened the other way round; else Differs.
//
// Who has taken a payload's place keeps it: what was delivered before the correction comes
// back after it, from the broker or by a replay.
func (r *Run) correct(ctx context.Context, version store.Version, found Record) (Seen, error) {
	switch {
	case slices.Contains(found.Corrected, r.record.PayloadHash):
		return Replaced, nil
	case found.Status != DeadLettered || len(found.Corrected) == maxCorrected:
		return Differs, nil
	case found.PayloadHash == "": // what broke the contract was no payload: nobody tried to apply it
	case r.letters == nil:
		return Differs, nil
	default:
		if replaceable, err := r.letters.Replaceable(ctx, found); err != nil || !replaceable {
			return Differs, err
		}
	}
	r.known(version, Record{
		CreatedAt: found.CreatedAt, DeadLetters: found.DeadLetters,
		Corrected: append(slices.Clone(found.Corrected), found.PayloadHash),
	})
	return Fresh, nil
}

// own is the list of the run's own dead letter.
func (r *Run) own() []string {
	if r.letters == nil {
		return nil
	}
	if id := r.letters.Own(); id != "" {
		return []string{id}
	}
	return nil
}

// closing are the writes that close the event's other dead letters: the end of this run,
// a success or a dead letter of its own, is the end of theirs.
func (r *Run) closing() []store.Write {
	if r.letters == nil || len(r.record.DeadLetters) == 0 {
		return nil
	}
	own := r.letters.Own()
	others := slices.DeleteFunc(slices.Clone(r.record.DeadLetters), func(id string) bool { return id == own })
	if len(others) == 0 {
		return nil
	}
	return r.letters.Close(others)
}

// Broken remembers under the id which the run's message claims that it broke the contract,
// with its dead letter, so that a message which keeps the contract closes that. The record
// has no payload's hash, and so is in nobody's way. Where the event is known as anything but
// dead-lettered, nothing is changed.
func (r *Run) Broken(ctx context.Context, reason string) error {
	letter := r.own()
	if letter == nil {
		return nil
	}
	for range tries {
		now := r.once.Now()
		record := r.at(now, DeadLettered)
		record.PayloadHash, record.DeadLetters, record.LastError, record.ProcessedAt = "", letter, reason, now
		doc, err := r.once.Store.Get(ctx, r.key)
		switch {
		case errors.Is(err, store.ErrNotFound):
			r.version = 0
		case err != nil:
			return retry.Outage("store_unavailable", fmt.Errorf("read record: %w", err))
		default:
			r.version = doc.Version
			found, err := FromDocument(doc)
			if err != nil {
				return retry.Transient("record_unreadable", err)
			}
			if found.ExpireAt.IsZero() || now.Before(found.ExpireAt) {
				if found.Status != DeadLettered || slices.Contains(found.DeadLetters, letter[0]) || len(found.DeadLetters) == maxCorrected {
					return nil
				}
				record = found
				record.DeadLetters, record.UpdatedAt = append(slices.Clone(found.DeadLetters), letter...), now
			}
		}
		if written, err := r.put(ctx, record); err != nil {
			return retry.Outage("store_unavailable", err)
		} else if written {
			return nil
		}
	}
	return retry.Busy("contention", nil)
}
