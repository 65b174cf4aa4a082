package pages

import (
	"net/http"

	"github.com/go-chi/chi/v5"

	"billhook/internal/apps/products"
	"billhook/internal/console/ops"
	"billhook/internal/platform/audit"
)

func (p *Pages) productRoutes(r chi.Router) {
	p.page(r, "/products", "products.html", p.products)
	p.page(r, "/products/{id}", "product.html", p.product)
	p.change(r, "/products/{id}/set", "product_set.html", p.productNow, p.setProduct)
	p.change(r, "/products/{id}/retire", "product_retire.html", p.productNow, p.retireProduct)
}

// products lists what is known, or leads to the product of the id in the address.
func (p *Pages) products(v *visit) (any, error) {
	var list ops.List[products.Product]
	err := v.get(with("/v1/ops/products", "tenant", v.query("tenant"), "limit", rows, "page", v.query("page")), &list)
	return list, err
}

// productNow is a product as it stands, known or not.
type productNow struct {
	products.Product
	// Worth is what an order gets for a piece: 0 where nobody knows the product.
	Worth int64
	// Code says why it is not known, as the API does; empty: it is known.
	Code    string
	Changes ops.List[audit.Entry]
}

func (p *Pages) productNow(v *visit) (any, error) { return v.product() }

func (v *visit) product() (now productNow, err error) {
	err = v.get(v.of("/v1/ops/products/%s", v.param("id")), &now.Product)
	if problem := notFound(err); problem != nil {
		now.Tenant, now.ID, now.Code, err = v.tenant(), v.param("id"), problem.Code, nil
	}
	now.Worth = now.Points
	return now, err
}

func (p *Pages) product(v *visit) (any, error) {
	now, err := v.product()
	if err == nil {
		now.Changes, err = v.changes(v.of("/v1/ops/products/%s/changes", v.param("id")))
	}
	return now, err
}

func (p *Pages) setProduct(v *visit) (string, error) {
	points, err := v.whole("points")
	if err != nil {
		return "", err
	}
	expect, err := v.whole("expect")
	if err != nil {
		return "", err
	}
	set := ops.SetProduct{Points: points, Change: products.Change{Why: v.form("why"), Expect: &expect}}
	return v.of("/ops/products/%s", v.param("id")), v.send(http.MethodPut, v.of("/v1/ops/products/%s", v.param("id")), set, nil)
}

func (p *Pages) retireProduct(v *visit) (string, error) {
	expect, err := v.whole("expect")
	if err != nil {
		return "", err
	}
	change := products.Change{Why: v.form("why"), Expect: &expect}
	return v.of("/ops/products/%s", v.param("id")), v.send(http.MethodDelete, v.of("/v1/ops/products/%s", v.param("id")), change, nil)
}
