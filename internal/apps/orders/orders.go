// Package orders owns what becomes of an order: its states and the ways between them, in one table, and the
// pieces of products that it reserves, sells and releases. Every event of an order is one commit. It refuses
// to commit, retry or remember events, and to move money: a payment that no order waits for is a dead letter.
package orders

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"billhook/catalog"
	"billhook/internal/contract"
	"billhook/internal/pipeline/handler"
	"billhook/internal/platform/store"
	"billhook/internal/retry"
)

// The names of the handlers in the catalog.
const (
	createHandler  = "orders.create"
	confirmHandler = "orders.confirm"
	failHandler    = "orders.fail"
	timeoutHandler = "orders.time_out"
	shipHandler    = "orders.ship"
)

type handlers struct {
	store store.Getter
	now   func() time.Time
	// queue is where a payment's timeout comes back; patience is how long a payment is waited for.
	queue    string
	patience time.Duration
	// notices is where it is told what became of orders. others are queues that are told of those that are
	// confirmed, too, and indexes those that are told of each product that was sold.
	notices         string
	others, indexes []string
}

// Register adds the handlers. The catalog says how long a payment is waited for, and who is told.
func Register(r *handler.Registry, c *catalog.Catalog, from store.Getter, now func() time.Time) {
	q, ok := c.HandledBy(createHandler)
	if !ok {
		return
	}
	own := handlers{store: from, now: now, queue: q.ID}
	for _, h := range q.Handlers {
		for _, to := range h.Emits {
			switch {
			case slices.Contains(h.EmitsIfRun, to):
				other, _ := c.Queue(to)
				if _, takes := other.Handler(emitsConfirmed); takes {
					own.others = append(own.others, to)
				} else {
					own.indexes = append(own.indexes, to)
				}
			case to != q.ID:
				own.notices = to
			}
		}
		if h.Name == createHandler {
			own.patience = h.WaitsFor
		}
	}
	handler.RegisterTx(r, createHandler, own.create, own.queue, own.notices)
	told := slices.Concat(own.others, own.indexes, []string{own.notices})
	handler.RegisterTx(r, confirmHandler, own.advance(own.confirm), told...)
	handler.RegisterTx(r, failHandler, own.advance(func(*Order, about) error { return nil }), own.notices)
	handler.RegisterTx(r, timeoutHandler, own.advance(own.timeOut), own.notices)
	handler.RegisterTx(r, shipHandler, own.advance(own.ship), own.notices)
}

type newOrder struct {
	OrderID  string `json:"order_id"`
	UserID   string `json:"user_id"`
	SellerID string `json:"seller_id"`
	Total    int64  `json:"total"`
	Items    []Item `json:"items"`
}

// about is what the other events say of an order.
type about struct {
	OrderID   string `json:"order_id"`
	PaymentID string `json:"payment_id,omitempty"`
	UserID    string `json:"user_id,omitempty"`
}

// Notice is the data of what is told of an order.
type Notice struct {
	OrderID string `json:"order_id"`
	UserID  string `json:"user_id,omitempty"`
	Reason  string `json:"reason,omitempty"`
}

// Sold is the data of what is told of a product that was sold. The version lets the index keep the newest
// sale.
type Sold struct {
	DocumentID string    `json:"document_id"`
	Version    int64     `json:"version"`
	SoldAt     time.Time `json:"sold_at"`
}

// create reserves all pieces of an order, or none, and starts the wait for its payment. Where a piece is
// short, the order is cancelled. A first try does not read the order: the store refuses to create another.
func (h handlers) create(ctx context.Context, event handler.Event, body newOrder) (handler.Effect, error) {
	items := merged(body.Items)
	o := Order{
		ID: body.OrderID, Tenant: event.Tenant, UserID: body.UserID, SellerID: body.SellerID, Items: items,
		Total: body.Total,
	}
	if event.Try > 0 {
		there, err := Find(ctx, h.store, event.Tenant, o.ID)
		switch {
		case err == nil && (there.UserID != o.UserID || there.SellerID != o.SellerID || there.Total != o.Total ||
			!slices.Equal(there.Items, o.Items)):
			return handler.Effect{}, retry.Conflicting("order_created_differently", nil)
		case err == nil:
			a, _ := answerTo(there.State, created)
			return a.effect()
		case !errors.Is(err, ErrUnknown):
			return handler.Effect{}, marked(err)
		}
	}
	for _, item := range items {
		s, err := store.Read(ctx, h.store, StockKey(event.Tenant, item.ProductID), ErrNoStock, ReadStock)
		if err != nil && !errors.Is(err, ErrNoStock) {
			return handler.Effect{}, marked(err)
		}
		if s.Available < item.Quantity { // what is taken meanwhile fails the commit, and it is looked at again
			o.ShortOf = item.ProductID
			break
		}
	}
	return h.follow(event, o, walk(none, created, o.ShortOf == ""))
}

// merged has each product once. More pieces than there can be stay more than there can be.
func merged(items []Item) []Item {
	pieces := map[string]int64{}
	for _, item := range items {
		pieces[item.ProductID] = min(pieces[item.ProductID]+min(item.Quantity, MaxPieces+1), MaxPieces+1)
	}
	all := []Item{}
	for product, quantity := range pieces {
		all = append(all, Item{product, quantity})
	}
	slices.SortFunc(all, func(a, b Item) int { return strings.Compare(a.ProductID, b.ProductID) })
	return all
}

// confirm takes the payment of an order. A second payment is for a person, where the two can be told apart.
func (h handlers) confirm(o *Order, body about) error {
	switch {
	case o.State == PaymentInitiated:
		o.PaymentID = body.PaymentID
	case o.PaymentID != "" && body.PaymentID != "" && o.PaymentID != body.PaymentID:
		return retry.Permanent("paid_twice", nil)
	}
	return nil
}

// timeOut lets the timeout cancel an order whose payment is late by the order's own time; an early one is
// kept.
func (h handlers) timeOut(o *Order, _ about) error {
	if early := o.PaymentDue.Sub(h.now()); o.State == PaymentInitiated && early > 0 {
		return retry.Early("not_due", early, nil)
	}
	return nil
}

func (h handlers) ship(o *Order, body about) error {
	o.UserID = cmp.Or(o.UserID, body.UserID)
	return nil
}

// advance takes an order along the event's edge, or answers. check may complete or refuse one that is there.
func (h handlers) advance(
	check func(*Order, about) error,
) func(context.Context, handler.Event, about) (handler.Effect, error) {
	return func(ctx context.Context, event handler.Event, body about) (handler.Effect, error) {
		o, err := Find(ctx, h.store, event.Tenant, body.OrderID)
		switch {
		case err == nil:
			err = check(&o, body)
		case errors.Is(err, ErrUnknown):
			err = nil
		default:
			err = marked(err)
		}
		if err != nil {
			return handler.Effect{}, err
		}
		if a, ok := answerTo(o.State, event.Type); ok {
			return a.effect()
		}
		path := walk(o.State, event.Type, true)
		if len(path) == 0 {
			return handler.Effect{}, retry.Permanent("illegal_transition", nil)
		}
		return h.follow(event, o, path)
	}
}

func (a answer) effect() (handler.Effect, error) {
	switch a.is {
	case superseded:
		return handler.Effect{Result: a.code, Superseded: true}, nil
	case missing:
		return handler.Effect{}, retry.Missing(a.code, nil)
	default:
		return handler.Effect{}, retry.Permanent(a.code, nil)
	}
}

// follow takes an order, which is there or new, along edges, and returns the effect of all.
func (h handlers) follow(event handler.Event, o Order, path []edge) (handler.Effect, error) {
	now := h.now().UTC().Truncate(time.Microsecond)
	if o.UpdatedAt = now; o.version == 0 {
		o.CreatedAt = now
	}
	var effect handler.Effect
	if path[0].from == PaymentInitiated {
		o.PaymentDue, effect.Withdraw = time.Time{}, []string{timeoutOf(o.ID)}
	}
	for _, e := range path {
		o.State, o.Reason = e.to, cmp.Or(e.reason, o.Reason)
		o.History = append(o.History, Step{State: e.to, At: now, EventID: event.ID})
		for _, item := range o.Items {
			if e.stock != "" {
				effect.Writes = append(effect.Writes, moving(o.Tenant, e.stock, item))
			}
		}
		if e.waits {
			o.PaymentDue = now.Add(h.patience)
			effect.Emit = append(effect.Emit, handler.Emission{
				To: h.queue, OrderingKey: o.ID, Due: o.PaymentDue, Name: timeoutOf(o.ID),
				Body: message(event, paymentTimeout, about{OrderID: o.ID}),
			})
		}
		if e.emits != "" {
			effect.Emit = append(effect.Emit, h.tell(event, e.emits, o)...)
		}
	}
	effect.Result = cmp.Or(results[o.State], "cancelled_"+o.Reason)
	effect.Writes = append(effect.Writes, store.Replace(key(o.Tenant, o.ID), o.version, o.fields()))
	return effect, nil
}

// tell are the messages of what became of an order: to its user, and of one that is confirmed to the others,
// to its seller and to the indexes of its products. Of at most 100 products, with their stock and two writes
// for each message, an order stays within store.MaxWrites.
func (h handlers) tell(event handler.Event, what string, o Order) (all []handler.Emission) {
	notice, confirmed := Notice{OrderID: o.ID, UserID: o.UserID}, what == emitsConfirmed
	for _, to := range h.others {
		if confirmed {
			all = append(all, handler.Emission{To: to, Body: message(event, what, notice)})
		}
	}
	if confirmed && o.SellerID != "" {
		seller := Notice{OrderID: o.ID, UserID: o.SellerID}
		all = append(all,
			handler.Emission{To: h.notices, RoutingKey: emitsSeller, Body: message(event, emitsSeller, seller)})
	}
	if what == emitsCancelled {
		notice.Reason = o.Reason
	}
	if o.UserID != "" { // without a user there is nobody to tell
		all = append(all, handler.Emission{To: h.notices, RoutingKey: what, Body: message(event, what, notice)})
	}
	for _, to := range h.indexes {
		for _, item := range o.Items {
			sold := Sold{DocumentID: item.ProductID, Version: o.UpdatedAt.UnixMicro(), SoldAt: o.UpdatedAt}
			if confirmed {
				all = append(all,
					handler.Emission{To: to, OrderingKey: item.ProductID, Body: message(event, emitsSold, sold)})
			}
		}
	}
	return all
}

func timeoutOf(order string) string { return "payment of order " + order }

func message(event handler.Event, eventType string, data any) contract.Body {
	return contract.Of(
		&contract.Event{Type: eventType, Version: 1, CorrelationID: event.CorrelationID, Data: data})
}

// results are those of orders that are not cancelled.
var results = map[State]string{
	PaymentInitiated: "payment_initiated", OrderConfirmed: "confirmed", OrderShipped: "shipped",
}

func marked(err error) error {
	if errors.Is(err, ErrBroken) {
		return retry.Permanent("order_unreadable", err)
	}
	return retry.Outage("store_unavailable", err)
}
