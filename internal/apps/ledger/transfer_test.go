package ledger_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/internal/apps/ledger"
	"billhook/internal/apps/ledger/ledgertest"
	"billhook/internal/platform/store"
)

var (
	guest = ledger.CustomerPoints("c1")
	user  = ledger.UserPoints("u1")
)

// ordered credits an order of so much to the guest.
func ordered(t *testing.T, books *ledgertest.Books, order string, amount int64) {
	t.Helper()
	entry := credit(order, amount)
	entry.To = guest
	commit(t, books, entry)
}

func reverse(t *testing.T, books *ledgertest.Books, order, event string, amount int64) {
	t.Helper()
	chain, err := ledger.Load(t.Context(), books, "default", order)
	require.NoError(t, err)
	writes, err := chain.Reverse(event, amount, noon)
	require.NoError(t, err)
	require.NoError(t, books.Commit(t.Context(), writes))
}

func held(t *testing.T, books *ledgertest.Books) []ledger.Chain {
	t.Helper()
	var all []ledger.Chain
	for after := (store.Cursor{}); ; {
		chains, next, err := ledger.HeldBy(t.Context(), books, "default", guest, after)
		require.NoError(t, err)
		all = append(all, chains...)
		if next.IsZero() {
			return all
		}
		require.Greater(t, next.ID, after.ID)
		after = next
	}
}

func transfer(t *testing.T, books *ledgertest.Books, chains []ledger.Chain) int64 {
	t.Helper()
	writes, amount, err := ledger.Transfer(chains, user, "op-1", noon)
	require.NoError(t, err)
	if amount == 0 {
		require.Empty(t, writes)
		return 0
	}
	require.NoError(t, store.CheckWrites(writes))
	require.NoError(t, books.Commit(t.Context(), writes))
	return amount
}

func TestATransferMovesWhatIsLeftOfEachOrder(t *testing.T) {
	t.Parallel()
	books := &ledgertest.Books{}
	ordered(t, books, "order-1", 1000)
	ordered(t, books, "order-2", 250)
	ordered(t, books, "order-3", 10)
	reverse(t, books, "order-1", "refund-1", 400)
	reverse(t, books, "order-3", "refund-2", 10)

	chains := held(t, books)
	require.Len(t, chains, 2, "of the third nothing is left")
	writes, _, err := ledger.Transfer(chains, user, "op-1", noon)
	require.NoError(t, err)
	require.Len(t, writes, 6, "two entries of each chain, one increment of each account")
	require.Equal(t, int64(850), transfer(t, books, chains))
	require.Zero(t, books.Balance("default", guest))
	require.Equal(t, int64(850), books.Balance("default", user))
	require.Empty(t, held(t, books), "it is moved once")

	reverse(t, books, "order-1", "refund-3", 600)
	require.Zero(t, books.Balance("default", guest))
	require.Equal(t, int64(250), books.Balance("default", user))
	chain := load(t, books)
	require.Zero(t, chain.Left())
	require.Equal(t, user, chain.Holder())
	require.False(t, chain.Reversed("op-1"))
	require.Equal(t, ledger.Move{
		Tenant: "default", Order: "order-1", Seq: 2, Kind: ledger.KindTransferOut, EventID: "op-1", From: guest, To: ledger.IssuedPoints("order-1"), Account: guest,
		Amount: 600, Currency: ledger.Points, OrderTotal: 2500, OrderCurrency: "USD", CreatedAt: chain.Entries[2].CreatedAt,
	}, chain.Entries[2])
	require.Equal(t, ledger.Move{
		Tenant: "default", Order: "order-1", Seq: 3, Kind: ledger.KindTransferIn, EventID: "op-1", From: ledger.IssuedPoints("order-1"), To: user, Account: user,
		Amount: 600, Currency: ledger.Points, OrderTotal: 2500, OrderCurrency: "USD", CreatedAt: chain.Entries[3].CreatedAt,
	}, chain.Entries[3])
}

func TestTheOrdersOfAnAccountAreFoundInPages(t *testing.T) {
	t.Parallel()
	books := &ledgertest.Books{}
	for i := range 700 {
		order := fmt.Sprint("order-", i)
		ordered(t, books, order, int64(i+1))
		if i%2 == 0 {
			reverse(t, books, order, "r", 1) // every second has two entries, so that a page cuts some
		}
	}
	chains := held(t, books)
	require.Len(t, chains, 699, "the first has nothing left")
	require.Equal(t, 2, books.Queries()-350)
	var all int64
	for start := 0; start < len(chains); start += 100 {
		all += transfer(t, books, chains[start:min(start+100, len(chains))])
	}
	require.Equal(t, int64(700*701/2-350), all)
	require.Equal(t, all, books.Balance("default", user))
	require.Zero(t, books.Balance("default", guest))
	require.Empty(t, held(t, books))
}

func TestOrdersWithNothingToMoveAreNotTransferred(t *testing.T) {
	t.Parallel()
	entry := credit("order-1", 1000)
	entry.To = guest
	own, err := entryOf(credit("order-1", 1000))
	require.NoError(t, err)
	full, err := entryOf(entry)
	require.NoError(t, err)
	chain := ledger.Chain{Entries: []ledger.Move{full}}
	for len(chain.Entries) < ledger.MaxEntries-2 {
		chain.Entries = append(chain.Entries, ledger.Move{Kind: ledger.KindReversal, Amount: 1})
	}
	for name, chains := range map[string][]ledger.Chain{
		"nothing":                                nil,
		"no credit":                              {{}},
		"what the account has":                   {{Entries: []ledger.Move{own}}},
		"a chain without room for a refund more": {chain},
	} {
		writes, amount, err := ledger.Transfer(chains, user, "op-1", noon)
		require.NoError(t, err, name)
		require.Empty(t, writes, name)
		require.Zero(t, amount, name)
	}
	_, _, err = ledger.Transfer([]ledger.Chain{{Entries: []ledger.Move{full}}}, "", "op-1", noon)
	require.ErrorIs(t, err, ledger.ErrInvalid)
}

func TestHalfATransferIsABrokenChain(t *testing.T) {
	t.Parallel()
	made := func() []store.Document {
		first, err := ledger.Credit(func() ledger.Move { e := credit("order-1", 1000); e.To = guest; return e }())
		require.NoError(t, err)
		documents := []store.Document{{Key: first[0].Key, Fields: first[0].Fields}}
		entry, err := ledger.MoveFromDocument(documents[0])
		require.NoError(t, err)
		writes, _, err := ledger.Transfer([]ledger.Chain{{Entries: []ledger.Move{entry}}}, user, "op-1", noon)
		require.NoError(t, err)
		for _, w := range writes[:2] {
			documents = append(documents, store.Document{Key: w.Key, Fields: w.Fields})
		}
		return documents
	}
	for name, test := range map[string]struct {
		spoil func(documents []store.Document) []store.Document
		err   error
	}{
		"a whole one":    {func(d []store.Document) []store.Document { return d }, nil},
		"out and not in": {func(d []store.Document) []store.Document { return d[:2] }, ledger.ErrBroken},
		"in and not out": {func(d []store.Document) []store.Document {
			d[2].Fields["seq"] = int64(1)
			return []store.Document{d[0], d[2]}
		}, ledger.ErrBroken},
		"more in than out":             {func(d []store.Document) []store.Document { d[2].Fields["amount"] = int64(1001); return d }, ledger.ErrBroken},
		"out of an account without it": {func(d []store.Document) []store.Document { d[1].Fields["account"] = string(user); return d }, ledger.ErrBroken},
		"a kind that there is not":     {func(d []store.Document) []store.Document { d[1].Fields["kind"] = "gift"; return d[:2] }, ledger.ErrBroken},
	} {
		_, err := ledger.Load(t.Context(), pages{store.Page{Documents: test.spoil(made())}, nil}, "default", "order-1")
		require.ErrorIs(t, err, test.err, name)
	}
}
