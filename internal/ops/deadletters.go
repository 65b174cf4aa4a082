package ops

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/go-json-experiment/json/jsontext"

	"billhook/internal/deadletter"
	"billhook/internal/serve"
	"billhook/internal/store"
)

// runTime is how long one request runs an operation; its caller asks again.
const runTime = 20 * time.Second

// deadLetterRoutes adds what there is about dead letters.
func (a *API) deadLetterRoutes(r chi.Router) {
	r.Get("/dead-letters", a.listDeadLetters)
	r.Get("/dead-letters/preview", a.previewDeadLetters)
	r.Get("/dead-letters/{id}", a.showDeadLetter)
	r.Post("/dead-letters/replay", a.begin(deadletter.Replay))
	r.Post("/dead-letters/discard", a.begin(deadletter.Discard))
	r.Get("/operations", a.listOperations)
	r.Get("/operations/{id}", a.showOperation)
	r.Post("/operations/{id}/approve", a.approve)
	r.Post("/operations/{id}/run", a.runOperation)
}

// DeadLetters is a page of them.
type DeadLetters struct {
	Items []deadletter.Item `json:"items"`
	Next  string            `json:"next"`
}

// Letter is one dead letter with its message: minimized, as it was on the topic.
type Letter struct {
	deadletter.Item
	Attributes map[string]string `json:"attributes"`
	// Data is the payload where it is JSON; else Base64 has it.
	Data   jsontext.Value `json:"data,omitempty"`
	Base64 []byte         `json:"data_base64,omitempty"`
}

// Request asks for a replay or a discard.
type Request struct {
	deadletter.Filter
	Why string `json:"why"`
	// Expect is how many items the preview showed.
	Expect int `json:"expect"`
	// Rate is how many items a second are replayed at most; 0: 50.
	Rate  int64 `json:"rate"`
	Force bool  `json:"force"`
}

// Operations is a page of them.
type Operations struct {
	Items []deadletter.Operation `json:"items"`
	Next  string                 `json:"next"`
}

// filters are the parameters that choose dead letters.
var filters = []string{"queue", "reason", "type", "event_id", "key", "item", "since", "until"}

// filter reads what chooses dead letters; the queue is required. It has answered where
// ok is false.
func (a *API) filter(w http.ResponseWriter, asked *asked) (f deadletter.Filter, ok bool) {
	now := a.Now()
	f = deadletter.Filter{
		Queue: asked.values.Get("queue"), Reason: asked.id("reason"), EventType: asked.id("type"), EventID: asked.id("event_id"),
		OrderingKey: asked.key("key"), Item: asked.values.Get("item"),
		Since: asked.at("since", now, time.Time{}), Until: asked.at("until", now, time.Time{}),
	}
	return f, !asked.refused(w) && a.known(w, &f)
}

// known turns an alias into the queue's id.
func (a *API) known(w http.ResponseWriter, f *deadletter.Filter) bool {
	q, ok := a.Catalog.Queue(f.Queue)
	if !ok {
		serve.WriteProblem(w, http.StatusNotFound, "queue_unknown", "Name a queue of the catalog, by id or alias.")
		return false
	}
	f.Queue = q.ID
	return true
}

func (a *API) listDeadLetters(w http.ResponseWriter, r *http.Request) {
	asked := read(r, append([]string{"state", "limit", "page"}, filters...)...)
	state := deadletter.State(asked.values.Get("state"))
	switch state {
	case "":
		state = deadletter.Open
	case "all":
		state = ""
	case deadletter.Open, deadletter.Replayed, deadletter.Corrected, deadletter.Discarded:
	default:
		asked.refuse("state_invalid", "The state is open, replayed, corrected, discarded or all.")
	}
	limit := asked.limit(most, most)
	f, ok := a.filter(w, asked)
	if !ok {
		return
	}
	items, next, err := a.Operator.List(r.Context(), f, state, asked.values.Get("page"), limit)
	if a.failed(w, r, err) {
		return
	}
	serve.WriteJSON(w, http.StatusOK, DeadLetters{Items: append([]deadletter.Item{}, items...), Next: next})
}

func (a *API) previewDeadLetters(w http.ResponseWriter, r *http.Request) {
	f, ok := a.filter(w, read(r, filters...))
	if !ok {
		return
	}
	preview, err := a.Operator.Preview(r.Context(), f)
	if a.failed(w, r, err) {
		return
	}
	serve.WriteJSON(w, http.StatusOK, preview)
}

func (a *API) showDeadLetter(w http.ResponseWriter, r *http.Request) {
	item, err := a.Operator.Show(r.Context(), param(r, "id"))
	if a.failed(w, r, err) {
		return
	}
	letter := Letter{Item: item, Attributes: item.Attributes}
	if data := jsontext.Value(item.Data); data.IsValid(jsontext.AllowDuplicateNames(true)) {
		letter.Data = data
	} else {
		letter.Base64 = data
	}
	serve.WriteJSON(w, http.StatusOK, letter)
}

func (a *API) begin(kind deadletter.Kind) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var request Request
		if !readJSON(w, r, &request, "Send JSON: queue, expect, why, and what else narrows the choice, each name once.") || !a.known(w, &request.Filter) {
			return
		}
		op, err := a.Operator.Begin(r.Context(), deadletter.Operation{
			Kind: kind, Filter: request.Filter, Who: Who(r.Context()), Why: request.Why, Force: request.Force, Rate: request.Rate,
		}, request.Expect)
		if a.failed(w, r, err) {
			return
		}
		a.tell(r, "begun", op)
		serve.WriteJSON(w, http.StatusCreated, op)
	}
}

func (a *API) listOperations(w http.ResponseWriter, r *http.Request) {
	asked := read(r, "progress", "limit", "page")
	limit := asked.limit(most, most)
	if asked.refused(w) {
		return
	}
	found, next, err := a.Operator.Operations(r.Context(), deadletter.Progress(asked.id("progress")), asked.values.Get("page"), limit)
	if a.failed(w, r, err) {
		return
	}
	serve.WriteJSON(w, http.StatusOK, Operations{Items: append([]deadletter.Operation{}, found...), Next: next})
}

func (a *API) showOperation(w http.ResponseWriter, r *http.Request) {
	op, err := a.Operator.Operation(r.Context(), param(r, "id"))
	if a.failed(w, r, err) {
		return
	}
	serve.WriteJSON(w, http.StatusOK, op)
}

func (a *API) approve(w http.ResponseWriter, r *http.Request) {
	who := Who(r.Context())
	if strings.HasPrefix(who, byToken) {
		serve.WriteProblem(w, http.StatusForbidden, "identity_needed", "A token says nothing about who holds it: a second person needs an identity of their own.")
		return
	}
	op, err := a.Operator.Approve(r.Context(), param(r, "id"), who)
	if a.failed(w, r, err) {
		return
	}
	a.tell(r, "approved", op)
	serve.WriteJSON(w, http.StatusOK, op)
}

func (a *API) runOperation(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), runTime)
	defer cancel()
	op, err := a.Operator.Run(ctx, param(r, "id"))
	if a.failed(w, r, err) {
		return
	}
	a.tell(r, "run", op)
	serve.WriteJSON(w, http.StatusOK, op)
}

func (a *API) tell(r *http.Request, what string, op deadletter.Operation) {
	a.Log.LogAttrs(r.Context(), slog.LevelInfo, "operation", slog.String("step", what), slog.String("operation", op.ID), slog.String("kind", string(op.Kind)),
		slog.String("queue", op.Filter.Queue), slog.String("progress", string(op.Progress)),
		slog.Int64("total", op.Total), slog.Int64("done", op.Done))
}

// failed answers an error of the operator, and reports whether there was one.
func (a *API) failed(w http.ResponseWriter, r *http.Request, err error) bool {
	switch {
	case err == nil:
		return false
	case errors.Is(err, deadletter.ErrUnknown):
		serve.WriteProblem(w, http.StatusNotFound, "unknown", "There is nothing of that id.")
	case errors.Is(err, deadletter.ErrRefused):
		serve.WriteProblem(w, http.StatusUnprocessableEntity, "refused", err.Error())
	case errors.Is(err, store.ErrInvalid):
		serve.WriteProblem(w, http.StatusBadRequest, "page_invalid", "The page is the next of an earlier answer.")
	case errors.Is(err, deadletter.ErrBusy):
		serve.WriteProblem(w, http.StatusConflict, "busy", "The operation is being run; ask again.")
	default:
		a.down(w, r, err)
	}
	return true
}
