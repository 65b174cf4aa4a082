package pages

import (
	"context"
	"errors"
	"net/http"
	"time"

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

// decimal is an amount as people read it, in groups of three digits.
func decimal(minor int64, currency string) string { return grouped(money.Text(minor, currency)) }
