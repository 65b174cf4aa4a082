package worker

import (
	"github.com/google/uuid"

	"billhook/catalog"
	"billhook/internal/apps/endpoints"
	"billhook/internal/pipeline/delivery"
)

// poster makes the requests to the endpoints of third parties, events' and people's through the same limits.
func (c Config) poster(watcher delivery.Watcher) *delivery.Endpoints {
	poster := delivery.NewEndpoints(c.Catalog.Endpoints, c.PrivateEndpoints, c.Now)
	poster.Watcher = watcher
	return poster
}

// endpoints keeps the endpoints of third parties for people.
func (c Config) endpoints(poster *delivery.Endpoints) *endpoints.Keeper {
	return &endpoints.Keeper{
		Store: c.lists(c.Store), Poster: poster, OldSecretFor: c.Catalog.Endpoints.OldSecretFor, Now: c.Now, NewID: uuid.NewString, NewSecret: endpoints.NewSecret,
	}
}

// checkEndpoints refuses a catalog that delivers to endpoints and does not say how.
func checkEndpoints(c *catalog.Catalog) error {
	if _, delivers := c.HandledBy(endpoints.Handler); delivers && c.Endpoints == (catalog.Endpoints{}) {
		return &catalog.Mistake{File: "targets.yaml", Key: "endpoints", What: "is missing, and a queue delivers to them"}
	}
	return nil
}
