package ops

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/go-chi/chi/v5"

	"billhook/catalog"
	"billhook/internal/apps/subscriptions"
	"billhook/internal/pipeline/pause"
	"billhook/internal/platform/serve"
	"billhook/internal/platform/store"
)

// keepRoutes adds the routes of subscriptions and pauses.
func (a *API) keepRoutes(r chi.Router) {
	r.Get("/pauses", plain(a, a.listPauses))
	r.Get("/queues/{id}/pause", answer(a, a.showPause))
	r.Post("/queues/{id}/pause", answer(a, a.changePause(a.Pauses.Pause)))
	r.Post("/queues/{id}/resume", answer(a, a.changePause(a.Pauses.Resume)))
	r.Get("/queues/{id}/changes", a.changes(pause.Kind, store.MaxPage))
	r.Get("/subscriptions/{subscription}", answer(a, a.showSubscription))
}

const adviceOfWhy = `Send JSON: {"why": "<the reason>"}.`

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
