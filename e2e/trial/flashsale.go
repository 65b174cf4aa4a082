package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"billhook/catalog/catalogtest"
	"billhook/e2e"
	"billhook/internal/apps/notifications"
	"billhook/internal/apps/orders"
	"billhook/internal/contract"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/platform/audit"
	"billhook/internal/platform/standin"
	"billhook/internal/platform/store"
)

type sale struct {
	orders, pieces int
	killsEvery     time.Duration
}

// flashsale sells a hundred pieces of one product to three thousand buyers at once, in an open loop, to two workers that
// are killed with SIGKILL in turn. It fails unless the pieces are sold out, every other order is cancelled for a reason,
// and every buyer was notified once, on each channel.
func flashsale(flags *flag.FlagSet) func(*run) {
	var asked sale
	flags.IntVar(&asked.orders, "orders", 3000, "how many orders come at once")
	flags.IntVar(&asked.pieces, "pieces", 100, "how many pieces there are")
	flags.DurationVar(&asked.killsEvery, "kills-every", time.Second, "how often a worker is killed, on average; 0: never")
	return func(r *run) {
		shipped := catalogtest.Shipped()
		taker, _ := shipped.HandledBy("orders.create")
		fanOut, _ := shipped.HandledBy(notifications.FanOut)
		sender, _ := shipped.EmitsTo(notifications.FanOut)
		m := &market{site: open(r, taker.ID, fanOut.ID, sender.ID), run: r, sale: asked, queue: taker.ID}
		r.printf("%d orders for %d pieces, two workers, kill -9 about every %s\n", asked.orders, asked.pieces, asked.killsEvery)
		taken, ended, notified := m.sell()
		found := m.count()
		r.printf("%s\n", found)
		others := m.others()
		for _, queue := range slices.Sorted(maps.Keys(others)) {
			r.printf("%s, deliveries besides those that succeeded: %s\n", queue, others[queue])
		}
		r.printf("the webhook service had taken all after %s, every order had ended after %s, every buyer was notified after %s; %d refusals by the webhook service, %d kills -9 that left %d pushes unanswered\n",
			short(taken), short(ended), short(notified), m.refused.Load(), m.kills, m.unanswered.Load())
		m.judge(r, found)
	}
}

type market struct {
	*site
	*run
	sale
	queue   string
	refused atomic.Int64
}

const onSale = "flash-sale-piece"

// sell makes all orders, pays for what is reserved, and waits until every buyer was notified. It returns how long that took,
// from the first request on.
func (m *market) sell() (taken, ended, notified time.Duration) {
	stock := m.stock()
	_, err := stock.Set(m.ctx, contract.DefaultTenant, onSale, int64(m.pieces), audit.Change{Who: audit.Author{Proof: audit.Identity, Name: "flashsale"}, Why: "the pieces of the sale"})
	m.must(err)
	began := time.Now()
	taken, ended = m.trade(began)
	states := m.states()
	wanted := m.wanted(len(states[orders.OrderConfirmed]), len(states[orders.OrderCancelled])).total()
	m.settle(m.run, m.store, func() bool { return m.notified().total() >= wanted })
	return taken, ended, time.Since(began)
}

func (m *market) trade(began time.Time) (taken, ended time.Duration) {
	var raging, paying sync.WaitGroup
	defer raging.Wait()
	life, end := context.WithCancel(m.ctx)
	defer end()
	raging.Go(func() { m.rage(life, m.run, m.killsEvery) })
	raging.Go(func() { m.schedule(life, time.Second) })
	defer paying.Wait()
	paying.Go(m.pay)
	m.order()
	taken = time.Since(began)
	paying.Wait()
	return taken, time.Since(began)
}

func (m *market) stock() orders.StockEditor {
	return orders.StockEditor{Store: m.store, Now: time.Now, NewID: uuid.NewString}
}

func orderID(i int) string { return fmt.Sprintf("order-%05d", i) }

func (m *market) order() {
	var group errgroup.Group
	group.SetLimit(128)
	for i := range m.orders {
		group.Go(func() error {
			m.send("created-"+orderID(i), "order.created", fmt.Sprintf(
				`{"order_id":%q,"user_id":"buyer-%d","total":1000,"items_count":1,"items":[{"product_id":%q,"quantity":1}]}`, orderID(i), i, onSale))
			return nil
		})
	}
	m.must(group.Wait())
}

func (m *market) send(id, eventType, data string) {
	body := fmt.Appendf(nil, `{"id":%q,"type":%q,"version":1,"timestamp":%q,"producer":"shop","data":%s}`, id, eventType, time.Now().UTC().Format(time.RFC3339), data)
	_, refused, err := e2e.UntilAccepted(m.ctx, func() (e2e.Answer, error) { return e2e.Produce(m.ctx, m.webhook.URL, "/queues/"+m.queue, body) })
	m.refused.Add(int64(refused))
	require.NoError(m, err, id)
}

// pay pays once for each order that waits for its payment, until every order has ended.
func (m *market) pay() {
	paid := map[string]bool{}
	for {
		states := m.states()
		for _, id := range states[orders.PaymentInitiated] {
			if !paid[id] {
				m.send("paid-"+id, "order.payment_confirmed", fmt.Sprintf(`{"order_id":%q,"payment_id":"payment-%s"}`, id, id))
				paid[id] = true
			}
		}
		ended := len(states[orders.OrderConfirmed]) + len(states[orders.OrderCancelled])
		if ended >= m.orders {
			return
		}
		// The emulator of Firestore reads all orders at each look, in the time of the workers.
		if !e2e.Wait(m.ctx, time.Second) {
			m.Fatalf("%d orders have ended of %d: %w", ended, m.orders, m.ctx.Err())
		}
	}
}

func (m *market) states() map[orders.State][]string {
	found := map[orders.State][]string{}
	each(m.run, m.store, orders.Collection, nil, func(doc store.Document) {
		order, err := orders.Read(doc)
		m.must(err)
		found[order.State] = append(found[order.State], order.ID)
	})
	return found
}

// wanted is how many notifications there should be, by type, of so many confirmed and cancelled orders.
func (m *market) wanted(confirmed, cancelled int) counts {
	wanted := counts{}
	for eventType, n := range map[string]int{"order.confirmed": confirmed, "order.cancelled": cancelled} {
		for _, channel := range m.catalog.Notifications[eventType] {
			wanted.add("notification."+channel+"."+strings.ReplaceAll(eventType, ".", "_"), n)
		}
	}
	return wanted
}

func (m *market) notified() counts {
	notified := counts{}
	for _, d := range m.receiver.Deliveries() {
		if d.Outcome == standin.Applied {
			notified.add(d.Action, 1)
		}
	}
	return notified
}

func (m *market) count() counts {
	found := m.notified()
	for i := range m.orders {
		order, err := orders.Find(m.ctx, m.store, contract.DefaultTenant, orderID(i))
		if errors.Is(err, orders.ErrUnknown) {
			found.add("lost", 1)
			continue
		}
		m.must(err)
		found.add(string(order.State), 1)
		if order.State == orders.OrderCancelled && order.Reason == "" {
			found.add("cancelled without a reason", 1)
		}
		var passed []orders.State
		for _, step := range order.History {
			passed = append(passed, step.State)
		}
		slices.Sort(passed)
		if len(slices.Compact(passed)) < len(order.History) {
			found.add("passed a state twice", 1)
		}
	}
	stock := m.stock()
	left, err := stock.Get(m.ctx, contract.DefaultTenant, onSale)
	m.must(err)
	found.add("available", int(left.Available))
	found.add("reserved", int(left.Reserved))
	found.add("sold", int(left.Sold))
	seen := map[string]bool{}
	for _, d := range m.receiver.Deliveries() {
		if !seen[d.EventID] && m.receiver.Applied(d.EventID) > 1 {
			found.add("notified twice", 1)
		}
		seen[d.EventID] = true
	}
	deadLetters, err := m.store.Query(m.ctx, store.Query{Collection: deadletter.Collection, Count: true, Limit: m.orders})
	m.must(err)
	found.add("dead letters", int(deadLetters.Count))
	return found
}

// judge fails the run where anything else has become of the sale than what must.
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
