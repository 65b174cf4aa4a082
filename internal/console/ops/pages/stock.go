package pages

import (
	"net/http"

	"github.com/go-chi/chi/v5"

	"billhook/internal/apps/orders"
	"billhook/internal/console/ops"
	"billhook/internal/platform/audit"
)

func (p *Pages) stockRoutes(r chi.Router) {
	p.page(r, "/stock", "stock.html", p.stock)
	p.page(r, "/stock/{id}", "stock_product.html", p.stockOf)
	p.change(r, "/stock/{id}/set", "stock_set.html", p.stockNow, p.setStock)
}

func (p *Pages) stock(v *visit) (any, error) {
	var list ops.List[orders.Stock]
	err := v.get(with("/v1/ops/stock", "tenant", v.query("tenant"), "limit", rows, "page", v.query("page")), &list)
	return list, err
}

// stockNow is the stock of a product as it stands.
type stockNow struct {
	orders.Stock
	// Unset: nobody has set it, and an order of the product is out of stock.
	Unset   bool
	Changes ops.List[audit.Entry]
}

func (p *Pages) stockNow(v *visit) (any, error) { return v.stock() }

func (v *visit) stock() (now stockNow, err error) {
	err = v.get(v.of("/v1/ops/stock/%s", v.param("id")), &now.Stock)
	if notFound(err) != nil {
		now.Tenant, now.ProductID, now.Unset, err = v.tenant(), v.param("id"), true, nil
	}
	return now, err
}

func (p *Pages) stockOf(v *visit) (any, error) {
	now, err := v.stock()
	if err == nil {
		now.Changes, err = v.changes(v.of("/v1/ops/stock/%s/changes", v.param("id")))
	}
	return now, err
}

func (p *Pages) setStock(v *visit) (string, error) {
	available, err := v.whole("available")
	if err != nil {
		return "", err
	}
	expect, err := v.whole("expect")
	if err != nil {
		return "", err
	}
	set := ops.SetStock{Available: &available, Change: orders.Change{Why: v.form("why"), Expect: &expect}}
	return v.of("/ops/stock/%s", v.param("id")), v.send(http.MethodPut, v.of("/v1/ops/stock/%s", v.param("id")), set, nil)
}
