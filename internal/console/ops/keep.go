package ops

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/go-chi/chi/v5"

	"billhook/catalog"
	"billhook/internal/apps/customers"
	"billhook/internal/apps/endpoints"
	"billhook/internal/apps/orders"
	"billhook/internal/apps/payments"
	"billhook/internal/apps/products"
	"billhook/internal/apps/subscriptions"
	"billhook/internal/pipeline/pause"
	"billhook/internal/platform/serve"
	"billhook/internal/platform/store"
)

// keepRoutes adds the routes of what people keep, and of orders, refunds and subscriptions, which messages alone change.
func (a *API) keepRoutes(r chi.Router) {
	r.Get("/products", listOf(a, a.Products.List))
	r.Get("/products/{id}", shown(a, "id", a.showProduct))
	r.Get("/products/{id}/changes", a.changesOf(products.Kind, store.MaxPage))
	r.Put("/products/{id}", changed(a, "id", adviceOfPoints, a.setProduct))
	r.Delete("/products/{id}", changed(a, "id", adviceOfWhy, a.retireProduct))
	r.Get("/stock", listOf(a, a.Stock.List))
	r.Get("/stock/{id}", shown(a, "id", a.Stock.Get))
	r.Get("/stock/{id}/changes", a.changesOf(orders.StockKind, store.MaxPage))
	r.Put("/stock/{id}", changed(a, "id", adviceOfStock, a.setStock))
	r.Get("/customers/{id}", shown(a, "id", a.showCustomer))
	r.Get("/customers/{id}/preview", shown(a, "id", a.Customers.Show))
	r.Get("/customers/{id}/activity", shown(a, "id", a.Activity))
	r.Get("/customers/{id}/changes", a.changesOf(customers.AuditKind, most))
	r.Put("/customers/{id}", answer(a, a.linkCustomer))
	r.Delete("/customers/{id}", answer(a, a.unlinkCustomer))
	r.Get("/endpoints", answer(a, a.listEndpoints))
	r.Post("/endpoints", serve.Answer(http.StatusCreated, a.addEndpoint, a.refuse))
	r.Get("/endpoints/{id}", answer(a, func(r *http.Request) (endpoints.Endpoint, error) {
		return a.Endpoints.Get(r.Context(), param(r, "id"))
	}))
	r.Delete("/endpoints/{id}", answer(a, changeEndpoint(a, "removed", a.Endpoints.Remove)))
	r.Post("/endpoints/{id}/rotate", answer(a, changeEndpoint(a, "rotated", a.Endpoints.Rotate)))
	r.Post("/endpoints/{id}/enable", answer(a, changeEndpoint(a, "enabled", a.Endpoints.Enable)))
	r.Post("/endpoints/{id}/disable", answer(a, changeEndpoint(a, "disabled", a.Endpoints.Disable)))
	r.Post("/endpoints/{id}/test", answer(a, a.testEndpoint))
	r.Get("/endpoints/{id}/changes", a.changes(endpoints.Kind, store.MaxPage))
	r.Get("/pauses", plain(a, a.listPauses))
	r.Get("/queues/{id}/pause", answer(a, a.showPause))
	r.Post("/queues/{id}/pause", answer(a, a.changePause(a.Pauses.Pause)))
	r.Post("/queues/{id}/resume", answer(a, a.changePause(a.Pauses.Resume)))
	r.Get("/queues/{id}/changes", a.changes(pause.Kind, store.MaxPage))
	r.Get("/orders", answer(a, a.listOrders))
	r.Get("/orders/{id}", shown(a, "id", func(ctx context.Context, tenant, id string) (orders.Order, error) {
		return orders.Find(ctx, a.Store, tenant, id)
	}))
	r.Get("/refunds", answer(a, a.listRefunds))
	r.Get("/refunds/{payment}", shown(a, "payment", func(ctx context.Context, tenant, payment string) (payments.Refund, error) {
		return payments.FindRefund(ctx, a.Store, tenant, payment)
	}))
	r.Get("/subscriptions/{subscription}", answer(a, a.showSubscription))
}

// What the body of a change is to be.
const (
	adviceOfWhy    = `Send JSON: {"why": "<the reason>"}.`
	adviceOfPoints = `Send JSON: {"points": <a whole number>, "why": "<the reason>"}.`
	adviceOfStock  = `Send JSON: {"available": <a whole number>, "why": "<the reason>"}.`
)

// SetProduct is what a product is worth from now on, and why.
type SetProduct struct {
	Points int64 `json:"points"`
	products.Change
}

func (a *API) showProduct(ctx context.Context, tenant, id string) (products.Product, error) {
	p, err := a.Products.Get(ctx, tenant, id)
	if err == nil && p.State == products.Retired {
		err = serve.Refuse(http.StatusNotFound, "product_retired", "The product is retired; its history says since when and why. Setting it makes it known again.")
	}
	return p, err
}

func (a *API) setProduct(ctx context.Context, tenant, id string, set SetProduct) (products.Product, error) {
	set.Who = Who(ctx)
	p, err := a.Products.Set(ctx, tenant, id, set.Points, set.Change)
	return a.productChanged(ctx, p, err)
}

func (a *API) retireProduct(ctx context.Context, tenant, id string, change products.Change) (products.Product, error) {
	change.Who = Who(ctx)
	p, err := a.Products.Retire(ctx, tenant, id, change)
	return a.productChanged(ctx, p, err)
}

func (a *API) productChanged(ctx context.Context, p products.Product, err error) (products.Product, error) {
	a.done(err).LogAttrs(ctx, slog.LevelInfo, "product changed", slog.String("tenant", p.Tenant), slog.String("product", p.ID), slog.Int64("points", p.Points), slog.String("state", string(p.State)))
	return p, err
}

// SetStock is how many pieces of a product can be ordered from now on, and why.
type SetStock struct {
	Available *int64 `json:"available"`
	orders.Change
}

func (a *API) setStock(ctx context.Context, tenant, id string, set SetStock) (orders.Stock, error) {
	if set.Available == nil {
		return orders.Stock{}, serve.Refuse(http.StatusBadRequest, "body_malformed", adviceOfStock)
	}
	set.Who = Who(ctx)
	s, err := a.Stock.Set(ctx, tenant, id, *set.Available, set.Change)
	a.done(err).LogAttrs(ctx, slog.LevelInfo, "stock changed", slog.String("tenant", tenant), slog.String("product", s.ProductID), slog.Int64("available", s.Available))
	return s, err
}

func (a *API) showCustomer(ctx context.Context, tenant, id string) (customers.State, error) {
	state, err := a.Customers.Show(ctx, tenant, id)
	if err == nil && state.UID == "" {
		err = customers.ErrUnknown
	}
	return state, err
}

func (a *API) linkCustomer(r *http.Request) (customers.Linked, error) {
	change, params, err := customerChange(r, "page")
	if err != nil {
		return customers.Linked{}, err
	}
	done, err := a.Customers.Link(r.Context(), change)
	done.Next = params.next(r.URL.Path, Place{}, store.Cursor{ID: done.Next})
	a.done(nil).LogAttrs(r.Context(), slog.LevelInfo, "customer linked", slog.String("who", change.Who), slog.String("tenant", change.Tenant), slog.String("customer_id", change.CustomerID),
		slog.String("uid", change.UID), slog.String("before", done.Before), slog.String("operation", done.Operation),
		slog.Int64("moved_points", done.MovedPoints), slog.Int64("moved_orders", done.MovedOrders), slog.Bool("failed", err != nil))
	return done, err
}

func (a *API) unlinkCustomer(r *http.Request) (customers.State, error) {
	change, _, err := customerChange(r)
	if err != nil {
		return customers.State{}, err
	}
	change.UID = ""
	state, err := a.Customers.Unlink(r.Context(), change)
	a.done(nil).LogAttrs(r.Context(), slog.LevelInfo, "customer unlinked", slog.String("who", change.Who), slog.String("tenant", change.Tenant),
		slog.String("customer_id", change.CustomerID), slog.Bool("failed", err != nil))
	return state, err
}

// customerChange reads a change; known are the parameters that it may have beside the tenant.
func customerChange(r *http.Request, known ...string) (change customers.Change, params *parameters, err error) {
	params = read(r, append(known, "tenant")...)
	tenant, at := params.tenant(), params.page(r.URL.Path, Place{})
	if err = params.err(); err != nil {
		return change, params, err
	}
	err = readChange(r, &change, "Send JSON: uid, why, and whom you expect the customer to be linked to.")
	change.Tenant, change.CustomerID, change.Who, change.After = tenant, param(r, "id"), Who(r.Context()), at.ID
	return change, params, err
}

func (a *API) listEndpoints(r *http.Request) (List[endpoints.Endpoint], error) {
	params := read(r, "state", "tenant", "limit", "page")
	of := endpoints.Choice{Tenant: params.id("tenant")}
	switch state := params.values.Get("state"); state {
	case "":
	case "disabled", "failing":
		of.Disabled, of.Failing = state == "disabled", state == "failing"
		if of.Tenant != "" {
			params.refuse("parameter_invalid", "Give a state or a tenant, not both.")
		}
	default:
		params.refuse("state_unknown", "The parameter state is disabled or failing.")
	}
	return paged(params, "endpoints", Place{}, store.MaxPage, func(at Place, limit int) ([]endpoints.Endpoint, store.Cursor, error) {
		return a.Endpoints.List(r.Context(), of, at.Cursor, limit)
	})
}

// AddEndpoint is an endpoint to register, and why.
type AddEndpoint struct {
	endpoints.New
	endpoints.Change
}

func (a *API) addEndpoint(r *http.Request) (endpoints.Secret, error) {
	var add AddEndpoint
	if err := readChange(r, &add, `Send JSON: {"url": "https://...", "events": ["<patterns of event types>"], "tenant", "id", "why": "<the reason>"}.`); err != nil {
		return endpoints.Secret{}, err
	}
	add.Who = Who(r.Context())
	added, err := a.Endpoints.Add(r.Context(), add.New, add.Change)
	a.endpointChanged(r, "added", added.ID, err)
	return added, err
}

func changeEndpoint[T any](a *API, done string, change func(context.Context, string, endpoints.Change) (T, error)) func(*http.Request) (T, error) {
	return func(r *http.Request) (changed T, err error) {
		var by endpoints.Change
		if err = readChange(r, &by, adviceOfWhy); err != nil {
			return changed, err
		}
		by.Who = Who(r.Context())
		changed, err = change(r.Context(), param(r, "id"), by)
		a.endpointChanged(r, done, param(r, "id"), err)
		return changed, err
	}
}

func (a *API) testEndpoint(r *http.Request) (endpoints.Tested, error) {
	tested, err := a.Endpoints.Test(r.Context(), param(r, "id"))
	a.endpointChanged(r, "tested", tested.ID, err)
	return tested, err
}

func (a *API) endpointChanged(r *http.Request, done, id string, err error) {
	a.done(err).LogAttrs(r.Context(), slog.LevelInfo, "endpoint changed", slog.String("how", done), slog.String("endpoint", id), slog.String("who", Who(r.Context())))
}

// listOrders answers the orders in a state, in no order that means anything: those that wait for their payment unless
// the parameter state says otherwise.
func (a *API) listOrders(r *http.Request) (List[orders.Order], error) {
	params := read(r, "state", "limit", "page")
	state := oneOf(params, orders.PaymentInitiated, orders.OrderConfirmed, orders.OrderCancelled, orders.OrderShipped)
	return paged(params, "orders", Place{}, most, func(at Place, limit int) ([]orders.Order, store.Cursor, error) {
		return orders.List(r.Context(), a.Store, state, at.Cursor, limit)
	})
}

// listRefunds answers the refunds in a state, the newest first: those under way unless the parameter state says otherwise.
func (a *API) listRefunds(r *http.Request) (List[payments.Refund], error) {
	params := read(r, "state", "limit", "page")
	state := oneOf(params, payments.UnderWay, payments.Refunded, payments.Refused)
	return paged(params, "refunds", Place{newest: true}, most, func(at Place, limit int) ([]payments.Refund, store.Cursor, error) {
		return payments.ListRefunds(r.Context(), a.Store, state, at.Cursor, limit)
	})
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

// QueuePause is how a queue stands, and what that means for what waits in the broker.
type QueuePause struct {
	pause.Outcome
	// RetentionSeconds is how long the broker keeps a message, counted from its publishing.
	RetentionSeconds int64 `json:"retention_seconds"`
	// KeptUntil is, of a paused queue, when the broker deletes what was published at its pause.
	KeptUntil time.Time `json:"kept_until,omitzero"`
	// MessageTTLSeconds is the age from which a message is dropped unhandled; 0: none is.
	MessageTTLSeconds int64 `json:"message_ttl_seconds"`
	// DroppedFrom is, of a paused queue with such an age, when what was published at its pause has it.
	DroppedFrom time.Time `json:"dropped_from,omitzero"`
}

// queueOf is the queue in the path.
func (a *API) queueOf(r *http.Request) (catalog.Queue, error) {
	q, ok := a.Catalog.Queue(param(r, "id"))
	if !ok {
		return q, errNoQueue
	}
	return q, nil
}

func describePause(q catalog.Queue, found pause.Outcome) QueuePause {
	described := QueuePause{
		Outcome: found, RetentionSeconds: int64(q.MessageRetention.Seconds()), MessageTTLSeconds: int64(q.MessageTTL.Seconds()),
	}
	if found.Pause != nil {
		described.KeptUntil = found.Pause.At.Add(q.MessageRetention)
		if q.MessageTTL > 0 {
			described.DroppedFrom = found.Pause.At.Add(q.MessageTTL)
		}
	}
	return described
}

// listPauses answers all pauses on one page: there are at most as many as queues.
func (a *API) listPauses(ctx context.Context) (List[pause.Pause], error) {
	all, err := pause.List(ctx, a.Store)
	return pageOf(all, ""), err
}

func (a *API) showPause(r *http.Request) (QueuePause, error) {
	q, err := a.queueOf(r)
	if err != nil {
		return QueuePause{}, err
	}
	found, err := a.Pauses.Look(r.Context(), q)
	return describePause(q, found), err
}

// changePause pauses or resumes the queue in the path.
func (a *API) changePause(change func(context.Context, catalog.Queue, pause.Change) (pause.Outcome, error)) func(*http.Request) (QueuePause, error) {
	return func(r *http.Request) (QueuePause, error) {
		q, err := a.queueOf(r)
		var by pause.Change
		if err == nil {
			err = readChange(r, &by, adviceOfWhy)
		}
		if err != nil {
			return QueuePause{}, err
		}
		by.Who = Who(r.Context())
		found, err := change(r.Context(), q, by)
		if err == nil {
			level := slog.LevelInfo
			if !found.Settled() {
				level = slog.LevelWarn
			}
			a.Log.LogAttrs(r.Context(), level, "queue paused or resumed", slog.String("queue", q.ID), slog.Bool("paused", found.Pause != nil),
				slog.Bool("changed", found.Changed), slog.String("subscription", string(found.Subscription)), slog.String("problem", found.Problem), slog.String("who", by.Who))
		}
		return describePause(q, found), err
	}
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
