package ops

import (
	"log/slog"
	"net/http"

	"github.com/go-chi/chi/v5"

	"billhook/internal/apps/customers"
	"billhook/internal/platform/store"
)

// customerRoutes adds the routes of the mapping from customers to users.
func (a *API) customerRoutes(r chi.Router) {
	r.Get("/customers/{id}", answer(a, a.showCustomer))
	r.Get("/customers/{id}/preview", answer(a, a.previewCustomer))
	r.Get("/customers/{id}/activity", answer(a, a.customerActivity))
	r.Get("/customers/{id}/changes", a.changesOf(customers.AuditKind, most))
	r.Put("/customers/{id}", answer(a, a.linkCustomer))
	r.Delete("/customers/{id}", answer(a, a.unlinkCustomer))
}

// showCustomer answers the state of a linked customer, previewCustomer that of any.
func (a *API) showCustomer(r *http.Request) (customers.State, error) {
	state, err := a.previewCustomer(r)
	if err == nil && state.UID == "" {
		err = customers.ErrUnknown
	}
	return state, err
}

func (a *API) previewCustomer(r *http.Request) (customers.State, error) {
	tenant, err := tenantOf(r)
	if err != nil {
		return customers.State{}, err
	}
	return a.Customers.Show(r.Context(), tenant, param(r, "id"))
}

func (a *API) linkCustomer(r *http.Request) (customers.Linked, error) {
	change, params, err := customerChange(r, "page")
	if err != nil {
		return customers.Linked{}, err
	}
	done, err := a.Customers.Link(r.Context(), change)
	done.Next = params.next(r.URL.Path, Place{}, store.Cursor{ID: done.Next})
	a.Log.LogAttrs(r.Context(), slog.LevelInfo, "customer linked", slog.String("who", change.Who), slog.String("tenant", change.Tenant), slog.String("customer_id", change.CustomerID),
		slog.String("uid", change.UID), slog.String("before", done.Before), slog.String("operation", done.Operation),
		slog.Int64("moved_points", done.MovedPoints), slog.Int64("moved_orders", done.MovedOrders), slog.Bool("failed", err != nil))
	return done, err
}

func (a *API) unlinkCustomer(r *http.Request) (customers.State, error) {
	change, _, err := customerChange(r)
	if err != nil {
		return customers.State{}, err
	}
	change.UID = ""
	state, err := a.Customers.Unlink(r.Context(), change)
	a.Log.LogAttrs(r.Context(), slog.LevelInfo, "customer unlinked", slog.String("who", change.Who),
		slog.String("tenant", change.Tenant), slog.String("customer_id", change.CustomerID), slog.Bool("failed", err != nil))
	return state, err
}

// customerChange reads a change; known are the parameters that it may have beside the tenant.
func customerChange(r *http.Request, known ...string) (change customers.Change, params *parameters, err error) {
	params = read(r, append(known, "tenant")...)
	tenant, at := params.tenant(), params.page(r.URL.Path, Place{})
	if err = params.err(); err != nil {
		return change, params, err
	}
	err = readChange(r, &change, "Send JSON: uid, why, and whom you expect the customer to be linked to.")
	change.Tenant, change.CustomerID, change.Who, change.After = tenant, param(r, "id"), Who(r.Context()), at.ID
	return change, params, err
}
