package pages

import (
	"github.com/go-chi/chi/v5"

	"billhook/internal/ops"
)

func (p *Pages) overviewRoutes(r chi.Router) {
	p.page(r, "/", "overview.html", p.overview)
}

// overview shows every queue.
func (p *Pages) overview(v *visit) (any, error) {
	var queues ops.Queues
	err := v.get("/v1/ops/queues", &queues)
	return queues, err
}
