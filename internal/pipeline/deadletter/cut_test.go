package deadletter_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/internal/pipeline/deadletter"
	"billhook/internal/platform/store"
)

// A run reads its operation, then what matches, then each item of a step. Its first commit takes the operation.
func TestARunThatIsCutOffLeavesTheOperationToTheNextAtOnce(t *testing.T) {
	t.Parallel()
	for sentence, at := range map[string]struct{ read, commit int }{
		"while it looks for what is left": {read: 2},
		"in the middle of a step":         {read: 6},
		"with its commit":                 {commit: 2},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			d := newDesk(t)
			d.many(t, 150, nil)
			op := d.begin(t, deadletter.Replay, orders, nil)
			ctx, cancel := context.WithCancel(t.Context())
			reads, commits := 0, 0
			d.store.OnRead = func(do func() error) error {
				if reads++; reads == at.read {
					cancel()
					return ctx.Err()
				}
				return do()
			}
			d.store.OnCommit = func(_ context.Context, _ []store.Write, do func() error) error {
				err := do()
				if commits++; commits == at.commit { // it is written, and nobody waits for the answer
					cancel()
					return ctx.Err()
				}
				return err
			}
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
