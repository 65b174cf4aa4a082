package ops

import (
	"log/slog"
	"net/http"

	"github.com/go-chi/chi/v5"

	"billhook/internal/apps/orders"
	"billhook/internal/platform/serve"
	"billhook/internal/platform/store"
)

// orderRoutes adds the routes of orders, which are read alone, and of the stock.
func (a *API) orderRoutes(r chi.Router) {
	r.Get("/orders", answer(a, a.listOrders))
	r.Get("/orders/{id}", answer(a, a.showOrder))
	r.Get("/stock", tenants(a, store.MaxPage, func(r *http.Request, tenant string, after store.Cursor, limit int) ([]orders.Stock, store.Cursor, error) {
		return a.Stock.List(r.Context(), tenant, after, limit)
	}))
	r.Get("/stock/{id}", answer(a, a.showStock))
	r.Get("/stock/{id}/changes", a.changesOf(orders.StockKind, store.MaxPage))
	r.Put("/stock/{id}", answer(a, a.setStock))
}

// listOrders answers the orders in a state, in no order that means anything: those that wait for
// their payment unless the parameter state says otherwise.
func (a *API) listOrders(r *http.Request) (list List[orders.Order], err error) {
	params := read(r, "state", "limit", "page")
	state := oneOf(params, orders.PaymentInitiated, orders.OrderConfirmed, orders.OrderCancelled, orders.OrderShipped)
	limit, at := params.limit(most, most), params.page("orders", Place{})
	if err = params.err(); err != nil {
		return list, err
	}
	found, next, err := orders.List(r.Context(), a.Store, state, at.Cursor, limit)
	return listOf(found, params.next("orders", at, next)), err
}

func (a *API) showOrder(r *http.Request) (orders.Order, error) {
	tenant, err := tenantOf(r)
	if err != nil {
		return orders.Order{}, err
	}
	return orders.Find(r.Context(), a.Store, tenant, param(r, "id"))
}

func (a *API) showStock(r *http.Request) (orders.Stock, error) {
	tenant, err := tenantOf(r)
	if err != nil {
		return orders.Stock{}, err
	}
	return a.Stock.Get(r.Context(), tenant, param(r, "id"))
}

// SetStock is how many pieces of a product can be ordered from now on, and why.
type SetStock struct {
	Available *int64 `json:"available"`
	orders.Change
}

func (a *API) setStock(r *http.Request) (orders.Stock, error) {
	const advice = `Send JSON: {"available": <a whole number>, "why": "<the reason>"}.`
	var set SetStock
	tenant, err := tenantOf(r)
	if err != nil {
		return orders.Stock{}, err
	}
	if err := readChange(r, &set, advice); err != nil {
		return orders.Stock{}, err
	}
	if set.Available == nil {
		return orders.Stock{}, serve.Refuse(http.StatusBadRequest, "body_malformed", advice)
	}
	set.Who = Who(r.Context())
	s, err := a.Stock.Set(r.Context(), tenant, param(r, "id"), *set.Available, set.Change)
	if err == nil {
		a.Log.LogAttrs(r.Context(), slog.LevelInfo, "stock changed", slog.String("tenant", tenant), slog.String("product", s.ProductID), slog.Int64("available", s.Available))
	}
	return s, err
}

// orderRungs are the answers to what orders and stock refuse.
var orderRungs = []serve.Rung{
	{Of: orders.ErrUnknown, As: serve.Refuse(http.StatusNotFound, "order_unknown", "No order of that id has been seen.")},
	{Of: orders.ErrNoStock, As: serve.Refuse(http.StatusNotFound, "stock_unknown", "Nobody has set the stock of this product: an order of it is out of stock.")},
	{Of: orders.ErrInvalid, As: serve.Refuse(http.StatusUnprocessableEntity, "refused", "")},
	{Of: orders.ErrChanged, As: serve.Refuse(http.StatusConflict, "changed", "Not as many pieces are available as were expected; look at it again.")},
}
