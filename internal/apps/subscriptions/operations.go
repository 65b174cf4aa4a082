package subscriptions

import (
	"context"
	"errors"

	"billhook/internal/console"
	"billhook/internal/platform/audit"
	"billhook/internal/platform/store"
)

// SubscriptionOf asks for a subscription.
type SubscriptionOf struct {
	console.Owned
	ID string `json:"-" path:"subscription" validate:"required,id" help:"subscription"`
}

// Known is a subscription with its events.
type Known struct {
	Subscription
	// Events are all of its events, the newest first; where there are More than 100, some of them.
	Events []Event `json:"events" show:"Events"`
	More   bool    `json:"more"`
}

// Notes say that there are more events than are shown.
func (k Known) Notes() []string {
	if !k.More {
		return nil
	}
	return []string{"There are more events than are shown, and the newest may be among them."}
}

var errUnknown = errors.New("subscriptions: no event of it has come")

// Operations are what people do with subscriptions, which is to look at them.
func Operations(from store.Querier) []console.Operation {
	return []console.Operation{
		console.New(console.Row{
			Name: "subscriptions ls", Path: "GET /v1/ops/subscriptions", Summary: "List subscriptions, each with the state that its newest event gave it",
			Empty: "No subscription is known. The first event of one lists it here.",
		}, func(ctx context.Context, _ audit.Author, in console.OwnedList) (console.List[Subscription], error) {
			return console.Listed(List(ctx, from, in.Tenant, in.After, in.Limit))
		}),
		console.New(console.Row{
			Name: "subscriptions show", Path: "GET /v1/ops/subscriptions/{subscription}", Summary: "Show the state of a subscription, and its events",
			Beside: []string{"usage show", "usage ls"},
			Errors: []console.Refusal{{Of: errUnknown, Kind: console.Absent, Code: "subscription_unknown", Detail: "No event of a subscription of that id has come."}},
		}, func(ctx context.Context, _ audit.Author, in SubscriptionOf) (Known, error) {
			events, more, err := History(ctx, from, in.Tenant, in.ID)
			if err == nil && len(events) == 0 {
				err = errUnknown
			}
			if err != nil {
				return Known{}, err
			}
			return Known{Subscription: events[0].subscription(), Events: events, More: more}, nil
		}),
	}
}
