package dedupe_test

import (
	"context"
	"errors"
	"sync"

	"billhook/internal/platform/store"
)

var errLost = errors.New("the store did not answer")

// fault is what becomes of one commit.
type fault int

const (
	// refuse: nothing is written, and the caller hears nothing of why.
	refuse fault = iota + 1
	// lose: it is written, and the answer is lost.
	lose
)

// memory is a store in a map.
type memory struct {
	mu      sync.Mutex
	docs    map[store.Key]store.Document
	last    store.Version
	faults  []fault
	down    bool
	reads   int
	commits int
}

func newMemory() *memory { return &memory{docs: map[store.Key]store.Document{}} }

func (m *memory) Get(ctx context.Context, key store.Key) (store.Document, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reads++
	if err := ctx.Err(); err != nil {
		return store.Document{}, err
	}
	if m.down {
		return store.Document{}, errLost
	}
	doc, ok := m.docs[key]
	if !ok {
		return store.Document{}, store.ErrNotFound
	}
	return doc, nil
}

func (m *memory) Commit(ctx context.Context, writes []store.Write) ([]store.Version, error) {
	if err := store.CheckWrites(writes); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.commits++
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	var f fault
	if len(m.faults) > 0 {
		f, m.faults = m.faults[0], m.faults[1:]
	}
	if m.down || f == refuse {
		return nil, errLost
	}
	versions, err := m.apply(writes)
	switch {
	case err != nil:
		return nil, err
	case f == lose:
		return nil, errLost
	}
	return versions, nil
}

func (m *memory) apply(writes []store.Write) ([]store.Version, error) {
	for _, w := range writes {
		have, ok := m.docs[w.Key]
		switch {
		case w.Op == store.OpCreate && ok:
			return nil, store.ErrExists
		case w.Version != 0 && have.Version != w.Version:
			return nil, store.ErrStale
		}
	}
	versions := make([]store.Version, len(writes))
	for i, w := range writes {
		fields := map[string]any{}
		if w.Op == store.OpIncrement {
			for name, value := range m.docs[w.Key].Fields {
				fields[name] = value
			}
		}
		for name, value := range w.Fields {
			fields[name] = value
		}
		for name, add := range w.Add {
			old, _ := fields[name].(int64)
			fields[name] = old + add
		}
		m.last++
		versions[i] = m.last
		m.docs[w.Key] = store.Document{Key: w.Key, Fields: fields, Version: m.last}
	}
	return versions, nil
}

// balance is how often the effect of credit has happened.
func (m *memory) balance() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	value, _ := m.docs[balance].Fields["n"].(int64)
	return value
}

// trips returns how many reads and commits there have been since it was last called.
func (m *memory) trips() (reads, commits int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	reads, commits = m.reads, m.commits
	m.reads, m.commits = 0, 0
	return reads, commits
}
