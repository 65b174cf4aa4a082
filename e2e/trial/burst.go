package main

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"golang.org/x/sync/errgroup"

	"billhook/catalog"
	"billhook/catalog/catalogtest"
	"billhook/e2e"
	"billhook/internal/compose/devstack"
)

// burst measures what an unknown product and a burst of orders cost other customers, with the catalog's numbers and
// without: how long a good order waits behind what cannot be processed, and what many senders get through. It fails where
// an order was lost or doubled, or a dead letter is missing.
func burst(flags *flag.FlagSet) func(*run) {
	orders := flags.Int("orders", 1500, "how many orders a burst has")
	senders := flags.Int("senders", 64, "how many send at once")
	unknown := flags.Int("forgotten", 20, "how many orders of a forgotten product come before the good one")
	refunds := flags.Int("refunds", 5, "how many refunds come before their orders, and before the good one")
	longest := flags.Duration("longest", 110*time.Second, "how long the good order is waited for without a budget")
	return func(r *run) {
		table := tabwriter.NewWriter(r.out, 0, 0, 3, ' ', 0)
		_, _ = fmt.Fprintf(table, "\na good order behind\ton_terminal\tnack_budget\twaited\tdead letters\tnacked\n")
		product := fmt.Sprintf("%d orders of a forgotten product", *unknown)
		var slow sync.WaitGroup
		for i, s := range []behind{
			{name: product, unknown: *unknown, change: func(q *catalog.Queue) { q.OnTerminal, q.NackBudget = catalog.Reject, 0 }, longest: *longest},
			{name: product, unknown: *unknown, change: func(q *catalog.Queue) { q.OnTerminal = catalog.Reject }},
			{name: product, unknown: *unknown, change: func(q *catalog.Queue) { q.OnTerminal, q.NackBudget = catalog.Ack, 0 }},
			{name: fmt.Sprintf("%d refunds without their orders", *refunds), refunds: *refunds, change: func(*catalog.Queue) {}},
			{name: "nothing", change: func(*catalog.Queue) {}},
		} {
			measure := func() { r.part(s.name, func(part *run) { s.measure(part, r, table) }) }
			if i == 0 {
				slow.Go(measure)
				continue
			}
			measure()
		}
		slow.Wait()
		_, _ = fmt.Fprintf(table, "\na burst of %d senders\tslot_wait\tcredits/s\tp50\tp99\trefused\tnacked\n", *senders)
		c := catalogtest.Shipped()
		shipped, _ := c.Queue(e2e.Queue)
		for _, wait := range []time.Duration{0, shipped.SlotWait} {
			r.part("a burst", func(r *run) { load(r, table, wait, *orders, *senders) })
		}
		_ = table.Flush() // to the output, like everything
	}
}

type drawing struct {
	random *rand.Rand
	events int
}

func newDrawing(seed uint64) *drawing { return &drawing{random: rand.New(rand.NewPCG(seed, 1))} }

func (d *drawing) order(customer int, product string) e2e.Order {
	id := d.id()
	return e2e.Order{
		EventID: id, OrderID: id + "1", CustomerID: fmt.Sprintf("63000000%010d", customer), UID: fmt.Sprintf("burst-user-%d", customer),
		Lines: []e2e.Line{{Product: product, Quantity: 1 + d.random.Int64N(5), Price: 1000}},
	}
}

func (d *drawing) id() string {
	d.events++
	return fmt.Sprintf("62000000%010d", d.events)
}

func points(o e2e.Order) int64 { return o.Lines[0].Quantity * e2e.PointsPerPiece }

func changed(r *run, change func(*catalog.Queue)) (*embedded, catalog.Queue) {
	c := catalogtest.Shipped()
	i := slices.IndexFunc(c.Queues, func(q catalog.Queue) bool { return q.ID == e2e.Queue })
	change(&c.Queues[i])
	return embed(r, devstack.Config{Catalog: c}), c.Queues[i]
}

func load(r *run, table *tabwriter.Writer, slotWait time.Duration, orders, senders int) {
	e, _ := changed(r, func(q *catalog.Queue) { q.SlotWait = slotWait })
	d, want := newDrawing(r.seed), map[string]int64{}
	var refused atomic.Int64
	var sending errgroup.Group
	sending.SetLimit(senders)
	began := time.Now()
	for range orders {
		o := d.order(d.random.IntN(1000), e2e.Product)
		want[o.UID] += points(o)
		sending.Go(func() error {
			refused.Add(int64(e.send(r, o.EventID, o.JSON())))
			return nil
		})
	}
	r.must(sending.Wait())
	ended, nacked := e.await(r, orders)
	took := time.Since(began)
	var waits []time.Duration
	for _, end := range ended {
		waits = append(waits, end.took)
	}
	_, _ = fmt.Fprintf(table, "open loop\t%s\t%.0f\t%s\t%s\t%d\t%d\n", slotWait, float64(orders)/took.Seconds(),
		short(quantile(waits, 0.50)), short(quantile(waits, 0.99)), refused.Load(), nacked)
	e.paid(r, want)
}

// behind is one variant of the first measurement: events that cannot be processed, and after
// them a good order of another customer.
type behind struct {
	name   string
	change func(*catalog.Queue)
	// unknown and refunds are how many of them come before the good order. The orders of the refunds come after it.
	unknown, refunds int
	// longest is how long the good order is waited for; 0: until it comes.
	longest time.Duration
}

// measure runs the variant, and writes its row when it is whole.
func (s behind) measure(r, whole *run, table *tabwriter.Writer) {
	e, queue := changed(r, s.change)
	d := newDrawing(r.seed)
	ahead, orders, want := map[string][]byte{}, []e2e.Order{d.order(0, e2e.Product)}, map[string]int64{}
	for i := range s.unknown {
		o := d.order(1+i, e2e.UnknownProduct)
		ahead[o.EventID] = o.JSON()
	}
	for i := range s.refunds {
		o := d.order(1+i, e2e.Product)
		refund := e2e.Refund{EventID: d.id(), RefundID: d.id() + "2", OrderID: o.OrderID, CustomerID: o.CustomerID, Amount: o.Total(), Paid: o.Total()}
		ahead[refund.EventID], orders, want[o.UID] = refund.JSON(), append(orders, o), 0
	}
	var sending sync.WaitGroup
	for id, body := range ahead {
		sending.Go(func() { e.send(r, id, body) })
	}
	sending.Wait()
	good := orders[0]
	want[good.UID] = points(good)
	e.send(r, good.EventID, good.JSON())
	began, waited := time.Now(), ""
	r.until("the good order", func() bool {
		ended, _ := e.ends()
		if end, has := ended[good.EventID]; has {
			waited = short(end.took)
		} else if s.longest > 0 && time.Since(began) > s.longest {
			waited = "more than " + short(s.longest)
		}
		return waited != ""
	})
	_, nacked := e.ends()
	if s.longest == 0 {
		for _, o := range orders[1:] {
			e.send(r, o.EventID, o.JSON())
		}
		var ended map[string]end
		ended, nacked = e.await(r, len(ahead)+len(orders))
		for _, o := range orders {
			if n := ended[o.EventID].processed; n != 1 {
				r.broken("an order was processed %d times", n)
			}
		}
		e.paid(r, want)
	}
	deadLetters := map[string]bool{}
	for _, m := range e.Broker.Held(queue.DeadLetterHold()) {
		deadLetters[m.Attributes["event_id"]] = true
	}
	if s.longest == 0 && len(deadLetters) != s.unknown {
		r.broken("%d dead letters of %d", len(deadLetters), s.unknown)
	}
	whole.mu.Lock()
	defer whole.mu.Unlock()
	_, _ = fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%d\t%d\n", s.name, queue.OnTerminal, queue.NackBudget, waited, len(deadLetters), nacked)
}
