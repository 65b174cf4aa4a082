package main

import (
	"flag"
	"slices"
	"time"

	"billhook/catalog"
	"billhook/catalog/catalogtest"
	"billhook/e2e"
	"billhook/internal/compose/devstack"
)

// behind measures how long a good order waits after orders of a forgotten product, with the catalog's limits
// and without. It fails if an order was lost or doubled, or a dead letter is missing.
func behind(flags *flag.FlagSet) func(*run) {
	forgotten := flags.Int("forgotten", 20, "how many orders of a forgotten product come before the good one")
	longest := flags.Duration("longest", 110*time.Second, "how long to wait for the good order without a budget")
	return func(r *run) {
		row := r.table("orders ahead", "on_terminal", "nack_budget", "waited", "dead letters")
		shipped, _ := catalogtest.Shipped().Queue(e2e.Queue)
		for _, a := range []ahead{
			{*forgotten, catalog.Reject, shipped.NackBudget, 0},
			{*forgotten, catalog.Ack, 0, 0},
			{*forgotten, catalog.Reject, 0, *longest},
			{0, shipped.OnTerminal, shipped.NackBudget, 0},
		} {
			r.part("behind others", func(r *run) { a.measure(r, row) })
		}
	}
}

// ahead is one variant: how many orders come before the good one, and the queue's settings for them.
type ahead struct {
	many       int
	onTerminal catalog.OnTerminal
	nackBudget time.Duration
	// longest is the longest wait for the good order; 0: until all orders have ended.
	longest time.Duration
}

func (a ahead) measure(r *run, row func(...any)) {
	c := catalogtest.Shipped()
	queue := &c.Queues[slices.IndexFunc(c.Queues, func(q catalog.Queue) bool { return q.ID == e2e.Queue })]
	queue.OnTerminal, queue.NackBudget = a.onTerminal, a.nackBudget
	e, d := embed(r, devstack.Config{Catalog: c}), newDrawing(r.seed)
	good, before := d.order(0, e2e.Product), make([]e2e.Order, a.many)
	for i := range before {
		before[i] = d.order(1+i, e2e.UnknownProduct)
	}
	r.forEach(a.many, a.many, func(i int) { e.hook(before[i].EventID, before[i].JSON()) })
	e.hook(good.EventID, good.JSON())
	began, waited := time.Now(), "more than "+a.longest.String()
	r.until(often, func() string {
		end, has := e.ends()[good.EventID]
		if has {
			waited = end.took.Round(time.Millisecond).String()
		}
		return unless(has || a.longest > 0 && time.Since(began) > a.longest, "the good order %s", good.EventID)
	})
	if a.longest == 0 {
		if n := e.await(a.many + 1)[good.EventID].processed; n != 1 {
			r.broken("the good order was processed %d times", n)
		}
		r.none(e.wrongPoints(map[string]int64{good.UID: points(good)}))
	}
	deadLetters := map[string]bool{}
	for _, m := range e.Broker.Held(queue.DeadLetterHold()) {
		deadLetters[m.Attributes["event_id"]] = true
	}
	if a.longest == 0 && len(deadLetters) != a.many {
		r.broken("%d dead letters of %d", len(deadLetters), a.many)
	}
	row(a.many, a.onTerminal, a.nackBudget, waited, len(deadLetters))
}
