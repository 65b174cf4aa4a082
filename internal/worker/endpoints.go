package worker

import (
	"github.com/google/uuid"

	"billhook/catalog"
	"billhook/internal/delivery"
	"billhook/internal/endpoints"
	"billhook/internal/handler"
)

// registerEndpoints registers what delivers to the endpoints of third parties, and returns what
// keeps them for people. Both post through the same limits.
func registerEndpoints(registry *handler.Registry, config Config, watcher delivery.Watcher) *endpoints.Keeper {
	of := config.Catalog.Endpoints
	poster := delivery.NewEndpoints(of, config.PrivateEndpoints, config.Now)
	poster.Watcher = watcher
	endpoints.Register(registry, endpoints.Deliverer{
		Store: config.Store, Poster: poster, DisableAfter: of.DisableAfter, News: config.Catalog.EmitsOf(endpoints.Handler), Now: config.Now,
	})
	return &endpoints.Keeper{
		Store: config.lists(config.Store), Poster: poster, OldSecretFor: of.OldSecretFor, Now: config.Now, NewID: uuid.NewString, NewSecret: endpoints.NewSecret,
	}
}

// checkEndpoints refuses a catalog that delivers to endpoints and does not say how.
func checkEndpoints(c *catalog.Catalog) error {
	if _, delivers := c.HandledBy(endpoints.Handler); delivers && c.Endpoints == (catalog.Endpoints{}) {
		return &catalog.Mistake{File: "targets.yaml", Key: "endpoints", What: "is missing, and a queue delivers to them"}
	}
	return nil
}
