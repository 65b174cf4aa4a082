package ops

import (
	"net/http"

	"github.com/go-chi/chi/v5"

	"billhook/internal/apps/payments"
	"billhook/internal/platform/serve"
)

// refundRoutes adds the routes of refunds, which are read alone: a message asks for one.
func (a *API) refundRoutes(r chi.Router) {
	r.Get("/refunds", answer(a, a.listRefunds))
	r.Get("/refunds/{payment}", answer(a, a.showRefund))
}

// listRefunds answers the refunds in a state, the newest first: those under way unless the parameter
// state says otherwise.
func (a *API) listRefunds(r *http.Request) (list List[payments.Refund], err error) {
	params := read(r, "state", "limit", "page")
	state := oneOf(params, payments.UnderWay, payments.Refunded, payments.Refused)
	limit, at := params.limit(most, most), params.page("refunds", Place{newest: true})
	if err = params.err(); err != nil {
		return list, err
	}
	found, next, err := payments.ListRefunds(r.Context(), a.Store, state, at.Cursor, limit)
	return listOf(found, params.next("refunds", at, next)), err
}

func (a *API) showRefund(r *http.Request) (payments.Refund, error) {
	tenant, err := tenantOf(r)
	if err != nil {
		return payments.Refund{}, err
	}
	return payments.FindRefund(r.Context(), a.Store, tenant, param(r, "payment"))
}

// noRefund is the answer where nobody has asked for a payment's refund.
var noRefund = serve.Rung{Of: payments.ErrNoRefund, As: serve.Refuse(http.StatusNotFound, "refund_unknown", "Nobody has asked for a refund of this payment.")}
