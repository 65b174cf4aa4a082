package serve_test

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/internal/platform/serve"
)

func TestABudgetGrantsAClaimWholeOrNotAtAll(t *testing.T) {
	t.Parallel()
	budget := serve.NewBudget(10)
	require.True(t, budget.Claim(0))
	require.True(t, budget.Claim(7))
	require.False(t, budget.Claim(4), "only 3 are left")
	require.Equal(t, int64(7), budget.Held(), "a claim in vain takes nothing")
	require.True(t, budget.Claim(3))
	require.False(t, budget.Claim(1))
	budget.Release(7)
	require.True(t, budget.Claim(6))
	require.Equal(t, int64(9), budget.Held())
}

func TestManyClaimsAtOnceNeverHoldMoreThanTheBudget(t *testing.T) {
	t.Parallel()
	const bytes, each = 100, 7
	budget := serve.NewBudget(bytes)
	var holding, given atomic.Int64
	var group sync.WaitGroup
	for range 64 {
		group.Go(func() {
			for range 500 {
				if !budget.Claim(each) {
					continue
				}
				given.Add(1)
				if holding.Add(each) > bytes {
					t.Error("more is held than there is")
				}
				holding.Add(-each)
				budget.Release(each)
			}
		})
	}
	group.Wait()
	require.Positive(t, given.Load())
	require.Zero(t, budget.Held())
}
