// Package orders owns the states of an order and the transitions between them, in one table, and the pieces
// of products that it reserves, sells and releases. Every event of an order is one commit. It does not commit
// or retry itself, keeps no records of events, and moves no money: a payment that no order waits for is a
// dead letter.
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
	store    store.Getter
	now      func() time.Time
	queue    string        // gets a payment's timeout
	patience time.Duration // how long an order waits for its payment
	notices  string        // gets the events for notifications
	others   []string      // the other queues that get events of confirmed orders
	indexes  []string      // the queues that get an event of each sold product
}

// Register adds the handlers. The catalog has the time limit of a payment, and the queues that get events.
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
	all := slices.Concat(own.others, own.indexes, []string{own.notices})
	handler.RegisterTx(r, createHandler, own.create, own.queue, own.notices)
	handler.RegisterTx(r, confirmHandler, own.advance(own.confirm), all...)
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

// about is the data of the other events.
type about struct {
	OrderID   string `json:"order_id"`
	PaymentID string `json:"payment_id,omitempty"`
	UserID    string `json:"user_id,omitempty"`
}

// Notice is the data of an event that a user or a seller is notified of.
type Notice struct {
	OrderID string `json:"order_id"`
	UserID  string `json:"user_id,omitempty"`
	Reason  string `json:"reason,omitempty"`
}

// Sold is the data of the event of a sold product. An index keeps the newest sale, by the version.
type Sold struct {
	DocumentID string    `json:"document_id"`
	Version    int64     `json:"version"`
	SoldAt     time.Time `json:"sold_at"`
}

// create reserves all pieces of an order, and starts the wait for its payment. If pieces are missing, it
// reserves none and cancels the order. A first try does not read the order: the store refuses a second one.
func (h handlers) create(ctx context.Context, event handler.Event, body newOrder) (handler.Effect, error) {
	items := merged(body.Items)
	o := Order{
		ID: body.OrderID, Tenant: event.Tenant, UserID: body.UserID, SellerID: body.SellerID, Items: items,
	}
	o.Total = body.Total
	if event.Try > 0 {
		there, err := Find(ctx, h.store, event.Tenant, o.ID)
		same := there.UserID == o.UserID && there.SellerID == o.SellerID && there.Total == o.Total
		switch {
		case err == nil && (!same || !slices.Equal(there.Items, o.Items)):
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
		// if pieces are reserved meanwhile, the commit fails and the event is retried
		if s.Available < item.Quantity {
			o.ShortOf = item.ProductID
			break
		}
	}
	return h.follow(event, o, walk(none, created, o.ShortOf == ""))
}

// merged adds up the pieces of each product. A sum above MaxPieces stays above it.
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

// confirm takes the payment of an order. A second payment, known by its id, is a dead letter.
func (h handlers) confirm(o *Order, body about) error {
	switch {
	case o.State == PaymentInitiated:
		o.PaymentID = body.PaymentID
	case o.PaymentID != "" && body.PaymentID != "" && o.PaymentID != body.PaymentID:
		return retry.Permanent("paid_twice", nil)
	}
	return nil
}

// timeOut returns an error if a timeout comes before the payment is due: it is tried again then.
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

type advancing = func(context.Context, handler.Event, about) (handler.Effect, error)

// advance makes the event's transition, or answers. check may complete or refuse a known order.
func (h handlers) advance(check func(*Order, about) error) advancing {
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

// follow makes the transitions of an order, which may be new, and returns the effect of all of them.
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
			effect.Emit = append(effect.Emit, h.emissions(event, e.emits, o)...)
		}
	}
	effect.Result = cmp.Or(results[o.State], cancelled[o.Reason])
	effect.Writes = append(effect.Writes, store.Replace(key(o.Tenant, o.ID), o.version, o.fields()))
	return effect, nil
}

// emissions returns the messages about an order's new state: to its user, and if it is confirmed also to the
// others, to its seller and to the indexes of its products. Their order decides their ids. With at most 100
// products, their stock and two writes for each message, an order stays within store.MaxWrites.
func (h handlers) emissions(event handler.Event, what string, o Order) (all []handler.Emission) {
	notify := func(eventType string, of Notice) {
		if of.UserID != "" {
			body := message(event, eventType, of)
			all = append(all, handler.Emission{To: h.notices, RoutingKey: eventType, Body: body})
		}
	}
	notice := Notice{OrderID: o.ID, UserID: o.UserID}
	if what != emitsConfirmed {
		if what == emitsCancelled {
			notice.Reason = o.Reason
		}
		notify(what, notice)
		return all
	}
	for _, to := range h.others {
		all = append(all, handler.Emission{To: to, Body: message(event, what, notice)})
	}
	notify(emitsSeller, Notice{OrderID: o.ID, UserID: o.SellerID})
	notify(what, notice)
	for _, to := range h.indexes {
		for _, item := range o.Items {
			sold := Sold{DocumentID: item.ProductID, Version: o.UpdatedAt.UnixMicro(), SoldAt: o.UpdatedAt}
			body := message(event, emitsSold, sold)
			all = append(all, handler.Emission{To: to, OrderingKey: item.ProductID, Body: body})
		}
	}
	return all
}

func timeoutOf(order string) string { return "payment of order " + order }

func message(of handler.Event, eventType string, data any) contract.Body {
	return contract.Of(&contract.Event{Type: eventType, Version: 1, CorrelationID: of.CorrelationID, Data: data})
}

// results has the results of orders that are not cancelled, by state; cancelled has the others, by reason.
var (
	results = map[State]string{
		PaymentInitiated: initiated, OrderConfirmed: confirmed, OrderShipped: delivering,
	}
	cancelled = map[string]string{
		OutOfStock: cancelledNoStock, FailedPayment: cancelledFailed, PaymentTimeOut: cancelledTimeout,
	}
)

func marked(err error) error {
	if errors.Is(err, ErrBroken) {
		return retry.Permanent("order_unreadable", err)
	}
	return retry.Outage("store_unavailable", err)
}
