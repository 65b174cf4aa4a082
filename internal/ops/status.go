package ops

import "github.com/go-chi/chi/v5"

func (a *API) statusRoutes(r chi.Router) {
	r.Get("/audit", answer(a, a.audited))
	a.catalogRoutes(r)
}
