package pages

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"

	"billhook/internal/apps/customers"
	"billhook/internal/apps/endpoints"
	"billhook/internal/apps/orders"
	"billhook/internal/apps/products"
	"billhook/internal/console/ops"
	"billhook/internal/contract/money"
	"billhook/internal/platform/audit"
	"billhook/internal/platform/serve"
)

// keepRoutes adds the areas of what people keep: products, stock, customers and endpoints.
func (p *Pages) keepRoutes(r chi.Router) {
	p.page(r, "/products", "products.html", loads[ops.List[products.Product]](listed("/v1/ops/products", "tenant")))
	p.page(r, "/products/{id}", "product.html", product(true))
	p.change(r, "/products/{id}/set", "product_set.html", product(false), setProduct)
	p.change(r, "/products/{id}/retire", "product_retire.html", product(false), retireProduct)
	p.page(r, "/stock", "stock.html", loads[ops.List[orders.Stock]](listed("/v1/ops/stock", "tenant")))
	p.page(r, "/stock/{id}", "stock_product.html", stock(true))
	p.change(r, "/stock/{id}/set", "stock_set.html", stock(false), setStock)
	p.page(r, "/customers", "customers.html", findCustomer)
	p.change(r, "/customers/{id}/link", "customer_link.html", loads[customers.State](named("/v1/ops/customers/%s/preview", "id")), linkCustomer)
	p.change(r, "/customers/{id}/unlink", "customer_unlink.html", loads[customers.State](named("/v1/ops/customers/%s/preview", "id")), unlinkCustomer)
	p.page(r, "/endpoints", "endpoints.html", loads[ops.List[endpoints.Endpoint]](listed("/v1/ops/endpoints", "state", "tenant")))
	p.outcome(r, "/new-endpoint", "endpoint_new.html", func(*visit) (any, error) { return endpointNow{}, nil }, addEndpoint) // /endpoints/new may be an endpoint's
	p.page(r, "/endpoints/{id}", "endpoint.html", showEndpoint)
	p.outcome(r, "/endpoints/{id}/rotate", "endpoint_rotate.html", loads[endpointNow](named("/v1/ops/endpoints/%s", "id")), rotateEndpoint)
	p.outcome(r, "/endpoints/{id}/test", "endpoint_test.html", loads[endpointNow](named("/v1/ops/endpoints/%s", "id")), testEndpoint)
	p.change(r, "/endpoints/{id}/enable", "endpoint_enable.html", loads[endpointNow](named("/v1/ops/endpoints/%s", "id")), changeEndpoint("/enable"))
	p.change(r, "/endpoints/{id}/disable", "endpoint_disable.html", loads[endpointNow](named("/v1/ops/endpoints/%s", "id")), changeEndpoint("/disable"))
	p.change(r, "/endpoints/{id}/remove", "endpoint_remove.html", loads[endpointNow](named("/v1/ops/endpoints/%s", "id")), removeEndpoint)
}

// rows is how many rows of a list a page has, and recent how many changes.
const (
	rows   = "50"
	recent = "20"
)

func loads[T any](address func(*visit) string) func(*visit) (any, error) {
	return func(v *visit) (any, error) {
		var found T
		err := v.get(address(v), &found)
		return found, err
	}
}

func at(path string) func(*visit) string { return func(*visit) string { return path } }

// named is the API's address of the tenant's thing that a part of the page's own address names.
func named(format, part string) func(*visit) string {
	return func(v *visit) string { return v.of(format, v.param(part)) }
}

// listed is the API's address of a page of a list, with those parameters of the page's own address.
func listed(path string, names ...string) func(*visit) string {
	return func(v *visit) string { return v.list(path, names...) }
}

func (v *visit) list(path string, names ...string) string {
	return with(path, append(v.filters(append(names, "page")...), "limit", rows)...)
}

func (v *visit) changes(path string) (list ops.List[audit.Entry], err error) {
	err = v.get(with(path, "limit", recent, "page", v.query("page")), &list)
	return list, err
}

func (v *visit) makes(method, thing string, question any) (string, error) {
	return v.of("/ops/"+thing+"/%s", v.param("id")), v.send(method, v.of("/v1/ops/"+thing+"/%s", v.param("id")), question, nil)
}

func (v *visit) whole(field string) (int64, error) {
	n, err := strconv.ParseInt(v.form(field), 10, 64)
	if err != nil {
		return 0, serve.Refuse(http.StatusUnprocessableEntity, "refused", "The field "+field+" takes a whole number, such as 40.")
	}
	return n, nil
}

// notFound is the problem where the API knows nothing of that id; nil: the error is another, or none.
func notFound(err error) *serve.Problem {
	problem := (*serve.Problem)(nil)
	if errors.As(err, &problem) && problem.Status == http.StatusNotFound {
		return problem
	}
	return nil
}

// part is how long a page waits for what may take longer than a page: less than the page may take.
func (v *visit) part() time.Duration { return v.longest * 3 / 4 }

// partly asks the API for what may take longer than a page. late reports that it was ended for that:
// what it has done until then stays done.
func (v *visit) partly(method, path string, question, answer any) (late bool, err error) {
	ctx, cancel := context.WithTimeout(v.ctx, v.part())
	defer cancel()
	err = v.api.Call(ctx, method, path, question, answer)
	if errors.Is(err, context.DeadlineExceeded) && v.ctx.Err() == nil {
		return true, nil
	}
	return false, err
}

// side is one side of a change: the fields that the audit has of it, such as points 500, state active.
func side(of map[string]any) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(of)) {
		value := of[name]
		if n, is := value.(float64); is {
			value = strconv.FormatFloat(n, 'f', -1, 64)
		}
		parts = append(parts, fmt.Sprint(name, " ", value))
	}
	return strings.Join(parts, ", ")
}

// decimal is an amount as people write it. A currency that ISO 4217 does not know has no decimals.
func decimal(minor int64, currency string) string {
	if text, err := money.Format(minor, currency); err == nil {
		return text
	}
	return number(minor)
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

func product(changes bool) func(*visit) (any, error) {
	return func(v *visit) (any, error) {
		var now productNow
		err := v.get(v.of("/v1/ops/products/%s", v.param("id")), &now.Product)
		if problem := notFound(err); problem != nil {
			now.Tenant, now.ID, now.Code, err = v.tenant(), v.param("id"), problem.Code, nil
		}
		if now.Worth = now.Points; err == nil && changes {
			now.Changes, err = v.changes(v.of("/v1/ops/products/%s/changes", v.param("id")))
		}
		return now, err
	}
}

func setProduct(v *visit) (string, error) {
	points, err := v.whole("points")
	if err != nil {
		return "", err
	}
	expect, err := v.whole("expect")
	if err != nil {
		return "", err
	}
	return v.makes(http.MethodPut, "products", ops.SetProduct{Points: points, Change: products.Change{Why: v.form("why"), Expect: &expect}})
}

func retireProduct(v *visit) (string, error) {
	expect, err := v.whole("expect")
	if err != nil {
		return "", err
	}
	return v.makes(http.MethodDelete, "products", products.Change{Why: v.form("why"), Expect: &expect})
}

// stockNow is the stock of a product as it stands.
type stockNow struct {
	orders.Stock
	// Unset: nobody has set it, and an order of the product is out of stock.
	Unset   bool
	Changes ops.List[audit.Entry]
}

func stock(changes bool) func(*visit) (any, error) {
	return func(v *visit) (any, error) {
		var now stockNow
		err := v.get(v.of("/v1/ops/stock/%s", v.param("id")), &now.Stock)
		if notFound(err) != nil {
			now.Tenant, now.ProductID, now.Unset, err = v.tenant(), v.param("id"), true, nil
		}
		if err == nil && changes {
			now.Changes, err = v.changes(v.of("/v1/ops/stock/%s/changes", v.param("id")))
		}
		return now, err
	}
}

func setStock(v *visit) (string, error) {
	available, err := v.whole("available")
	if err != nil {
		return "", err
	}
	expect, err := v.whole("expect")
	if err != nil {
		return "", err
	}
	return v.makes(http.MethodPut, "stock", ops.SetStock{Available: &available, Change: orders.Change{Why: v.form("why"), Expect: &expect}})
}

// findCustomer shows the customer of the id in the address; nil: it has none.
func findCustomer(v *visit) (any, error) {
	id := strings.TrimSpace(v.query("id"))
	if id == "" {
		return (*customers.State)(nil), nil
	}
	found := &customers.State{}
	err := v.get(v.of("/v1/ops/customers/%s/preview", id), found)
	return found, err
}

// linkCustomer goes back to its form where points are left to move: sent again, it moves them.
func linkCustomer(v *visit) (string, error) {
	expect := v.form("expect")
	link := customers.Change{UID: strings.TrimSpace(v.form("uid")), Why: v.form("why"), Expect: &expect}
	var done customers.Linked
	late, err := v.partly(http.MethodPut, v.of("/v1/ops/customers/%s", v.param("id")), link, &done)
	if late || done.Next != "" || done.Left > 0 {
		return with(v.of("/ops/customers/%s/link", v.param("id")), "uid", link.UID), nil
	}
	return v.of("/ops/customers/%s", v.param("id")), err
}

func unlinkCustomer(v *visit) (string, error) {
	expect := v.form("expect")
	return v.makes(http.MethodDelete, "customers", customers.Change{Why: v.form("why"), Expect: &expect})
}

type endpointNow struct {
	endpoints.Endpoint
	Changes ops.List[audit.Entry] `json:"-"`
	// Secret is a new one, which is shown this once; Tested is how a test has ended.
	Secret string            `json:"secret"`
	Tested *endpoints.Tested `json:"-"`
}

func showEndpoint(v *visit) (any, error) {
	var now endpointNow
	err := v.get(href("/v1/ops/endpoints/%s", v.param("id")), &now)
	if err == nil {
		now.Changes, err = v.changes(href("/v1/ops/endpoints/%s/changes", v.param("id")))
	}
	return now, err
}

func addEndpoint(v *visit) (any, error) {
	add := ops.AddEndpoint{
		New: endpoints.New{ID: strings.TrimSpace(v.form("id")), Tenant: strings.TrimSpace(v.form("tenant")), URL: strings.TrimSpace(v.form("url")),
			Events: strings.FieldsFunc(v.form("events"), func(r rune) bool { return strings.ContainsRune(", \n\r\t", r) })},
		Change: endpoints.Change{Why: v.form("why")},
	}
	var added endpointNow
	err := v.post("/v1/ops/endpoints", add, &added)
	return added, err
}

func rotateEndpoint(v *visit) (any, error) {
	var rotated endpointNow
	err := v.post(href("/v1/ops/endpoints/%s/rotate", v.param("id")), endpoints.Change{Why: v.form("why")}, &rotated)
	return rotated, err
}

func testEndpoint(v *visit) (any, error) {
	var now endpointNow
	var tested endpoints.Tested
	late, err := v.partly(http.MethodPost, href("/v1/ops/endpoints/%s/test", v.param("id")), nil, &tested)
	if err == nil {
		err = v.get(href("/v1/ops/endpoints/%s", v.param("id")), &now)
	}
	if late {
		tested = endpoints.Tested{Reason: "no_answer_yet", Milliseconds: v.part().Milliseconds()}
	}
	now.Tested = &tested
	return now, err
}

func changeEndpoint(step string) func(*visit) (string, error) {
	return func(v *visit) (string, error) {
		path := href("/v1/ops/endpoints/%s", v.param("id")) + step
		return href("/ops/endpoints/%s", v.param("id")), v.post(path, endpoints.Change{Why: v.form("why")}, nil)
	}
}

func removeEndpoint(v *visit) (string, error) {
	_, err := v.makes(http.MethodDelete, "endpoints", endpoints.Change{Why: v.form("why")})
	return "/ops/endpoints", err
}
