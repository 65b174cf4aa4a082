package orders

import (
	"context"

	"billhook/internal/console"
	"billhook/internal/platform/audit"
	"billhook/internal/platform/store"
)

// StockOf asks for a product's stock.
type StockOf struct {
	console.Owned
	ProductID string `json:"-" path:"id" validate:"required" help:"product id"`
}

// SetStock says how many pieces of a product can be ordered from now on.
type SetStock struct {
	StockOf
	Available *int64 `json:"available" validate:"required" help:"how many pieces can be ordered, from 0"`
	console.Edit
}

// AddStock says how many pieces of a product have come.
type AddStock struct {
	StockOf
	Pieces *int64 `json:"pieces" validate:"required" help:"how many pieces have come, from 1"`
	console.Change
}

// ListOrders asks for the orders in a state.
type ListOrders struct {
	State string `json:"-" query:"state" validate:"oneof=PaymentInitiated OrderConfirmed OrderCancelled OrderShipped all" default:"all" help:"the state, or all"`
	console.Page
}

// OrderOf asks for an order.
type OrderOf struct {
	console.Owned
	ID string `json:"-" path:"id" validate:"required" help:"order id"`
}

// Operations are what people do with orders, which is to look at them.
func Operations(from store.Store) []console.Operation {
	return []console.Operation{
		console.New(console.Row{
			Name: "orders ls", Path: "GET /v1/ops/orders", Summary: "List orders, all or those in one state",
			Empty: "No order is in this state. Orders come here with their first event.",
		}, func(ctx context.Context, _ audit.Author, in ListOrders) (console.List[Order], error) {
			return console.Listed(List(ctx, from, console.AllOr[State](in.State), in.After, in.Limit))
		}),
		console.New(console.Row{
			Name: "orders show", Path: "GET /v1/ops/orders/{id}", Summary: "Show an order, and every state it has been in",
			Errors: []console.Refusal{{Of: ErrUnknown, Kind: console.Absent, Code: "order_unknown", Detail: "No order of that id has been seen."}},
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
			return console.Listed(ed.List(ctx, in.Tenant, in.After, in.Limit))
		}),
		console.New(console.Row{
			Name: "stock show", Path: "GET /v1/ops/stock/{id}", Summary: "Show the pieces of a product that are available, reserved and sold",
			Beside: []string{"stock history"}, Errors: stockErrors,
		}, func(ctx context.Context, _ audit.Author, in StockOf) (Stock, error) {
			return ed.Get(ctx, in.Tenant, in.ProductID)
		}),
		console.New(console.Row{
			Name: "stock set", Path: "PUT /v1/ops/stock/{id}", Needs: console.Reason, Before: "stock show", Errors: stockErrors,
			Summary: "Set how many pieces of a product can be ordered",
			Help:    "Reserved and sold pieces stay as they are. The change is refused if orders have changed the stock since.",
		}, func(ctx context.Context, by audit.Author, in SetStock) (Stock, error) {
			return ed.Set(ctx, in.Tenant, in.ProductID, *in.Available, in.By(by))
		}),
		console.New(console.Row{
			Name: "stock add", Path: "POST /v1/ops/stock/{id}/add", Needs: console.Reason, Before: "stock show", Errors: stockErrors,
			Summary: "Add new pieces of a product to its stock",
		}, func(ctx context.Context, by audit.Author, in AddStock) (Stock, error) {
			return ed.Add(ctx, in.Tenant, in.ProductID, *in.Pieces, in.By(by))
		}),
		console.History("stock", StockKind, ed.Store),
	}
}

var stockErrors = []console.Refusal{
	{Of: ErrNoStock, Kind: console.Absent, Code: "stock_unknown", Detail: "Nobody has set the stock of this product: an order of it is out of stock."},
}
