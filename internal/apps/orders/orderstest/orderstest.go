// Package orderstest runs the handlers of orders as the worker does, on a given store, releases due timeouts,
// and compares histories with a model.
package orderstest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"billhook/catalog"
	"billhook/internal/apps/orders"
	"billhook/internal/contract"
	"billhook/internal/dedupe"
	"billhook/internal/dedupe/dedupetest"
	"billhook/internal/filetest"
	"billhook/internal/pipeline/handler"
	"billhook/internal/pipeline/lane"
	"billhook/internal/platform/audit"
	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
	"billhook/internal/retry"
)

// Noon is the shop's time at its start.
var Noon = time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)

// Shop has the orders and the stock of a store.
type Shop struct {
	Store   store.Store
	Catalog *catalog.Catalog
	Queue   catalog.Queue
	Stock   *orders.StockEditor
	now     atomic.Int64
	tokens  atomic.Int64
}

// Open opens a shop with the shipped catalog.
func Open(on store.Store) (*Shop, error) {
	c, err := catalog.Load("")
	if err != nil {
		return nil, fmt.Errorf("orderstest: %w", err)
	}
	s := &Shop{Store: on, Catalog: c}
	s.Queue, _ = c.HandledBy("orders.create")
	s.now.Store(Noon.UnixNano())
	s.Stock = &orders.StockEditor{Store: on, Now: s.Now, NewID: s.token}
	return s, nil
}

// Now is the shop's time.
func (s *Shop) Now() time.Time { return time.Unix(0, s.now.Load()).UTC() }

// Wait lets time pass.
func (s *Shop) Wait(d time.Duration) { s.now.Add(int64(d)) }

// SetStock returns a person's change of a product's stock.
func SetStock(product string, available int64) (set orders.SetStock) {
	set.Tenant, set.ProductID, set.Available, set.Why = dedupe.DefaultTenant, product, &available, "counted"
	return set
}

func (s *Shop) token() string { return fmt.Sprint("token-", s.tokens.Add(1)) }

// Event is an event of an order.
type Event struct {
	ID, Type string
	Data     map[string]any
}

// Outcome is the result of a delivery.
type Outcome struct {
	Seen   dedupe.Seen
	Effect handler.Effect // of the last call of the handler
}

// Deliver calls an event's handler on a store and commits its effect with its emissions, as a worker does.
// With look it reads the record first, as for a redelivery.
func (s *Shop) Deliver(ctx context.Context, on store.Store, e Event, look bool) (Outcome, error) {
	data, err := json.Marshal(map[string]any{
		"id": e.ID, "type": e.Type, "version": 1, "timestamp": Noon.Format(time.RFC3339), "data": e.Data,
	})
	if err != nil {
		return Outcome{}, fmt.Errorf("orderstest: %w", err)
	}
	body, err := s.Catalog.Contracts.Decode(contract.MessageV1, data)
	if err != nil {
		return Outcome{}, fmt.Errorf("orderstest: %w", err)
	}
	registry := handler.NewRegistry()
	orders.Register(registry, s.Catalog, on, s.Now)
	policy, _ := s.Queue.Handler(e.Type)
	h, ok := registry.Lookup(policy.Name)
	if !ok {
		return Outcome{}, errors.New("orderstest: no handler of " + e.Type)
	}
	event := handler.Event{
		Queue: s.Queue.ID, Tenant: dedupe.DefaultTenant, ID: e.ID, Type: e.Type, Body: body, CorrelationID: "c1",
	}
	once := &dedupe.Once{Store: on, Now: s.Now, NewToken: s.token}
	record := dedupe.Record{Identity: dedupe.Identity{
		Queue: event.Queue, Tenant: event.Tenant, EventID: event.ID, EventType: event.Type,
		PayloadHash: "sha256:" + e.ID,
	}}
	run := once.Begin(dedupe.Key(event.Queue, event.Tenant, event.ID), record, 90*24*time.Hour)
	var done Outcome
	handle := func(ctx context.Context, event handler.Event) (handler.Effect, error) {
		effect, err := h.Tx(ctx, event)
		done.Effect = effect
		if err == nil {
			done.Effect.Writes = slices.Clone(effect.Writes)
			_, err = lane.Emit(s.Catalog, event, &effect, s.Now())
		}
		return effect, err
	}
	done.Seen, err = dedupetest.Effect(ctx, run, event, look, handle)
	return done, err
}

// Release publishes the timeouts that are due.
func (s *Shop) Release(ctx context.Context, on store.Store, to contract.Publisher) error {
	relay := &lane.Relay{Of: lane.Delayed, Store: on, Publisher: to, Now: s.Now}
	_, err := relay.Due(ctx, 100, func(string, error) {})
	return err //nolint:wrapcheck // the caller's own store
}

// Timeout returns the event in a message that Release has published.
func Timeout(m contract.Message) Event {
	return Event{
		ID: m.Attributes[contract.AttrEventID], Type: m.Attributes[contract.AttrEventType],
		Data: map[string]any{"order_id": m.Attributes[contract.AttrOrderID]},
	}
}

// Created returns the event of a new order. Each item is "product quantity".
func Created(id, order string, items ...string) Event {
	list := []any{}
	for _, item := range items {
		product, quantity, _ := strings.Cut(item, " ")
		n := int64(0)
		_, _ = fmt.Sscan(quantity, &n)
		list = append(list, map[string]any{"product_id": product, "quantity": n})
	}
	return Event{ID: id, Type: "order.created", Data: map[string]any{
		"order_id": order, "user_id": "usr_42", "total": 100, "items_count": len(list), "items": list,
	}}
}

// About returns an event that names only its order.
func About(id, eventType, order string) Event {
	return Event{ID: id, Type: eventType, Data: map[string]any{"order_id": order}}
}

// world is a shop of two products, its workers, and the published events.
type world struct {
	*Shop
	workers []*dedupetest.Worker
	events  []Event
	put     map[string]int64
}

// Publish adds the timeouts that a release publishes.
func (w *world) Publish(_ context.Context, _ string, m contract.Message) (string, error) {
	if e := Timeout(m); !slices.ContainsFunc(w.events, func(o Event) bool { return o.ID == e.ID }) {
		w.events = append(w.events, e)
	}
	return "1", nil
}

var (
	products = []string{"cap", "hat"}
	orderIDs = rapid.SampledFrom([]string{"o1", "o2", "o3", "o4"})
	waits    = rapid.SampledFrom([]time.Duration{time.Minute, 14*time.Minute + 30*time.Second, 16 * time.Minute})
)

// Run checks stock and orders under any interleaving of workers, timeouts, payments and crashes, on the
// stores that open returns.
func Run(t *testing.T, open func(t testing.TB) store.Store) {
	t.Helper()
	rapid.Check(t, func(rt *rapid.T) {
		shop := filetest.Must(Open(open(t)))(rt)
		w := &world{Shop: shop, put: map[string]int64{}}
		for range 3 {
			w.workers = append(w.workers, &dedupetest.Worker{})
		}
		for _, product := range products {
			w.stock(rt, product, rapid.Int64Range(0, 4).Draw(rt, "stock of "+product))
		}
		rt.Repeat(map[string]func(*rapid.T){
			"an event is published":                     w.publish,
			"a worker handles an event":                 w.deliver,
			"two workers handle two conflicting events": w.race,
			"a worker continues":                        w.step,
			"time passes":                               func(t *rapid.T) { w.Wait(waits.Draw(t, "wait")) },
			"due timeouts are released": func(t *rapid.T) {
				require.NoError(t, w.Release(context.Background(), w.Store, w))
			},
			"": w.check,
		})
		w.end(rt)
	})
}

// stock sets the stock of a product, and notes the sum that it must keep.
func (w *world) stock(t *rapid.T, product string, available int64) {
	by := audit.Author{Proof: audit.Identity, Name: "model"}
	require.NoError(t, filetest.ErrorOf(w.Stock.Set(context.Background(), by, SetStock(product, available))))
	w.put[product] = available
}

// publish adds an event of one of few orders.
func (w *world) publish(t *rapid.T) {
	order := orderIDs.Draw(t, "order")
	id := fmt.Sprint("e", len(w.events))
	kind := rapid.SampledFrom([]string{
		"order.created", "order.created", "order.payment_confirmed", "order.payment_failed",
		"order.payment_timeout", "order.shipped",
	}).Draw(t, "event")
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

// deliver gives a free worker an event, which may have been delivered before.
func (w *world) deliver(t *rapid.T) {
	free := slices.IndexFunc(w.workers, func(a *dedupetest.Worker) bool { return !a.Running })
	if free < 0 || len(w.events) == 0 {
		t.Skip("no worker is free, or there is no event")
	}
	e := rapid.SampledFrom(w.events).Draw(t, "event")
	look := rapid.Bool().Draw(t, "redelivered")
	w.start(w.workers[free], e, look)
}

func (w *world) start(a *dedupetest.Worker, e Event, look bool) {
	on := a.Store(w.Store)
	a.Start(func() { _, _ = w.Deliver(context.Background(), on, e, look) }) // a failed one is delivered again
}

// race gives two free workers two results of one order's payment, or two new orders of one product, so that
// both may read before either writes.
func (w *world) race(t *rapid.T) {
	order := orderIDs.Draw(t, "order")
	racing := []Event{About("", "order.payment_confirmed", order), About("", "order.payment_failed", order)}
	if n := len(w.events); rapid.Bool().Draw(t, "new orders") {
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

func (w *world) step(t *rapid.T) {
	free := func(a *dedupetest.Worker) bool { return !a.Running }
	busy := slices.DeleteFunc(slices.Clone(w.workers), free)
	if len(busy) == 0 {
		t.Skip("no worker is busy")
	}
	rapid.SampledFrom(busy).Draw(t, "worker").Step(rapid.SampledFrom(dedupetest.Fates).Draw(t, "fate"))
}

// check compares the stock with the orders: it is never negative, and has each piece as its order does.
func (w *world) check(t *rapid.T) {
	ctx := context.Background()
	reserved, sold := map[string]int64{}, map[string]int64{}
	all, _ := filetest.Both(orders.List(ctx, w.Store, "", store.Cursor{}, 100))(t)
	for _, o := range all {
		for _, item := range o.Items {
			switch o.State {
			case orders.PaymentInitiated:
				reserved[item.ProductID] += item.Quantity
			case orders.OrderConfirmed, orders.OrderShipped:
				sold[item.ProductID] += item.Quantity
			default:
				require.Equal(t, orders.OrderCancelled, o.State, "an order remains in no other state")
			}
		}
		require.Equal(t, o.State == orders.OrderCancelled, o.Reason != "", "a cancelled order has a reason")
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
		s := filetest.Must(w.Stock.Get(ctx, dedupe.DefaultTenant, product))(t)
		require.GreaterOrEqual(t, min(s.Available, s.Reserved, s.Sold), int64(0))
		want := []int64{w.put[product] - reserved[product] - sold[product], reserved[product], sold[product]}
		require.Equal(t, want, []int64{s.Available, s.Reserved, s.Sold}, product)
	}
}

// end lets every worker finish, then delivers every event and every timeout without a fault until all have an
// answer: each created order has ended, and no timeout waits.
func (w *world) end(t *rapid.T) {
	ctx := context.Background()
	for _, a := range w.workers {
		a.Settle()
	}
	w.check(t)
	created := map[string]bool{}
	for round := range 3 { // an event that waited for a later one is delivered again
		w.Wait(time.Hour)
		require.NoError(t, w.Release(ctx, w.Store, w))
		for _, e := range w.events {
			outcome, err := w.Deliver(ctx, w.Store, e, false)
			means := retry.Decide(err)
			order, _ := e.Data["order_id"].(string)
			created[order] = created[order] || e.Type == "order.created"
			switch {
			case err == nil:
				require.Contains(t, []dedupe.Seen{dedupe.Own, dedupe.Done}, outcome.Seen)
			// an invented timeout of a new order
			case means.Scope == retry.OtherEvent && means.Reason == "not_due":
				require.Less(t, round, 2, "it is due in the end")
			case means.Scope == retry.OtherEvent:
				require.Equal(t, "order_not_seen", means.Reason)
			default:
				require.True(t, means.Class.Terminal(), "%s: %v", e.Type, err)
			}
		}
	}
	w.check(t)
	ended := []orders.State{orders.OrderConfirmed, orders.OrderShipped, orders.OrderCancelled}
	for order, seen := range created {
		o, err := orders.Find(ctx, w.Store, "default", order)
		if !seen {
			require.ErrorIs(t, err, orders.ErrUnknown)
			continue
		}
		require.NoError(t, err)
		require.Contains(t, ended, o.State)
	}
	for _, collection := range []string{"delayed", "delayedKeys"} {
		require.Empty(t, storetest.All(t, w.Store, collection), "no timeout waits for an order that has ended")
	}
}
