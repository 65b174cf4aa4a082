package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"billhook/internal/apps/ledger"
	"billhook/internal/apps/ledger/ledgertest"
	"billhook/internal/platform/store"
)

var noon = time.Date(2026, 3, 2, 12, 0, 0, 123456789, time.UTC)

func credit(order string, amount int64) ledger.Move {
	return ledger.Move{
		Tenant: "default", Order: order, EventID: "paid-1", From: ledger.IssuedPoints(order), To: ledger.UserPoints("u1"),
		Amount: amount, Currency: ledger.Points, OrderTotal: 2500, OrderCurrency: "USD", CreatedAt: noon,
	}
}

func TestCreditWritesOneEntryAndOneIncrement(t *testing.T) {
	t.Parallel()
	writes, err := ledger.Credit(credit("order-1", 1000))
	require.NoError(t, err)
	require.NoError(t, store.CheckWrites(writes))
	at := noon.Truncate(time.Microsecond)
	require.Equal(t, []store.Write{
		store.Create(store.Key{Collection: "entries", ID: "1f885dbc-default~points~order-1~0000"}, map[string]any{
			"order": "order-1", "seq": int64(0), "kind": "credit", "event_id": "paid-1",
			"from": "points:issued:order-1", "to": "points:user:u1", "account": "points:user:u1",
			"amount": int64(1000), "currency": "points", "tenant": "default", "period": "2026-03",
			"lines": []any{
				map[string]any{"account": "points:issued:order-1", "currency": "points", "debit": int64(1000), "credit": int64(0)},
				map[string]any{"account": "points:user:u1", "currency": "points", "debit": int64(0), "credit": int64(1000)},
			},
			"book": "default~2026-03", "postings": []any{"default~2026-03~points:issued", "default~2026-03~points:user"},
			"open": true, "unsealed": "default",
			"order_total": int64(2500), "order_currency": "USD", "created_at": at,
		}),
		store.Increment(store.Key{Collection: "accounts", ID: "d648b5cd-default~points:user:u1"}, map[string]int64{"balance": 1000},
			map[string]any{"tenant": "default", "account": "points:user:u1", "currency": "points", "updated_at": at}),
	}, writes)
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
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			entry := credit("order-1", 1000)
			spoil(&entry)
			writes, err := ledger.Credit(entry)
			require.ErrorIs(t, err, ledger.ErrInvalid)
			require.Nil(t, writes)
		})
	}
}

func TestAReversalReturnsThePointsToTheirSource(t *testing.T) {
	t.Parallel()
	books := &ledgertest.Books{}
	commit(t, books, credit("order-1", 1000))
	chain := load(t, books)
	writes, err := chain.Reverse("refund-1", 1000, noon.Add(time.Hour))
	require.NoError(t, err)
	require.NoError(t, books.Commit(t.Context(), writes))

	chain = load(t, books)
	require.Len(t, chain.Entries, 2)
	require.Zero(t, chain.Left())
	require.True(t, chain.Reversed("refund-1"))
	require.False(t, chain.Reversed("paid-1"))
	reversal := chain.Entries[1]
	require.Equal(t, ledger.Move{
		Order: "order-1", Seq: 1, Kind: ledger.KindReversal, EventID: "refund-1",
		From: ledger.UserPoints("u1"), To: ledger.IssuedPoints("order-1"), Account: ledger.UserPoints("u1"),
		Amount: 1000, Currency: ledger.Points, OrderTotal: 2500, OrderCurrency: "USD", Tenant: "default",
		CreatedAt: noon.Add(time.Hour).Truncate(time.Microsecond),
	}, reversal)
	require.Zero(t, books.Balance("default", ledger.UserPoints("u1")))
	require.Len(t, books.All(ledger.Accounts), 1, "the issuing side has no document")
}

func TestAReversalOfMoreThanIsLeftIsRefused(t *testing.T) {
	t.Parallel()
	one, err := entryOf(credit("order-1", ledger.MaxAmount))
	require.NoError(t, err)
	full := ledger.Chain{Entries: []ledger.Move{one}}
	for len(full.Entries) < ledger.MaxEntries {
		full.Entries = append(full.Entries, ledger.Move{Kind: ledger.KindReversal, Amount: 1})
	}
	for name, test := range map[string]struct {
		chain  ledger.Chain
		amount int64
		err    error
	}{
		"an order never credited":    {ledger.Chain{}, 1, ledger.ErrNoCredit},
		"more than was credited":     {ledger.Chain{Entries: full.Entries[:1]}, ledger.MaxAmount + 1, ledger.ErrNotLeft},
		"more than is left":          {ledger.Chain{Entries: full.Entries[:2]}, ledger.MaxAmount, ledger.ErrNotLeft},
		"nothing":                    {ledger.Chain{Entries: full.Entries[:1]}, 0, ledger.ErrInvalid},
		"a negative amount":          {ledger.Chain{Entries: full.Entries[:1]}, -1, ledger.ErrInvalid},
		"a chain of 1,000 entries":   {full, 1, ledger.ErrFull},
		"but not one of 999 of them": {ledger.Chain{Entries: full.Entries[:ledger.MaxEntries-1]}, 1, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := test.chain.Reverse("refund-1", test.amount, noon)
			require.ErrorIs(t, err, test.err)
		})
	}
}

// pages answers every query with one page.
type pages struct {
	page store.Page
	err  error
}

func (p pages) Query(context.Context, store.Query) (store.Page, error) { return p.page, p.err }

func TestABrokenChainIsNotLoaded(t *testing.T) {
	t.Parallel()
	document := func(seq int64, kind string, change map[string]any) store.Document {
		writes, err := ledger.Credit(credit("order-1", 1000))
		require.NoError(t, err)
		fields := writes[0].Fields
		fields["seq"], fields["kind"] = seq, kind
		for name, value := range change {
			fields[name] = value
		}
		return store.Document{Key: store.Key{Collection: ledger.Entries, ID: fmt.Sprint("x~", seq)}, Fields: fields}
	}
	down := errors.New("no answer")
	for name, test := range map[string]struct {
		documents []store.Document
		next      string
		failure   error
		err       error
	}{
		"no entries":                {},
		"a credit":                  {documents: []store.Document{document(0, "credit", nil)}},
		"a credit and a reversal":   {documents: []store.Document{document(0, "credit", nil), document(1, "reversal", nil)}},
		"a credit that is gone":     {documents: []store.Document{document(1, "reversal", nil)}, err: ledger.ErrBroken},
		"a reversal that is gone":   {documents: []store.Document{document(0, "credit", nil), document(2, "reversal", nil)}, err: ledger.ErrBroken},
		"two credits":               {documents: []store.Document{document(0, "credit", nil), document(1, "credit", nil)}, err: ledger.ErrBroken},
		"an entry of another order": {documents: []store.Document{document(0, "credit", map[string]any{"order": "order-2"})}, err: ledger.ErrBroken},
		"an amount that is text":    {documents: []store.Document{document(0, "credit", map[string]any{"amount": "1000"})}, err: ledger.ErrBroken},
		"an amount that is gone":    {documents: []store.Document{document(0, "credit", map[string]any{"amount": nil})}, err: ledger.ErrBroken},
		"more undone than credited": {documents: []store.Document{document(0, "credit", nil), document(1, "reversal", nil), document(2, "reversal", nil)}, err: ledger.ErrBroken},
		"lines that are text":       {documents: []store.Document{document(0, "credit", map[string]any{"lines": "x"})}, err: ledger.ErrBroken},
		"more than one page":        {documents: []store.Document{document(0, "credit", nil)}, next: "x", err: ledger.ErrBroken},
		"a store that is down":      {failure: down, err: down},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			chain, err := ledger.Load(t.Context(), pages{store.Page{Documents: test.documents, Next: store.Cursor{ID: test.next}}, test.failure}, "default", "order-1")
			require.ErrorIs(t, err, test.err)
			if test.err == nil {
				require.Len(t, chain.Entries, len(test.documents))
			}
		})
	}
}

func TestNoOrderSeesTheEntriesOfAnother(t *testing.T) {
	t.Parallel()
	// Few letters, among them all that mean something in a document id, so that
	// names often begin alike.
	name := rapid.StringOfN(rapid.RuneFrom([]rune("a0~%7E/-.é\x00")), 1, 8, -1)
	rapid.Check(t, func(t *rapid.T) {
		orders := rapid.SliceOfNDistinct(name, 2, 20, rapid.ID[string]).Draw(t, "orders")
		books := &ledgertest.Books{}
		for i, order := range orders {
			writes, err := ledger.Credit(credit(order, int64(i)+1))
			require.NoError(t, err)
			require.NoError(t, books.Commit(context.Background(), writes))
		}
		for i, order := range orders {
			chain, err := ledger.Load(context.Background(), books, "default", order)
			require.NoError(t, err)
			require.Len(t, chain.Entries, 1)
			require.Equal(t, int64(i)+1, chain.Left())
		}
	})
}

func TestDifferentAccountsHaveDifferentDocuments(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		uids := rapid.SliceOfNDistinct(rapid.String(), 2, 2, rapid.ID[string]).Draw(t, "uids")
		key := ledger.UserPoints(uids[0]).Key("default")
		require.NoError(t, store.CheckKey(key))
		require.NotEqual(t, key, ledger.UserPoints(uids[1]).Key("default"))
		require.NotEqual(t, key, ledger.CustomerPoints(uids[0]).Key("default"))
	})
}

func entryOf(e ledger.Move) (ledger.Move, error) {
	writes, err := ledger.Credit(e)
	if err != nil {
		return ledger.Move{}, err
	}
	return ledger.MoveFromDocument(store.Document{Key: writes[0].Key, Fields: writes[0].Fields})
}

func commit(t *testing.T, books *ledgertest.Books, e ledger.Move) {
	t.Helper()
	writes, err := ledger.Credit(e)
	require.NoError(t, err)
	require.NoError(t, books.Commit(t.Context(), writes))
}

func load(t *testing.T, books *ledgertest.Books) ledger.Chain {
	t.Helper()
	chain, err := ledger.Load(t.Context(), books, "default", "order-1")
	require.NoError(t, err)
	return chain
}
