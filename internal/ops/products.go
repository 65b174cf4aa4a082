package ops

import (
	"errors"
	"log/slog"
	"net/http"

	"github.com/go-chi/chi/v5"
	"github.com/go-json-experiment/json"

	"billhook/internal/audit"
	"billhook/internal/products"
	"billhook/internal/serve"
	"billhook/internal/store"
)

// productRoutes adds what there is about products.
func (a *API) productRoutes(r chi.Router) {
	r.Get("/products", a.listProducts)
	r.Get("/products/{id}", a.showProduct)
	r.Get("/products/{id}/changes", a.productHistory)
	r.Put("/products/{id}", a.setProduct)
	r.Delete("/products/{id}", a.retireProduct)
}

// Products is a page of them, in the order of their ids, retired ones too.
type Products struct {
	Items []products.Product `json:"items"`
	Next  string             `json:"next"`
}

// History is a page of changes, the newest first.
type History struct {
	Items []audit.Entry `json:"items"`
	Next  string        `json:"next"`
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

func (a *API) listProducts(w http.ResponseWriter, r *http.Request) {
	asked := read(r, "limit", "page")
	limit := asked.limit(most, store.MaxPage)
	at := asked.page("products", place{})
	if asked.refused(w) {
		return
	}
	items, next, err := a.Products.List(r.Context(), at.id, limit)
	if a.productFailed(w, r, err) {
		return
	}
	answer := Products{Items: append([]products.Product{}, items...)}
	if next != "" {
		answer.Next = asked.token("products", place{id: next})
	}
	serve.WriteJSON(w, http.StatusOK, answer)
}

func (a *API) showProduct(w http.ResponseWriter, r *http.Request) {
	p, err := a.Products.Get(r.Context(), param(r, "id"))
	switch {
	case a.productFailed(w, r, err):
	case p.State == products.Retired:
		serve.WriteProblem(w, http.StatusNotFound, "product_retired", "The product is retired; its history says since when and why. Setting it makes it known again.")
	default:
		serve.WriteJSON(w, http.StatusOK, p)
	}
}

func (a *API) productHistory(w http.ResponseWriter, r *http.Request) {
	id, asked := param(r, "id"), read(r, "limit", "page")
	limit := asked.limit(most, store.MaxPage)
	at := asked.page("products/"+id, place{})
	if asked.refused(w) {
		return
	}
	changes, next, err := a.Products.History(r.Context(), id, at.id, limit)
	if a.productFailed(w, r, err) {
		return
	}
	answer := History{Items: append([]audit.Entry{}, changes...)}
	if next != "" {
		answer.Next = asked.token("products/"+id, place{id: next})
	}
	serve.WriteJSON(w, http.StatusOK, answer)
}

func (a *API) setProduct(w http.ResponseWriter, r *http.Request) {
	var asked SetProduct
	if json.UnmarshalRead(http.MaxBytesReader(w, r.Body, maxRequest), &asked, json.RejectUnknownMembers(true)) != nil {
		serve.WriteProblem(w, http.StatusBadRequest, "body_malformed", `Send JSON: {"points": <a whole number>, "why": "<the reason>"}.`)
		return
	}
	p, err := a.Products.Set(r.Context(), param(r, "id"), asked.Points, products.Change{Who: Who(r.Context()), Why: asked.Why, Expect: asked.Expect})
	a.productChanged(w, r, p, err)
}

func (a *API) retireProduct(w http.ResponseWriter, r *http.Request) {
	var asked RetireProduct
	if json.UnmarshalRead(http.MaxBytesReader(w, r.Body, maxRequest), &asked, json.RejectUnknownMembers(true)) != nil {
		serve.WriteProblem(w, http.StatusBadRequest, "body_malformed", `Send JSON: {"why": "<the reason>"}.`)
		return
	}
	p, err := a.Products.Retire(r.Context(), param(r, "id"), products.Change{Who: Who(r.Context()), Why: asked.Why, Expect: asked.Expect})
	a.productChanged(w, r, p, err)
}

func (a *API) productChanged(w http.ResponseWriter, r *http.Request, p products.Product, err error) {
	if a.productFailed(w, r, err) {
		return
	}
	a.Log.LogAttrs(r.Context(), slog.LevelInfo, "product changed", slog.String("product", p.ID), slog.Int64("points", p.Points),
		slog.String("state", string(p.State)))
	serve.WriteJSON(w, http.StatusOK, p)
}

// productFailed answers an error about a product, and reports whether there was one.
func (a *API) productFailed(w http.ResponseWriter, r *http.Request, err error) bool {
	switch {
	case err == nil:
		return false
	case errors.Is(err, products.ErrUnknown):
		serve.WriteProblem(w, http.StatusNotFound, "product_unknown", "Neither the catalog nor the store has a product of that id.")
	case errors.Is(err, products.ErrInvalid):
		serve.WriteProblem(w, http.StatusUnprocessableEntity, "refused", err.Error())
	case errors.Is(err, products.ErrChanged):
		serve.WriteProblem(w, http.StatusConflict, "changed", "The product is not worth what was expected any more; look at it again.")
	case errors.Is(err, products.ErrBusy):
		serve.WriteProblem(w, http.StatusConflict, "busy", "Others have changed the product at the same time; look at it again.")
	default:
		a.down(w, r, err)
	}
	return true
}
