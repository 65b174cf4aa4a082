// Package orderstest is a shop on whatever store it is given: the handlers of orders, run as the
// worker runs them, the timeouts that come due, and the model that any history of them keeps to.
package orderstest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"

	"billhook/catalog"
	"billhook/internal/apps/orders"
	"billhook/internal/contract"
	"billhook/internal/dedupe"
	"billhook/internal/dedupe/dedupetest"
	"billhook/internal/pipeline/handler"
	"billhook/internal/pipeline/lane"
	"billhook/internal/platform/store"
)

// Noon is when a shop opens.
var Noon = time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)

// Shop is a shop on a store.
type Shop struct {
	Store   store.Store
	Catalog *catalog.Catalog
	Queue   catalog.Queue
	Stock   *orders.StockEditor
	now     atomic.Int64
	tokens  atomic.Int64
}

// Open opens a shop that orders by the shipped catalog.
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

// Now is the shop's time; Wait lets it pass.
func (s *Shop) Now() time.Time { return time.Unix(0, s.now.Load()).UTC() }

// Wait lets time pass.
func (s *Shop) Wait(d time.Duration) { s.now.Add(int64(d)) }

// SetStock is the change by which a person sets the stock of a product.
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

// Told is what became of a delivery.
type Told struct {
	Seen dedupe.Seen
	// Effect is that of the last call of the handler.
	Effect handler.Effect
}

// Deliver runs an event's handler on a store and commits its effect with its emissions, as a worker
// does. With look it reads the record first, as of a redelivery.
func (s *Shop) Deliver(ctx context.Context, on store.Store, e Event, look bool) (Told, error) {
	data, err := json.Marshal(map[string]any{"id": e.ID, "type": e.Type, "version": 1, "timestamp": Noon.Format(time.RFC3339), "data": e.Data})
	if err != nil {
		return Told{}, fmt.Errorf("orderstest: %w", err)
	}
	body, err := s.Catalog.Contracts.Decode(contract.MessageV1, data)
	if err != nil {
		return Told{}, fmt.Errorf("orderstest: %w", err)
	}
	registry := handler.NewRegistry()
	orders.Register(registry, s.Catalog, on, s.Now)
	policy, _ := s.Queue.Handler(e.Type)
	h, ok := registry.Lookup(policy.Name)
	if !ok {
		return Told{}, errors.New("orderstest: no handler of " + e.Type)
	}
	event := handler.Event{Queue: s.Queue.ID, Tenant: dedupe.DefaultTenant, ID: e.ID, Type: e.Type, Contract: contract.MessageV1, Body: body, CorrelationID: "c1"}
	once := &dedupe.Once{Store: on, Now: s.Now, NewToken: s.token}
	run := once.Begin(dedupe.Key(event.Queue, event.Tenant, event.ID),
		dedupe.Record{Queue: event.Queue, Tenant: event.Tenant, EventID: event.ID, EventType: event.Type, PayloadHash: "sha256:" + e.ID}, 90*24*time.Hour)
	var told Told
	told.Seen, err = dedupetest.Effect(ctx, run, event, look, func(ctx context.Context, event handler.Event) (handler.Effect, error) {
		effect, err := h.Tx(ctx, event)
		told.Effect = effect
		if err == nil {
			told.Effect.Writes = slices.Clone(effect.Writes)
			_, err = lane.Emit(s.Catalog, event, &effect, s.Now())
		}
		return effect, err
	})
	return told, err
}

// Publisher takes what is published.
type Publisher interface {
	Publish(ctx context.Context, topic string, m contract.Message) (messageID string, err error)
}

// Release publishes the timeouts that are due.
func (s *Shop) Release(ctx context.Context, on store.Store, to Publisher) error {
	relay := &lane.Relay{Of: lane.Delayed, Store: on, Publisher: to, Now: s.Now}
	_, err := relay.Due(ctx, 100, func(string, error) {})
	return err //nolint:wrapcheck // the caller's own store
}

// Timeout is the event in a message that Release has published.
func Timeout(m contract.Message) Event {
	return Event{ID: m.Attributes[contract.AttrEventID], Type: m.Attributes[contract.AttrEventType], Data: map[string]any{"order_id": m.Attributes[contract.AttrOrderID]}}
}

// Created is the event of a new order. items are "product quantity".
func Created(id, order string, items ...string) Event {
	list := []any{}
	for _, item := range items {
		product, quantity, _ := strings.Cut(item, " ")
		n := int64(0)
		_, _ = fmt.Sscan(quantity, &n)
		list = append(list, map[string]any{"product_id": product, "quantity": n})
	}
	return Event{ID: id, Type: "order.created", Data: map[string]any{"order_id": order, "user_id": "usr_42", "total": 100, "items_count": len(list), "items": list}}
}

// About is an event that says no more than its order.
func About(id, eventType, order string) Event {
	return Event{ID: id, Type: eventType, Data: map[string]any{"order_id": order}}
}
