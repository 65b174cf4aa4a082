package storetest

import (
	"context"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"billhook/internal/filetest"
	"billhook/internal/platform/boltstore"
	"billhook/internal/platform/store"
)

// Counter wraps a store and counts its calls. It is safe for concurrent use.
type Counter struct {
	store.Store

	Gets, Commits, Queries, Written atomic.Int64
	// Reads counts document reads as Firestore charges for them: at least one per call, one per thousand counted
	// documents, and one for the document after a page that is ordered by id.
	Reads atomic.Int64
}

// Get counts one read.
func (c *Counter) Get(ctx context.Context, key store.Key) (store.Document, error) {
	c.Gets.Add(1)
	c.Reads.Add(1)
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
	page, err := c.Store.Query(ctx, query)
	read := int64(len(page.Documents)) + (page.Count+999)/1000
	if !page.Next.IsZero() {
		read++
	}
	c.Reads.Add(max(1, read))
	return page, err
}

// ErrFault is the error of a call that Faults fails.
var ErrFault = errors.New("storetest: the store did not answer")

// Faults wraps a store and fails calls on demand. It is safe for concurrent use.
type Faults struct {
	store.Store
	// OnCommit and OnRead, if set, are called instead of the store, unless the call fails on demand. do makes
	// the real call, and may be called any number of times. The caller gets the hook's error.
	OnCommit func(ctx context.Context, writes []store.Write, do func() error) error
	OnRead   func(do func() error) error

	mu                   sync.Mutex
	down                 bool
	before, after, reads int
}

// Down makes every call fail while down is true.
func (f *Faults) Down(down bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.down = down
}

// FailBefore makes the next n commits fail without effect.
func (f *Faults) FailBefore(n int) { f.set(&f.before, n) }

// FailAfter applies the next n commits and loses their answers.
func (f *Faults) FailAfter(n int) { f.set(&f.after, n) }

// FailReads makes the next n calls of Get and Query fail. A failed read and a lost answer are the same to the
// caller.
func (f *Faults) FailReads(n int) { f.set(&f.reads, n) }

func (f *Faults) set(count *int, n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	*count = n
}

// Get fails on demand.
func (f *Faults) Get(ctx context.Context, key store.Key) (doc store.Document, err error) {
	err = f.read(func() (err error) {
		doc, err = f.Store.Get(ctx, key)
		return err
	})
	return doc, err
}

// Query fails on demand.
func (f *Faults) Query(ctx context.Context, query store.Query) (page store.Page, err error) {
	err = f.read(func() (err error) {
		page, err = f.Store.Query(ctx, query)
		return err
	})
	return page, err
}

func (f *Faults) read(do func() error) error {
	switch {
	case f.fails(&f.reads):
		return ErrFault
	case f.OnRead != nil:
		return f.OnRead(do)
	}
	return do()
}

// Commit fails on demand. Its versions are zeros if OnCommit succeeds without a call of do.
func (f *Faults) Commit(ctx context.Context, writes []store.Write) ([]store.Version, error) {
	if f.fails(&f.before) {
		return nil, ErrFault
	}
	loses := f.fails(&f.after)
	versions := make([]store.Version, len(writes))
	do := func() (err error) {
		versions, err = f.Store.Commit(ctx, writes)
		return err
	}
	var err error
	if f.OnCommit != nil {
		err = f.OnCommit(ctx, writes, do)
	} else {
		err = do()
	}
	switch {
	case loses:
		return nil, ErrFault
	case err != nil:
		return nil, err
	}
	return versions, nil
}

// fails reports whether the next call of this kind fails, and lowers its count.
func (f *Faults) fails(count *int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	fails := f.down || *count > 0
	*count = max(*count-1, 0)
	return fails
}

// Open opens an empty boltstore and closes it when the test ends.
func Open(t testing.TB) store.Store {
	t.Helper()
	db := filetest.Must(boltstore.OpenTemporary(filepath.Join(t.TempDir(), "store.db")))(t)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

// Main runs a package's tests, and requires that they leave no goroutine but the one of Google's clients.
func Main(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("go.opencensus.io/stats/view.(*worker).start"))
}

// Stepping runs a package's tests. With -short a model takes this many steps, not a fifth of rapid's.
func Stepping(m *testing.M, steps string) {
	if flag.Parse(); testing.Short() {
		if err := flag.Set("rapid.steps", steps); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}

// Put commits writes that a test needs, and returns their versions.
func Put(t require.TestingT, to store.Committer, writes ...store.Write) []store.Version {
	versions := filetest.Must(to.Commit(context.Background(), writes))(t)
	require.Len(t, versions, len(writes))
	return versions
}

// Get returns a document that must exist.
func Get(t require.TestingT, from store.Getter, key store.Key) store.Document {
	doc := filetest.Must(from.Get(context.Background(), key))(t)
	return doc
}

// Edit changes the fields of an existing document without a condition, as no program does.
func Edit(t require.TestingT, in store.GetCommitter, key store.Key, change func(fields map[string]any)) {
	doc := Get(t, in, key)
	change(doc.Fields)
	Put(t, in, store.Set(key, doc.Fields))
}

// All returns the documents of a collection by id, at most store.MaxPage.
func All(t require.TestingT, from store.Querier, collection string) []store.Document {
	page := filetest.Must(from.Query(context.Background(),
		store.Query{Collection: collection, Limit: store.MaxPage}))(t)
	return page.Documents
}
