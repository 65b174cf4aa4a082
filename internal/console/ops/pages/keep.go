package pages

import (
	"errors"
	"net/http"

	"github.com/go-chi/chi/v5"

	"billhook/internal/contract/money"
	"billhook/internal/platform/serve"
)

// keepRoutes adds the areas of what people keep: products, stock, customers and endpoints.
func (p *Pages) keepRoutes(r chi.Router) {
	p.declaredRoutes(r)
}

// rows is how many rows of a list a page has.
const rows = "50"

func (v *visit) list(path string, names ...string) string {
	return with(path, append(v.filters(append(names, "page")...), "limit", rows)...)
}

// notFound is the problem where the API knows nothing of that id; nil: the error is another, or none.
func notFound(err error) *serve.Problem {
	problem := (*serve.Problem)(nil)
	if errors.As(err, &problem) && problem.Status == http.StatusNotFound {
		return problem
	}
	return nil
}

// decimal is an amount as people read it, in groups of three digits.
func decimal(minor int64, currency string) string { return grouped(money.Text(minor, currency)) }
