package ops

import (
	"context"
	"net/http"

	"github.com/go-chi/chi/v5"

	"billhook/internal/apps/subscriptions"
	"billhook/internal/pipeline/pause"
	"billhook/internal/platform/serve"
)

// keepRoutes adds the routes of subscriptions and pauses.
func (a *API) keepRoutes(r chi.Router) {
	r.Get("/subscriptions/{subscription}", answer(a, a.showSubscription))
}

// Subscription is how a subscription stands behind its newest event.
type Subscription struct {
	Subscription string `json:"subscription"`
	Tenant       string `json:"tenant"`
	// Status is the provider's word.
	Status   string `json:"status"`
	Product  string `json:"product"`
	Customer string `json:"customer"`
	UID      string `json:"uid,omitempty"`
	// Events are all of its events, the newest first; where there are More than 100, some of them.
	Events []subscriptions.Event `json:"events"`
	More   bool                  `json:"more"`
}

func (a *API) showSubscription(r *http.Request) (Subscription, error) {
	params := read(r, "tenant")
	tenant, id := params.tenant(), params.subscription(r)
	if err := params.err(); err != nil {
		return Subscription{}, err
	}
	events, more, err := subscriptions.History(r.Context(), a.Store, tenant, id)
	switch {
	case err != nil:
		return Subscription{}, err
	case len(events) == 0:
		return Subscription{}, serve.Refuse(http.StatusNotFound, "subscription_unknown", "No event of a subscription of that id has come.")
	}
	last := events[0]
	return Subscription{Subscription: id, Tenant: tenant, Status: last.Status, Product: last.Product, Customer: last.Customer, UID: last.UID, Events: events, More: more}, nil
}

// QueuePaused is the pause of a queue in the list of queues.
type QueuePaused struct {
	pause.Pause
	// Subscription is what the queue's subscription does; unknown: it cannot be seen from here.
	Subscription pause.Standing `json:"subscription"`
}

// paused returns the pauses by queue. It asks the broker for the subscriptions of paused queues alone.
func (a Reads) paused(ctx context.Context) (map[string]*QueuePaused, error) {
	pauses, err := pause.List(ctx, a.Store)
	found := map[string]*QueuePaused{}
	for _, p := range pauses {
		found[p.Queue] = &QueuePaused{Pause: p, Subscription: pause.Unknown}
		if q, ok := a.Catalog.Queue(p.Queue); a.Viewer != nil && ok {
			if standing, err := a.Viewer.Standing(ctx, q); err == nil {
				found[p.Queue].Subscription = standing
			}
		}
	}
	return found, err
}
