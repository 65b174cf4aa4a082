package pages

import (
	"errors"
	"net/http"

	"billhook/internal/contract/money"
	"billhook/internal/platform/serve"
)

// rows is how many rows of a list a page has, and recent how many changes.
const (
	rows   = "50"
	recent = "20"
)

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
