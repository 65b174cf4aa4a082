package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"text/tabwriter"
	"time"

	"golang.org/x/sync/errgroup"

	"billhook/catalog"
	"billhook/e2e"
	"billhook/internal/compose/devstack"
	"billhook/internal/contract"
)

// burst measures what an unknown product and a burst of orders cost other customers, with the catalog's numbers and
// without.
//
// The first part measures how long a good order waits behind twenty orders of an unknown product, each of another
// customer, and behind refunds that come before their orders. The second part measures the throughput of many senders by
// how long a message waits for a slot. In a closed loop a sender waits until its order is credited; in an open one it
// continues as soon as the webhook is accepted. The variant that waits for minutes runs beside the others.
//
// It fails where an order was lost or doubled, or a dead letter is missing.
func burst(flags *flag.FlagSet) func(*run) {
	orders := flags.Int("orders", 1500, "how many orders a burst has")
	senders := flags.Int("senders", 64, "how many send at once")
	rounds := flags.Int("rounds", 1, "how often each burst is sent, one side after the other")
	unknown := flags.Int("forgotten", 20, "how many orders of a forgotten product come before the good one")
	refunds := flags.Int("refunds", 5, "how many refunds come before their orders, and before the good one")
	longest := flags.Duration("longest", 110*time.Second, "how long the good order is waited for without a budget")
	return func(r *run) {
		shipped, err := catalog.Load("")
		r.must(err)
		d := &drawing{random: rand.New(rand.NewPCG(r.seed, 1))}
		behind := stalls(d, *unknown, *refunds)
		var slow sync.WaitGroup
		slow.Go(func() { r.part(behind[0].name, func(r *run) { behind[0].measure(r, *longest) }) })
		for _, s := range behind[1:] {
			r.part(s.name, func(r *run) { s.measure(r, time.Hour) })
		}
		loads := loadsOf(shipped)
		for range *rounds {
			for _, l := range loads {
				r.part(l.name, func(r *run) { l.measure(r, d.orders(*orders), *senders) })
			}
		}
		table := tabwriter.NewWriter(r.out, 0, 0, 3, ' ', 0)
		_, _ = fmt.Fprintf(table, "\na burst of %d senders\tslot_wait\tcredits/s\t\tp50\tp99\t\trefused\tnacked\tof the machine\n", *senders)
		for i, l := range loads {
			l.print(table, loads[i-i%2])
		}
		_ = table.Flush() // to the output, like everything
		slow.Wait()
		_, _ = fmt.Fprintln(table, "\na good order behind\ton_terminal\tnack_budget\twaited\tdead letters\tnacked")
		for _, s := range behind {
			s.print(table)
		}
		_ = table.Flush()
	}
}

// drawing draws the orders.
type drawing struct {
	random *rand.Rand
	events int
}

// order draws an order of the customer with that number, for one to five pieces.
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

// orders draws those of a thousand customers.
func (d *drawing) orders(n int) []e2e.Order {
	all := make([]e2e.Order, n)
	for i := range all {
		all[i] = d.order(d.random.IntN(1000), e2e.Product)
	}
	return all
}

func points(o e2e.Order) int64 { return o.Lines[0].Quantity * e2e.PointsPerPiece }

// changed starts a Billhook whose queue of orders is changed. limited: the door has the catalog's rate limit.
func changed(r *run, limited bool, change func(*catalog.Queue)) *embedded {
	c, err := catalog.Load("")
	r.must(err)
	i := slices.IndexFunc(c.Queues, func(q catalog.Queue) bool { return q.ID == e2e.Queue })
	change(&c.Queues[i])
	if source := c.Sources["paynow"]; !limited {
		source.RatePerSecond = 0
		c.Sources["paynow"] = source
	}
	return embed(r, devstack.Config{Catalog: c})
}

// load is one variant of the burst with the results of its rounds.
type load struct {
	name            string
	closed, limited bool
	slotWait        time.Duration

	credited, refused, nacked int
	took, cpu                 time.Duration
	waits                     []time.Duration
}

// loadsOf returns the variants: for each kind of load first one that refuses at once, then one
// that waits for a slot as the catalog says.
func loadsOf(c *catalog.Catalog) (all []*load) {
	q, _ := c.Queue(e2e.Queue)
	for _, l := range []load{
		{name: "closed loop", closed: true},
		{name: fmt.Sprintf("open loop, the door takes %.0f/s", c.Sources["paynow"].RatePerSecond), limited: true},
		{name: "open loop, the door takes all"},
	} {
		before, after := l, l
		after.slotWait = q.SlotWait
		all = append(all, &before, &after)
	}
	return all
}

// measure runs one round.
func (l *load) measure(r *run, orders []e2e.Order, senders int) {
	e := changed(r, l.limited, func(q *catalog.Queue) { q.SlotWait = l.slotWait })
	bodies, want := make([][]byte, len(orders)), map[string]int64{}
	for i, o := range orders {
		bodies[i] = o.JSON()
		want[o.UID] += points(o)
	}
	began, used := time.Now(), processorTime()
	events := make([]*tracked, len(orders))
	var refused atomic.Int64
	var sending errgroup.Group
	sending.SetLimit(senders)
	for i, o := range orders {
		sending.Go(func() error {
			event, n := e.send(r, o.EventID, bodies[i])
			refused.Add(int64(n))
			if events[i] = event; l.closed {
				ends(r, event)
			}
			return nil
		})
	}
	r.must(sending.Wait())
	r.must(r.ctx.Err()) // some were not sent
	last := began
	ends(r, events...)
	for _, event := range events {
		l.waits = append(l.waits, event.took())
		if event.at.After(last) {
			last = event.at
		}
	}
	l.took, l.cpu = l.took+last.Sub(began), l.cpu+processorTime()-used
	l.refused += int(refused.Load())
	e.mu.Lock()
	l.nacked += e.nacked
	for _, event := range events {
		l.credited += event.processed
	}
	e.mu.Unlock()
	e.paid(r, want)
}

// rate returns the credited orders per second.
func (l *load) rate() float64 { return float64(l.credited) / l.took.Seconds() }

// print writes a row, with ratios to the row before.
func (l *load) print(w io.Writer, before *load) {
	if l.took == 0 || before.took == 0 {
		return // it has failed, which is reported
	}
	p99 := quantile(l.waits, 0.99)
	_, _ = fmt.Fprintf(w, "%s\t%s\t%.0f\tx %.2f\t%s\t%s\tx %.3f\t%d\t%d\t%.0f %%\n", l.name, l.slotWait, l.rate(), l.rate()/before.rate(),
		short(quantile(l.waits, 0.50)), short(p99), p99.Seconds()/quantile(before.waits, 0.99).Seconds(), l.refused, l.nacked,
		100*l.cpu.Seconds()/l.took.Seconds()/float64(runtime.NumCPU()))
}

// processorTime returns the processor time of this process on all cores.
func processorTime() time.Duration {
	var used syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &used) != nil {
		return 0
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// stallBehind is one variant of the first measurement: events that cannot be processed, and after
// them a good order of another customer.
type stallBehind struct {
	name   string
	change func(*catalog.Queue)
	// ahead are the bodies of what comes before the good order, by event id: orders of an unknown product, letters in number,
	// and refunds. orders are those of the refunds, which come after it.
	ahead   map[string][]byte
	letters int
	orders  []e2e.Order
	good    e2e.Order

	queue         catalog.Queue
	waited        time.Duration
	over          bool
	buried, nacks int
}

// stalls returns the variants. In the first one the good order waits for minutes.
func stalls(d *drawing, unknown, refunds int) []*stallBehind {
	bad, early, orders := map[string][]byte{}, map[string][]byte{}, []e2e.Order(nil)
	for i := range unknown {
		o := d.order(1+i, e2e.UnknownProduct)
		bad[o.EventID] = o.JSON()
	}
	for i := range refunds {
		o := d.order(1+i, e2e.Product)
		refund := e2e.Refund{EventID: d.id(), RefundID: d.id() + "2", OrderID: o.OrderID, CustomerID: o.CustomerID, Amount: o.Total(), Paid: o.Total()}
		early[refund.EventID], orders = refund.JSON(), append(orders, o)
	}
	product := fmt.Sprintf("%d orders of a forgotten product", unknown)
	all := []*stallBehind{
		{name: product, ahead: bad, letters: unknown, change: func(q *catalog.Queue) { q.OnTerminal, q.NackBudget = catalog.Reject, 0 }},
		{name: product, ahead: bad, letters: unknown, change: func(q *catalog.Queue) { q.OnTerminal = catalog.Reject }},
		{name: product, ahead: bad, letters: unknown, change: func(q *catalog.Queue) { q.OnTerminal, q.NackBudget = catalog.Ack, 0 }},
		{name: fmt.Sprintf("%d refunds without their orders", refunds), ahead: early, orders: orders, change: func(*catalog.Queue) {}},
		{name: "nothing", change: func(*catalog.Queue) {}},
	}
	good := d.order(0, e2e.Product)
	for _, s := range all {
		s.good = good
	}
	return all
}

// measure runs the variant. It waits for the good order no longer than that.
func (s *stallBehind) measure(r *run, longest time.Duration) {
	e := changed(r, true, func(q *catalog.Queue) {
		s.change(q)
		s.queue = *q
	})
	ahead := e.sendAll(r, s.ahead)
	good, _ := e.send(r, s.good.EventID, s.good.JSON())
	patience, cancel := context.WithTimeout(r.ctx, longest)
	defer cancel()
	if s.over = !good.await(patience); s.over {
		r.must(r.ctx.Err())
		s.waited = time.Since(good.sent)
		s.count(r, e, nil) // the other orders come as late
		return
	}
	s.waited = good.took()
	bodies, want := map[string][]byte{}, map[string]int64{s.good.UID: points(s.good)}
	for _, o := range s.orders {
		bodies[o.EventID] = o.JSON()
		want[o.UID] = 0
	}
	after := e.sendAll(r, bodies)
	ends(r, slices.Concat(ahead, after)...)
	s.count(r, e, append(after, good))
	if s.buried != s.letters {
		r.broken("%d dead letters of %d", s.buried, s.letters)
	}
	e.paid(r, want)
}

// count adds up the results. The events in once must have been processed exactly once.
func (s *stallBehind) count(r *run, e *embedded, once []*tracked) {
	letters := map[string]bool{}
	for _, m := range e.Broker.Held(s.queue.DeadLetterHold()) {
		letters[m.Attributes[contract.AttrEventID]] = true
	}
	s.buried = len(letters)
	e.mu.Lock()
	defer e.mu.Unlock()
	s.nacks = e.nacked
	for _, event := range once {
		if event.processed != 1 {
			r.broken("an order was processed %d times", event.processed)
		}
	}
}

// sendAll sends webhooks by event id, all at once.
func (e *embedded) sendAll(r *run, bodies map[string][]byte) []*tracked {
	events := make([]*tracked, len(bodies))
	var sending sync.WaitGroup
	for i, id := range slices.Sorted(maps.Keys(bodies)) {
		sending.Go(func() { events[i], _ = e.send(r, id, bodies[id]) })
	}
	sending.Wait()
	r.must(r.ctx.Err()) // some were not sent
	return events
}

// print writes a row.
func (s *stallBehind) print(w io.Writer) {
	waited := short(s.waited)
	if s.over {
		waited = "more than " + waited
	}
	_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%d\n", s.name, s.queue.OnTerminal, s.queue.NackBudget, waited, s.buried, s.nacks)
}
