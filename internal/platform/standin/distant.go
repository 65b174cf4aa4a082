package standin

import (
	"context"
	"time"

	"billhook/internal/platform/store"
)

// Distant is a store that is as far away as a database in production. Half of the time of a call
// is the way there, and half the way back.
type Distant struct {
	store.Store

	// CommitTime and ReadTime return how long one call takes.
	CommitTime, ReadTime func() time.Duration
	// After is time.After, or a test's.
	After func(time.Duration) <-chan time.Time
}

// Get reads, a while later.
func (d *Distant) Get(ctx context.Context, key store.Key) (doc store.Document, err error) {
	err = d.travel(ctx, d.ReadTime(), func() error {
		doc, err = d.Store.Get(ctx, key)
		return err
	})
	return doc, err
}

// Query reads, a while later.
func (d *Distant) Query(ctx context.Context, query store.Query) (page store.Page, err error) {
	err = d.travel(ctx, d.ReadTime(), func() error {
		page, err = d.Store.Query(ctx, query)
		return err
	})
	return page, err
}

// Commit writes, a while later. Where ctx ends on the way back, it has written.
func (d *Distant) Commit(ctx context.Context, writes []store.Write) (versions []store.Version, err error) {
	err = d.travel(ctx, d.CommitTime(), func() error {
		versions, err = d.Store.Commit(ctx, writes)
		return err
	})
	return versions, err
}

// travel makes a call after one half of the time, and returns after the other.
func (d *Distant) travel(ctx context.Context, long time.Duration, call func() error) error {
	if err := d.wait(ctx, long/2); err != nil {
		return err
	}
	answer := call()
	if err := d.wait(ctx, long-long/2); err != nil {
		return err
	}
	return answer
}

func (d *Distant) wait(ctx context.Context, long time.Duration) error {
	select {
	case <-d.After(long):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
