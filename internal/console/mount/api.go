// Package mount is the API for people as the worker serves it: what is declared as operations, and the
// event queue's API for scripts that exist. It answers known people alone, and decides nothing.
package mount

import (
	"cmp"
	"context"
	"log/slog"

	"billhook/internal/console/access"

	"github.com/go-chi/chi/v5"

	"billhook/internal/console"
	"billhook/internal/console/api"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/pipeline/events"
	"billhook/internal/platform/serve"
)

// API answers /v1/ops, and /api/v1/events for scripts that exist.
type API struct {
	events.Reads
	Access   access.Access
	Log      *slog.Logger
	Operator *deadletter.Operator
	// Operations are what is declared; nil: nothing.
	Operations *console.Catalog
}

// Routes adds the API's routes.
func (a *API) Routes(r chi.Router) {
	r.Group(func(r chi.Router) {
		r.Use(access.SameOrigin, a.Access.Require, saying)
		a.Console().Routes(r)
		a.eventQueueRoutes(r)
	})
}

// Console serves what is declared as operations.
func (a *API) Console() *api.Server {
	return &api.Server{Catalog: cmp.Or(a.Operations, &console.Catalog{}), Log: a.Log, Author: access.Author, Now: a.Now, Store: a.Store}
}

// problem is the answer to an error of what is no operation: a script's request.
func (a *API) problem(ctx context.Context, err error) *serve.Problem {
	return a.Console().Problem(ctx, console.Operation{}, err)
}
