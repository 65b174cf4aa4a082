package main

import (
	"bytes"
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

func TestASmallBurstLosesNothing(t *testing.T) {
	t.Parallel()
	require.NoError(t, try(t.Context(), io.Discard, "burst", "-seed", "1", "-orders", "24", "-senders", "6", "-forgotten", "3", "-refunds", "0", "-longest", "1ms"))
}

func TestRefundsAreTakenUpAfterTheirOrders(t *testing.T) {
	t.Parallel()
	all := stalls(&drawing{random: rand.New(rand.NewPCG(1, 1))}, 0, 2)
	refunds := all[len(all)-2]
	refunds.change = func(q *catalog.Queue) {
		q.Handlers = maps.Clone(q.Handlers)
		soon := q.Handlers["order.refunded"]
		soon.MaxAttempts, soon.Backoff = 1000, retry.Policy{Base: 100 * time.Millisecond, Multiplier: 1, Max: 100 * time.Millisecond}
		q.Handlers["order.refunded"] = soon
	}
	require.NoError(t, failure(t, func(r *run) { refunds.measure(r, time.Hour) }))
	require.Len(t, refunds.ahead, 2)
	require.False(t, refunds.over)
	require.Zero(t, refunds.nacks)
}

func TestWrongBalancesAreFound(t *testing.T) {
	t.Parallel()
	for points, broken := range map[int64]bool{0: true, 1000: false, 2000: true} {
		err := failure(t, func(r *run) {
			e := changed(r, true, func(*catalog.Queue) {})
			_, err := e.Store.Commit(r.ctx, []store.Write{store.Increment(ledger.UserPoints("u").Key("default"), map[string]int64{"balance": 1000}, nil)})
			r.must(err)
			e.paid(r, map[string]int64{"u": points})
		})
		require.Equal(t, broken, err != nil, "%d: %v", points, err)
	}
}

func TestAShortRunMeasuresEveryTargetAndLosesNoPayment(t *testing.T) {
	t.Parallel()
	var table bytes.Buffer
	require.NoError(t, try(t.Context(), &table, "isolation", "-events", "5", "-rate", "100", "-rounds", "1"))
	for _, row := range besides() {
		require.Regexp(t, row.name+` +[1-9]`, table.String(), "each has been asked")
	}
}

func TestARowIsTheMedianOfItsRounds(t *testing.T) {
	t.Parallel()
	of := func(p99 time.Duration, memory uint64) measured {
		return measured{waits: []time.Duration{time.Millisecond, p99, time.Hour}, memory: memory, asked: 7}
	}
	var table bytes.Buffer
	tell(&table, "a target", []pair{
		{of(4*time.Millisecond, 8e6), of(2*time.Millisecond, 4e6)},
		{of(3*time.Millisecond, 3e6), of(3*time.Millisecond, 3e6)},
		{of(time.Second, 5e6), of(time.Millisecond, 1e6)},
	})
	require.Equal(t, "a target\t7\t4.0 ms\tx 2.00\t4.0 ms\tx 2.00\t5.0 MB\tx 2.00\n", table.String())
}
