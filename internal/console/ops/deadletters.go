package ops

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/go-json-experiment/json/jsontext"

	"billhook/internal/pipeline/deadletter"
	"billhook/internal/platform/serve"
	"billhook/internal/platform/store"
)

// runTime is how long one request runs an operation. The client asks again.
const runTime = 20 * time.Second

func (a *API) deadLetterRoutes(r chi.Router) {
	r.Get("/dead-letters", answer(a, a.listDeadLetters))
	r.Get("/dead-letters/preview", answer(a, a.previewDeadLetters))
	r.Get("/dead-letters/reasons", answer(a, a.countReasons))
	r.Get("/dead-letters/{id}", answer(a, a.showDeadLetter))
	for _, kind := range deadletter.Kinds {
		r.Post("/dead-letters/"+string(kind), serve.Answer(http.StatusCreated, a.begin(kind), a.refuse))
	}
	r.Get("/operations", answer(a, a.listOperations))
	r.Get("/operations/{id}", answer(a, a.showOperation))
	r.Get("/operations/{id}/items", answer(a, a.operationItems))
	r.Get("/operations/{id}/preview", answer(a, a.previewOperation))
	r.Post("/operations/{id}/approve", answer(a, a.approve))
	r.Post("/operations/{id}/cancel", answer(a, a.end("cancelled", a.Operator.Cancel)))
	r.Post("/operations/{id}/reject", answer(a, a.end("rejected", a.Operator.Reject)))
	r.Post("/operations/{id}/run", answer(a, a.runOperation))
}

// DeadLetters is a page of dead letters.
type DeadLetters = List[deadletter.Item]

// Letter is one dead letter with the attributes of its message.
type Letter struct {
	deadletter.Item
	Attributes map[string]string `json:"attributes"`
	// Later is what came after it; absent where nothing follows it in order, or it is not open.
	Later *Later `json:"later,omitempty"`
	// Size is the size of the minimized payload that is kept, in bytes.
	Size int64 `json:"payload_bytes"`
	// Data is that payload where it is JSON; else Base64 has it. Both are there for somebody who has
	// asked for the payload.
	Data   jsontext.Value `json:"data,omitempty"`
	Base64 []byte         `json:"data_base64,omitempty"`
}

// Request asks for an operation.
type Request struct {
	deadletter.Filter
	Why string `json:"why"`
	// Expect is the total of the preview.
	Expect int `json:"expect"`
	// Rate is how many items a second are replayed at most; 0: 50.
	Rate  int64 `json:"rate"`
	Force bool  `json:"force"`
}

// chosen are the parameters that choose dead letters, and filters those with the ids of some.
var (
	chosen  = []string{"queue", "reason", "type", "event_id", "key", "since", "until"}
	filters = append([]string{"item", "items"}, chosen...)
)

func (a *API) filter(params *parameters) (deadletter.Filter, error) {
	f, err := a.choice(params)
	if err == nil {
		err = a.known(&f)
	}
	return f, err
}

func (a *API) choice(params *parameters) (deadletter.Filter, error) {
	now := a.Now()
	f := deadletter.Filter{
		Queue: params.values.Get("queue"), Reason: params.id("reason"), EventType: params.id("type"), EventID: params.id("event_id"),
		OrderingKey: params.key("key"), Item: params.values.Get("item"),
		Since: params.at("since", now, time.Time{}).Truncate(time.Microsecond), Until: params.at("until", now, time.Time{}).Truncate(time.Microsecond),
	}
	if some := params.values.Get("items"); some != "" {
		f.Items = strings.Split(some, ",")
	}
	if err := params.err(); err != nil {
		return f, err
	}
	if f.Queue == "" {
		return f, nil
	}
	return f, a.known(&f)
}

func (a *API) known(f *deadletter.Filter) error {
	q, ok := a.Catalog.DeadLetters(f.Queue)
	if !ok {
		return serve.Refuse(http.StatusNotFound, "queue_unknown", "Name a queue of the catalog, or its dead letters, by id or alias.")
	}
	f.Queue = q.ID
	return nil
}

// listDeadLetters answers the dead letters of a queue or of all, the newest first by the time that they
// are kept since. A page reads what it holds, whatever the filters.
func (a *API) listDeadLetters(r *http.Request) (DeadLetters, error) {
	params := read(r, append([]string{"state", "limit", "page"}, filters...)...)
	state := oneOf(params, deadletter.States[0], deadletter.States[1:]...)
	f, err := a.choice(params)
	if err != nil {
		return DeadLetters{}, err
	}
	if f.Queue == "" && state == "" {
		return DeadLetters{}, serve.Refuse(http.StatusBadRequest, "state_invalid", "Of all queues the list has one state; name a queue for all states.")
	}
	params.values.Set("queue", f.Queue) // a page token is of the queue, by whichever name
	return paged(params, "dead-letters", Place{newest: true, since: f.Since, until: f.Until}, most, func(at Place, limit int) ([]deadletter.Item, store.Cursor, error) {
		f.Since, f.Until = at.since, at.until
		return a.Operator.List(r.Context(), f, state, at.Cursor, limit)
	})
}

// countReasons answers how many dead letters are open for which reason, the most frequent first: of one
// queue, or of all that keep theirs.
func (a *API) countReasons(r *http.Request) (List[deadletter.Reason], error) {
	f, err := a.choice(read(r, chosen...))
	if err != nil {
		return List[deadletter.Reason]{}, err
	}
	counted := make([][]deadletter.Reason, len(a.Catalog.Queues))
	err = each(r.Context(), len(counted), func(ctx context.Context, i int) (err error) {
		if q, one := a.Catalog.Queues[i], f; !q.DeadLetter.Drop && (f.Queue == "" || f.Queue == q.ID) {
			one.Queue = q.ID
			counted[i], err = a.Operator.Reasons(ctx, one)
		}
		return err
	})
	all := slices.Concat(counted...)
	slices.SortStableFunc(all, func(a, b deadletter.Reason) int { return cmp.Compare(b.Count, a.Count) })
	return pageOf(all, ""), err
}

func (a *API) showDeadLetter(r *http.Request) (Letter, error) {
	item, err := a.Operator.Show(r.Context(), param(r, "id"))
	letter := letterOf(item)
	if err == nil {
		letter.Later, err = a.later(r.Context(), item)
	}
	return letter, err
}

// letterOf is a dead letter without its payload.
func letterOf(item deadletter.Item) Letter {
	return Letter{Item: item, Attributes: item.Attributes, Size: int64(len(item.Data))}
}

func (a *API) begin(kind deadletter.Kind) func(*http.Request) (deadletter.Operation, error) {
	return func(r *http.Request) (op deadletter.Operation, err error) {
		var request Request
		if err = readChange(r, &request, "Send JSON: queue, expect, why, and what else narrows the choice, each name once."); err == nil {
			err = a.known(&request.Filter)
		}
		if err != nil {
			return op, err
		}
		op, err = a.Operator.Begin(r.Context(), deadletter.Operation{
			Kind: kind, Filter: request.Filter, Why: request.Why, Force: request.Force, Rate: request.Rate,
		}, Author(r.Context()), request.Expect)
		return a.logged(r, "begun", op, err)
	}
}

// listOperations answers operations, the newest first by the time that they were begun at.
func (a *API) listOperations(r *http.Request) (List[deadletter.Operation], error) {
	params := read(r, "progress", "limit", "page")
	progress := deadletter.Progress(params.values.Get("progress"))
	return paged(params, "operations", Place{newest: true}, most, func(at Place, limit int) ([]deadletter.Operation, store.Cursor, error) {
		return a.Operator.Operations(r.Context(), progress, at.Cursor, limit)
	})
}

// Operation is one operation, and what became of what it has replayed.
type Operation struct {
	deadletter.Operation
	// Outcomes is there for a replay.
	Outcomes *deadletter.Outcomes `json:"outcomes,omitempty"`
}

func (a *API) showOperation(r *http.Request) (Operation, error) {
	op, err := a.Operator.Operation(r.Context(), param(r, "id"))
	if err != nil || op.Kind != deadletter.Replay {
		return Operation{Operation: op}, err
	}
	outcomes, err := a.Operator.Outcomes(r.Context(), op)
	return Operation{op, &outcomes}, err
}

func (a *API) operationItems(r *http.Request) (DeadLetters, error) {
	params := read(r, "state", "limit", "page")
	state := deadletter.State("")
	if params.values.Get("state") != "" {
		state = oneOf(params, deadletter.States[0], deadletter.States[1:]...)
	}
	return paged(params, r.URL.Path, Place{}, most, func(at Place, limit int) ([]deadletter.Item, store.Cursor, error) {
		return a.Operator.Items(r.Context(), param(r, "id"), state, at.Cursor, limit)
	})
}

// Reason is the body of a request that changes something and names nothing else.
type Reason struct {
	Why string `json:"why"`
}

func (a *API) end(step string, does func(ctx context.Context, id, who, why string) (deadletter.Operation, error)) func(*http.Request) (deadletter.Operation, error) {
	return func(r *http.Request) (op deadletter.Operation, err error) {
		var reason Reason
		if err = readChange(r, &reason, "Send JSON: why."); err != nil {
			return op, err
		}
		op, err = does(r.Context(), param(r, "id"), Who(r.Context()), reason.Why)
		return a.logged(r, step, op, err)
	}
}

// Approval is the word of a second person.
type Approval struct {
	Why string `json:"why"`
	// Expect is the total of the operation's preview.
	Expect int `json:"expect"`
}

func (a *API) approve(r *http.Request) (op deadletter.Operation, err error) {
	var approval Approval
	if err = readChange(r, &approval, "Send JSON: why, and expect, the total of the operation's preview."); err != nil {
		return op, err
	}
	op, err = a.Operator.Approve(r.Context(), param(r, "id"), Author(r.Context()), approval.Why, approval.Expect)
	return a.logged(r, "approved", op, err)
}

func (a *API) runOperation(r *http.Request) (deadletter.Operation, error) {
	ctx, cancel := context.WithTimeout(r.Context(), runTime)
	defer cancel()
	op, err := a.Operator.Run(ctx, param(r, "id"))
	return a.logged(r, "run", op, err)
}

func (a *API) logged(r *http.Request, step string, op deadletter.Operation, err error) (deadletter.Operation, error) {
	if err == nil {
		a.Log.LogAttrs(r.Context(), slog.LevelInfo, "operation", slog.String("step", step), slog.String("operation", op.ID), slog.String("kind", string(op.Kind)),
			slog.String("queue", op.Filter.Queue), slog.String("progress", string(op.Progress)),
			slog.Int64("total", op.Total), slog.Int64("done", op.Done))
	}
	return op, err
}
