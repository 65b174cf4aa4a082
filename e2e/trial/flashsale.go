package main

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/google/uuid"

	"billhook/catalog/catalogtest"
	"billhook/e2e"
	"billhook/internal/apps/notifications"
	"billhook/internal/apps/orders"
	"billhook/internal/contract"
	"billhook/internal/filetest"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/platform/audit"
	"billhook/internal/platform/standin"
	"billhook/internal/platform/store/storetest"
)

// flashsale sells a hundred pieces to three thousand buyers at once, with two workers under kill -9. It fails
// unless all are sold, the other orders cancelled with a reason, and each buyer notified once per channel.
func flashsale(flags *flag.FlagSet) func(*run) {
	many := flags.Int("orders", 3000, "how many orders come at once")
	pieces := flags.Int("pieces", 100, "how many pieces there are")
	every := flags.Duration("kills-every", time.Second, "how often a worker is killed, on average; 0: never")
	return func(r *run) {
		shipped := catalogtest.Shipped()
		taker, _ := shipped.HandledBy("orders.create")
		fanOut, _ := shipped.HandledBy(notifications.FanOut)
		sender, _ := shipped.EmitsTo(notifications.FanOut)
		m := &market{deploy(r, taker.ID, fanOut.ID, sender.ID), *many, *pieces, taker.ID}
		stock := orders.StockEditor{Store: m.store, Now: time.Now, NewID: uuid.NewString}
		pieces := int64(m.pieces)
		set := orders.SetStock{Available: &pieces}
		set.Tenant, set.ProductID, set.Why = contract.DefaultTenant, onSale, "the pieces of the sale"
		by := audit.Author{Proof: audit.Identity, Name: "flashsale"}
		m.must(filetest.ErrorOf(stock.Set(m.ctx, by, set)))
		began := time.Now()
		done := func(what string) { m.printf("%s after %s\n", what, time.Since(began).Round(100*time.Millisecond)) }
		m.beside(func() {
			m.pay()
			done("every order had ended")
		}, func(context.Context) {
			m.forEach(m.orders, 128, m.order)
			done("the webhook service had accepted all")
		},
			func(ctx context.Context) { m.rage(ctx, *every) },
			func(ctx context.Context) { m.schedule(ctx, time.Second) })
		ended := m.count()
		wanted := m.wanted(ended[string(orders.OrderConfirmed)], ended[string(orders.OrderCancelled)]).total()
		m.settle(m.store, func() string {
			sent := m.notified().total()
			return unless(sent >= wanted, "%d notifications of %d", wanted-sent, wanted)
		})
		done("every buyer was notified")
		m.printFailures()
		found := m.count()
		r.printf("%s\n", found)
		m.judge(r, found)
	}
}

type market struct {
	*deployed
	orders, pieces int
	queue          string
}

const onSale = "flash-sale-piece"

func (m *market) taken() []orders.Order {
	return everything(m.run, m.store, orders.Collection, orders.Read)
}

func (m *market) order(i int) {
	id := fmt.Sprintf("order-%05d", i)
	items := fmt.Sprintf(`[{"product_id":%q,"quantity":1}]`, onSale)
	m.produce("created-"+id, "order.created", fmt.Sprintf(
		`{"order_id":%q,"user_id":"buyer-%d","total":1000,"items_count":1,"items":%s}`, id, i, items))
}

func (m *market) produce(id, eventType, data string) {
	body := fmt.Appendf(nil, `{"id":%q,"type":%q,"version":1,"timestamp":%q,"producer":"shop","data":%s}`,
		id, eventType, time.Now().UTC().Format(time.RFC3339), data)
	m.send(id, func() (e2e.Answer, error) { return e2e.Produce(m.ctx, m.webhookURL, "/queues/"+m.queue, body) })
}

// pay pays each order once that waits for its payment, until every order has ended.
func (m *market) pay() {
	paid := map[string]bool{}
	// Each poll makes Firestore's emulator read all orders, which slows down the workers.
	m.until(time.Second, func() string {
		ended := 0
		for _, o := range m.taken() {
			switch {
			case o.State == orders.OrderConfirmed || o.State == orders.OrderCancelled:
				ended++
			case o.State == orders.PaymentInitiated && !paid[o.ID]:
				of := fmt.Sprintf(`{"order_id":%q,"payment_id":"payment-%[1]s"}`, o.ID)
				m.produce("paid-"+o.ID, "order.payment_confirmed", of)
				paid[o.ID] = true
			}
		}
		return unless(ended >= m.orders, "the ends of %d orders of %d", m.orders-ended, m.orders)
	})
}

// wanted returns how many notifications these confirmed and cancelled orders need, by type.
func (m *market) wanted(confirmed, cancelled int) counts {
	wanted := counts{}
	for eventType, n := range map[string]int{"order.confirmed": confirmed, "order.cancelled": cancelled} {
		for _, channel := range m.catalog.Notifications[eventType] {
			wanted.add("notification."+channel+"."+strings.ReplaceAll(eventType, ".", "_"), n)
		}
	}
	return wanted
}

// notified counts the sent notifications by type, and those that were sent twice.
func (m *market) notified() counts {
	notified, times := counts{}, counts{}
	for _, d := range m.receiver.Deliveries() {
		if d.Outcome == standin.Applied {
			notified.add(d.Action, 1)
			if times.add(d.EventID, 1); times[d.EventID] == 2 {
				notified.add("notified twice", 1)
			}
		}
	}
	return notified
}

func (m *market) count() counts {
	found, taken := m.notified(), m.taken()
	found.add("lost", m.orders-len(taken))
	for _, order := range taken {
		found.add(string(order.State), 1)
		if order.State == orders.OrderCancelled && order.Reason == "" {
			found.add("cancelled without a reason", 1)
		}
		passed := map[orders.State]bool{}
		for _, step := range order.History {
			passed[step.State] = true
		}
		if len(passed) < len(order.History) {
			found.add("passed a state twice", 1)
		}
	}
	stock := storetest.Get(m, m.store, orders.StockKey(contract.DefaultTenant, onSale))
	left := filetest.Must(orders.ReadStock(stock))(m)
	found.add("available", int(left.Available))
	found.add("reserved", int(left.Reserved))
	found.add("sold", int(left.Sold))
	found.add("dead letters", len(everything(m.run, m.store, deadletter.Collection, whole)))
	return found
}

func (m *market) judge(r *run, found counts) {
	sold := min(m.pieces, m.orders)
	must := m.wanted(sold, m.orders-sold)
	must.add(string(orders.OrderConfirmed), sold)
	must.add(string(orders.OrderCancelled), m.orders-sold)
	must.add("sold", sold)
	must.add("available", m.pieces-sold)
	if !maps.Equal(found, must) {
		r.broken("it must be %s", must)
	}
}
