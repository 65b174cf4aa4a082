package pages

import (
	"net/http"
	"strings"

	"github.com/go-chi/chi/v5"

	"billhook/internal/apps/customers"
)

// customerRoutes adds the pages by which a customer is found, linked and unlinked.
func (p *Pages) customerRoutes(r chi.Router) {
	p.page(r, "/customers", "customers.html", p.customers)
	p.change(r, "/customers/{id}/link", "customer_link.html", p.customerNow, p.linkCustomer)
	p.change(r, "/customers/{id}/unlink", "customer_unlink.html", p.customerNow, p.unlinkCustomer)
}

// customers shows the customer of the id in the address; nil: it has none.
func (p *Pages) customers(v *visit) (any, error) {
	id := strings.TrimSpace(v.query("id"))
	if id == "" {
		return (*customers.State)(nil), nil
	}
	found := &customers.State{}
	err := v.get(v.of("/v1/ops/customers/%s/preview", id), found)
	return found, err
}

func (p *Pages) customerNow(v *visit) (any, error) {
	var now customers.State
	err := v.get(v.of("/v1/ops/customers/%s/preview", v.param("id")), &now)
	return now, err
}

// linkCustomer goes back to its form where points are left to move: sent again, it moves them.
func (p *Pages) linkCustomer(v *visit) (string, error) {
	expect := v.form("expect")
	link := customers.Change{UID: strings.TrimSpace(v.form("uid")), Why: v.form("why"), Expect: &expect}
	var done customers.Linked
	late, err := v.partly(http.MethodPut, v.of("/v1/ops/customers/%s", v.param("id")), link, &done)
	if late || done.Next != "" || done.Left > 0 {
		return with(v.of("/ops/customers/%s/link", v.param("id")), "uid", link.UID), nil
	}
	return v.of("/ops/customers/%s", v.param("id")), err
}

func (p *Pages) unlinkCustomer(v *visit) (string, error) {
	expect := v.form("expect")
	change := customers.Change{Why: v.form("why"), Expect: &expect}
	return v.of("/ops/customers/%s", v.param("id")), v.send(http.MethodDelete, v.of("/v1/ops/customers/%s", v.param("id")), change, nil)
}
