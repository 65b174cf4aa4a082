package ops

import (
	"errors"
	"log/slog"
	"net/http"

	"github.com/go-chi/chi/v5"
	"github.com/go-json-experiment/json"

	"billhook/internal/audit"
	"billhook/internal/customers"
	"billhook/internal/serve"
	"billhook/internal/store"
)

// customerRoutes adds what there is about which customer is which user.
func (a *API) customerRoutes(r chi.Router) {
	r.Get("/customers/{id}", a.showCustomer(true))
	r.Get("/customers/{id}/preview", a.showCustomer(false))
	r.Get("/customers/{id}/changes", a.customerChanges)
	r.Put("/customers/{id}", a.linkCustomer)
	r.Delete("/customers/{id}", a.unlinkCustomer)
}

// Link asks for a link; of an unlink the uid is left out.
type Link struct {
	UID string `json:"uid,omitempty"`
	Why string `json:"why"`
	// Expect, if set, is whom the customer was linked to when somebody looked; empty: nobody.
	Expect *string `json:"expect,omitempty"`
}

// Changes is a page of what was changed by hand, the newest first.
type Changes struct {
	Items []audit.Entry `json:"items"`
	Next  string        `json:"next"`
}

// showCustomer answers with the link, or, where it need not be there, with what a link
// would find.
func (a *API) showCustomer(linked bool) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		state, err := a.Customers.Show(r.Context(), param(r, "id"))
		if err == nil && linked && state.UID == "" {
			err = customers.ErrUnknown
		}
		if a.customerFailed(w, r, err) {
			return
		}
		serve.WriteJSON(w, http.StatusOK, state)
	}
}

func (a *API) customerChanges(w http.ResponseWriter, r *http.Request) {
	asked := read(r, "limit", "page")
	limit := asked.limit(most, most)
	if asked.refused(w) {
		return
	}
	entries, next, err := a.Customers.Changes(r.Context(), param(r, "id"), asked.values.Get("page"), limit)
	if a.customerFailed(w, r, err) {
		return
	}
	serve.WriteJSON(w, http.StatusOK, Changes{Items: append([]audit.Entry{}, entries...), Next: next})
}

func (a *API) linkCustomer(w http.ResponseWriter, r *http.Request) {
	change, ok := a.customerChange(w, r, "page")
	if !ok {
		return
	}
	done, err := a.Customers.Link(r.Context(), change)
	a.Log.LogAttrs(r.Context(), slog.LevelInfo, "customer linked", slog.String("who", change.Who), slog.String("customer_id", change.CustomerID),
		slog.String("uid", change.UID), slog.String("before", done.Before), slog.String("operation", done.Operation),
		slog.Int64("moved_points", done.MovedPoints), slog.Int64("moved_orders", done.MovedOrders), slog.Bool("failed", err != nil))
	if a.customerFailed(w, r, err) {
		return
	}
	serve.WriteJSON(w, http.StatusOK, done)
}

func (a *API) unlinkCustomer(w http.ResponseWriter, r *http.Request) {
	change, ok := a.customerChange(w, r)
	if !ok {
		return
	}
	change.UID = ""
	state, err := a.Customers.Unlink(r.Context(), change)
	a.Log.LogAttrs(r.Context(), slog.LevelInfo, "customer unlinked", slog.String("who", change.Who),
		slog.String("customer_id", change.CustomerID), slog.Bool("failed", err != nil))
	if a.customerFailed(w, r, err) {
		return
	}
	serve.WriteJSON(w, http.StatusOK, state)
}

// customerChange reads what is asked for. It has answered where ok is false.
func (a *API) customerChange(w http.ResponseWriter, r *http.Request, parameters ...string) (change customers.Change, ok bool) {
	asked := read(r, parameters...)
	if asked.refused(w) {
		return change, false
	}
	var link Link
	// Exact names, none twice, none unknown.
	if json.UnmarshalRead(http.MaxBytesReader(w, r.Body, maxRequest), &link, json.RejectUnknownMembers(true)) != nil {
		serve.WriteProblem(w, http.StatusBadRequest, "body_malformed", "Send JSON: uid, why, and whom you expect the customer to be linked to.")
		return change, false
	}
	return customers.Change{
		CustomerID: param(r, "id"), UID: link.UID, Who: Who(r.Context()), Why: link.Why, Expect: link.Expect, After: asked.values.Get("page"),
	}, true
}

// customerFailed answers an error of the operator, and reports whether there was one.
func (a *API) customerFailed(w http.ResponseWriter, r *http.Request, err error) bool {
	switch {
	case err == nil:
		return false
	case errors.Is(err, customers.ErrUnknown):
		serve.WriteProblem(w, http.StatusNotFound, "customer_not_linked", "This customer is linked to nobody.")
	case errors.Is(err, customers.ErrRefused):
		serve.WriteProblem(w, http.StatusUnprocessableEntity, "refused", err.Error())
	case errors.Is(err, customers.ErrChanged):
		serve.WriteProblem(w, http.StatusConflict, "customer_changed", "Somebody has changed the link; look at it again.")
	case errors.Is(err, customers.ErrBusy):
		serve.WriteProblem(w, http.StatusConflict, "busy", "The link is being changed; ask again.")
	case errors.Is(err, store.ErrInvalid):
		serve.WriteProblem(w, http.StatusBadRequest, "page_invalid", "The page is the next of an earlier answer.")
	default:
		a.down(w, r, err)
	}
	return true
}
