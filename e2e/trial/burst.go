package main

import (
	"flag"
	"fmt"
	"slices"
	"sync"
	"time"

	"billhook/catalog"
	"billhook/catalog/catalogtest"
	"billhook/e2e"
	"billhook/internal/compose/devstack"
)

// burst measures what an unknown product and a burst of orders cost other customers, with the catalog's
// numbers and without: how long a good order waits behind what cannot be processed, and what many senders get
// through. It fails where an order was lost or doubled, or a dead letter is missing.
func burst(flags *flag.FlagSet) func(*run) {
	orders := flags.Int("orders", 1500, "how many orders a burst has")
	senders := flags.Int("senders", 64, "how many send at once")
	unknown := flags.Int("forgotten", 20, "how many orders of a forgotten product come before the good one")
	refunds := flags.Int("refunds", 5, "how many refunds come before their orders, and before the good one")
	longest := flags.Duration("longest", 110*time.Second, "how long the good order is waited for without a budget")
	return func(r *run) {
		sent := r.table(fmt.Sprintf("a burst of %d senders", *senders), "slot_wait", "credits/s", "p99", "refused")
		row := r.table("a good order behind", "on_terminal", "nack_budget", "waited", "dead letters")
		product := fmt.Sprintf("%d orders of a forgotten product", *unknown)
		var slow sync.WaitGroup
		for i, s := range []behind{
			{name: product, unknown: *unknown, change: func(q *catalog.Queue) { q.OnTerminal, q.NackBudget = catalog.Reject, 0 }, longest: *longest},
			{name: product, unknown: *unknown, change: func(q *catalog.Queue) { q.OnTerminal = catalog.Reject }},
			{name: product, unknown: *unknown, change: func(q *catalog.Queue) { q.OnTerminal, q.NackBudget = catalog.Ack, 0 }},
			{name: fmt.Sprintf("%d refunds without their orders", *refunds), refunds: *refunds, change: func(*catalog.Queue) {}},
			{name: "nothing", change: func(*catalog.Queue) {}},
		} {
			measure := func() { r.part(s.name, func(part *run) { s.measure(part, row) }) }
			if i == 0 {
				slow.Go(measure)
				continue
			}
			measure()
		}
		slow.Wait()
		shipped, _ := catalogtest.Shipped().Queue(e2e.Queue)
		for _, wait := range []time.Duration{0, shipped.SlotWait} {
			r.part("a burst", func(r *run) { crowd(r, sent, wait, *orders, *senders) })
		}
	}
}

// changed is a Billhook with another queue of PayNow's orders than the shipped one.
func changed(r *run, change func(*catalog.Queue)) (*embedded, catalog.Queue) {
	c := catalogtest.Shipped()
	i := slices.IndexFunc(c.Queues, func(q catalog.Queue) bool { return q.ID == e2e.Queue })
	change(&c.Queues[i])
	return embed(r, devstack.Config{Catalog: c}), c.Queues[i]
}

func crowd(r *run, row func(...any), slotWait time.Duration, many, senders int) {
	e, _ := changed(r, func(q *catalog.Queue) { q.SlotWait = slotWait })
	d, want := newDrawing(r.seed), map[string]int64{}
	orders := make([]e2e.Order, many)
	for i := range orders {
		orders[i] = d.order(d.random.IntN(1000), e2e.Product)
		want[orders[i].UID] += points(orders[i])
	}
	began := time.Now()
	r.forEach(many, senders, func(i int) { e.hook(orders[i].EventID, orders[i].JSON()) })
	ended := e.await(many)
	credits := fmt.Sprintf("%.0f", float64(many)/time.Since(began).Seconds())
	row("open loop", slotWait, credits, ended.within(0.99).Round(time.Millisecond), r.seen[refusals])
	r.none(e.wrongPoints(want))
}

// behind is one variant of the first measurement: events that cannot be processed, and after
// them a good order of another customer.
type behind struct {
	name   string
	change func(*catalog.Queue)
	// unknown and refunds are how many of them come before the good order. The orders of the refunds come after
	// it.
	unknown, refunds int
	// longest is how long the good order is waited for; 0: until it comes.
	longest time.Duration
}

func (s behind) measure(r *run, row func(...any)) {
	e, queue := changed(r, s.change)
	d := newDrawing(r.seed)
	good := d.order(0, e2e.Product)
	var ahead []func()
	once, want := []e2e.Order{good}, map[string]int64{good.UID: points(good)}
	for i := range s.unknown {
		o := d.order(1+i, e2e.UnknownProduct)
		ahead = append(ahead, func() { e.hook(o.EventID, o.JSON()) })
	}
	for i := range s.refunds {
		o, id := d.order(1+i, e2e.Product), d.id()
		refund := e2e.Refund{EventID: id, RefundID: id + "2", OrderID: o.OrderID, CustomerID: o.CustomerID}
		refund.Amount, refund.Paid = o.Total(), o.Total()
		ahead = append(ahead, func() { e.hook(id, refund.JSON()) })
		once, want[o.UID] = append(once, o), 0
	}
	r.forEach(len(ahead), len(ahead), func(i int) { ahead[i]() })
	e.hook(good.EventID, good.JSON())
	began, waited := time.Now(), ""
	r.until("the good order", often, func() bool {
		if end, has := e.ends()[good.EventID]; has {
			waited = end.took.Round(time.Millisecond).String()
		} else if s.longest > 0 && time.Since(began) > s.longest {
			waited = "more than " + s.longest.String()
		}
		return waited != ""
	})
	if s.longest == 0 { // all of it is waited for
		for _, o := range once[1:] {
			e.hook(o.EventID, o.JSON())
		}
		ended := e.await(s.unknown + 2*s.refunds + 1)
		for _, o := range once {
			if n := ended[o.EventID].processed; n != 1 {
				r.broken("an order was processed %d times", n)
			}
		}
		r.none(e.wrongPoints(want))
	}
	deadLetters := map[string]bool{}
	for _, m := range e.Broker.Held(queue.DeadLetterHold()) {
		deadLetters[m.Attributes["event_id"]] = true
	}
	if s.longest == 0 && len(deadLetters) != s.unknown {
		r.broken("%d dead letters of %d", len(deadLetters), s.unknown)
	}
	row(s.name, queue.OnTerminal, queue.NackBudget, waited, len(deadLetters))
}
