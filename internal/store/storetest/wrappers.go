package storetest

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"billhook/internal/store"
)

// Counter wraps a store and counts the calls. It is safe for concurrent use.
type Counter struct {
	store.Store

	Gets, Commits, Queries, Written atomic.Int64
}

// Get counts one read.
func (c *Counter) Get(ctx context.Context, key store.Key) (store.Document, error) {
	c.Gets.Add(1)
	return c.Store.Get(ctx, key)
}

// Commit counts one commit, and its documents if it succeeds.
func (c *Counter) Commit(ctx context.Context, writes []store.Write) ([]store.Version, error) {
	c.Commits.Add(1)
	versions, err := c.Store.Commit(ctx, writes)
	if err == nil {
		c.Written.Add(int64(len(writes)))
	}
	return versions, err
}

// Query counts one read.
func (c *Counter) Query(ctx context.Context, query store.Query) (store.Page, error) {
	c.Queries.Add(1)
	return c.Store.Query(ctx, query)
}

// ErrFault is the error of a call that Faults fails.
var ErrFault = errors.New("storetest: the store did not answer")

// Faults wraps a store and fails calls on demand. It is safe for concurrent use.
type Faults struct {
	store.Store

	mu     sync.Mutex
	down   bool
	before int
	after  int
	reads  int
}

// Down(true) makes every call fail until Down(false).
func (f *Faults) Down(down bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.down = down
}

// FailBefore makes the next n commits fail without effect.
func (f *Faults) FailBefore(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.before = n
}

// FailAfter applies the next n commits and loses their answers.
func (f *Faults) FailAfter(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.after = n
}

// FailReads makes the next n calls of Get and Query fail. For a read it makes no difference
// whether it failed or its answer was lost.
func (f *Faults) FailReads(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reads = n
}

// Get fails on demand.
func (f *Faults) Get(ctx context.Context, key store.Key) (store.Document, error) {
	if f.failsRead() {
		return store.Document{}, ErrFault
	}
	return f.Store.Get(ctx, key)
}

// Query fails on demand.
func (f *Faults) Query(ctx context.Context, query store.Query) (store.Page, error) {
	if f.failsRead() {
		return store.Page{}, ErrFault
	}
	return f.Store.Query(ctx, query)
}

// Commit fails on demand.
func (f *Faults) Commit(ctx context.Context, writes []store.Write) ([]store.Version, error) {
	f.mu.Lock()
	before, after := f.down || f.before > 0, f.after > 0
	if f.before > 0 {
		f.before--
	} else if f.after > 0 {
		f.after--
	}
	f.mu.Unlock()
	if before {
		return nil, ErrFault
	}
	versions, err := f.Store.Commit(ctx, writes)
	if after {
		return nil, ErrFault
	}
	return versions, err
}

func (f *Faults) failsRead() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.down {
		return true
	}
	if f.reads > 0 {
		f.reads--
		return true
	}
	return false
}
