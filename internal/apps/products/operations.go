package products

import (
	"context"

	"billhook/internal/console"
	"billhook/internal/platform/audit"
)

// ProductOf asks for a product.
type ProductOf struct {
	console.Owned
	ID string `json:"-" path:"id" validate:"required" help:"product id"`
}

// RetireProduct makes a product unknown from now on.
type RetireProduct struct {
	ProductOf
	console.Edit
}

// SetProduct is what a product is worth from now on.
type SetProduct struct {
	ProductOf
	Points int64 `json:"points" validate:"required" help:"the points of one piece, from 1"`
	console.Edit
}

// Operations are what people do with products.
func (ed *Editor) Operations() []console.Operation {
	return []console.Operation{
		console.New(console.Row{
			Name: "products ls", Path: "GET /v1/ops/products", Summary: "List the products of the catalog and of the store, with the points of one piece",
			Empty: "No product is known: an order that names one becomes a dead letter. Set one, or declare it in the catalog.",
		}, func(ctx context.Context, _ audit.Author, in console.OwnedList) (console.List[Product], error) {
			return console.Listed(ed.List(ctx, in.Tenant, in.After, in.Limit))
		}),
		console.New(console.Row{
			Name: "products show", Path: "GET /v1/ops/products/{id}", Summary: "Show the points of a product, since when, and who changed them",
			Beside: []string{"products history"}, Errors: failures,
		}, func(ctx context.Context, _ audit.Author, in ProductOf) (Product, error) {
			p, err := ed.Get(ctx, in.Tenant, in.ID)
			if err == nil && p.State == Retired {
				err = errRetired
			}
			return p, err
		}),
		console.New(console.Row{
			Name: "products set", Path: "PUT /v1/ops/products/{id}", Needs: console.Reason, Before: "products show", Errors: failures,
			Summary: "Add a product, or change the points of one piece from now on",
			Help:    "It holds for every order that is credited from then on. Dead letters that name a product which was not known can be replayed.",
		}, func(ctx context.Context, by audit.Author, in SetProduct) (Product, error) {
			return ed.Set(ctx, in.Tenant, in.ID, in.Points, in.By(by))
		}),
		console.New(console.Row{
			Name: "products retire", Path: "DELETE /v1/ops/products/{id}", Needs: console.Reason, Before: "products show", Errors: failures,
			Summary: "Remove a product from now on, even if the catalog declares it",
			Help:    "Every order that names it becomes a dead letter.",
		}, func(ctx context.Context, by audit.Author, in RetireProduct) (Product, error) {
			return ed.Retire(ctx, in.Tenant, in.ID, in.By(by))
		}),
		console.History("products", Kind, ed.Store),
	}
}

var errRetired = console.Refuse(console.Absent, "product_retired", "The product is retired; its history says since when and why. Setting it makes it known again.")

var failures = []console.Refusal{
	{Of: ErrUnknown, Kind: console.Absent, Code: "product_unknown", Detail: "Neither the catalog nor the store has a product of that id."},
}
