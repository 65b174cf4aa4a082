package main

const (
	ordersDir = "internal/orders"
	ordersGo  = "internal/orders/orders.go"
	machineGo = "internal/orders/machine.go"
	stockGo   = "internal/orders/stock.go"
	emitGo    = "internal/lane/emit.go"
)

// faultsOfOrders are of orders, their stock, and emissions that are due later.
var faultsOfOrders = []fault{
	{"two steps of an order at once", "catalog/queues.yaml", `ordering_key: [order_id]`, `ordering_key: [user_id]`, "catalog", "TestTheShippedNumbersAreThoseOfTheRequirements"},
	{"a piece is reserved that is not there", ordersGo, `s.Available < item.Quantity)`, `s.Available < 0)`, ordersDir, "TestAnOrderThatIsShortOfOnePieceReservesNone"},
	{"two orders reserve the same piece", stockGo, `return store.Update(StockKey(s.Tenant, s.ProductID), version, store.Encode(&s))`, `_ = version; return store.Set(StockKey(s.Tenant, s.ProductID), store.Encode(&s))`, ordersDir, "TestOfTwoOrdersAtOnceOneGetsTheLastPiece"},
	{"two ends of an order are both written", ordersGo, `write = store.Update(key(o.Tenant, o.ID), version, o.fields())`, `write = store.Set(key(o.Tenant, o.ID), o.fields())`, ordersDir, "TestOfTwoEndsAtOnceOneIsWritten"},
	{"a payment that fails keeps its pieces", machineGo, `{from: PaymentFailed, to: InventoryReleased, stock: release},`, `{from: PaymentFailed, to: InventoryReleased},`, ordersDir, "TestAPaymentThatFailsOrDoesNotComeReleasesThePieces"},
	{"the index is not told of a sale", ordersGo, `effect.Emit = append(effect.Emit, k.tellIndexes(event, o)...)`, `_ = k.tellIndexes`, ordersDir, "TestTheBuyerTheSellerAnalyticsAndTheSearchIndexAreToldOfAnOrderThatIsConfirmed"},
	{"a timeout goes on when the order is paid", ordersGo, `effect.Withdraw = time.Time{}, []string{timeoutOf(o.ID)}`, `effect.Withdraw = time.Time{}, nil`, ordersDir, "TestAnOrderThatIsPaidSellsItsPieces"},
	{"anybody cancels an order by a timeout", ordersGo, `o.State == PaymentInitiated && early > 0 {`, `o.State == PaymentInitiated && early > time.Hour {`, ordersDir, "TestATimeoutBeforeItsTimeIsKeptUntilThen"},
	{"a timeout that comes early holds up its order", "internal/push/settle.go", `if w.run.Beside() {`, `if false {`, "internal/worker", "TestTheTimeoutOfAnOrderBetweenClocksFiveMinutesApart"},
	{"a second payment goes unseen", ordersGo, `retry.Permanent("paid_twice", nil)`, `nil`, ordersDir, "TestASecondPaymentOfAnOrderIsForAPerson"},
	{"a withdrawn emission is published", emitGo, `store.Delete(key, 0), store.Delete(laneKey, 0))`, `store.Delete(laneKey, 0)); _ = key`, "internal/lane", "TestADelayedEmissionIsWithdrawnByItsNameAlone"},
	{"a name of another tenant withdraws", emitGo, `Name{Queue: event.Queue, Tenant: event.Tenant, Message: "emission " + name}`, `Name{Queue: event.Queue, Message: "emission " + name}`, "internal/lane", "TestADelayedEmissionIsWithdrawnByItsNameAlone"},
	{"no alarm releases a delayed emission", "internal/push/perform.go", `w.lanes, w.released = emitted.Lanes, emitted.Due`, `w.lanes = emitted.Lanes`, pushDir, "TestADelayedEmissionIsReleasedByAnAlarm"},
}
