package orders_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/internal/apps/orders"
	"billhook/internal/apps/orders/orderstest"
	"billhook/internal/console"
	"billhook/internal/dedupe"
	"billhook/internal/filetest"
	"billhook/internal/platform/audit"
	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
)

func TestStockIsSetWithAReasonAndKeepsReservedPieces(t *testing.T) {
	t.Parallel()
	s := open(t)
	_, err := s.Stock.Get(t.Context(), dedupe.DefaultTenant, "cap")
	require.ErrorIs(t, err, orders.ErrNoStock)
	s.stocked(t, "cap", 5)
	s.handle(t, orderstest.Created("e1", "o1", "cap 2"))
	after := filetest.Must(s.Stock.Set(t.Context(), ada, orderstest.SetStock("cap", 9)))(t)
	require.Equal(t, orders.Stock{
		Tenant: dedupe.DefaultTenant, ProductID: "cap", Available: 9, Reserved: 2, Version: after.Version,
	}, after)
	s.handle(t, orderstest.About("e2", "order.payment_failed", "o1"))
	require.Equal(t, [3]int64{11, 0, 0}, s.pieces(t, "cap"))
	for _, available := range []int64{-1, orders.MaxPieces + 1, math.MinInt64} {
		_, err := s.Stock.Set(t.Context(), ada, orderstest.SetStock("cap", available))
		require.ErrorIs(t, err, audit.ErrInvalid)
	}
	add := func(pieces int64) (orders.Stock, error) {
		return s.Stock.Add(t.Context(), ada, orders.AddStock{
			StockOf: orderstest.SetStock("cap", 0).StockOf, Pieces: &pieces, Change: console.Change{Why: "counted"},
		})
	}
	more := filetest.Must(add(4))(t)
	require.Equal(t, int64(15), more.Available)
	again, err := s.Stock.Set(t.Context(), ada, orderstest.SetStock("cap", 15))
	require.NoError(t, err, "the same value again is no change")
	require.Equal(t, more, again)
	for _, pieces := range []int64{orders.MaxPieces, math.MaxInt64} {
		_, err = add(pieces)
		require.ErrorIs(t, err, audit.ErrInvalid)
	}
	found, _, err := orders.List(t.Context(), s.Shop.Store, orders.OrderCancelled, store.Cursor{}, 10)
	require.NoError(t, err)
	require.Len(t, found, 1)
}

func TestAnUnreadableOrderIsADeadLetter(t *testing.T) {
	t.Parallel()
	s := open(t)
	s.stocked(t, "cap", 5)
	s.handle(t, orderstest.Created("e1", "o1", "cap 2"))
	doc := storetest.All(t, s.Shop.Store, orders.Collection)[0]
	doc.Fields["items"] = map[string]any{"cap": int64(-2)}
	storetest.Put(t, s.Shop.Store, store.Set(doc.Key, doc.Fields))
	paid := orderstest.About("e2", "order.payment_confirmed", "o1")
	require.Equal(t, "order_unreadable", s.refused(t, paid).Reason)
	below := store.Set(orders.StockKey(dedupe.DefaultTenant, "cap"), map[string]any{"available": int64(-1)})
	storetest.Put(t, s.Shop.Store, below)
	require.Equal(t, "order_unreadable", s.refused(t, orderstest.Created("e3", "o2", "cap 2")).Reason)
}
