package ops

import (
	"log/slog"
	"net/http"

	"github.com/go-chi/chi/v5"

	"billhook/internal/apps/products"
	"billhook/internal/platform/serve"
	"billhook/internal/platform/store"
)

func (a *API) productRoutes(r chi.Router) {
	r.Get("/products", tenants(a, store.MaxPage, func(r *http.Request, tenant string, after store.Cursor, limit int) ([]products.Product, store.Cursor, error) {
		return a.Products.List(r.Context(), tenant, after, limit)
	}))
	r.Get("/products/{id}", answer(a, a.showProduct))
	r.Get("/products/{id}/changes", a.changesOf(products.Kind, store.MaxPage))
	r.Put("/products/{id}", answer(a, a.setProduct))
	r.Delete("/products/{id}", answer(a, a.retireProduct))
}

// SetProduct is what a product is worth from now on, and why.
type SetProduct struct {
	Points int64 `json:"points"`
	products.Change
}

func (a *API) showProduct(r *http.Request) (products.Product, error) {
	tenant, err := tenantOf(r)
	if err != nil {
		return products.Product{}, err
	}
	p, err := a.Products.Get(r.Context(), tenant, param(r, "id"))
	if err == nil && p.State == products.Retired {
		err = serve.Refuse(http.StatusNotFound, "product_retired", "The product is retired; its history says since when and why. Setting it makes it known again.")
	}
	return p, err
}

func (a *API) setProduct(r *http.Request) (products.Product, error) {
	var set SetProduct
	tenant, err := tenantOf(r)
	if err != nil {
		return products.Product{}, err
	}
	if err := readChange(r, &set, `Send JSON: {"points": <a whole number>, "why": "<the reason>"}.`); err != nil {
		return products.Product{}, err
	}
	set.Who = Who(r.Context())
	p, err := a.Products.Set(r.Context(), tenant, param(r, "id"), set.Points, set.Change)
	return a.productChanged(r, p, err)
}

func (a *API) retireProduct(r *http.Request) (products.Product, error) {
	var change products.Change
	tenant, err := tenantOf(r)
	if err != nil {
		return products.Product{}, err
	}
	if err := readChange(r, &change, `Send JSON: {"why": "<the reason>"}.`); err != nil {
		return products.Product{}, err
	}
	change.Who = Who(r.Context())
	p, err := a.Products.Retire(r.Context(), tenant, param(r, "id"), change)
	return a.productChanged(r, p, err)
}

// productChanged logs a change that was made, and passes the product on.
func (a *API) productChanged(r *http.Request, p products.Product, err error) (products.Product, error) {
	if err == nil {
		a.Log.LogAttrs(r.Context(), slog.LevelInfo, "product changed", slog.String("tenant", p.Tenant), slog.String("product", p.ID), slog.Int64("points", p.Points),
			slog.String("state", string(p.State)))
	}
	return p, err
}
