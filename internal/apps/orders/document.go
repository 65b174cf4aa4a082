package orders

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"billhook/internal/platform/store"
)

// Collection holds a document for each order.
const Collection = "orders"

// The errors of what reads orders. Any other means that nothing is known.
var (
	// ErrUnknown: no order of that id has been seen.
	ErrUnknown = errors.New("orders: no such order")
	// ErrBroken: what is stored is no order.
	ErrBroken = errors.New("orders: stored order is not readable")
)

// Order is an order as it stands.
type Order struct {
	ID     string `json:"order_id" store:"order_id,required" show:"Order" link:"orders"`
	Tenant string `json:"tenant" store:"tenant,required"`
	State  State  `json:"state" store:"state,required" show:"State"`
	// Reason is why it is cancelled.
	Reason string `json:"reason,omitempty" store:"reason,omitzero" show:"Reason,less"`
	// ShortOf is the product, of an order that is out of stock, that was short.
	ShortOf string `json:"short_of,omitempty" store:"short_of,omitzero" show:"Short of,less" link:"stock"`
	UserID  string `json:"user_id,omitempty" store:"user_id,omitzero" show:"User,less"`
	// SellerID is whom it is bought of, as far as known.
	SellerID string `json:"seller_id,omitempty" store:"seller_id,omitzero"`
	// Items are its pieces by product, each product once, in the order of the ids.
	Items []Item `json:"items" show:"Pieces"`
	// Total is what it costs, as its sender says it.
	Total int64 `json:"total,omitzero" store:"total,omitzero" show:"Total,detail"`
	// PaymentID is that of the payment that confirmed it, as far as known.
	PaymentID string `json:"payment_id,omitempty" store:"payment_id,omitzero" show:"Payment,detail"`
	// PaymentDue is when it is cancelled unless its payment is heard of before.
	PaymentDue time.Time `json:"payment_due,omitzero" store:"payment_due,omitzero" show:"Payment due"`
	CreatedAt  time.Time `json:"created_at" store:"created_at" show:"Created"`
	UpdatedAt  time.Time `json:"updated_at" store:"updated_at"`
	// History is every state that it has been in, the oldest first.
	History []Step `json:"history" store:"history,required" show:"History"`
}

// Item is the pieces of one product.
type Item struct {
	ProductID string `json:"product_id" show:"Product" link:"stock"`
	Quantity  int64  `json:"quantity" show:"Quantity"`
}

// Step is a state that an order came to, when, and by which event.
type Step struct {
	State   State     `json:"state" store:"state,required" show:"State"`
	At      time.Time `json:"at" store:"at,required" show:"At"`
	EventID string    `json:"event_id" store:"event_id,required" show:"Event" link:"events"`
}

func key(tenant, id string) store.Key {
	return store.Key{Collection: Collection, ID: store.ID(tenant, id)}
}

func (o Order) fields() map[string]any {
	fields, items := store.Encode(&o), map[string]any{}
	for _, item := range o.Items {
		items[item.ProductID] = item.Quantity
	}
	fields["items"] = items
	return fields
}

// Read reads an order's document.
func Read(doc store.Document) (Order, error) {
	o := Order{Items: []Item{}}
	err := store.Decode(doc.Fields, &o)
	items, _ := doc.Fields["items"].(map[string]any)
	for _, id := range slices.Sorted(maps.Keys(items)) {
		quantity, ok := items[id].(int64)
		if !ok || quantity < 1 {
			err = store.ErrUnreadable
		}
		o.Items = append(o.Items, Item{id, quantity})
	}
	if err != nil || len(o.History) == 0 || o.History[len(o.History)-1].State != o.State {
		return Order{}, fmt.Errorf("%w: %s", ErrBroken, doc.Key)
	}
	return o, nil
}

// Find returns an order of a tenant. The error is ErrUnknown, ErrBroken, or says that nothing is known.
func Find(ctx context.Context, from store.Getter, tenant, id string) (Order, error) {
	o, _, err := look(ctx, from, key(tenant, id), ErrUnknown, Read)
	return o, err
}

// look reads a document with its version. The error is absent where there is none, or that of read.
func look[T any](
	ctx context.Context, from store.Getter, key store.Key, absent error, read func(store.Document) (T, error),
) (one T, version store.Version, err error) {
	doc, err := store.Find(ctx, from, key)
	switch {
	case errors.Is(err, store.ErrInvalid), err == nil && doc.Version == 0:
		return one, 0, absent
	case err != nil:
		return one, 0, fmt.Errorf("orders: %w", err)
	}
	one, err = read(doc)
	return one, doc.Version, err
}

// OfUser returns orders of a tenant's user, at most limit, in no order that means anything.
func OfUser(ctx context.Context, from store.Querier, tenant, userID string, limit int) (all []Order, more bool, err error) {
	all, next, err := store.List(ctx, from, store.Query{Collection: Collection, Equal: map[string]any{"tenant": tenant, "user_id": userID}, Limit: limit}, Read)
	return all, !next.IsZero(), err
}

// List returns a page of orders in a state of rest, or of all; next is zero on the last.
func List(ctx context.Context, from store.Querier, state State, after store.Cursor, limit int) (page []Order, next store.Cursor, err error) {
	query := store.Query{Collection: Collection, After: after, Limit: limit}
	if state != "" {
		query.Equal = map[string]any{"state": string(state)}
	}
	return store.List(ctx, from, query, Read)
}
