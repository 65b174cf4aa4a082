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

// Counter wraps a store and counts the calls. It is safe for concurrent use.
type Counter struct {
	store.Store

	Gets, Commits, Queries, Written atomic.Int64
	// Reads are the documents that the database reads, as Firestore charges for them: one at least
	// of each call, one for a thousand that are counted, and the one behind a page that goes by ids.
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
	// OnCommit and OnRead, if set, are called in place of the store, unless the call fails on
	// demand. do makes the call and may be called any number of times. The caller gets the hook's
	// error.
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

// FailReads makes the next n calls of Get and Query fail. For a read it makes no difference
// whether it failed or its answer was lost.
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

// Commit fails on demand. Its versions are zeros where OnCommit succeeds without do.
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

// fails reports whether a call of this count fails, and counts it.
func (f *Faults) fails(count *int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	fails := f.down || *count > 0
	*count = max(*count-1, 0)
	return fails
}

// Open opens an empty store on the machine, until the test ends.
func Open(t testing.TB) store.Store {
	t.Helper()
	db := filetest.Must(boltstore.OpenTemporary(filepath.Join(t.TempDir(), "store.db")))(t)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

// Main runs a package's tests, and requires that they leave no goroutine behind but that of Google's clients.
func Main(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("go.opencensus.io/stats/view.(*worker).start"))
}

// Stepping runs a package's tests; with -short a model takes so many steps, not rapid's fifth.
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

// Get is a document that there is.
func Get(t require.TestingT, from store.Getter, key store.Key) store.Document {
	doc := filetest.Must(from.Get(context.Background(), key))(t)
	return doc
}

// Edit changes the fields of a document that there is, as no program does.
func Edit(t require.TestingT, in store.GetCommitter, key store.Key, change func(fields map[string]any)) {
	doc := Get(t, in, key)
	change(doc.Fields)
	Put(t, in, store.Set(key, doc.Fields))
}

// All are the documents of a collection, at most store.MaxPage, in the order of their ids.
func All(t require.TestingT, from store.Querier, collection string) []store.Document {
	page := filetest.Must(from.Query(context.Background(),
		store.Query{Collection: collection, Limit: store.MaxPage}))(t)
	return page.Documents
}
