// Package subscriptions owns the immutable documents of the events of subscriptions. The newest has the state
// of its subscription. The package does not decide the effect of an event, and it never commits.
package subscriptions

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"billhook/internal/console"
	"billhook/internal/platform/audit"
	"billhook/internal/platform/store"
)

// Collection holds the events.
const Collection = "paymentEvents"

// Event is one event of a subscription, as its document holds it.
type Event struct {
	Tenant       string `json:"tenant" store:"tenant,required"`
	EventID      string `json:"event_id" store:"event_id,required" show:"Event" link:"events"`
	EventType    string `json:"event_type" store:"event_type" show:"Type"`
	Action       string `json:"action" store:"action"`
	Subscription string `json:"subscription_id" store:"subscription_id,required"`
	Customer     string `json:"customer_id" store:"customer_id"`
	Product      string `json:"product_id" store:"product_id"`
	// Status is the provider's name of the subscription's state after the event.
	Status string `json:"status" store:"status" show:"State"`
	UID    string `json:"uid,omitempty" store:"uid"`
	// Cycle counts the billing cycles from 1; 0: there are none.
	Cycle int64 `json:"cycle,omitzero" store:"cycle"`
	// OccurredAt and the bounds of the paid period, which may be empty, are RFC 3339, as the provider sent them.
	OccurredAt  string `json:"occurred_at" store:"occurred_at" show:"Happened"`
	PeriodStart string `json:"period_start,omitempty" store:"period_start" show:"Paid from,less"`
	PeriodEnd   string `json:"period_end,omitempty" store:"period_end" show:"Paid to,less"`
	// Amount is the paid amount, in minor units of Currency; nil: the event has none.
	Amount     *int64    `json:"amount,omitempty" store:"amount,omitzero" show:"Amount" in:"currency"`
	Currency   string    `json:"currency,omitempty" store:"currency,omitzero"`
	RecordedAt time.Time `json:"recorded_at" store:"recorded_at"`
}

// Key is the key of an event's document. The events of a tenant's subscription share a prefix.
func Key(tenant, subscription, eventID string) store.Key {
	return store.Key{Collection: Collection, ID: prefix(tenant, subscription) + store.Path(eventID)}
}

func prefix(tenant, subscription string) string { return store.ID(tenant, subscription) + "~" }

// Write returns the write that stores the event. Its commit fails with store.ErrExists if the event is stored
// already.
func (e Event) Write() store.Write {
	e.RecordedAt = e.RecordedAt.UTC().Truncate(time.Microsecond)
	return store.Create(Key(e.Tenant, e.Subscription, e.EventID), store.Encode(&e))
}

// MaxListed is how many events History reads.
const MaxListed = 100

// History returns the events of a tenant's subscription, the newest first; with more, any of them may be
// missing. The error wraps store.ErrUnreadable, or is the store's.
func History(
	ctx context.Context, from store.Querier, tenant, id string,
) (events []Event, more bool, err error) {
	query := store.Query{Collection: Collection, IDPrefix: prefix(tenant, id), Limit: MaxListed}
	events, next, err := store.List(ctx, from, query, read)
	slices.SortFunc(events, func(a, b Event) int { return compare(b, a) })
	return events, !next.IsZero(), err
}

func compare(a, b Event) int {
	return cmp.Or(a.at().Compare(b.at()), strings.Compare(a.EventID, b.EventID))
}

// Subscription is the state of a subscription after its newest event.
type Subscription struct {
	ID       string `json:"subscription" show:"Subscription" link:"subscriptions"`
	Tenant   string `json:"tenant"`
	Status   string `json:"status" show:"State"`
	Product  string `json:"product" show:"Product" link:"products"`
	Customer string `json:"customer" show:"Customer" link:"customers"`
	UID      string `json:"uid,omitempty" show:"User" link:"search"`
}

func (e Event) subscription() Subscription {
	s := Subscription{ID: e.Subscription, Tenant: e.Tenant, Status: e.Status, Product: e.Product}
	s.Customer, s.UID = e.Customer, e.UID
	return s
}

// List returns a page of a tenant's subscriptions, unordered. It reads their events, so that a page of
// subscriptions with many events is short. The error is as in History.
func List(
	ctx context.Context, from store.Querier, tenant string, after store.Cursor, limit int,
) (page []Subscription, next store.Cursor, err error) {
	query := store.Query{Collection: Collection, Equal: map[string]any{"tenant": tenant}, After: after}
	query.Limit = min(limit*MaxListed, store.MaxPage)
	events, next, err := store.List(ctx, from, query, read)
	for len(events) > 0 {
		id := events[0].Subscription
		own := slices.IndexFunc(events, func(e Event) bool { return e.Subscription != id })
		// it begins the next page
		if full := len(page) == limit; full || (own < 0 && len(page) > 0 && !next.IsZero()) {
			next.ID = "more"
			break
		}
		if own < 0 {
			own = len(events)
		}
		page, events = append(page, slices.MaxFunc(events[:own], compare).subscription()), events[own:]
	}
	if !next.IsZero() {
		next = store.Cursor{ID: prefix(tenant, page[len(page)-1].ID) + "~"} // after all of its events
	}
	return page, next, err
}

func read(doc store.Document) (e Event, err error) {
	if err := store.Decode(doc.Fields, &e); err != nil {
		return e, fmt.Errorf("subscriptions: %s: %w", doc.Key, err)
	}
	return e, nil
}

// OfCustomer returns events of a tenant's customer, at most limit, unordered.
func OfCustomer(
	ctx context.Context, from store.Querier, tenant, customer string, limit int,
) (events []Event, more bool, err error) {
	query := store.Query{Collection: Collection, Limit: limit}
	query.Equal = map[string]any{"tenant": tenant, "customer_id": customer}
	events, next, err := store.List(ctx, from, query, read)
	return events, !next.IsZero(), err
}

// at is when the event happened, or when it was recorded if that is not readable.
func (e Event) at() time.Time {
	at, err := time.Parse(time.RFC3339Nano, e.OccurredAt)
	if err != nil {
		return e.RecordedAt
	}
	return at
}

// SubscriptionOf names a subscription.
type SubscriptionOf struct {
	console.Owned
	ID string `json:"-" path:"subscription" validate:"required,id" help:"subscription"`
}

// Known is a subscription with its events.
type Known struct {
	Subscription
	// Events has all of its events, newest first; if there are More than 100, some of them.
	Events []Event `json:"events" show:"Events"`
	More   bool    `json:"more"`
}

// Notes says that there are more events than are shown.
func (k Known) Notes() []string {
	if !k.More {
		return nil
	}
	return []string{"There are more events than are shown, and the newest may be among them."}
}

var errUnknown = console.Refuse(console.Absent, "subscription_unknown",
	"No event of a subscription of that id has come.")

// Operations are what people do with subscriptions: read them.
func Operations(from store.Querier) []console.Operation {
	return []console.Operation{
		console.New(console.Row{
			Name: "subscriptions ls", Path: "GET /v1/ops/subscriptions",
			Summary: "List subscriptions, each with the state that its newest event gave it",
			Empty:   "No subscription is known. The first event of one lists it here.",
		}, func(ctx context.Context, _ audit.Author, in console.OwnedList) (console.List[Subscription], error) {
			return console.Listed(List(ctx, from, in.Tenant, in.After, in.Limit))
		}),
		console.New(console.Row{
			Name: "subscriptions show", Path: "GET /v1/ops/subscriptions/{subscription}",
			Summary: "Show the state of a subscription, and its events",
			Beside:  []string{"usage show", "usage ls"},
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
