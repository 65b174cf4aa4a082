package main

import (
	"bytes"
	"io"
	"maps"
	"testing"
	"text/tabwriter"
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
	var row bytes.Buffer
	table := tabwriter.NewWriter(&row, 0, 0, 1, ' ', 0)
	require.NoError(t, failure(t, func(r *run) {
		behind{name: "refunds", refunds: 2, change: func(q *catalog.Queue) {
			q.Handlers = maps.Clone(q.Handlers)
			soon := q.Handlers["order.refunded"]
			soon.MaxAttempts, soon.Backoff = 1000, retry.Policy{Base: 100 * time.Millisecond, Multiplier: 1, Max: 100 * time.Millisecond}
			q.Handlers["order.refunded"] = soon
		}}.measure(r, r, table)
	}))
	require.NoError(t, table.Flush())
	require.Regexp(t, `^refunds .* 0 0\n$`, row.String(), "no dead letter, and nothing nacked")
}

func TestWrongBalancesAreFound(t *testing.T) {
	t.Parallel()
	for points, broken := range map[int64]bool{0: true, 1000: false, 2000: true} {
		err := failure(t, func(r *run) {
			e, _ := changed(r, func(*catalog.Queue) {})
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
	var table bytes.Buffer
	tell(&table, "a target", []figures{{7, 0.001, 0.004, 8e6}, {7, 0.001, 0.003, 3e6}, {7, 0.001, 1, 5e6}},
		[]figures{{7, 0.001, 0.002, 4e6}, {7, 0.001, 0.003, 3e6}, {7, 0.001, 0.001, 1e6}})
	require.Equal(t, "a target\t7\t1.0 ms\tx 1.00\t4.0 ms\tx 2.00\t5.0 MB\tx 2.00\n", table.String())
}
