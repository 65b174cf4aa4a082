package operations_test

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/internal/apps/ledger"
	"billhook/internal/apps/ledger/ledgertest"
	"billhook/internal/apps/orders"
	"billhook/internal/apps/orders/orderstest"
	"billhook/internal/apps/payments"
	"billhook/internal/apps/usage"
	"billhook/internal/dedupe"
	"billhook/internal/filetest"
	"billhook/internal/inspect/bulk"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/pipeline/handler"
	"billhook/internal/pipeline/lane"
	"billhook/internal/pipeline/rates"
	"billhook/internal/platform/audit"
	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
)

// order delivers an order of a customer for a hat.
func (r *rig) order(t *testing.T, event, order string, items ...string) {
	t.Helper()
	shop := filetest.Must(orderstest.Open(r.store))(t)
	_, err := shop.Deliver(t.Context(), r.store, orderstest.Created(event, order, items...), false)
	require.NoError(t, err)
}

// refund is the document of a payment's refund that was requested that long before now.
func refund(tenant, payment string, state payments.State, ago time.Duration) store.Write {
	one := payments.Refund{
		PaymentID: payment, Tenant: tenant, State: state, Queue: "refunds", EventID: "r-" + payment,
		ReservedAt: at.Add(-ago),
	}
	return store.Create(store.Key{Collection: payments.RefundsCollection, ID: store.ID(tenant, payment)},
		store.Encode(&one))
}

// used is the usage of a subscription in March, with its only entry.
func used(of usage.Total) []store.Write {
	of.Start, of.CountedAt, of.Entries, of.Month = time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC), at, 1,
		of.Tenant+"~2026-03"
	if of.Period == "" {
		of.Period = "2026-03"
	}
	key, event := usage.Key(of.Tenant, of.Subscription, of.Period, of.Meter), "u-"+of.Subscription+"-"+of.Meter
	entry := usage.Entry{
		Tenant: of.Tenant, Subscription: of.Subscription, Period: of.Period, Meter: of.Meter, EventID: event,
		Quantity: of.Used, OccurredAt: at, CountedAt: at, Total: key.ID,
	}
	return []store.Write{
		store.Create(key, store.Encode(&of)), store.Create(usage.EntryKey(of.Tenant, of.Subscription, event),
			store.Encode(&entry)),
	}
}

func waitingLane(id string, waits time.Duration) store.Write {
	return store.Create(store.Key{Collection: lane.Outbox.Lanes(), ID: id},
		map[string]any{"newest": "x", "due_at": at.Add(time.Second), "oldest_at": at.Add(-waits)})
}

// stock writes so many documents into each collection that a list shows.
func (r *rig) stock(t *testing.T, documents int) {
	t.Helper()
	r.order(t, "e-order", "o1")
	r.credit(t, "default", "first", "first", ledger.UserPoints("u1"), 100, 0)
	r.does(t, http.MethodPut, "/v1/ops/stock/hat", `{"available":5,"why":"counted"}`, nil)
	item := dead("orders", "seed", "r", 0)
	item.EventID, item.Operation = "e7", "op"
	writes := append(used(usage.Total{Tenant: "default", Subscription: "s:1", Meter: "calls", Used: 1}),
		inStore(item), waitingLane("seed", time.Hour), refund("default", "pay:1", payments.UnderWay, 0))
	r.commit(t, writes...)
	writes = nil
	for i := range documents {
		ago := time.Duration(i) * time.Second
		for unit, layout := range map[rates.Unit]string{rates.Hour: "hour-2006010215", rates.Day: "day-20060102"} {
			counted := at.Add(-time.Duration(i/rates.Shards) * time.Duration(unit))
			id := fmt.Sprintf("%s-%d", counted.Format(layout), i%rates.Shards)
			writes = append(writes, store.Create(store.Key{Collection: rates.Collection, ID: id},
				map[string]any{"queues": map[string]any{"orders": map[string]any{"in": int64(1)}}}))
		}
		event := created("orders", fmt.Sprint("e", i),
			[]dedupe.Status{dedupe.Completed, dedupe.Failed, dedupe.DeadLettered}[i%3], ago)
		event.Emitted = []handler.Emitted{{EventID: "emitted"}}
		op := bulk.Operation{
			Kind: deadletter.Replay, Filter: bulk.Filter{Queue: "orders"}, Who: "ilse", Rate: 50,
			CreatedAt: at.Add(-ago),
			Progress:  []bulk.Progress{bulk.Finished, bulk.Running}[i%2],
		}
		entered := filetest.Must(ledger.Post(sale("default", fmt.Sprint("e", i), "2026-03", 100)))(t)
		credited := ledgertest.Credited(t, ledger.Move{
			Tenant: "default", Order: fmt.Sprint("o", i), EventID: "e", To: ledger.UserPoints("u1"), Amount: 1,
			CreatedAt: at,
		})
		writes = append(writes, own(event), entered[0], credited[0],
			store.Create(store.Key{Collection: audit.Collection, ID: fmt.Sprintf("op-%05d", i)}, store.Encode(&op)))
	}
	for _, collection := range []string{
		deadletter.Collection, lane.Outbox.Lanes(), payments.RefundsCollection, orders.Collection,
		orders.StockCollection, usage.Collection, usage.EntriesCollection, audit.Collection,
	} {
		seeds := storetest.All(t, r.store, collection)
		require.NotEmpty(t, seeds, collection)
		for i := range documents - 1 { // beside the seed: a preview of more than 10,000 dead letters is refused
			seed := seeds[0]
			writes = append(writes,
				store.Create(store.Key{Collection: collection, ID: fmt.Sprintf("%s-%05d", seed.Key.ID, i)}, seed.Fields))
		}
	}
	for some := range slices.Chunk(writes, store.MaxWrites) {
		r.commit(t, some...)
	}
}
