package boltstore

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"time"

	"go.etcd.io/bbolt"

	"billhook/internal/platform/store"
)

type commit struct {
	ctx    context.Context //nolint:containedctx // another caller writes them
	writes []store.Write
	after  []store.Version
	err    error
	done   bool
}

var (
	// errCutOff is the outcome of a commit if the caller that wrote it has panicked.
	errCutOff = errors.New("boltstore: the commit was cut off")
	// errNothing rolls back a transaction that has no writes.
	errNothing = errors.New("boltstore: nothing to write")
)

// Commit applies all writes or none; see package store for the errors. As in Firestore, a write that changes
// nothing keeps the version. Commits that arrive during a sync to disk are written together in the next
// transaction, because Firestore's unrelated commits do not wait for each other either.
func (s *Store) Commit(ctx context.Context, writes []store.Write) ([]store.Version, error) {
	if err := ready(ctx, store.CheckWrites(writes)); err != nil {
		return nil, err
	}
	c := &commit{ctx: ctx, writes: writes, err: errCutOff}
	s.mu.Lock()
	s.waiting = append(s.waiting, c)
	s.mu.Unlock()
	s.writing.Lock()
	defer s.writing.Unlock()
	if !c.done { // another caller wrote it while this one waited
		s.commitWaiting()
	}
	return c.after, c.err
}

// commitWaiting writes all waiting commits in one transaction. Each succeeds or fails separately.
func (s *Store) commitWaiting() {
	s.mu.Lock()
	all := s.waiting
	s.waiting = nil
	s.mu.Unlock()
	err := s.db.Update(func(tx *bbolt.Tx) error {
		written := false
		for _, c := range all {
			changes, err := c.prepare(tx, s.stamp())
			if c.err = err; err != nil {
				continue
			}
			if c.after, err = put(tx, changes); err != nil {
				return err
			}
			written = true
		}
		if !written {
			return errNothing
		}
		return catchUp(tx, changedAtMost)
	})
	for _, c := range all {
		c.done = true
		if err != nil && !errors.Is(err, errNothing) {
			c.after, c.err = nil, errors.Join(c.err, err)
		}
	}
}

type change struct {
	key           store.Key
	before, after stored
}

func (c change) changes() bool { return c.after.version != c.before.version }

// stamp returns the time of the next commit, never before the last one. Only the holder of writing calls it.
func (s *Store) stamp() time.Time {
	if now := time.Now().UTC().Truncate(time.Microsecond); now.After(s.stamped) {
		s.stamped = now
	}
	return s.stamped
}

func (c *commit) prepare(tx *bbolt.Tx, at time.Time) ([]change, error) {
	// The context may have ended while the commit waited.
	if err := c.ctx.Err(); err != nil {
		return nil, err
	}
	changes := make([]change, len(c.writes))
	for i, w := range c.writes {
		var err error
		if changes[i], err = applied(read(tx, w.Key), w, at); err != nil {
			return nil, fmt.Errorf("commit %s: %w", w.Key, err)
		}
	}
	return changes, nil
}

// applied returns the document after a write. An unchanged document keeps its version.
func applied(have stored, w store.Write, at time.Time) (to change, err error) {
	to = change{key: w.Key, before: have}
	if w.Stamp != "" {
		stamped := make(map[string]any, len(w.Fields)+1)
		maps.Copy(stamped, w.Fields)
		stamped[w.Stamp], w.Fields = at, stamped
	}
	switch {
	case w.Op == store.OpCreate && have.version != 0:
		return to, store.ErrExists
	case w.Op == store.OpUpdate && have.version != w.Version, w.Op == store.OpDelete && w.Version != 0 &&
		have.version != w.Version:
		return to, store.ErrStale
	case w.Op == store.OpDelete:
		return to, nil
	case w.Op == store.OpIncrement:
		fields, err := have.fields()
		if err == nil {
			w.Fields, err = w.Incremented(fields)
		}
		if err != nil {
			return to, err
		}
	}
	to.after = stored{newVersion, appendFields(make([]byte, versionBytes, 1024), w.Fields)}
	if len(to.after.data) > maxDocument/shortest {
		if size := size(w.Fields) + len(w.Key.Collection) + len(w.Key.ID) + 18; size > maxDocument {
			return to, fmt.Errorf("%w: %d bytes are too large a document", store.ErrInvalid, size)
		}
	}
	if have.data != nil && bytes.Equal(to.after.data[versionBytes:], have.data[versionBytes:]) {
		to.after.version = have.version
	}
	return to, nil
}

// newVersion is a placeholder: a document gets its next version when it is written.
const newVersion = -1

// put writes the changes and returns the new versions; 0: the document was removed. Errors are the file's.
func put(tx *bbolt.Tx, changes []change) ([]store.Version, error) {
	after := make([]store.Version, len(changes))
	if err := note(tx, changes); err != nil {
		return nil, fmt.Errorf("commit: %w", err)
	}
	for i, to := range changes {
		if after[i] = to.after.version; !to.changes() {
			continue
		}
		bucket, err := tx.CreateBucketIfNotExists([]byte(to.key.Collection))
		if err == nil && after[i] == 0 {
			err = bucket.Delete([]byte(to.key.ID))
		} else if err == nil {
			var next uint64
			next, err = tx.Bucket(versions).NextSequence()
			after[i] = store.Version(next) //nolint:gosec // a count of writes
			binary.BigEndian.PutUint64(to.after.data, next)
			err = cmp.Or(err, bucket.Put([]byte(to.key.ID), to.after.data))
		}
		if err != nil {
			return nil, fmt.Errorf("commit %s: %w", to.key, err)
		}
	}
	return after, nil
}
