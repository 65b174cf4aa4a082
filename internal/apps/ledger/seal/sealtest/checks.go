package sealtest

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"billhook/internal/apps/ledger"
	"billhook/internal/apps/ledger/seal"
	"billhook/internal/filetest"
	"billhook/internal/platform/store"
)

// look compares a balance with the model after each step, and one in four times verifies.
func (w *world) look(t *rapid.T) {
	last := rapid.SampledFrom(periods).Draw(t, "summed up to")
	w.sums(t, w.faultless(), rapid.SampledFrom(tenants).Draw(t, "summed up"),
		rapid.SampledFrom([]string{periods[0], last}).Draw(t, "from"), last)
	if rapid.IntRange(0, 3).Draw(t, "verifies") == 0 {
		w.findings(t, w.faultless())
	}
}

// check compares all balances with the model, and verifies.
func (w *world) check(t *rapid.T) {
	for _, tenant := range tenants {
		for _, period := range periods {
			w.sums(t, w.faultless(), tenant, period, period)
			w.sums(t, w.faultless(), tenant, periods[0], period)
		}
	}
	w.findings(t, w.faultless())
}

// findings verifies the books, and requires that the findings are the late entries that seals have passed.
func (w *world) findings(t *rapid.T, s store.Store) {
	found := filetest.Must(Findings(context.Background(), seal.Verifier{From: s, Origins: Trusting{}}))(t)
	var ids []string
	for _, f := range found {
		require.Equal(t, seal.Added, f.Kind, f)
		ids = append(ids, strings.TrimPrefix(f.Document, ledger.Entries+"/"))
	}
	require.ElementsMatch(t, w.passed(t, false), ids)
}

// Seal runs the sealer at a time.
func Seal(t require.TestingT, in store.Store, origins seal.Origins, at time.Time) seal.Sealed {
	sealer := seal.Sealer{Store: in, Origins: origins, Now: func() time.Time { return at }}
	return filetest.Must(sealer.Run(context.Background()))(t)
}

// Findings verifies all books, page after page.
func Findings(ctx context.Context, v seal.Verifier) (found []seal.Finding, err error) {
	return pages(func(at string) (seal.Verified, error) { return v.All(ctx, at) })
}

// FindingsOf verifies the books of a tenant.
func FindingsOf(ctx context.Context, v seal.Verifier, tenant string) ([]seal.Finding, error) {
	return pages(func(at string) (seal.Verified, error) { return v.Page(ctx, tenant, at) })
}

func pages(page func(at string) (seal.Verified, error)) (found []seal.Finding, err error) {
	for at, most := "", 10_000; most > 0; most-- {
		verified, err := page(at)
		found = append(found, verified.Findings...)
		if at = verified.Next; err != nil || at == "" {
			return found, err
		}
	}
	return found, errors.New("sealtest: the verification does not end")
}

// sums compares the trial balance of a span of months with the sum of the entries that were posted.
func (w *world) sums(t *rapid.T, s store.Store, tenant, first, last string) {
	type line struct{ account, currency string }
	want, passed := map[line]*seal.Balance{}, w.passed(t, true)
	for _, entry := range w.posted[tenant] {
		if entry.Period > last || slices.Contains(passed, entry.ID) {
			continue
		}
		for _, l := range entry.Lines {
			at := line{ledger.Control(l.Account), l.Currency}
			if want[at] == nil {
				want[at] = &seal.Balance{Account: at.account, Currency: at.currency}
			}
			want[at].Closing += l.Debit - l.Credit
			if entry.Period >= first {
				want[at].Debit += l.Debit
				want[at].Credit += l.Credit
			} else {
				want[at].Opening += l.Debit - l.Credit
			}
		}
	}
	got := filetest.Must(seal.Balances(context.Background(), s, tenant, first, last))(t)
	require.Len(t, got.Balances, len(want))
	for _, balance := range got.Balances {
		require.Equal(t, *want[line{balance.Account, balance.Currency}], balance)
	}
	require.False(t, got.Alerts(), "the balances of each currency add up to nothing")
}

// allSealed requires that every entry is in exactly one seal, in the order of the commits, except the late
// ones that seals have passed.
func (w *world) allSealed(t *rapid.T) {
	passed := w.passed(t, false)
	for _, tenant := range tenants {
		var sealed int64
		numbers := []int64{}
		for after := (store.Cursor{}); ; {
			seals, next := filetest.Both(seal.List(context.Background(), w.faultless(), tenant, after, 2))(t)
			for _, s := range seals {
				sealed += s.Count
				numbers = append(numbers, s.Number)
			}
			if after = next; after.IsZero() {
				break
			}
		}
		slices.Reverse(numbers)
		for i, number := range numbers {
			require.EqualValues(t, i+1, number)
		}
		places := map[store.Cursor][]int64{}
		for _, posted := range w.posted[tenant] {
			doc := filetest.Must(w.faultless().Get(context.Background(), ledger.Key(posted.ID)))(t)
			entry := filetest.Must(ledger.Read(doc))(t)
			same := filetest.Must(seal.Locate(context.Background(), w.faultless(), &entry))(t)
			if slices.Contains(passed, entry.ID) {
				continue
			}
			require.True(t, same)
			require.Positive(t, entry.Seal)
			places[ledger.Position(doc)] = []int64{entry.Seal, entry.Leaf}
		}
		require.Len(t, places, int(sealed))
		before := []int64{0, 0}
		for _, at := range slices.SortedFunc(maps.Keys(places), store.Cursor.Compare) {
			require.Negative(t, slices.Compare(before, places[at]),
				"each has its own place, after those of earlier commits")
			before = places[at]
		}
	}
}

// end seals the remaining entries, and proves one of each tenant.
func (w *world) end(t *rapid.T) {
	for range 2 {
		require.NoError(t, filetest.ErrorOf(w.sealer(w.faultless()).Run(context.Background())))
		w.allSealed(t)
		w.verify(t)
	}
	require.Empty(t, w.late, "the verification has found late entries, and the sealer sealed them")
	w.check(t)
	for _, tenant := range tenants {
		if len(w.posted[tenant]) == 0 {
			continue
		}
		entry := rapid.SampledFrom(w.posted[tenant]).Draw(t, "proven")
		text := filetest.Must(seal.Prove(context.Background(), w.faultless(), entry.ID))(t)
		kept, _, err := seal.List(context.Background(), w.faultless(), tenant, store.Cursor{}, store.MaxPage)
		require.NoError(t, err)
		proven := filetest.Must(seal.CheckProof(text, kept))(t)
		require.Equal(t, tenant, proven.Tenant)
	}
}
