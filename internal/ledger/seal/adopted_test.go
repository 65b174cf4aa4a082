package seal_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/internal/ledger"
	"billhook/internal/ledger/ledgertest"
	"billhook/internal/ledger/seal"
	"billhook/internal/ledger/seal/sealtest"
	"billhook/internal/standin"
	"billhook/internal/store"
)

// TestPointsOfTheReleaseBeforeAreSealedOnceTheyAreAdopted: a chain that began before there were
// seals is named until it is adopted, is sealed then, and goes on.
func TestPointsOfTheReleaseBeforeAreSealedOnceTheyAreAdopted(t *testing.T) {
	t.Parallel()
	db, err := standin.OpenTemporaryStore(filepath.Join(t.TempDir(), "store.db"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	at := time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)
	commit := func(writes []store.Write, err error) {
		t.Helper()
		require.NoError(t, err)
		_, err = db.Commit(t.Context(), writes)
		require.NoError(t, err)
	}
	found := func() (all []seal.Finding) {
		t.Helper()
		require.NoError(t, seal.Verifier{From: db, Origins: sealtest.Trusting{}}.All(t.Context(), func(f seal.Finding) { all = append(all, f) }))
		return all
	}
	sealed := func() int {
		t.Helper()
		done, err := seal.Sealer{Store: db, Origins: sealtest.Trusting{}, Now: func() time.Time { return at }}.Run(t.Context())
		require.NoError(t, err)
		return done.Entries
	}
	writes, err := ledger.Credit(ledger.Move{
		Order: "o1", EventID: "e1", From: ledger.IssuedPoints("o1"), To: ledger.UserPoints("u1"), Amount: 1000, Currency: ledger.Points, CreatedAt: at,
	})
	commit([]store.Write{ledgertest.Former(writes[0]), writes[1]}, err)
	require.Zero(t, sealed(), "nothing says that it is to be sealed")
	all := found()
	require.Len(t, all, 1)
	require.Equal(t, []string{seal.Unmarked, writes[0].Key.String()}, []string{all[0].Kind, all[0].Document})

	_, err = ledger.Adopt(t.Context(), db, "", store.MaxWrites)
	require.NoError(t, err)
	require.Empty(t, found())
	require.Equal(t, 1, sealed())
	chain, err := ledger.Load(t.Context(), db, "o1")
	require.NoError(t, err)
	commit(chain.Reverse("r1", 400, at))
	require.Empty(t, found())
	balances := func() seal.TrialBalance {
		t.Helper()
		trial, err := seal.Balances(t.Context(), db, "default", "2026-03")
		require.NoError(t, err)
		return trial
	}
	want := []seal.Balance{
		{Account: "points:issued", Currency: "points", Debit: 1000, Credit: 400, Closing: 600},
		{Account: "points:user", Currency: "points", Debit: 400, Credit: 1000, Closing: -600},
	}
	require.Equal(t, want, balances().Balances)
	require.Equal(t, 1, sealed())
	require.Equal(t, want, balances().Balances)
	require.Empty(t, found())
}
