package deadletter_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/internal/pipeline/deadletter"
	"billhook/internal/platform/store"
)

func TestARunThatIsCutOffLeavesTheOperationToTheNextAtOnce(t *testing.T) {
	t.Parallel()
	for name, cut := range map[string]func(d *desk, cancel func()){
		"while it looks for what is left": func(d *desk, cancel func()) { d.Store = &cutting{Store: d.store, query: cancel} },
		"in the middle of a step":         func(d *desk, cancel func()) { d.Store = &cutting{Store: d.store, get: cancel} },
		"with its commit": func(d *desk, cancel func()) {
			d.Store = &cutting{Store: d.store, commit: cancel}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDesk(t)
			d.many(t, 150, nil)
			op := d.begin(t, deadletter.Replay, orders, nil)
			ctx, cancel := context.WithCancel(t.Context())
			cut(d, cancel)
			after, err := d.Run(ctx, op.ID)
			require.NoError(t, err, "how far it is")
			require.Equal(t, deadletter.Running, after.Progress)
			require.Less(t, after.Done, int64(150))
			after, err = d.operator().Run(t.Context(), op.ID)
			require.NoError(t, err, "nobody has it any more")
			require.Equal(t, []int64{150, 150, 0}, []int64{after.Total, after.Done, after.Skipped})
		})
	}
}

// cutting is a store whose caller gives up in the second call of a kind, which fails.
type cutting struct {
	store.Store
	query, get, commit func()
	calls              int
}

func (c *cutting) cut(ctx context.Context, give func()) error {
	if give == nil {
		return nil
	}
	if c.calls++; c.calls == 2 {
		give()
	}
	return ctx.Err()
}

func (c *cutting) Query(ctx context.Context, q store.Query) (store.Page, error) {
	if err := c.cut(ctx, c.query); err != nil {
		return store.Page{}, err
	}
	return c.Store.Query(ctx, q)
}

func (c *cutting) Get(ctx context.Context, key store.Key) (store.Document, error) {
	if err := c.cut(ctx, c.get); err != nil {
		return store.Document{}, err
	}
	return c.Store.Get(ctx, key)
}

// Commit writes what the caller does not wait for any more.
func (c *cutting) Commit(ctx context.Context, writes []store.Write) ([]store.Version, error) {
	err := c.cut(ctx, c.commit)
	if errors.Is(err, context.Canceled) {
		_, _ = c.Store.Commit(context.WithoutCancel(ctx), writes)
		return nil, err
	}
	return c.Store.Commit(ctx, writes)
}
