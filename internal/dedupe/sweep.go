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
	// Republished and Reported count the orphans by what was done with them.
	Republished int `json:"republished"`
	Reported    int `json:"reported"`
	// Failed counts the orphans that are left to the next sweep.
	Failed int `json:"failed"`
	// More: the sweep reached its limit, and another may find more.
	More bool `json:"more"`
}

// Sweep finds events whose lease ended so long ago that no redelivery can come: at most limit, oldest first.
// It passes each to republish, which reports whether it has published the message again, and then marks the
// event as failed. If two sweeps republish a message, it is still handled once.
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
	// A crash between the two lets the message be published twice, but does not lose it.
	again, err := republish(ctx, record)
	if err != nil {
		return false, fmt.Errorf("dedupe: republish an orphan: %w", err)
	}
	record.Status, record.LastError, record.UpdatedAt = Failed, Orphaned, now
	record.LeaseToken, record.LeaseUntil, record.Message = "", time.Time{}, nil
	_, err = s.Commit(ctx, []store.Write{store.Replace(doc.Key, doc.Version, record.Fields())})
	if errors.Is(err, store.ErrStale) {
		return again, nil // a worker has claimed it meanwhile
	}
	return again, err
}

// Clean removes at most limit documents whose expire_at has passed. It returns their number, and whether more
// may be left.
func Clean(
	ctx context.Context, s store.Store, collection string, now time.Time, limit int,
) (removed int, more bool, err error) {
	page, err := s.Query(ctx,
		store.Query{Collection: collection, Due: &store.Due{Field: "expire_at", Until: now}, Limit: limit})
	if err != nil {
		return 0, false, fmt.Errorf("dedupe: read expired documents: %w", err)
	}
	removed, err = remove(ctx, s, page.Documents)
	return removed, err != nil || len(page.Documents) == limit, err
}

// Pruned is what a prune did.
type Pruned struct {
	// Removed counts the expired records.
	Removed int
	// Remembered counts those that were old enough but have not expired yet.
	Remembered int
}

// Prune removes the expired records among a page of the events that were completed before a time, and returns
// the next page, zero at the end.
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

// remove deletes documents in one commit. If one was written meanwhile, it leaves all to the next run.
func remove(ctx context.Context, s store.Committer, expired []store.Document) (removed int, err error) {
	if len(expired) == 0 {
		return 0, nil
	}
	deletes := make([]store.Write, len(expired))
	for i, doc := range expired {
		deletes[i] = store.Delete(doc.Key, doc.Version)
	}
	switch _, err := s.Commit(ctx, deletes); {
	case errors.Is(err, store.ErrStale):
		return 0, nil
	case err != nil:
		return 0, fmt.Errorf("dedupe: remove expired documents: %w", err)
	}
	return len(expired), nil
}
