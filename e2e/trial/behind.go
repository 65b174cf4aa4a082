package main

import (
	"flag"
	"fmt"
	"slices"
	"time"

	"billhook/catalog"
	"billhook/catalog/catalogtest"
	"billhook/e2e"
	"billhook/internal/compose/devstack"
)

// behind measures how long a good order waits behind another customer's events that cannot be processed, with
// the catalog's numbers and without. It fails where an order was lost or doubled, or a dead letter is missing.
func behind(flags *flag.FlagSet) func(*run) {
	unknown := flags.Int("forgotten", 20, "how many orders of a forgotten product come before the good one")
	refunds := flags.Int("refunds", 5, "how many refunds come before their orders, and before the good one")
	longest := flags.Duration("longest", 110*time.Second, "how long the good order is waited for without a budget")
	return func(r *run) {
		row := r.table("a good order behind", "on_terminal", "nack_budget", "waited", "dead letters")
		product := fmt.Sprintf("%d orders of a forgotten product", *unknown)
		for _, a := range []ahead{
			{name: product, unknown: *unknown, change: func(q *catalog.Queue) { q.OnTerminal = catalog.Reject }},
			{name: product, unknown: *unknown, change: func(q *catalog.Queue) { q.OnTerminal, q.NackBudget = catalog.Ack, 0 }},
			{name: product, unknown: *unknown, change: func(q *catalog.Queue) { q.OnTerminal, q.NackBudget = catalog.Reject, 0 }, longest: *longest},
			{name: fmt.Sprintf("%d refunds without their orders", *refunds), refunds: *refunds, change: func(*catalog.Queue) {}},
			{name: "nothing", change: func(*catalog.Queue) {}},
		} {
			r.part(a.name, func(r *run) { a.measure(r, row) })
		}
	}
}

// ahead is one variant: what comes before the good order, to another queue of PayNow's orders than the shipped one.
type ahead struct {
	name   string
	change func(*catalog.Queue)
	// unknown and refunds are how many of them come. The orders of the refunds come after the good order.
	unknown, refunds int
	// longest is how long the good order is waited for; 0: until it comes.
	longest time.Duration
}

func (a ahead) measure(r *run, row func(...any)) {
	c := catalogtest.Shipped()
	queue := &c.Queues[slices.IndexFunc(c.Queues, func(q catalog.Queue) bool { return q.ID == e2e.Queue })]
	a.change(queue)
	e, d := embed(r, devstack.Config{Catalog: c}), newDrawing(r.seed)
	good := d.order(0, e2e.Product)
	var before []func()
	once, want := []e2e.Order{good}, map[string]int64{good.UID: points(good)}
	for i := range a.unknown {
		o := d.order(1+i, e2e.UnknownProduct)
		before = append(before, func() { e.hook(o.EventID, o.JSON()) })
	}
	for i := range a.refunds {
		o, id := d.order(1+i, e2e.Product), d.id()
		refund := e2e.Refund{EventID: id, RefundID: id + "2", OrderID: o.OrderID, CustomerID: o.CustomerID}
		refund.Amount, refund.Paid = o.Total(), o.Total()
		before = append(before, func() { e.hook(id, refund.JSON()) })
		once, want[o.UID] = append(once, o), 0
	}
	r.forEach(len(before), len(before), func(i int) { before[i]() })
	e.hook(good.EventID, good.JSON())
	began, waited := time.Now(), "more than "+a.longest.String()
	r.until("the good order", often, func() bool {
		end, has := e.ends()[good.EventID]
		if has {
			waited = end.took.Round(time.Millisecond).String()
		}
		return has || a.longest > 0 && time.Since(began) > a.longest
	})
	if a.longest == 0 { // all of it is waited for
		for _, o := range once[1:] {
			e.hook(o.EventID, o.JSON())
		}
		ended := e.await(a.unknown + 2*a.refunds + 1)
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
	if a.longest == 0 && len(deadLetters) != a.unknown {
		r.broken("%d dead letters of %d", len(deadLetters), a.unknown)
	}
	row(a.name, queue.OnTerminal, queue.NackBudget, waited, len(deadLetters))
}
