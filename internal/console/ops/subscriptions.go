package ops

import (
	"net/http"

	"github.com/go-chi/chi/v5"

	"billhook/internal/apps/subscriptions"
	"billhook/internal/platform/serve"
)

// subscriptionRoutes adds the route of subscriptions, which are read alone. What they use has routes
// of its own.
func (a *API) subscriptionRoutes(r chi.Router) {
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
