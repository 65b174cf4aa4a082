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

// Broken remembers under the id which the run's message claims that it broke the contract,
// with its dead letter, so that a message which keeps the contract closes that. The record
// has no payload's hash, and so is in nobody's way. Where the event is known as anything but
// dead-lettered, nothing is changed.
func (r *Run) Broken(ctx context.Context, reason string) error {
	if r.letters == nil || r.letters.Own() == "" {
		return nil
	}
	letter := []string{r.letters.Own()}
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
		switch written, err := r.commit(ctx, record); {
		case written:
			return nil
		case err != nil:
			return retry.Outage("store_unavailable", fmt.Errorf("write record: %w", err))
		}
	}
	return retry.Busy("contention", nil)
}
