package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/internal/apps/ledger"
	"billhook/internal/apps/ledger/ledgertest"
	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
)

var (
	noon  = time.Date(2026, 3, 2, 12, 0, 0, 123456789, time.UTC)
	guest = ledger.CustomerPoints("c1")
	user  = ledger.UserPoints("u1")
)

func credit(order string, amount int64) ledger.Move {
	return ledger.Move{
		Tenant: "default", Order: order, EventID: "paid-1", From: ledger.IssuedPoints(order), To: user,
		Amount: amount, Currency: ledger.Points, OrderTotal: 2500, OrderCurrency: "USD", CreatedAt: noon,
	}
}

func toGuest(order string, amount int64) ledger.Move {
	m := credit(order, amount)
	m.To = guest
	return m
}

func document(writes []store.Write, err error) store.Document {
	if err != nil {
		panic(err)
	}
	return store.Document{Key: writes[0].Key, Fields: writes[0].Fields, Version: 1}
}

func credited(m ledger.Move) ledger.Move {
	m, err := ledger.MoveFromDocument(document(ledger.Credit(m)))
	if err != nil {
		panic(err)
	}
	return m
}

func book(t *testing.T, into store.Committer, writes []store.Write, err error) {
	t.Helper()
	require.NoError(t, err)
	require.NoError(t, store.CheckWrites(writes))
	storetest.Put(t, into, writes...)
}

func bookCredit(t *testing.T, into store.Committer, m ledger.Move) {
	t.Helper()
	writes, err := ledger.Credit(m)
	book(t, into, writes, err)
}

func bookReversal(t *testing.T, books store.Store, order, event string, amount int64) {
	t.Helper()
	chain, err := ledger.Load(t.Context(), books, "default", order)
	require.NoError(t, err)
	writes, err := chain.Reverse("of-"+event, event, amount, noon)
	book(t, books, writes, err)
}

func TestAnInvalidCreditIsRefused(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(*ledger.Move){
		"nothing moves":                      func(e *ledger.Move) { e.Amount = 0 },
		"a negative amount":                  func(e *ledger.Move) { e.Amount = -1 },
		"more than one entry may move":       func(e *ledger.Move) { e.Amount = ledger.MaxAmount + 1 },
		"no order":                           func(e *ledger.Move) { e.Order = "" },
		"no event":                           func(e *ledger.Move) { e.EventID = "" },
		"no source":                          func(e *ledger.Move) { e.From = "" },
		"no destination":                     func(e *ledger.Move) { e.To = "" },
		"from an account to itself":          func(e *ledger.Move) { e.From = e.To },
		"no currency":                        func(e *ledger.Move) { e.Currency = "" },
		"no time":                            func(e *ledger.Move) { e.CreatedAt = time.Time{} },
		"a negative total":                   func(e *ledger.Move) { e.OrderTotal = -1 },
		"a total without currency":           func(e *ledger.Move) { e.OrderCurrency = "" },
		"an order too long for a document":   func(e *ledger.Move) { e.Order = strings.Repeat("o", 1500) },
		"a short order that escapes to 1.5k": func(e *ledger.Move) { e.Order = strings.Repeat("/", 500) },
		"an account too long":                func(e *ledger.Move) { e.To = ledger.UserPoints(strings.Repeat("u", 1500)) },
	} {
		move := credit("order-1", 1000)
		spoil(&move)
		writes, err := ledger.Credit(move)
		require.ErrorIs(t, err, ledger.ErrInvalid, name)
		require.Nil(t, writes, name)
	}
}

func TestAReversalOfMoreThanIsLeftIsRefused(t *testing.T) {
	t.Parallel()
	full := []ledger.Move{credited(credit("order-1", ledger.MaxAmount))}
	for len(full) < ledger.MaxEntries {
		full = append(full, ledger.Move{Kind: ledger.KindReversal, Amount: 1})
	}
	for name, test := range map[string]struct {
		entries []ledger.Move
		amount  int64
		err     error
	}{
		"an order never credited":    {nil, 1, ledger.ErrNoCredit},
		"more than is left":          {full[:2], ledger.MaxAmount, ledger.ErrNotLeft},
		"nothing":                    {full[:1], 0, ledger.ErrInvalid},
		"a negative amount":          {full[:1], -1, ledger.ErrInvalid},
		"a chain of 1,000 entries":   {full, 1, ledger.ErrFull},
		"but not one of 999 of them": {full[:ledger.MaxEntries-1], 1, nil},
	} {
		_, err := ledger.Chain{Entries: test.entries}.Reverse("", "refund-1", test.amount, noon)
		require.ErrorIs(t, err, test.err, name)
	}
}

type pages struct {
	page store.Page
	err  error
}

func (p pages) Query(context.Context, store.Query) (store.Page, error) { return p.page, p.err }

func TestABrokenChainIsNotLoaded(t *testing.T) {
	t.Parallel()
	doc := func(seq int64, kind string, change map[string]any) store.Document {
		d := document(ledger.Credit(credit("order-1", 1000)))
		d.Key.ID = fmt.Sprint("x~", seq)
		d.Fields["seq"], d.Fields["kind"] = seq, kind
		maps.Copy(d.Fields, change)
		return d
	}
	// The credit of a guest's order, and both halves of its transfer, one of them changed.
	moved := func(change int, name string, value any) []store.Document {
		first := toGuest("order-1", 1000)
		documents := []store.Document{document(ledger.Credit(first))}
		writes, _, err := ledger.Transfer([]ledger.Chain{{Entries: []ledger.Move{credited(first)}}}, user, "op-1", noon)
		require.NoError(t, err)
		documents = append(documents, document(writes, nil), document(writes[1:], nil))
		documents[change].Fields[name] = value
		return documents
	}
	whole, second := moved(0, "seq", int64(0)), moved(2, "seq", int64(1))
	down := errors.New("no answer")
	for name, test := range map[string]struct {
		documents []store.Document
		next      string
		err       error
	}{
		"no entries":                   {},
		"a credit":                     {documents: []store.Document{doc(0, "credit", nil)}},
		"a credit and a reversal":      {documents: []store.Document{doc(0, "credit", nil), doc(1, "reversal", nil)}},
		"a transfer":                   {documents: whole},
		"a credit that is gone":        {documents: []store.Document{doc(1, "reversal", nil)}, err: ledger.ErrBroken},
		"a reversal that is gone":      {documents: []store.Document{doc(0, "credit", nil), doc(2, "reversal", nil)}, err: ledger.ErrBroken},
		"two credits":                  {documents: []store.Document{doc(0, "credit", nil), doc(1, "credit", nil)}, err: ledger.ErrBroken},
		"an entry of another order":    {documents: []store.Document{doc(0, "credit", map[string]any{"order": "order-2"})}, err: ledger.ErrBroken},
		"an amount that is text":       {documents: []store.Document{doc(0, "credit", map[string]any{"amount": "1000"})}, err: ledger.ErrBroken},
		"an amount that is gone":       {documents: []store.Document{doc(0, "credit", map[string]any{"amount": nil})}, err: ledger.ErrBroken},
		"more undone than credited":    {documents: []store.Document{doc(0, "credit", nil), doc(1, "reversal", nil), doc(2, "reversal", nil)}, err: ledger.ErrBroken},
		"lines that are text":          {documents: []store.Document{doc(0, "credit", map[string]any{"lines": "x"})}, err: ledger.ErrBroken},
		"more than one page":           {documents: []store.Document{doc(0, "credit", nil)}, next: "x", err: ledger.ErrBroken},
		"out and not in":               {documents: whole[:2], err: ledger.ErrBroken},
		"in and not out":               {documents: []store.Document{second[0], second[2]}, err: ledger.ErrBroken},
		"more in than out":             {documents: moved(2, "amount", int64(1001)), err: ledger.ErrBroken},
		"out of an account without it": {documents: moved(1, "account", string(user)), err: ledger.ErrBroken},
		"a kind that there is not":     {documents: moved(1, "kind", "gift")[:2], err: ledger.ErrBroken},
		"a store that is down":         {err: down},
	} {
		answers := pages{page: store.Page{Documents: test.documents, Next: store.Cursor{ID: test.next}}}
		if !errors.Is(test.err, ledger.ErrBroken) {
			answers.err = test.err
		}
		chain, err := ledger.Load(t.Context(), answers, "default", "order-1")
		require.ErrorIs(t, err, test.err, name)
		if test.err == nil {
			require.Len(t, chain.Entries, len(test.documents), name)
		}
	}
}

func TestTheOrdersOfAnAccountAreFoundAndMovedInPages(t *testing.T) {
	t.Parallel()
	books := &storetest.Counter{Store: storetest.Open(t)}
	for i := range 700 {
		order := fmt.Sprint("order-", i)
		bookCredit(t, books, toGuest(order, int64(i+1)))
		if i%2 == 0 {
			bookReversal(t, books, order, "r", 1) // every second has two entries, so that a page cuts some
		}
	}
	held := func() (all []ledger.Chain) {
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
	books.Queries.Store(0)
	chains := held()
	require.Len(t, chains, 699, "the first has nothing left")
	require.EqualValues(t, 2, books.Queries.Load())
	var all int64
	for some := range slices.Chunk(chains, 100) {
		writes, amount, err := ledger.Transfer(some, user, "op-1", noon)
		book(t, books, writes, err)
		all += amount
	}
	require.Equal(t, int64(700*701/2-350), all)
	for account, want := range map[ledger.Account]int64{user: all, guest: 0} {
		doc, err := books.Get(t.Context(), account.Key("default"))
		require.NoError(t, err)
		require.Equal(t, want, doc.Fields["balance"])
	}
	require.Empty(t, held())
}

func TestOrdersWithNothingToMoveAreNotTransferred(t *testing.T) {
	t.Parallel()
	full := []ledger.Move{credited(toGuest("order-1", 1000))}
	for len(full) < ledger.MaxEntries-2 {
		full = append(full, ledger.Move{Kind: ledger.KindReversal, Amount: 1})
	}
	for name, chains := range map[string][]ledger.Chain{
		"nothing":                                nil,
		"no credit":                              {{}},
		"what the account has":                   {{Entries: []ledger.Move{credited(credit("order-1", 1000))}}},
		"a chain without room for a refund more": {{Entries: full}},
	} {
		writes, amount, err := ledger.Transfer(chains, user, "op-1", noon)
		require.NoError(t, err, name)
		require.Empty(t, writes, name)
		require.Zero(t, amount, name)
	}
	_, _, err := ledger.Transfer([]ledger.Chain{{Entries: full[:1]}}, "", "op-1", noon)
	require.ErrorIs(t, err, ledger.ErrInvalid)
}

func TestTheBooksHoldOnTheEmbeddedStore(t *testing.T) {
	t.Parallel()
	ledgertest.Run(t, storetest.Open)
}
