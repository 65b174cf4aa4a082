package ops

import (
	"log/slog"
	"net/http"

	"github.com/go-chi/chi/v5"

	"billhook/internal/products"
	"billhook/internal/serve"
	"billhook/internal/store"
)

func (a *API) productRoutes(r chi.Router) {
	r.Get("/products", paged(a, store.MaxPage, func(r *http.Request, after string, limit int) ([]products.Product, string, error) {
		return a.Products.List(r.Context(), after, limit)
	}))
	r.Get("/products/{id}", answer(a, a.showProduct))
	r.Get("/products/{id}/changes", a.changes(products.Kind, store.MaxPage))
	r.Put("/products/{id}", answer(a, a.setProduct))
	r.Delete("/products/{id}", answer(a, a.retireProduct))
}

// SetProduct is what a product is worth from now on, and why.
type SetProduct struct {
	Points int64  `json:"points"`
	Why    string `json:"why"`
	// Expect, if set, is what the product was worth when the person looked; 0: it was unknown.
	Expect *int64 `json:"expect,omitempty"`
}

// RetireProduct says why a product can no longer be bought.
type RetireProduct struct {
	Why string `json:"why"`
	// Expect, if set, is what the product was worth when the person looked.
	Expect *int64 `json:"expect,omitempty"`
}

func (a *API) showProduct(r *http.Request) (products.Product, error) {
	p, err := a.Products.Get(r.Context(), param(r, "id"))
	if err == nil && p.State == products.Retired {
		err = serve.Refuse(http.StatusNotFound, "product_retired", "The product is retired; its history says since when and why. Setting it makes it known again.")
	}
	return p, err
}

func (a *API) setProduct(r *http.Request) (products.Product, error) {
	var change SetProduct
	if err := readJSON(r, &change, `Send JSON: {"points": <a whole number>, "why": "<the reason>"}.`); err != nil {
		return products.Product{}, err
	}
	p, err := a.Products.Set(r.Context(), param(r, "id"), change.Points, products.Change{Who: Who(r.Context()), Why: change.Why, Expect: change.Expect})
	return a.productChanged(r, p, err)
}

func (a *API) retireProduct(r *http.Request) (products.Product, error) {
	var change RetireProduct
	if err := readJSON(r, &change, `Send JSON: {"why": "<the reason>"}.`); err != nil {
		return products.Product{}, err
	}
	p, err := a.Products.Retire(r.Context(), param(r, "id"), products.Change{Who: Who(r.Context()), Why: change.Why, Expect: change.Expect})
	return a.productChanged(r, p, err)
}

// productChanged logs a change that was made, and passes the product on.
func (a *API) productChanged(r *http.Request, p products.Product, err error) (products.Product, error) {
	if err == nil {
		a.Log.LogAttrs(r.Context(), slog.LevelInfo, "product changed", slog.String("product", p.ID), slog.Int64("points", p.Points),
			slog.String("state", string(p.State)))
	}
	return p, err
}
