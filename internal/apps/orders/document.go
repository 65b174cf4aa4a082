package orders

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"billhook/internal/console"
	"billhook/internal/platform/audit"
	"billhook/internal/platform/store"
)

// Collection holds a document for each order.
const Collection = "orders"

// The errors of reading an order. Any other is the store's.
var (
	ErrUnknown = console.Refuse(console.Absent, "order_unknown", "No order of that id has been seen.")
	ErrBroken  = errors.New("orders: stored order is not readable")
)

// Order is an order's document.
type Order struct {
	ID       string `json:"order_id" store:"order_id,required" show:"Order" link:"orders"`
	Tenant   string `json:"tenant" store:"tenant,required"`
	State    State  `json:"state" store:"state,required" show:"State"`
	Reason   string `json:"reason,omitempty" store:"reason,omitzero" show:"Reason,less"`
	ShortOf  string `json:"short_of,omitempty" store:"short_of,omitzero" show:"Short of,less" link:"stock"`
	UserID   string `json:"user_id,omitempty" store:"user_id,omitzero" show:"User,less"`
	SellerID string `json:"seller_id,omitempty" store:"seller_id,omitzero"`
	// Items are its pieces by product, each product once, in the order of the ids.
	Items []Item `json:"items" show:"Pieces"`
	// Total is its price, as its sender says.
	Total     int64  `json:"total,omitzero" store:"total,omitzero" show:"Total,detail"`
	PaymentID string `json:"payment_id,omitempty" store:"payment_id,omitzero" show:"Payment,detail"`
	// PaymentDue is when the order is cancelled unless its payment has a result.
	PaymentDue time.Time `json:"payment_due,omitzero" store:"payment_due,omitzero" show:"Payment due"`
	CreatedAt  time.Time `json:"created_at" store:"created_at" show:"Created"`
	UpdatedAt  time.Time `json:"updated_at" store:"updated_at"`
	// History has every state of the order, the oldest first.
	History []Step `json:"history" store:"history,required" show:"History"`

	version store.Version
}

// Standing is the part of an order that its sender may read.
type Standing struct {
	OrderID string `json:"order_id" store:"order_id,required"`
	State   State  `json:"state" store:"state,required"`
	// Reason is why it is cancelled, such as out_of_stock; ShortOf is the product that was out of stock.
	Reason     string    `json:"reason,omitempty" store:"reason"`
	ShortOf    string    `json:"short_of,omitempty" store:"short_of"`
	PaymentDue time.Time `json:"payment_due,omitzero" store:"payment_due"`
	CreatedAt  time.Time `json:"created_at" store:"created_at"`
	UpdatedAt  time.Time `json:"updated_at" store:"updated_at"`
}

// Item is a number of pieces of one product.
type Item struct {
	ProductID string `json:"product_id" show:"Product" link:"stock"`
	Quantity  int64  `json:"quantity" show:"Quantity"`
}

// Step is a state of an order, with the time and the event that led to it.
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
	o := Order{Items: []Item{}, version: doc.Version}
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

// Find returns an order of a tenant. The error is ErrUnknown, ErrBroken, or the store's.
func Find(ctx context.Context, from store.Getter, tenant, id string) (Order, error) {
	return store.Read(ctx, from, key(tenant, id), ErrUnknown, Read)
}

// FindStanding returns the part of an order that its sender may read. The error is ErrUnknown, or the
// store's.
func FindStanding(ctx context.Context, from store.Getter, tenant, id string) (s Standing, err error) {
	read := func(doc store.Document) (Standing, error) { err := store.Decode(doc.Fields, &s); return s, err }
	return store.Read(ctx, from, key(tenant, id), ErrUnknown, read)
}

// OfUser returns a tenant's orders of a user, at most limit, unordered.
func OfUser(
	ctx context.Context, from store.Querier, tenant, user string, limit int,
) (all []Order, more bool, err error) {
	query := store.Query{Collection: Collection, Limit: limit}
	query.Equal = map[string]any{"tenant": tenant, "user_id": user}
	all, next, err := store.List(ctx, from, query, Read)
	return all, !next.IsZero(), err
}

// List returns a page of the orders in a state, or of all, in the order of their ids: an index of rising
// times would be a hot spot.
func List(
	ctx context.Context, from store.Querier, state State, after store.Cursor, limit int,
) (page []Order, next store.Cursor, err error) {
	query := store.Query{Collection: Collection, After: after, Limit: limit}
	query.Equal = store.Equals("state", string(state))
	return store.List(ctx, from, query, Read)
}

// StockCollection holds the stock of each tenant's products.
const StockCollection = "stock"

// StockKind is the audit's kind of subject for stock.
const StockKind = "stock"

// MaxPieces is the largest number of available pieces of one product.
const MaxPieces = 1_000_000_000

// ErrNoStock: the stock of the product was never set.
var ErrNoStock = console.Refuse(console.Absent, "stock_unknown",
	"Nobody has set the stock of this product: an order of it is out of stock.")

// Stock has the pieces of one product. Only people change their sum.
type Stock struct {
	Tenant    string        `json:"tenant" store:"tenant,required"`
	ProductID string        `json:"product_id" store:"product_id,required" show:"Product" link:"stock"`
	Available int64         `json:"available" store:"available,required" show:"Available"`
	Reserved  int64         `json:"reserved" store:"reserved" show:"Reserved"`
	Sold      int64         `json:"sold" store:"sold" show:"Sold"`
	Version   store.Version `json:"version"`
}

// StockKey is the key of the stock of a tenant's product.
func StockKey(tenant, product string) store.Key {
	return store.Key{Collection: StockCollection, ID: store.Path(tenant, product)}
}

// ReadStock reads the document of a product's stock.
func ReadStock(doc store.Document) (Stock, error) {
	s := Stock{Version: doc.Version}
	if err := store.Decode(doc.Fields, &s); err != nil || min(s.Available, s.Reserved, s.Sold) < 0 {
		return Stock{}, fmt.Errorf("%w: %s", ErrBroken, doc.Key)
	}
	return s, nil
}

// moving returns the write that reserves pieces, if enough are available, or sells or releases reserved ones.
// It is applied once, since the order's own write is in the same commit.
func moving(tenant string, to move, item Item) store.Write {
	n, floor := item.Quantity, ""
	add := map[string]int64{"reserved": -n, "sold": n}
	switch to {
	case reserve:
		add, floor = map[string]int64{"available": -n, "reserved": n}, "available"
	case release:
		add = map[string]int64{"reserved": -n, "available": n}
	case sell:
	}
	return store.Move(StockKey(tenant, item.ProductID), add, floor)
}

// StockEditor reads and changes the stock. Every field is required.
type StockEditor struct {
	Store store.Store
	Now   func() time.Time
	NewID func() string // random: two changes may have the same time
}

// Get returns the stock of a tenant's product. The error is ErrNoStock, ErrBroken, or an outage.
func (ed *StockEditor) Get(ctx context.Context, tenant, product string) (Stock, error) {
	return store.Read(ctx, ed.Store, StockKey(tenant, product), ErrNoStock, ReadStock)
}

// Set sets how many pieces of a tenant's product are available. Reserved and sold ones do not change. The
// error is ErrBroken, or as in audit.Change.Update.
func (ed *StockEditor) Set(ctx context.Context, by audit.Author, in SetStock) (Stock, error) {
	return ed.change(ctx, in.StockOf, "set", in.By(by), func(Stock) int64 { return *in.Available })
}

// Add adds available pieces of a product. The error is as in Set.
func (ed *StockEditor) Add(ctx context.Context, by audit.Author, in AddStock) (Stock, error) {
	return ed.change(ctx, in.StockOf, "add", in.By(by), func(s Stock) int64 { return s.Available + *in.Pieces })
}

func (ed *StockEditor) change(
	ctx context.Context, in StockOf, action string, by audit.Change, next func(Stock) int64,
) (s Stock, err error) {
	decide := func(doc store.Document) (made audit.Made, err error) {
		s = Stock{Tenant: in.Tenant, ProductID: in.ProductID}
		if doc.Version != 0 {
			if s, err = ReadStock(doc); err != nil {
				return made, err
			}
			made.Before = map[string]any{"available": s.Available}
		}
		available := next(s)
		switch {
		case available < 0 || available > MaxPieces:
			return made, fmt.Errorf("%w: available is a whole number from 0 to %d", audit.ErrInvalid, MaxPieces)
		case doc.Version != 0 && s.Available == available:
			return made, nil // perhaps after an own commit whose answer was lost
		}
		s.Available = available
		made.Action, made.After, made.Version = action, map[string]any{"available": available}, &s.Version
		made.Writes = []store.Write{store.Replace(doc.Key, s.Version, store.Encode(&s))}
		return made, nil
	}
	of := audit.Subject{Kind: StockKind, Tenant: in.Tenant, ID: in.ProductID}
	_, err = by.Update(ctx, ed.Store, StockKey(in.Tenant, in.ProductID), of, ed.Now(), ed.NewID(), decide)
	return s, err
}

// StockOf names a product's stock.
type StockOf struct {
	console.Owned
	ProductID string `json:"-" path:"id" validate:"required" help:"product id"`
}

// SetStock sets how many pieces of a product are available.
type SetStock struct {
	StockOf
	Available *int64 `json:"available" validate:"required,min=0,max=1000000000" help:"how many pieces can be ordered, from 0"`
	console.Edit
}

// AddStock adds new pieces of a product.
type AddStock struct {
	StockOf
	Pieces *int64 `json:"pieces" validate:"required,min=1,max=1000000000" help:"how many pieces have come, from 1"`
	console.Change
}

// ListOrders requests the orders in a state.
type ListOrders struct {
	State string `json:"-" query:"state" validate:"oneof=PaymentInitiated OrderConfirmed OrderCancelled OrderShipped all" default:"all" help:"the state, or all"`
	console.Page
}

// OrderOf names an order.
type OrderOf struct {
	console.Owned
	ID string `json:"-" path:"id" validate:"required" help:"order id"`
}

// Operations are what people do with orders: read them.
func Operations(from store.Store) []console.Operation {
	return []console.Operation{
		console.New(console.Row{
			Name: "orders ls", Path: "GET /v1/ops/orders", Summary: "List orders, all or those in one state",
			Empty: "No order is in this state. The first event of an order adds it.",
		}, func(ctx context.Context, _ audit.Author, in ListOrders) (console.List[Order], error) {
			return console.Listed(List(ctx, from, console.AllOr[State](in.State), in.After, in.Limit))
		}),
		console.New(console.Row{
			Name: "orders show", Path: "GET /v1/ops/orders/{id}",
			Summary: "Show an order, and every state it has been in",
		}, func(ctx context.Context, _ audit.Author, in OrderOf) (Order, error) {
			return Find(ctx, from, in.Tenant, in.ID)
		}),
	}
}

// Operations are what people do with stock.
func (ed *StockEditor) Operations() []console.Operation {
	return []console.Operation{
		console.New(console.Row{
			Name: "stock ls", Path: "GET /v1/ops/stock", Summary: "List the products that have a stock",
			Empty: "No product has a stock. An order of a product without one is out of stock: set it with stock set.",
		}, func(ctx context.Context, _ audit.Author, in console.OwnedList) (console.List[Stock], error) {
			query := store.Query{Collection: StockCollection, After: in.After, Limit: in.Limit}
			query.IDPrefix = store.Path(in.Tenant) + "~"
			return console.Listed(store.List(ctx, ed.Store, query, ReadStock))
		}),
		console.New(console.Row{
			Name: "stock show", Path: "GET /v1/ops/stock/{id}",
			Summary: "Show the pieces of a product that are available, reserved and sold",
			Beside:  []string{"stock history"},
		}, func(ctx context.Context, _ audit.Author, in StockOf) (Stock, error) {
			return ed.Get(ctx, in.Tenant, in.ProductID)
		}),
		console.New(console.Row{
			Name: "stock set", Path: "PUT /v1/ops/stock/{id}", Needs: console.Reason, Before: "stock show",
			Summary: "Set how many pieces of a product can be ordered",
			Help:    "Reserved and sold pieces stay. It is refused if orders have changed the stock since.",
		}, ed.Set),
		console.New(console.Row{
			Name: "stock add", Path: "POST /v1/ops/stock/{id}/add", Needs: console.Reason, Before: "stock show",
			Summary: "Add new pieces of a product to its stock",
		}, ed.Add),
		console.History("stock", StockKind, ed.Store),
	}
}
