package main

import (
	"io"
	"maps"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/apps/ledger"
	"billhook/internal/platform/store"
	"billhook/internal/retry"
)

func TestASmallRunLosesNothing(t *testing.T) {
	t.Parallel()
	require.NoError(t, run(t.Context(), []string{
		"-seed", "1", "-orders", "24", "-senders", "6", "-forgotten", "3", "-refunds", "0", "-patience", "1ms",
	}, io.Discard))
}

func TestRefundsAreTakenUpAfterTheirOrders(t *testing.T) {
	t.Parallel()
	all := stalls(&plan{random: rand.New(rand.NewPCG(1, 1))}, 0, 2)
	refunds := all[len(all)-2]
	require.Len(t, refunds.early, 2)
	refunds.change = func(q *catalog.Queue) {
		q.Handlers = maps.Clone(q.Handlers)
		soon := q.Handlers["order.refunded"]
		soon.MaxAttempts, soon.Backoff = 1000, retry.Policy{Base: 100 * time.Millisecond, Multiplier: 1, Max: 100 * time.Millisecond}
		q.Handlers["order.refunded"] = soon
	}
	require.NoError(t, refunds.measure(t.Context(), t.Context()))
	require.False(t, refunds.over)
	require.Zero(t, refunds.nacked)
}

func TestWrongBalancesAreFound(t *testing.T) {
	t.Parallel()
	s, err := start(t.Context(), true, func(*catalog.Queue) {})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.close()) }()
	_, err = s.Store.Commit(t.Context(), []store.Write{store.Increment(ledger.UserPoints("u").Key("default"), map[string]int64{"balance": 1000}, nil)})
	require.NoError(t, err)
	for points, broken := range map[int64]bool{0: true, 1000: false, 2000: true} {
		err := s.check(t.Context(), map[string]int64{"u": points})
		require.Equal(t, broken, err != nil, "%d: %v", points, err)
	}
}
