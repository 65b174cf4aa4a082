package ops_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/internal/apps/customers"
	"billhook/internal/apps/ledger"
	"billhook/internal/apps/orders/orderstest"
	"billhook/internal/apps/payments"
	"billhook/internal/apps/subscriptions"
	"billhook/internal/console/ops"
	"billhook/internal/contract"
	"billhook/internal/dedupe"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
)

// credits has an event of the tenant's customer credit an order, under an ordering key of its own.
func (r *rig) credits(t *testing.T, tenant, customer, event, order string, to ledger.Account, key string, minute int) {
	t.Helper()
	writes, err := ledger.Credit(ledger.Move{
		Tenant: tenant, Order: order, EventID: event, From: ledger.IssuedPoints(order), To: to, Amount: 100, Currency: ledger.Points,
		CreatedAt: at.Add(time.Duration(minute) * time.Minute),
	})
	require.NoError(t, err)
	e := record("orders", tenant, event)
	e.OrderingKey, e.Customer, e.CreatedAt = key, contract.CustomerOf(tenant, customer), at.Add(time.Duration(minute)*time.Minute)
	e.Entry = writes[0].Key.ID
	r.commit(t, append(writes, own(e))...)
}

// A shop's customer says "my points are missing".
func TestEverythingOfACustomerIsFoundByTheirID(t *testing.T) {
	t.Parallel()
	r := open(t)
	r.credits(t, "default", "c1", "e1", "o1", ledger.UserPoints("u1"), "u1", 1)
	r.credits(t, "default", "c1", "e3", "o3", ledger.UserPoints("u2"), "u2", 3)
	r.credits(t, "default", "c1", "e2", "o2", ledger.CustomerPoints("c1"), "c1", 2)
	r.credits(t, "acme", "c1", "e1", "o1", ledger.UserPoints("u9"), "u9", 1)
	r.credits(t, "default", "c2", "e5", "o5", ledger.UserPoints("u1"), "u1", 1)
	failing := record("orders", "default", "e4")
	failing.Status, failing.LastError, failing.Customer, failing.CreatedAt = dedupe.Failed, "callee_down", contract.CustomerOf("default", "c1"), at.Add(4*time.Minute)
	shop, err := orderstest.Open(r.store)
	require.NoError(t, err)
	_, err = shop.Deliver(t.Context(), r.store, orderstest.Created("e-shop", "shop-1"), false)
	require.NoError(t, err)
	m := contract.Message{Data: []byte("{}"), Attributes: map[string]string{
		"event_id": "e6", "ordering_key": "u7", contract.AttrCustomerID: "c1", "dead_letter_reason": "unknown_product", "source_message_id": "m6",
	}}
	_, err = deadletter.Keep(t.Context(), r.store, queues.Queues[0], m, "m6", at)
	require.NoError(t, err)
	r.commit(t, own(failing), store.Create(customers.Key("default", "c1"), map[string]any{"uid": "u1"}),
		subscriptions.Event{Tenant: "default", Subscription: "s1", EventID: "e7", Customer: "c1", UID: "usr_42"}.Write())
	refund(t, r.store, "default", "pay:1", "succeeded")
	paid, err := r.store.Get(t.Context(), store.Key{Collection: payments.RefundsCollection, ID: store.ID("default", "pay:1")})
	require.NoError(t, err)
	paid.Fields["subscription_id"] = "s1"
	r.commit(t, store.Replace(paid.Key, paid.Version, paid.Fields))

	var found ops.Activity
	require.Equal(t, http.StatusOK, r.ask(t, "/v1/ops/customers/c1/activity", nil, &found).Code)
	require.Equal(t, []string{
		"order o3 was credited to u2, while the customer is mapped to u1",
		"event e4, order.paid, has failed with callee_down and is tried again",
		"event e6 is a dead letter of queue orders: unknown_product",
	}, found.Findings)
	require.EqualValues(t, 100, found.GuestPoints)
	var events []string
	for _, e := range found.Events {
		events = append(events, e.EventID+" "+e.OrderingKey)
	}
	require.Equal(t, []string{"e4 u1", "e3 u2", "e2 c1", "e1 u1"}, events, "whatever their key, the newest first")
	require.Len(t, found.Moves, 3)
	require.Equal(t, []ops.ActivityBalance{{"points:customer:c1", 100}, {"points:user:u1", 200}, {"points:user:u2", 100}}, found.Balances)
	require.Equal(t, "shop-1", found.Orders[0].ID)
	require.Equal(t, []string{"s1"}, found.Subscriptions)
	require.Equal(t, "pay:1", found.Refunds[0].PaymentID)
	require.Equal(t, "e6", found.DeadLetters[0].EventID)
	require.Empty(t, found.More)

	require.Equal(t, http.StatusOK, r.ask(t, "/v1/ops/customers/c1/activity?tenant=acme", nil, &found).Code)
	require.Equal(t, []string{"order o1 was credited to u9, while the customer is mapped to nobody"}, found.Findings)
}

func TestACustomerWithMuchCostsABoundedNumberOfReads(t *testing.T) {
	t.Parallel()
	r := open(t)
	for i := range 60 {
		r.credits(t, "default", "c1", fmt.Sprint("e", i), fmt.Sprint("o", i), ledger.UserPoints(fmt.Sprint("u", i)), "k", i)
	}
	db := &storetest.Counter{Store: r.store}
	r.over(db)
	var found ops.Activity
	require.Equal(t, http.StatusOK, r.ask(t, "/v1/ops/customers/c1/activity", nil, &found).Code)
	require.Equal(t, []string{"events", "balances", "orders"}, found.More)
	require.Len(t, found.Events, 50)
	require.LessOrEqual(t, db.Gets.Load()+db.Queries.Load(), int64(2+3*dedupe.Shards+50+1+1+50+10))
}
