package pages

import (
	"github.com/go-chi/chi/v5"

	"billhook/internal/apps/payments"
	"billhook/internal/console/ops"
)

func (p *Pages) refundRoutes(r chi.Router) {
	p.page(r, "/refunds", "refunds.html", p.refunds)
	p.page(r, "/refunds/{payment}", "refund.html", p.refund)
}

// refundsPage are the refunds in a state.
type refundsPage struct {
	ops.List[payments.Refund]
	State  string
	States []string
}

func (p *Pages) refunds(v *visit) (any, error) {
	page := refundsPage{State: v.query("state"), States: []string{string(payments.UnderWay), string(payments.Refunded), string(payments.Refused), "all"}}
	if page.State == "" {
		page.State = page.States[0]
	}
	err := v.get(with("/v1/ops/refunds", "state", page.State, "limit", rows, "page", v.query("page")), &page.List)
	return page, err
}

func (p *Pages) refund(v *visit) (any, error) {
	var refund payments.Refund
	err := v.get(with(href("/v1/ops/refunds/%s", v.param("payment")), "tenant", v.query("tenant")), &refund)
	return refund, err
}
