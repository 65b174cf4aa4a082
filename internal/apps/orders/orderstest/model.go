package orderstest

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"billhook/internal/apps/orders"
	"billhook/internal/contract"
	"billhook/internal/dedupe"
	"billhook/internal/dedupe/dedupetest"
	"billhook/internal/platform/audit"
	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
	"billhook/internal/retry"
)

// world is a shop of two products, its workers, and what was published to it.
type world struct {
	*Shop
	workers []*dedupetest.Worker
	events  []Event
	put     map[string]int64
}

// Publish takes the timeouts that a release publishes.
func (w *world) Publish(_ context.Context, _ string, m contract.Message) (string, error) {
	if e := Timeout(m); !slices.ContainsFunc(w.events, func(o Event) bool { return o.ID == e.ID }) {
		w.events = append(w.events, e)
	}
	return "1", nil
}

var products = []string{"cap", "hat"}

// Run holds any interleaving of workers, timeouts, payments and crashes to what must be true of
// stock and orders, on the stores that open returns.
func Run(t *testing.T, open func(t testing.TB) store.Store) {
	t.Helper()
	rapid.Check(t, func(rt *rapid.T) {
		shop, err := Open(open(t))
		require.NoError(rt, err)
		w := &world{Shop: shop, put: map[string]int64{}}
		for range 3 {
			w.workers = append(w.workers, &dedupetest.Worker{})
		}
		for _, product := range products {
			w.stock(rt, product, rapid.Int64Range(0, 4).Draw(rt, "stock of "+product))
		}
		rt.Repeat(map[string]func(*rapid.T){
			"an event is published":                     w.publish,
			"a worker gets one":                         w.deliver,
			"two workers get one each of two that race": w.race,
			"a worker goes on":                          w.goOn,
			"time passes": func(t *rapid.T) {
				w.Wait(rapid.SampledFrom([]time.Duration{time.Minute, 14*time.Minute + 30*time.Second, 16 * time.Minute}).Draw(t, "wait"))
			},
			"what is due is released": func(t *rapid.T) { require.NoError(t, w.Release(context.Background(), w.Store, w)) },
			"":                        w.check,
		})
		w.end(rt)
	})
}

// stock sets the stock of a product, and keeps the sum that it must have from then on.
func (w *world) stock(t *rapid.T, product string, available int64) {
	_, err := w.Stock.Set(context.Background(), audit.Author{Proof: audit.Identity, Name: "model"},
		SetStock(product, available))
	require.NoError(t, err)
	w.put[product] = available
}

// publish adds an event of one of few orders.
func (w *world) publish(t *rapid.T) {
	order := rapid.SampledFrom([]string{"o1", "o2", "o3", "o4"}).Draw(t, "order")
	id := fmt.Sprint("e", len(w.events))
	kind := rapid.SampledFrom([]string{"order.created", "order.created", "order.payment_confirmed", "order.payment_failed", "order.payment_timeout", "order.shipped"}).Draw(t, "event")
	if kind != "order.created" {
		w.events = append(w.events, About(id, kind, order))
		return
	}
	var items []string
	for _, product := range products {
		if n := rapid.IntRange(0, 2).Draw(t, product); n > 0 {
			items = append(items, fmt.Sprint(product, " ", n))
		}
	}
	w.events = append(w.events, Created(id, order, items...))
}

// deliver gives a worker that is free one of the events, whether or not it was delivered before.
func (w *world) deliver(t *rapid.T) {
	free := slices.IndexFunc(w.workers, func(a *dedupetest.Worker) bool { return !a.Running })
	if free < 0 || len(w.events) == 0 {
		t.Skip("nobody, or nothing")
	}
	e := rapid.SampledFrom(w.events).Draw(t, "event")
	look := rapid.Bool().Draw(t, "redelivered")
	w.start(w.workers[free], e, look)
}

func (w *world) start(a *dedupetest.Worker, e Event, look bool) {
	on := a.Store(w.Store)
	a.Start(func() {
		_, _ = w.Deliver(context.Background(), on, e, look) // what failed comes again
	})
}

// race gives two workers that are free two ends of one order, or two new orders of the same product, so
// that both may read before either of them writes.
func (w *world) race(t *rapid.T) {
	order := rapid.SampledFrom([]string{"o1", "o2", "o3", "o4"}).Draw(t, "order")
	racing := []Event{About("", "order.payment_confirmed", order), About("", "order.payment_failed", order)}
	if rapid.Bool().Draw(t, "new orders") {
		n := len(w.events)
		racing = []Event{Created("", fmt.Sprint("new", n), "cap 1"), Created("", fmt.Sprint("new", n+1), "cap 1")}
	}
	for _, a := range w.workers {
		if a.Running || len(racing) == 0 {
			continue
		}
		e := racing[0]
		e.ID = fmt.Sprint("e", len(w.events))
		w.events, racing = append(w.events, e), racing[1:]
		w.start(a, e, false)
	}
}

func (w *world) goOn(t *rapid.T) {
	var busy []*dedupetest.Worker
	for _, a := range w.workers {
		if a.Running {
			busy = append(busy, a)
		}
	}
	if len(busy) == 0 {
		t.Skip("all are free")
	}
	rapid.SampledFrom(busy).Draw(t, "worker").Step(rapid.SampledFrom(dedupetest.Fates).Draw(t, "fate"))
}

// check holds the stock to its orders: never below zero, and each piece is where its order says.
func (w *world) check(t *rapid.T) {
	ctx := context.Background()
	reserved, sold := map[string]int64{}, map[string]int64{}
	all, _, err := orders.List(ctx, w.Store, "", store.Cursor{}, 100)
	require.NoError(t, err)
	for _, o := range all {
		for _, item := range o.Items {
			switch o.State {
			case orders.PaymentInitiated:
				reserved[item.ProductID] += item.Quantity
			case orders.OrderConfirmed, orders.OrderShipped:
				sold[item.ProductID] += item.Quantity
			default:
				require.Equal(t, orders.OrderCancelled, o.State, "an order rests nowhere else")
			}
		}
		require.Equal(t, o.State == orders.OrderCancelled, o.Reason != "", "a cancelled order says why")
		require.Equal(t, o.State == orders.PaymentInitiated, !o.PaymentDue.IsZero())
		ends := 0
		for i, step := range o.History {
			require.False(t, i > 0 && step.At.Before(o.History[i-1].At))
			if step.State == orders.OrderConfirmed || step.State == orders.OrderCancelled {
				ends++
			}
		}
		require.LessOrEqual(t, ends, 1, "an order ends once")
	}
	for _, product := range products {
		s, err := w.Stock.Get(ctx, dedupe.DefaultTenant, product)
		require.NoError(t, err)
		require.GreaterOrEqual(t, min(s.Available, s.Reserved, s.Sold), int64(0))
		require.Equal(t, []int64{w.put[product] - reserved[product] - sold[product], reserved[product], sold[product]}, []int64{s.Available, s.Reserved, s.Sold}, product)
	}
}

// end lets every worker finish, then delivers every event and every timeout without a fault until all
// have an answer: each order that was created has ended, and nothing waits.
func (w *world) end(t *rapid.T) {
	ctx := context.Background()
	for _, a := range w.workers {
		a.Settle()
	}
	w.check(t)
	created := map[string]bool{}
	for round := range 3 { // what waited for an event that comes later is delivered again
		w.Wait(time.Hour)
		require.NoError(t, w.Release(ctx, w.Store, w))
		for _, e := range w.events {
			told, err := w.Deliver(ctx, w.Store, e, false)
			means := retry.Decide(err)
			order, _ := e.Data["order_id"].(string)
			created[order] = created[order] || e.Type == "order.created"
			switch {
			case err == nil:
				require.Contains(t, []dedupe.Seen{dedupe.Own, dedupe.Done}, told.Seen)
			case means.Scope == retry.OtherEvent && means.Reason == "not_due": // a timeout that was made up, of a new order
				require.Less(t, round, 2, "it is due in the end")
			case means.Scope == retry.OtherEvent:
				require.Equal(t, "order_not_seen", means.Reason)
			default:
				require.True(t, means.Class.Terminal(), "%s: %v", e.Type, err)
			}
		}
	}
	w.check(t)
	for order, seen := range created {
		o, err := orders.Find(ctx, w.Store, "default", order)
		if !seen {
			require.ErrorIs(t, err, orders.ErrUnknown)
			continue
		}
		require.NoError(t, err)
		require.Contains(t, []orders.State{orders.OrderConfirmed, orders.OrderShipped, orders.OrderCancelled}, o.State)
	}
	for _, collection := range []string{"delayed", "delayedKeys"} {
		require.Empty(t, storetest.All(t, w.Store, collection), "no timeout waits for an order that has ended")
	}
}
