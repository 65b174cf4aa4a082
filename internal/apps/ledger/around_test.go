package ledger_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/internal/apps/ledger"
	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
)

// credited commits credits of the user u1, each of one point and a second after the one before.
func credited(t *testing.T, into store.Committer, orders int) (moves []ledger.Move) {
	t.Helper()
	for i := range orders {
		m := credit(fmt.Sprintf("order-%04d", i), 1)
		m.CreatedAt = noon.Add(time.Duration(i) * time.Second)
		writes, err := ledger.Credit(m)
		require.NoError(t, err)
		_, err = into.Commit(t.Context(), writes)
		require.NoError(t, err)
		m.Account = m.To
		m.CreatedAt = m.CreatedAt.Truncate(time.Microsecond)
		moves = append(moves, m)
	}
	return moves
}

func TestTheBalanceAtAnEntryIsKnownNearEitherEnd(t *testing.T) {
	t.Parallel()
	books := storetest.Open(t)
	moves := credited(t, books, 260)
	for i, m := range moves {
		balance, known, err := ledger.BalanceAt(t.Context(), books, m)
		require.NoError(t, err)
		require.Equal(t, i < 100 || i >= 160, known, i)
		if known {
			require.EqualValues(t, i+1, balance, i)
		}
	}
}

// TestEntriesOfOneMomentAreOrderedByTheirIDs: so that two of them are not both the last.
func TestEntriesOfOneMomentAreOrderedByTheirIDs(t *testing.T) {
	t.Parallel()
	books, seen := storetest.Open(t), map[int64]bool{}
	var moves []ledger.Move
	for i := range 5 {
		m := credit(fmt.Sprint("order-", i), 1)
		writes, err := ledger.Credit(m)
		require.NoError(t, err)
		_, err = books.Commit(t.Context(), writes)
		require.NoError(t, err)
		m.Account, m.CreatedAt = m.To, m.CreatedAt.Truncate(time.Microsecond)
		moves = append(moves, m)
	}
	for _, m := range moves {
		balance, known, err := ledger.BalanceAt(t.Context(), books, m)
		require.NoError(t, err)
		require.True(t, known)
		seen[balance] = true
	}
	require.Equal(t, map[int64]bool{1: true, 2: true, 3: true, 4: true, 5: true}, seen)
}

// busyBooks credits the account once more between the first page of entries and what follows it.
type busyBooks struct {
	store.Store
	t    *testing.T
	done bool
}

func (b *busyBooks) Query(ctx context.Context, q store.Query) (store.Page, error) {
	page, err := b.Store.Query(ctx, q)
	if !b.done {
		b.done = true
		late := credit("late", 1)
		late.CreatedAt = noon.Add(time.Hour)
		writes, failed := ledger.Credit(late)
		require.NoError(b.t, failed)
		_, failed = b.Commit(ctx, writes)
		require.NoError(b.t, failed)
	}
	return page, err
}

func TestAnEntryPostedMeanwhileIsNotInTheBalance(t *testing.T) {
	t.Parallel()
	for name, orders := range map[string]int{"on an account of few entries": 3, "on an account of many": 150} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			books := storetest.Open(t)
			moves := credited(t, books, orders)
			balance, known, err := ledger.BalanceAt(t.Context(), &busyBooks{Store: books, t: t}, moves[len(moves)-1])
			require.NoError(t, err)
			require.Equal(t, orders == 3, known)
			if known {
				require.EqualValues(t, orders, balance)
			}
		})
	}
}
