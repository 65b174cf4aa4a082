package store

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"
)

// ErrBusy: in each try, others changed the document between Update's read and commit; nothing was written.
var ErrBusy = errors.New("store: changed at the same time")

// tries bounds how often an Update reads and decides while others change the document.
const tries = 5

// Find returns the document at a key; if there is none, a document with only the key, at version 0. This
// holds for an invalid key, too, because people and messages may name anything.
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

// Read returns the document at a key, converted by read. The error is absent if there is no document, or
// read's own, or wraps the store's.
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

// Update reads a document with Find and commits the writes that decide returns for it. If a precondition of
// the commit fails, it reads and decides again. decide must write each document that it has read at its
// version, with Replace or Delete. If it returns no writes, Update commits nothing and returns no versions.
// The error is decide's own, ErrBusy, or wraps the store's.
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

// ReadsAtOnce bounds the concurrent reads of one request.
const ReadsAtOnce = 8

// AtOnce calls does with each number below n, up to ReadsAtOnce at the same time. It returns the first error,
// which cancels ctx for the rest.
func AtOnce(ctx context.Context, n int, does func(ctx context.Context, i int) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(ReadsAtOnce)
	for i := range n {
		group.Go(func() error { return does(ctx, i) })
	}
	return group.Wait()
}
