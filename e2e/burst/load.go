package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"billhook/catalog"
	"billhook/e2e"
)

// customers is the number of customers of a burst.
const customers = 1000

// plan draws the orders.
type plan struct {
	random *rand.Rand
	events int
}

// order draws an order of the customer with that number, for one to five pieces.
func (p *plan) order(customer int, product string) e2e.Order {
	id := p.id()
	return e2e.Order{
		EventID: id, OrderID: id + "1", CustomerID: fmt.Sprintf("63000000%010d", customer), UID: fmt.Sprintf("burst-user-%d", customer),
		Lines: []e2e.Line{{Product: product, Quantity: 1 + p.random.Int64N(5), Price: 1000}},
	}
}

func (p *plan) id() string {
	p.events++
	return fmt.Sprintf("62000000%010d", p.events)
}

func (p *plan) orders(n int) []e2e.Order {
	all := make([]e2e.Order, n)
	for i := range all {
		all[i] = p.order(p.random.IntN(customers), e2e.Product)
	}
	return all
}

func points(o e2e.Order) int64 { return o.Lines[0].Quantity * e2e.PointsPerPiece }

// load is one variant of the burst with the results of its rounds.
type load struct {
	name            string
	closed, limited bool
	slotWait        time.Duration

	credited, refused, nacked int
	took, cpu                 time.Duration
	waits                     []time.Duration
}

// bursts returns the variants: for each kind of load first one that refuses at once, then one
// that waits for a slot as the catalog says.
func bursts(c *catalog.Catalog) []*load {
	q, _ := c.Queue(e2e.Queue)
	var all []*load
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
func (l *load) measure(ctx context.Context, orders []e2e.Order, senders int) (err error) {
	s, err := start(ctx, l.limited, func(q *catalog.Queue) { q.SlotWait = l.slotWait })
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	bodies := make([][]byte, len(orders))
	want := map[string]int64{}
	for i, o := range orders {
		bodies[i] = o.JSON()
		want[o.UID] += points(o)
	}
	began, used := time.Now(), processorTime()
	fates := make([]*fate, len(orders))
	var refused atomic.Int64
	var sending errgroup.Group
	sending.SetLimit(senders)
	for i, o := range orders {
		sending.Go(func() error {
			f, n, err := s.send(ctx, o.EventID, bodies[i])
			refused.Add(int64(n))
			if fates[i] = f; err == nil && l.closed {
				err = f.end(ctx)
			}
			return err
		})
	}
	if err := sending.Wait(); err != nil {
		return fmt.Errorf("%s: %w", l.name, err)
	}
	last := began
	for _, f := range fates {
		if err := f.end(ctx); err != nil {
			return fmt.Errorf("%s: %w", l.name, err)
		}
		l.waits = append(l.waits, f.took())
		if f.at.After(last) {
			last = f.at
		}
	}
	l.took, l.cpu = l.took+last.Sub(began), l.cpu+processorTime()-used
	l.refused += int(refused.Load())
	s.mu.Lock()
	l.nacked += s.nacked
	for _, f := range fates {
		l.credited += f.processed
	}
	s.mu.Unlock()
	return s.check(ctx, want)
}

// rate returns the credited orders per second.
func (l *load) rate() float64 { return float64(l.credited) / l.took.Seconds() }

// quantile returns the wait that this share of the orders did not exceed.
func (l *load) quantile(share float64) time.Duration {
	slices.Sort(l.waits)
	return l.waits[int(share*float64(len(l.waits)-1))]
}

// print writes a row, with ratios to the row before.
func (l *load) print(w io.Writer, before *load) {
	if l.took == 0 || before.took == 0 {
		return // it has failed, which is reported
	}
	_, _ = fmt.Fprintf(w, "%s\t%s\t%.0f\tx %.2f\t%s\t%s\tx %.3f\t%d\t%d\t%.0f %%\n", l.name, l.slotWait, l.rate(), l.rate()/before.rate(),
		short(l.quantile(0.50)), short(l.quantile(0.99)), l.quantile(0.99).Seconds()/before.quantile(0.99).Seconds(), l.refused, l.nacked,
		100*l.cpu.Seconds()/l.took.Seconds()/float64(runtime.NumCPU()))
}

func short(d time.Duration) string {
	if d < 10*time.Second {
		return d.Round(time.Millisecond).String()
	}
	return d.Round(100 * time.Millisecond).String()
}

// processorTime returns the processor time of this process on all cores.
func processorTime() time.Duration {
	var used syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &used) != nil {
		return 0
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
