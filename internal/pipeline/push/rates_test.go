package push_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/internal/pipeline/rates"
)

func TestDeliveriesAreCountedByWhatBecameOfThem(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{credit: times(1, errors.New("down"))})
	first := paid("e1", known, 1)
	r.deliver(first)                    // it fails
	r.deliver(first.again(2))           // it is done
	r.deliver(first.again(3))           // it is a duplicate
	r.deliver(paid("e2", "unknown", 1)) // no attempt helps
	commits := r.counter.Commits.Load()
	require.NoError(t, r.rates.Flush(t.Context()))
	require.Equal(t, commits, r.counter.Commits.Load(), "the rig's deliveries have written no counts")
	now, err := rates.Recent(t.Context(), r.db, time.Unix(0, r.now.Load()))
	require.NoError(t, err)
	require.Equal(t, rates.Counts{In: 2, Processed: 1, Other: 1, Dead: 1, Failed: 1}, now.Queues["orders"])
}
