package e2e_test

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"billhook/e2e"
	"billhook/internal/apps/orders"
	"billhook/internal/dedupe"
	"billhook/internal/filetest"
	"billhook/internal/pipeline/handler"
	"billhook/internal/pipeline/lane"
	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
)

const orderQueue = "orders-process"

// ordered orders two of five pieces of a new product, and waits until the order waits for its payment.
func (s *stack) ordered(t *testing.T) (order, product string, record dedupe.Record) {
	t.Helper()
	order, product = "order-"+uuid.NewString(), "product-"+uuid.NewString()
	counted := map[string]any{"available": 5, "why": "counted"}
	s.ask(t, http.MethodPut, "/v1/ops/stock/"+product, counted, nil)
	items := fmt.Sprintf(`[{"product_id":%q,"quantity":2}]`, product)
	record = s.happens(t, order, "created", fmt.Sprintf(
		`,"user_id":"user-%s","seller_id":"s","total":5497,"items_count":1,"items":%s`, order, items))
	require.Equal(t, "payment_initiated", record.Result)
	require.Equal(t, [3]int64{3, 2, 0}, s.pieces(t, product))
	return order, product, record
}

// happens sends an event of an order through the webhook service, and waits for its end.
func (s *stack) happens(t *testing.T, order, what, more string) dedupe.Record {
	t.Helper()
	id := "evt-" + uuid.NewString()
	message := platformEvent(id, "order."+what, fmt.Sprintf(`{"order_id":%q%s}`, order, more))
	answer := s.signed(t, "/topics/orders", `{"message":`+message+`}`)
	require.Equal(t, http.StatusAccepted, answer.Status, answer.Body)
	return s.ends(t, orderQueue, id)
}

func (s *stack) pieces(t *testing.T, product string) [3]int64 {
	t.Helper()
	var stock orders.Stock
	s.ask(t, http.MethodGet, "/v1/ops/stock/"+product, nil, &stock)
	return [3]int64{stock.Available, stock.Reserved, stock.Sold}
}

func (s *stack) notifiedBy(t *testing.T, record dedupe.Record) int {
	t.Helper()
	user := slices.IndexFunc(record.Emitted, func(e handler.Emitted) bool {
		return e.To == "notifications" && e.EventType != "seller.order_created"
	})
	require.GreaterOrEqual(t, user, 0)
	fanned := s.ends(t, "notifications-fanout", record.Emitted[user].EventID)
	require.Equal(t, "fanned_out", fanned.Result)
	for _, id := range handler.EmittedIDs(fanned.Emitted) {
		require.Equal(t, "delivered", s.ends(t, "notifications-send", id).Result)
		require.Equal(t, 1, s.service.Applied(id))
	}
	return len(fanned.Emitted)
}

// delayedOf returns the messages of an event that wait for their time.
func (s *stack) delayedOf(t *testing.T, eventID string) []store.Document {
	t.Helper()
	of := store.Query{Collection: lane.Delayed.Entries(), Equal: map[string]any{"event_id": eventID}, Limit: 2}
	return filetest.Must(s.store.Query(t.Context(), of))(t).Documents
}

func shopOrderPaid(t *testing.T, s *stack) {
	order, product, record := s.ordered(t)
	paid := s.newOrder()
	paid.ShopOrder = order
	s.accepted(t, paid.JSON())
	emitted := s.ends(t, e2e.Queue, paid.EventID).Emitted
	require.Len(t, emitted, 1)
	confirmed := s.ends(t, orderQueue, emitted[0].EventID)
	require.Equal(t, "confirmed", confirmed.Result)
	require.Equal(t, [3]int64{3, 0, 2}, s.pieces(t, product))
	require.Equal(t, 3, s.notifiedBy(t, confirmed), "by mail, text message and push")
	require.Len(t, confirmed.Emitted, 4, "to the buyer, the seller, analytics and the search")
	require.Equal(t, "delivered", s.ends(t, "search-index", confirmed.Emitted[3].EventID).Result)
	require.Empty(t, s.delayedOf(t, record.EventID), "the timeout is cancelled")
	require.Equal(t, "shipped", s.happens(t, order, "shipped", "").Result)
	var shown orders.Order
	s.ask(t, http.MethodGet, "/v1/ops/orders/"+order, nil, &shown)
	require.Equal(t, []any{orders.OrderShipped, paid.OrderID}, []any{shown.State, shown.PaymentID})
}

// shopOrderTimesOut brings the timeout forward: in the order, and in its lane.
func shopOrderTimesOut(t *testing.T, s *stack) {
	order, product, record := s.ordered(t)
	waiting := s.delayedOf(t, record.EventID)
	require.Len(t, waiting, 1)
	one := store.Query{Collection: orders.Collection, Equal: map[string]any{"order_id": order}, Limit: 1}
	for key, field := range map[store.Key]string{
		filetest.Must(s.store.Query(t.Context(), one))(t).Documents[0].Key: "payment_due",
		waiting[0].Key: "due_at",
		{Collection: lane.Delayed.Lanes(), ID: waiting[0].Key.ID[:24]}: "due_at",
	} {
		storetest.Edit(t, s.store, key, func(fields map[string]any) {
			fields[field] = time.Now().Add(-time.Second).UTC().Truncate(time.Microsecond)
		})
	}
	require.NoError(t, filetest.ErrorOf(s.task(t.Context(), "release-delayed")))
	late := s.ends(t, orderQueue, record.Emitted[0].EventID)
	require.Equal(t, "cancelled_payment_timeout", late.Result)
	require.Equal(t, [3]int64{5, 0, 0}, s.pieces(t, product))
	require.Equal(t, 2, s.notifiedBy(t, late))
	require.Equal(t, "paid_after_cancelled", s.happens(t, order, "payment_confirmed", "").LastError)
}
