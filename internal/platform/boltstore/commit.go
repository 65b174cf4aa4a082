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

	"billhook/internal/platform/store"
)

type commit struct {
	ctx    context.Context //nolint:containedctx // another caller writes them
	writes []store.Write
	after  []store.Version
	err    error
	done   bool
}

// errCutOff is the outcome of a commit if the caller that wrote it has panicked.
var errCutOff = errors.New("boltstore: the commit was cut off")

// Commit applies all writes or none; see package store for the errors. As in Firestore, a write that changes
// nothing keeps the version. Commits that arrive during a sync to disk are written together in the next
// record of the log, because Firestore's unrelated commits do not wait for each other either.
func (s *Store) Commit(ctx context.Context, writes []store.Write) ([]store.Version, error) {
	if err := ready(ctx, store.CheckWrites(writes)); err != nil {
		return nil, err
	}
	c := &commit{ctx: ctx, writes: writes, err: errCutOff}
	s.queue.Lock()
	s.waiting = append(s.waiting, c)
	s.queue.Unlock()
	s.writing.Lock()
	defer s.writing.Unlock()
	if !c.done { // another caller wrote it while this one waited
		s.commitWaiting()
	}
	return c.after, c.err
}

// commitWaiting writes all waiting commits in one record. Each succeeds or fails separately.
func (s *Store) commitWaiting() {
	s.queue.Lock()
	all := s.waiting
	s.waiting = nil
	s.queue.Unlock()
	err := s.move(s.atOnce)
	if err == nil {
		err = s.write(all)
	}
	for _, c := range all {
		c.done = true
		if err != nil {
			c.after, c.err = nil, errors.Join(c.err, err)
		}
	}
}

// write prepares the commits, one after the other, and shows what they write once it is on the disk.
func (s *Store) write(all []*commit) error {
	written, version, size, body := recent{}, s.version, 0, []byte(nil)
	err := s.view(func(now view) error {
		now.layers = append([]recent{written}, now.layers...)
		for _, c := range all {
			var changes []change
			if changes, c.err = c.prepare(now, s.stamp()); c.err != nil {
				continue
			}
			c.after = make([]store.Version, len(changes))
			for i, to := range changes {
				if c.after[i] = to.after.version; !to.changes() {
					continue
				}
				if to.after.version != 0 {
					version++
					c.after[i] = store.Version(version) //nolint:gosec // a count of writes
					to.after.version = c.after[i]
					binary.BigEndian.PutUint64(to.after.data, version)
				}
				written.set(to.key, to.after)
				size += max(leastBytes, len(to.after.data))
				body = appendText(appendText(body, to.key.String()), to.after.data)
			}
		}
		return nil
	})
	if err != nil || body == nil {
		return err
	}
	if s.log != nil {
		err = s.log.append(body)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.version = version; err == nil {
		s.recent.add(written)
		s.size += size
	}
	s.failed = cmp.Or(s.failed, err) // it is unknown what the disk has
	return err
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

func (c *commit) prepare(now view, at time.Time) ([]change, error) {
	// The context may have ended while the commit waited.
	if err := c.ctx.Err(); err != nil {
		return nil, err
	}
	changes := make([]change, len(c.writes))
	for i, w := range c.writes {
		var err error
		if changes[i], err = applied(now.read(w.Key), w, at); err != nil {
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
