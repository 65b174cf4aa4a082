package dedupe

import (
	"context"
	"fmt"
	"slices"

	"billhook/internal/platform/store"
	"billhook/internal/retry"
)

// maxCorrected bounds how often the payload of one id is corrected, and how many dead
// letters a record names. Beyond it a correction is a conflict.
const maxCorrected = 20

// Letters is what a run needs to know of its event's dead letters.
type Letters interface {
	// Own returns the id of the delivered message's dead letter, which it has or would get;
	// empty: it gets none.
	Own() string
	// Replaceable reports whether another payload may take the place of the one that was
	// dead-lettered: nothing of it was applied. The error leaves that open.
	Replaceable(ctx context.Context, dead Record) (bool, error)
	// Close returns the writes that close dead letters as corrected by the delivered
	// message, whatever they are. They have no precondition.
	Close(ids []string) []store.Write
}

// Letters sets the dead letters of the event. Without them no payload takes another's place.
func (r *Run) Letters(letters Letters) { r.letters = letters }

// Broken remembers the dead letter of a message that broke the contract, under the event id that the message
// claims: a later message that keeps the contract closes the letter. The record has no payload's hash, so it
// hinders no other payload. A known event that is not dead-lettered is not changed.
func (r *Run) Broken(ctx context.Context, reason string) error {
	if r.letters == nil || r.letters.Own() == "" {
		return nil
	}
	letter := []string{r.letters.Own()}
	for range MaxTry {
		version, found, now, err := r.read(ctx)
		if err != nil {
			return err
		}
		r.version = version
		record := r.at(now, DeadLettered)
		record.PayloadHash, record.DeadLetters, record.LastError, record.ProcessedAt = "", letter, reason, now
		if found.Status != "" {
			if found.Status != DeadLettered || slices.Contains(found.DeadLetters, letter[0]) || len(found.DeadLetters) == maxCorrected {
				return nil
			}
			record = found
			record.DeadLetters, record.UpdatedAt = append(slices.Clone(found.DeadLetters), letter...), now
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
