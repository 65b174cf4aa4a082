package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"billhook/catalog"
	"billhook/e2e"
	"billhook/internal/contract"
)

// stall is one variant of the first measurement: events that cannot be processed, and after
// them a good order of another customer.
type stall struct {
	name   string
	change func(*catalog.Queue)
	// bad are orders of an unknown product.
	bad []e2e.Order
	// early are orders that come after their refunds.
	early []early
	good  e2e.Order

	queue           catalog.Queue
	waited          time.Duration
	over            bool
	letters, nacked int
}

// early is an order with its refund, which is sent first.
type early struct {
	order  e2e.Order
	refund e2e.Refund
}

// stalls returns the variants. In the first one the good order waits for minutes.
func stalls(p *plan, forgotten, refunds int) []*stall {
	var bad []e2e.Order
	for i := range forgotten {
		bad = append(bad, p.order(1+i, e2e.UnknownProduct))
	}
	var before []early
	for i := range refunds {
		o := p.order(1+i, e2e.Product)
		before = append(before, early{o, e2e.Refund{
			EventID: p.id(), RefundID: p.id() + "2", OrderID: o.OrderID, CustomerID: o.CustomerID, Amount: o.Total(), Paid: o.Total(),
		}})
	}
	product := fmt.Sprintf("%d orders of a forgotten product", forgotten)
	all := []*stall{
		{name: product, bad: bad, change: func(q *catalog.Queue) { q.OnTerminal, q.NackBudget = catalog.Reject, 0 }},
		{name: product, bad: bad, change: func(q *catalog.Queue) { q.OnTerminal = catalog.Reject }},
		{name: product, bad: bad, change: func(q *catalog.Queue) { q.OnTerminal, q.NackBudget = catalog.Ack, 0 }},
		{name: fmt.Sprintf("%d refunds without their orders", refunds), early: before, change: func(*catalog.Queue) {}},
		{name: "nothing", change: func(*catalog.Queue) {}},
	}
	good := p.order(0, e2e.Product)
	for _, s := range all {
		s.good = good
	}
	return all
}

// measure runs the variant. It waits for the good order until patience ends.
func (s *stall) measure(ctx, patience context.Context) (err error) {
	on, err := start(ctx, true, func(q *catalog.Queue) {
		s.change(q)
		s.queue = *q
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, on.close()) }()
	if err := s.run(ctx, patience, on); err != nil {
		return fmt.Errorf("%s: %w", s.name, err)
	}
	return nil
}

func (s *stall) run(ctx, patience context.Context, on *stack) error {
	bodies := map[string][]byte{}
	for _, o := range s.bad {
		bodies[o.EventID] = o.JSON()
	}
	for _, e := range s.early {
		bodies[e.refund.EventID] = e.refund.JSON()
	}
	ahead, err := on.sendAll(ctx, bodies)
	if err != nil {
		return err
	}
	good, _, err := on.send(ctx, s.good.EventID, s.good.JSON())
	if err != nil {
		return err
	}
	switch err := good.end(patience); {
	case err == nil:
		s.waited = good.took()
	case ctx.Err() != nil:
		return err
	default:
		s.over, s.waited = true, time.Since(good.sent)
	}
	orders := map[string][]byte{}
	want := map[string]int64{s.good.UID: points(s.good)}
	for _, e := range s.early {
		orders[e.order.EventID] = e.order.JSON()
		want[e.order.UID] = 0
	}
	if s.over {
		return s.count(on, nil) // the other orders come as late
	}
	after, err := on.sendAll(ctx, orders)
	if err != nil {
		return err
	}
	for _, f := range append(ahead, after...) {
		if err := f.end(ctx); err != nil {
			return err
		}
	}
	if err := s.count(on, append(after, good)); err != nil {
		return err
	}
	if s.letters != len(s.bad) {
		return fmt.Errorf("the promise is broken: %d dead letters of %d", s.letters, len(s.bad))
	}
	return on.check(ctx, want)
}

// count adds up the stack's results. The events in once must have been processed exactly once.
func (s *stall) count(on *stack, once []*fate) error {
	letters := map[string]bool{}
	for _, m := range on.Broker.Held(s.queue.DeadLetterHold()) {
		letters[m.Attributes[contract.AttrEventID]] = true
	}
	s.letters = len(letters)
	on.mu.Lock()
	defer on.mu.Unlock()
	s.nacked = on.nacked
	for _, f := range once {
		if f.processed != 1 {
			return fmt.Errorf("the promise is broken: an order was processed %d times", f.processed)
		}
	}
	return nil
}

// sendAll sends webhooks by event id, all at once.
func (s *stack) sendAll(ctx context.Context, bodies map[string][]byte) ([]*fate, error) {
	fates := make([]*fate, len(bodies))
	var sending errgroup.Group
	for i, id := range slices.Sorted(maps.Keys(bodies)) {
		sending.Go(func() (err error) {
			fates[i], _, err = s.send(ctx, id, bodies[id])
			return err
		})
	}
	return fates, sending.Wait()
}

// print writes a row.
func (s *stall) print(w io.Writer) {
	waited := short(s.waited)
	if s.over {
		waited = "more than " + waited
	}
	_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%d\n", s.name, s.queue.OnTerminal, s.queue.NackBudget, waited, s.letters, s.nacked)
}
