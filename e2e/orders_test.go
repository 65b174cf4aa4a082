package e2e_test

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"billhook/internal/apps/orders"
	"billhook/internal/console/ops"
	"billhook/internal/dedupe"
	"billhook/internal/pipeline/handler"
	"billhook/internal/platform/store"
)

// The queue of the shop's orders, and the topic that it is bound to.
const orderQueue, orderTopic = "orders-process", "orders"

// stocked sets how many pieces of a new product can be ordered, and returns its id.
func (s *stack) stocked(t *testing.T, available int64) (product string) {
	t.Helper()
	product = "product-" + uuid.NewString()
	var set orders.Stock
	s.ask(t, http.MethodPut, "/v1/ops/stock/"+product, ops.SetStock{Available: &available, Change: orders.Change{Why: "counted"}}, &set)
	require.Equal(t, available, set.Available)
	return product
}

// ordered creates an order of pieces of a product, and waits until it rests.
func (s *stack) ordered(t *testing.T, product string, quantity int) (order string, record dedupe.Record) {
	t.Helper()
	order = "order-" + uuid.NewString()
	id := s.tell(t, orderTopic, "order.created", order, map[string]any{
		"order_id": order, "user_id": "user-" + order, "seller_id": "seller-" + order, "total": 5497, "items_count": 1, "items": []map[string]any{{"product_id": product, "quantity": quantity}},
	})
	return order, s.ends(t, orderQueue, id)
}

// shopOrder is an order as the API shows it.
func (s *stack) shopOrder(t *testing.T, id string) (o orders.Order) {
	t.Helper()
	s.ask(t, http.MethodGet, "/v1/ops/orders/"+id, nil, &o)
	return o
}

// pieces are those of a product that are available, reserved and sold.
func (s *stack) pieces(t *testing.T, product string) [3]int64 {
	t.Helper()
	var stock orders.Stock
	s.ask(t, http.MethodGet, "/v1/ops/stock/"+product, nil, &stock)
	return [3]int64{stock.Available, stock.Reserved, stock.Sold}
}

// notifiedBy waits until what an order's event has told has reached its channels, and returns these.
func (s *stack) notifiedBy(t *testing.T, record dedupe.Record) (paths []string) {
	t.Helper()
	user := slices.IndexFunc(record.Emitted, func(e handler.Emitted) bool { return e.To == "notifications" && e.EventType != "seller.order_created" })
	require.GreaterOrEqual(t, user, 0)
	fanned := s.ends(t, "notifications-fanout", record.Emitted[user].EventID)
	require.Equal(t, "fanned_out", fanned.Result)
	for _, id := range handler.EmittedIDs(fanned.Emitted) {
		require.Equal(t, "delivered", s.ends(t, "notifications-send", id).Result)
		require.Equal(t, 1, s.service.Applied(id))
		paths = append(paths, s.deliveriesOf(id)[0].Path)
	}
	return paths
}

// shopOrderPaid: from its creation over PayNow's payment to its shipping.
func shopOrderPaid(t *testing.T, s *stack) {
	product := s.stocked(t, 5)
	order, record := s.ordered(t, product, 2)
	require.Equal(t, "payment_initiated", record.Result)
	require.Equal(t, [3]int64{3, 2, 0}, s.pieces(t, product))

	paid := s.newOrder()
	paid.ShopOrder = order
	s.accepted(t, paid.JSON())
	confirmed := s.ends(t, orderQueue, s.emitted(t, paid.EventID))
	require.Equal(t, "confirmed", confirmed.Result)
	require.Equal(t, [3]int64{3, 0, 2}, s.pieces(t, product))
	require.Equal(t, paid.OrderID, s.shopOrder(t, order).PaymentID)
	require.ElementsMatch(t, []string{"/v1/notifications/email", "/v1/notifications/sms", "/v1/notifications/push"}, s.notifiedBy(t, confirmed))
	s.until(t, confirmed.Emitted[0].EventID, "processed") // by analytics, which keeps no record
	seller := s.ends(t, "notifications-fanout", confirmed.Emitted[1].EventID)
	require.Equal(t, []string{"seller.order_created", "fanned_out"}, []string{seller.EventType, seller.Result})
	require.Len(t, confirmed.Emitted, 4)
	require.Equal(t, "delivered", s.ends(t, "search-index", confirmed.Emitted[3].EventID).Result)
	at := s.shopOrder(t, order).UpdatedAt
	require.JSONEq(t, fmt.Sprintf(`{"document_id":%q,"sold_at":%q,"tenant":"default","version":%d}`, product, at.Format(time.RFC3339Nano), at.UnixMicro()),
		s.service.Document("/sales/_bulk", "default~"+product))
	waiting, err := s.store.Query(t.Context(), store.Query{Collection: "delayed", Equal: map[string]any{"event_id": record.EventID}, Limit: 1})
	require.NoError(t, err)
	require.Empty(t, waiting.Documents, "the timeout is withdrawn")

	s.accepted(t, paid.JSON())
	s.until(t, paid.EventID, "duplicate")
	shipped := s.ends(t, orderQueue, s.tell(t, orderTopic, "order.shipped", order, map[string]any{"order_id": order}))
	require.Equal(t, "shipped", shipped.Result)
	require.ElementsMatch(t, []string{"/v1/notifications/email", "/v1/notifications/push"}, s.notifiedBy(t, shipped))
	require.Equal(t, orders.OrderShipped, s.shopOrder(t, order).State)

	guest := s.newOrder() // a bad id is left out, and its buyer is credited
	guest.ShopOrder = "write to ilse.brandvold@example.org"
	s.accepted(t, guest.JSON())
	s.until(t, guest.EventID, "processed")
}

// shopOrderTimesOut brings the moment forward: in the order, and where the timeout waits.
func shopOrderTimesOut(t *testing.T, s *stack) {
	product := s.stocked(t, 2)
	order, record := s.ordered(t, product, 2)
	s.untilReason(t, s.tell(t, orderTopic, "order.payment_timeout", order, map[string]any{"order_id": order}), "not_due")
	require.Equal(t, orders.PaymentInitiated, s.shopOrder(t, order).State)

	past := time.Now().Add(-time.Second).UTC().Truncate(time.Microsecond)
	waiting, err := s.store.Query(t.Context(), store.Query{Collection: "delayed", Equal: map[string]any{"event_id": record.EventID}, Limit: 2})
	require.NoError(t, err)
	require.Len(t, waiting.Documents, 1)
	entry := waiting.Documents[0]
	lane, err := s.store.Get(t.Context(), store.Key{Collection: "delayedKeys", ID: entry.Key.ID[:24]})
	require.NoError(t, err)
	kept, err := s.store.Query(t.Context(), store.Query{Collection: orders.Collection, Equal: map[string]any{"order_id": order}, Limit: 1})
	require.NoError(t, err)
	document := kept.Documents[0]
	entry.Fields["due_at"], lane.Fields["due_at"], document.Fields["payment_due"] = past, past, past
	_, err = s.store.Commit(t.Context(), []store.Write{
		store.Set(entry.Key, entry.Fields), store.Set(lane.Key, lane.Fields), store.Set(document.Key, document.Fields),
	})
	require.NoError(t, err)
	_, err = s.task(t.Context(), "release-delayed")
	require.NoError(t, err)
	late := s.ends(t, orderQueue, record.Emitted[0].EventID)
	require.Equal(t, "cancelled_payment_timeout", late.Result)
	require.Equal(t, [3]int64{2, 0, 0}, s.pieces(t, product))
	require.Len(t, s.notifiedBy(t, late), 2)

	paid := s.ends(t, orderQueue, s.tell(t, orderTopic, "order.payment_confirmed", order, map[string]any{"order_id": order}))
	require.Equal(t, []any{dedupe.DeadLettered, "paid_after_cancelled"}, []any{paid.Status, paid.LastError})
}
