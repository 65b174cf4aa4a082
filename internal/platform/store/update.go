package store

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"
)

// ErrBusy: others have changed what an Update has read, each time that it decided; nothing was written.
var ErrBusy = errors.New("store: changed at the same time")

// tries bounds how often an Update decides while others change the same.
const tries = 5

// Find returns the document at a key; where there is none, one that has its key alone, at version 0. A key
// that no document can have has none: a person or a message may name anything.
func Find(ctx context.Context, from Getter, key Key) (Document, error) {
	doc, err := from.Get(ctx, key)
	switch {
	case errors.Is(err, ErrNotFound), errors.Is(err, ErrInvalid) && CheckKey(key) != nil:
		return Document{Key: key}, nil //nolint:nilerr // that there is none is an answer
	case err != nil:
		return Document{}, fmt.Errorf("store: read %s: %w", key.Collection, err)
	}
	return doc, nil
}

// Read returns what read makes of the document at a key. The error is absent where there is none, that of
// read, or wraps that of the store.
func Read[T any](
	ctx context.Context, from Getter, key Key, absent error, read func(Document) (T, error),
) (one T, err error) {
	doc, err := Find(ctx, from, key)
	if err == nil && doc.Version == 0 {
		err = absent
	}
	if err != nil {
		return one, err
	}
	return read(doc)
}

// Update reads a document, as Find does, and commits what decide makes of it. Where a precondition of the
// commit fails, it reads and decides again. decide gives each document that it has read its version, by
// Replace or Delete. Where it returns no writes, nothing is to be done, and Update returns no versions. The
// error is that of decide as it is, ErrBusy, or wraps the store's.
func Update(
	ctx context.Context, s GetCommitter, key Key, decide func(Document) ([]Write, error),
) ([]Version, error) {
	for range tries {
		doc, err := Find(ctx, s, key)
		if err != nil {
			return nil, err
		}
		writes, err := decide(doc)
		if err != nil || len(writes) == 0 {
			return nil, err
		}
		versions, err := s.Commit(ctx, writes)
		switch {
		case err == nil:
			return versions, nil
		case !errors.Is(err, ErrExists) && !errors.Is(err, ErrStale):
			return nil, fmt.Errorf("store: update %s: %w", key.Collection, err)
		}
	}
	return nil, ErrBusy
}

// ReadsAtOnce is how many reads one request has under way at the same time.
const ReadsAtOnce = 8

// AtOnce calls does with each number below n, ReadsAtOnce at the same time, until one fails: its error it
// returns.
func AtOnce(ctx context.Context, n int, does func(ctx context.Context, i int) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(ReadsAtOnce)
	for i := range n {
		group.Go(func() error { return does(ctx, i) })
	}
	return group.Wait()
}
