package ops

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/go-chi/chi/v5"

	"billhook/catalog"
	"billhook/internal/pipeline/pause"
	"billhook/internal/platform/serve"
	"billhook/internal/platform/store"
)

func (a *API) pauseRoutes(r chi.Router) {
	r.Get("/pauses", answer(a, a.listPauses))
	r.Get("/queues/{id}/pause", answer(a, a.showPause))
	r.Post("/queues/{id}/pause", answer(a, a.changePause((*pause.Keeper).Pause)))
	r.Post("/queues/{id}/resume", answer(a, a.changePause((*pause.Keeper).Resume)))
	r.Get("/queues/{id}/changes", a.changes(pause.Kind, store.MaxPage))
}

// pauseRungs are the answers to what pausing a queue refuses.
var pauseRungs = []serve.Rung{
	{Of: pause.ErrInvalid, As: serve.Refuse(http.StatusUnprocessableEntity, "refused", "")},
	{Of: store.ErrBusy, As: serve.Refuse(http.StatusConflict, "busy", "Others have paused or resumed the queue at the same time; look at it again.")},
}

// QueuePause is how a queue stands, and what that means for what waits in the broker.
type QueuePause struct {
	pause.Outcome
	// RetentionSeconds is how long the broker keeps a message, counted from its publishing.
	RetentionSeconds int64 `json:"retention_seconds"`
	// KeptUntil is, of a paused queue, when the broker deletes what was published at its pause. What
	// had waited before goes earlier.
	KeptUntil time.Time `json:"kept_until,omitzero"`
	// MessageTTLSeconds is the age from which a message is dropped unhandled; 0: none is.
	MessageTTLSeconds int64 `json:"message_ttl_seconds"`
	// DroppedFrom is, of a paused queue with such an age, when what was published at its pause has it.
	DroppedFrom time.Time `json:"dropped_from,omitzero"`
}

func (a *API) pausable(r *http.Request) (catalog.Queue, error) {
	q, ok := a.Catalog.Queue(param(r, "id"))
	if !ok {
		return q, serve.Refuse(http.StatusNotFound, "queue_unknown", "The catalog has no queue of that name or alias.")
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
func (a *API) listPauses(r *http.Request) (list List[pause.Pause], err error) {
	if err = read(r).err(); err != nil {
		return list, err
	}
	all, err := pause.List(r.Context(), a.Store)
	return listOf(all, ""), err
}

func (a *API) showPause(r *http.Request) (QueuePause, error) {
	q, err := a.pausable(r)
	if err != nil {
		return QueuePause{}, err
	}
	found, err := a.Pauses.Look(r.Context(), q)
	return describePause(q, found), err
}

// changePause pauses or resumes the queue in the path. The answer says what the subscription does
// afterwards, which is not always what was asked for.
func (a *API) changePause(change func(*pause.Keeper, context.Context, catalog.Queue, pause.Change) (pause.Outcome, error)) func(*http.Request) (QueuePause, error) {
	return func(r *http.Request) (QueuePause, error) {
		q, err := a.pausable(r)
		if err != nil {
			return QueuePause{}, err
		}
		var by pause.Change
		if err := readChange(r, &by, `Send JSON: {"why": "<the reason>"}.`); err != nil {
			return QueuePause{}, err
		}
		by.Who = Who(r.Context())
		found, err := change(a.Pauses, r.Context(), q, by)
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
	if err != nil {
		return nil, err
	}
	found := map[string]*QueuePaused{}
	for _, p := range pauses {
		found[p.Queue] = &QueuePaused{Pause: p, Subscription: pause.Unknown}
		q, ok := a.Catalog.Queue(p.Queue)
		if a.Viewer == nil || !ok {
			continue
		}
		if standing, err := a.Viewer.Standing(ctx, q); err == nil {
			found[p.Queue].Subscription = standing
		}
	}
	return found, nil
}
