package storetest_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
)

// counted is a store that only counts its calls.
type counted struct{ commits, reads int }

func (c *counted) Get(context.Context, store.Key) (store.Document, error) {
	c.reads++
	return store.Document{}, store.ErrNotFound
}

func (c *counted) Commit(_ context.Context, writes []store.Write) ([]store.Version, error) {
	c.commits++
	return make([]store.Version, len(writes)), nil
}

func (c *counted) Query(context.Context, store.Query) (store.Page, error) {
	c.reads++
	return store.Page{}, nil
}

func TestFaultsFailExactlyTheChosenCalls(t *testing.T) {
	t.Parallel()
	writes := []store.Write{store.Set(store.Key{Collection: "c", ID: "a"}, nil)}
	for name, test := range map[string]struct {
		tell            func(*storetest.Faults)
		commit          []bool
		get             []bool
		reached, looked int
	}{
		"nothing":               {func(*storetest.Faults) {}, []bool{true, true}, []bool{true, true}, 2, 2},
		"before":                {func(f *storetest.Faults) { f.FailBefore(1) }, []bool{false, true}, []bool{true, true}, 1, 2},
		"after":                 {func(f *storetest.Faults) { f.FailAfter(1) }, []bool{false, true}, []bool{true, true}, 2, 2},
		"before, then after":    {func(f *storetest.Faults) { f.FailAfter(1); f.FailBefore(1) }, []bool{false, false, true}, nil, 2, 0},
		"reads":                 {func(f *storetest.Faults) { f.FailReads(1) }, []bool{true, true}, []bool{false, true}, 2, 1},
		"everything":            {func(f *storetest.Faults) { f.Down(true) }, []bool{false, false}, []bool{false, false}, 0, 0},
		"nothing after a while": {func(f *storetest.Faults) { f.Down(true); f.Down(false) }, []bool{true}, []bool{true}, 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inner := &counted{}
			counter := &storetest.Counter{Store: inner}
			faults := &storetest.Faults{Store: counter}
			test.tell(faults)
			for _, passes := range test.commit {
				_, err := faults.Commit(t.Context(), writes)
				require.Equal(t, passes, err == nil)
			}
			for _, passes := range test.get {
				_, err := faults.Get(t.Context(), writes[0].Key)
				if passes {
					require.ErrorIs(t, err, store.ErrNotFound)
				} else {
					require.ErrorIs(t, err, storetest.ErrFault)
				}
			}
			require.Equal(t, test.reached, inner.commits)
			require.Equal(t, test.looked, inner.reads)
			require.Equal(t, int64(test.reached), counter.Commits.Load())
			require.Equal(t, int64(test.reached), counter.Written.Load())
			require.Equal(t, int64(test.looked), counter.Gets.Load())
		})
	}
}

func TestHooksAreCalledInPlaceOfTheStore(t *testing.T) {
	t.Parallel()
	inner := &counted{}
	faults := &storetest.Faults{Store: inner}
	write := []store.Write{store.Set(store.Key{Collection: "c", ID: "a"}, nil)}
	faults.OnCommit = func(_ context.Context, writes []store.Write, do func() error) error {
		require.Equal(t, write, writes)
		return errors.Join(do(), do())
	}
	faults.OnRead = func(func() error) error { return nil }
	versions, err := faults.Commit(t.Context(), write)
	require.NoError(t, err)
	require.Len(t, versions, 1)
	require.Equal(t, 2, inner.commits)
	_, err = faults.Get(t.Context(), write[0].Key)
	require.NoError(t, err)
	_, err = faults.Query(t.Context(), store.Query{})
	require.NoError(t, err)
	require.Zero(t, inner.reads)

	faults.OnCommit = func(context.Context, []store.Write, func() error) error { return nil }
	versions, err = faults.Commit(t.Context(), write)
	require.NoError(t, err)
	require.Equal(t, []store.Version{0}, versions)
	require.Equal(t, 2, inner.commits)
	faults.Down(true)
	_, err = faults.Get(t.Context(), write[0].Key)
	require.ErrorIs(t, err, storetest.ErrFault, "a call that fails on demand does not reach a hook")
}
