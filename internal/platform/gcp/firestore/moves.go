package firestore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"billhook/internal/platform/store"
)

// moves has the waiting commits with a store.Move. Firestore has no increment with a bound, and concurrent
// writes at a version conflict. So the sums are made here, and all waiting moves are one commit.
type moves struct {
	mu      sync.Mutex
	waiting []*moving
	running bool
}

type moving struct {
	ctx      context.Context //nolint:containedctx // another caller commits it
	writes   []store.Write
	done     chan struct{} // closed when versions or err is set
	versions []store.Version
	err      error
}

func (m *moving) end(versions []store.Version, err error) {
	m.versions, m.err = versions, err
	close(m.done)
}

// moveTries bounds how often moves are repeated because another instance has changed their documents.
const moveTries = 10

func (s *Store) move(ctx context.Context, writes []store.Write) ([]store.Version, error) {
	m := &moving{ctx: ctx, writes: writes, done: make(chan struct{})}
	s.moves.mu.Lock()
	s.moves.waiting = append(s.moves.waiting, m)
	if !s.moves.running {
		s.moves.running = true
		go func() {
			for all := s.moves.next(); len(all) > 0; all = s.moves.next() {
				s.together(all)
			}
		}()
	}
	s.moves.mu.Unlock()
	select {
	case <-m.done:
		return m.versions, m.err
	case <-ctx.Done():
		return nil, fmt.Errorf("firestore: commit: %w", ctx.Err())
	}
}

// next takes the first waiting commits that fit into one commit. Only moves may share a document.
func (ms *moves) next() []*moving {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	taken, writes, moved := 0, 0, map[store.Key]bool{} // by document: whether a move or another write uses it
	for _, m := range ms.waiting {
		clashes := slices.ContainsFunc(m.writes, func(w store.Write) bool {
			isMoved, twice := moved[w.Key]
			return twice && (!isMoved || !w.Moves)
		})
		if writes += len(m.writes); clashes || writes > store.MaxWrites {
			break
		}
		for _, w := range m.writes {
			moved[w.Key] = w.Moves
		}
		taken++
	}
	all := ms.waiting[:taken]
	ms.waiting, ms.running = ms.waiting[taken:], taken > 0
	return all
}

// together makes commits as one. If one of them causes a refusal, it makes each half separately.
func (s *Store) together(all []*moving) {
	ctx := context.WithoutCancel(all[0].ctx) // each call has its own timeout
	var before documents
	var refused error
	for tries := 1; ; tries++ {
		found, err := s.read(ctx, movedBy(all))
		var writes []store.Write
		var versions []store.Version
		if err == nil {
			if refused != nil && maps.EqualFunc(before, found, sameVersion) {
				s.apart(all, refused)
				return
			}
			if writes, all = merged(found, all); len(all) == 0 {
				return
			}
			versions, err = s.commit(ctx, writes)
		}
		switch {
		case err == nil:
			share(all, writes, versions)
			return
		case errors.Is(err, store.ErrInvalid): // one is invalid, or together they are too large
			s.apart(all, err)
			return
		case tries == moveTries, !errors.Is(err, store.ErrStale) && !errors.Is(err, store.ErrExists):
			for _, m := range all {
				m.end(nil, err)
			}
			return
		}
		before, refused = found, err
	}
}

func (s *Store) apart(all []*moving, refused error) {
	if len(all) == 1 {
		all[0].end(nil, refused)
		return
	}
	s.together(all[:len(all)/2])
	s.together(all[len(all)/2:])
}

func sameVersion(a, b store.Document) bool { return a.Version == b.Version }

func movedBy(all []*moving) map[store.Key]bool {
	keys := map[store.Key]bool{}
	for _, m := range all {
		for _, w := range m.writes {
			if w.Moves {
				keys[w.Key] = true
			}
		}
	}
	return keys
}

// merged returns the writes of the possible commits, one per document, and ends the other commits.
func merged(found documents, all []*moving) (writes []store.Write, made []*moving) {
	sums := map[store.Key]map[string]any{}
	for _, m := range all {
		next, err := map[store.Key]map[string]any{}, m.ctx.Err()
		var others []store.Write
		for _, w := range m.writes {
			have, ok := sums[w.Key]
			switch {
			case !w.Moves:
				others = append(others, w)
				continue
			case !ok:
				have = found[w.Key].Fields
			}
			if err == nil {
				next[w.Key], err = w.Incremented(have)
			}
		}
		if err != nil {
			m.end(nil, fmt.Errorf("firestore: commit: %w", err))
			continue
		}
		maps.Copy(sums, next)
		made, writes = append(made, m), append(writes, others...)
	}
	for key, fields := range sums {
		writes = append(writes, store.Replace(key, found[key].Version, fields))
	}
	return writes, made
}

// share gives each commit the versions of its writes.
func share(all []*moving, writes []store.Write, versions []store.Version) {
	of := map[store.Key]store.Version{}
	for i, w := range writes {
		of[w.Key] = versions[i]
	}
	for _, m := range all {
		mine := make([]store.Version, len(m.writes))
		for i, w := range m.writes {
			mine[i] = of[w.Key]
		}
		m.end(mine, nil)
	}
}
