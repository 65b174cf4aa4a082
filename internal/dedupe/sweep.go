package dedupe

import (
	"context"
	"errors"
	"fmt"
	"time"

	"billhook/internal/platform/store"
)

// Orphaned is the last error of an event that was claimed, never finished, and swept.
const Orphaned = "orphaned"

// Swept is what a sweep did.
type Swept struct {
	// Republished and Reported count the orphans found, by what became of them.
	Republished int `json:"republished"`
	Reported    int `json:"reported"`
	// Failed could not be dealt with now.
	Failed int `json:"failed"`
	// More: the sweep was full; another would find more.
	More bool `json:"more"`
}

// Sweep looks for events whose lease ended so long ago that no redelivery can be on its way: at most limit,
// the oldest first. Each is handed to republish, which reports whether it has put the message back on its
// queue, and then marked as failed. A message that two sweeps republish is handled once.
func Sweep(
	ctx context.Context, s store.Store, endedBefore time.Time, now time.Time, limit int,
	republish func(context.Context, Record) (bool, error),
) (Swept, error) {
	page, err := s.Query(ctx, store.Query{
		Collection: Collection, Due: &store.Due{Field: "lease_until", Until: endedBefore}, Limit: limit,
	})
	if err != nil {
		return Swept{}, fmt.Errorf("dedupe: read ended leases: %w", err)
	}
	swept := Swept{More: len(page.Documents) == limit}
	for _, doc := range page.Documents {
		again, err := sweep(ctx, s, doc, now, republish)
		switch {
		case err != nil:
			swept.Failed++
		case again:
			swept.Republished++
		default:
			swept.Reported++
		}
	}
	return swept, nil
}

func sweep(
	ctx context.Context, s store.Committer, doc store.Document, now time.Time,
	republish func(context.Context, Record) (bool, error),
) (bool, error) {
	record, err := FromDocument(doc)
	if err != nil {
		return false, err
	}
	// The message before the mark: a crash in between has it published twice, not never.
	again, err := republish(ctx, record)
	if err != nil {
		return false, fmt.Errorf("dedupe: republish an orphan: %w", err)
	}
	record.Status, record.LastError, record.UpdatedAt = Failed, Orphaned, now
	record.LeaseToken, record.LeaseUntil, record.Message = "", time.Time{}, nil // no run has it
	_, err = s.Commit(ctx, []store.Write{store.Replace(doc.Key, doc.Version, record.Fields())})
	if errors.Is(err, store.ErrStale) {
		return again, nil // a worker has taken it up
	}
	return again, err
}

// Clean removes at most limit documents whose expire_at has passed. It says how many, and if more are left.
func Clean(
	ctx context.Context, s store.Store, collection string, now time.Time, limit int,
) (removed int, more bool, err error) {
	page, err := s.Query(ctx,
		store.Query{Collection: collection, Due: &store.Due{Field: "expire_at", Until: now}, Limit: limit})
	if err != nil {
		return 0, false, fmt.Errorf("dedupe: read what has expired: %w", err)
	}
	removed, err = remove(ctx, s, page.Documents)
	return removed, err != nil || len(page.Documents) == limit, err
}

// Pruned is what a prune did.
type Pruned struct {
	// Removed counts the expired records.
	Removed int
	// Remembered counts those that were old enough and stay until they expire.
	Remembered int
}

// Prune removes what has expired by now of a page of the events that were completed before a time, and
// returns the next page, zero at the end.
func Prune(
	ctx context.Context, s store.Store, before, now time.Time, after store.Cursor,
) (Pruned, store.Cursor, error) {
	page, err := s.Query(ctx, store.Query{Collection: Collection, After: after, Limit: store.MaxWrites})
	if err != nil {
		return Pruned{}, store.Cursor{}, fmt.Errorf("dedupe: read records: %w", err)
	}
	var pruned Pruned
	var expired []store.Document
	for _, doc := range page.Documents {
		record, err := FromDocument(doc)
		switch {
		case err != nil || record.Status != Completed:
		case record.ProcessedAt.IsZero() || !record.ProcessedAt.Before(before):
		case record.ExpireAt.IsZero() || now.Before(record.ExpireAt):
			pruned.Remembered++
		default:
			expired = append(expired, doc)
		}
	}
	pruned.Removed, err = remove(ctx, s, expired)
	return pruned, page.Next, err
}

// remove deletes documents in one commit. Where one was written anew, all are left to the next run.
func remove(ctx context.Context, s store.Committer, expired []store.Document) (removed int, err error) {
	if len(expired) == 0 {
		return 0, nil
	}
	deletes := make([]store.Write, len(expired))
	for i, doc := range expired {
		// At its version: what has been written anew has not expired.
		deletes[i] = store.Delete(doc.Key, doc.Version)
	}
	switch _, err := s.Commit(ctx, deletes); {
	case errors.Is(err, store.ErrStale):
		return 0, nil
	case err != nil:
		return 0, fmt.Errorf("dedupe: remove what has expired: %w", err)
	}
	return len(expired), nil
}
