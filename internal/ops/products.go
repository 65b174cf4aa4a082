package ops

import (
	"log/slog"
	"net/http"

	"github.com/go-chi/chi/v5"

	"billhook/internal/products"
	"billhook/internal/serve"
	"billhook/internal/store"
)

// productRoutes adds what there is about products.
func (a *API) productRoutes(r chi.Router) {
	r.Get("/products", answer(a, a.listProducts))
	r.Get("/products/{id}", answer(a, a.showProduct))
	r.Get("/products/{id}/changes", a.changes(products.Kind, store.MaxPage))
	r.Put("/products/{id}", answer(a, a.setProduct))
	r.Delete("/products/{id}", answer(a, a.retireProduct))
}

// SetProduct says what a product is worth from now on, and why.
type SetProduct struct {
	Points int64  `json:"points"`
	Why    string `json:"why"`
	// Expect, if set, is what it was worth when somebody looked; 0: it was unknown.
	Expect *int64 `json:"expect,omitempty"`
}

// RetireProduct says why nobody can buy it any more.
type RetireProduct struct {
	Why string `json:"why"`
	// Expect, if set, is what it was worth when somebody looked.
	Expect *int64 `json:"expect,omitempty"`
}

func (a *API) listProducts(r *http.Request) (List[products.Product], error) {
	asked := read(r, "limit", "page")
	limit := asked.limit(most, store.MaxPage)
	at := asked.page("products", place{})
	if err := asked.err(); err != nil {
		return List[products.Product]{}, err
	}
	items, next, err := a.Products.List(r.Context(), at.id, limit)
	return listed(asked, "products", items, next), err
}

func (a *API) showProduct(r *http.Request) (products.Product, error) {
	p, err := a.Products.Get(r.Context(), param(r, "id"))
	if err == nil && p.State == products.Retired {
		err = serve.Refuse(http.StatusNotFound, "product_retired", "The product is retired; its history says since when and why. Setting it makes it known again.")
	}
	return p, err
}

func (a *API) setProduct(r *http.Request) (products.Product, error) {
	var asked SetProduct
	if err := readJSON(r, &asked, `Send JSON: {"points": <a whole number>, "why": "<the reason>"}.`); err != nil {
		return products.Product{}, err
	}
	return a.productChanged(r)(a.Products.Set(r.Context(), param(r, "id"), asked.Points, products.Change{Who: Who(r.Context()), Why: asked.Why, Expect: asked.Expect}))
}

func (a *API) retireProduct(r *http.Request) (products.Product, error) {
	var asked RetireProduct
	if err := readJSON(r, &asked, `Send JSON: {"why": "<the reason>"}.`); err != nil {
		return products.Product{}, err
	}
	return a.productChanged(r)(a.Products.Retire(r.Context(), param(r, "id"), products.Change{Who: Who(r.Context()), Why: asked.Why, Expect: asked.Expect}))
}

// productChanged passes a change on, and logs it where it was made.
func (a *API) productChanged(r *http.Request) func(products.Product, error) (products.Product, error) {
	return func(p products.Product, err error) (products.Product, error) {
		if err == nil {
			a.Log.LogAttrs(r.Context(), slog.LevelInfo, "product changed", slog.String("product", p.ID), slog.Int64("points", p.Points),
				slog.String("state", string(p.State)))
		}
		return p, err
	}
}
