package ops

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/go-json-experiment/json/jsontext"

	"billhook/internal/deadletter"
	"billhook/internal/serve"
)

// runTime is how long one request runs an operation. The client asks again.
const runTime = 20 * time.Second

func (a *API) deadLetterRoutes(r chi.Router) {
	r.Get("/dead-letters", answer(a, a.listDeadLetters))
	r.Get("/dead-letters/preview", answer(a, a.previewDeadLetters))
	r.Get("/dead-letters/{id}", answer(a, a.showDeadLetter))
	r.Post("/dead-letters/replay", serve.Answer(http.StatusCreated, a.begin(deadletter.Replay), a.refuse))
	r.Post("/dead-letters/discard", serve.Answer(http.StatusCreated, a.begin(deadletter.Discard), a.refuse))
	r.Get("/operations", answer(a, a.listOperations))
	r.Get("/operations/{id}", answer(a, a.showOperation))
	r.Post("/operations/{id}/approve", answer(a, a.approve))
	r.Post("/operations/{id}/run", answer(a, a.runOperation))
}

// DeadLetters is a page of dead letters.
type DeadLetters = List[deadletter.Item]

// Letter is one dead letter with its minimized message.
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
	// Expect is the total of the preview.
	Expect int `json:"expect"`
	// Rate is how many items a second are replayed at most; 0: 50.
	Rate  int64 `json:"rate"`
	Force bool  `json:"force"`
}

// filters are the parameters that choose dead letters.
var filters = []string{"queue", "reason", "type", "event_id", "key", "item", "since", "until"}

// filter reads what chooses dead letters; the queue is required.
func (a *API) filter(params *parameters) (deadletter.Filter, error) {
	now := a.Now()
	f := deadletter.Filter{
		Queue: params.values.Get("queue"), Reason: params.id("reason"), EventType: params.id("type"), EventID: params.id("event_id"),
		OrderingKey: params.key("key"), Item: params.values.Get("item"),
		Since: params.at("since", now, time.Time{}), Until: params.at("until", now, time.Time{}),
	}
	if err := params.err(); err != nil {
		return f, err
	}
	return f, a.known(&f)
}

// known replaces the name of the queue, or of its dead letters, by the queue's id.
func (a *API) known(f *deadletter.Filter) error {
	q, ok := a.Catalog.DeadLetters(f.Queue)
	if !ok {
		return serve.Refuse(http.StatusNotFound, "queue_unknown", "Name a queue of the catalog, or its dead letters, by id or alias.")
	}
	f.Queue = q.ID
	return nil
}

func (a *API) listDeadLetters(r *http.Request) (DeadLetters, error) {
	params := read(r, append([]string{"state", "limit", "page"}, filters...)...)
	state := oneOf(params, deadletter.Open, deadletter.Replayed, deadletter.Processed, deadletter.Corrected, deadletter.Discarded)
	limit := params.limit(most, most)
	f, err := a.filter(params)
	if err != nil {
		return DeadLetters{}, err
	}
	items, next, err := a.Operator.List(r.Context(), f, state, params.values.Get("page"), limit)
	return listOf(items, next), err
}

func (a *API) previewDeadLetters(r *http.Request) (deadletter.Preview, error) {
	f, err := a.filter(read(r, filters...))
	if err != nil {
		return deadletter.Preview{}, err
	}
	return a.Operator.Preview(r.Context(), f)
}

func (a *API) showDeadLetter(r *http.Request) (Letter, error) {
	item, err := a.Operator.Show(r.Context(), param(r, "id"))
	letter := Letter{Item: item, Attributes: item.Attributes}
	if data := jsontext.Value(item.Data); data.IsValid(jsontext.AllowDuplicateNames(true)) {
		letter.Data = data
	} else {
		letter.Base64 = data
	}
	return letter, err
}

func (a *API) begin(kind deadletter.Kind) func(*http.Request) (deadletter.Operation, error) {
	return func(r *http.Request) (op deadletter.Operation, err error) {
		var request Request
		if err = readJSON(r, &request, "Send JSON: queue, expect, why, and what else narrows the choice, each name once."); err == nil {
			err = a.known(&request.Filter)
		}
		if err != nil {
			return op, err
		}
		op, err = a.Operator.Begin(r.Context(), deadletter.Operation{
			Kind: kind, Filter: request.Filter, Who: Who(r.Context()), Why: request.Why, Force: request.Force, Rate: request.Rate,
		}, request.Expect)
		return a.logged(r, "begun", op, err)
	}
}

func (a *API) listOperations(r *http.Request) (List[deadletter.Operation], error) {
	params := read(r, "progress", "limit", "page")
	limit, progress := params.limit(most, most), deadletter.Progress(params.values.Get("progress"))
	if err := params.err(); err != nil {
		return List[deadletter.Operation]{}, err
	}
	found, next, err := a.Operator.Operations(r.Context(), progress, params.values.Get("page"), limit)
	return listOf(found, next), err
}

func (a *API) showOperation(r *http.Request) (deadletter.Operation, error) {
	return a.Operator.Operation(r.Context(), param(r, "id"))
}

func (a *API) approve(r *http.Request) (deadletter.Operation, error) {
	who := Who(r.Context())
	if strings.HasPrefix(who, byToken) {
		return deadletter.Operation{}, serve.Refuse(http.StatusForbidden, "identity_needed", "A token says nothing about who holds it: a second person needs an identity of their own.")
	}
	op, err := a.Operator.Approve(r.Context(), param(r, "id"), who)
	return a.logged(r, "approved", op, err)
}

func (a *API) runOperation(r *http.Request) (deadletter.Operation, error) {
	ctx, cancel := context.WithTimeout(r.Context(), runTime)
	defer cancel()
	op, err := a.Operator.Run(ctx, param(r, "id"))
	return a.logged(r, "run", op, err)
}

// logged logs a step of an operation that was taken, and passes the operation on.
func (a *API) logged(r *http.Request, step string, op deadletter.Operation, err error) (deadletter.Operation, error) {
	if err == nil {
		a.Log.LogAttrs(r.Context(), slog.LevelInfo, "operation", slog.String("step", step), slog.String("operation", op.ID), slog.String("kind", string(op.Kind)),
			slog.String("queue", op.Filter.Queue), slog.String("progress", string(op.Progress)),
			slog.Int64("total", op.Total), slog.Int64("done", op.Done))
	}
	return op, err
}
