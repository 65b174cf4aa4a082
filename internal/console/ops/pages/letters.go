package pages

import (
	"net/http"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"

	"billhook/internal/console/ops"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/platform/audit"
	"billhook/internal/platform/serve"
)

func (p *Pages) letterRoutes(r chi.Router) {
	p.page(r, "/dead-letters", "letters.html", p.letters)
	for _, kind := range deadletter.Kinds {
		load := func(v *visit) (any, error) { return p.confirm(v, kind) }
		act := func(v *visit) (string, error) { return p.begin(v, kind) }
		p.change(r, "/dead-letters/"+string(kind), "letters_begin.html", load, act)
	}
	p.page(r, "/dead-letters/{id}", "letter.html", loads[ops.Letter](named("/v1/ops/dead-letters/%s", "id")))
}

// letters is a page of dead letters, and on the first page of open ones how many there are of each reason.
type letters struct {
	ops.DeadLetters
	Reasons []deadletter.Reason
	// Queues and States are what there is to choose from.
	Queues, States []string
	// Queue is the id of the queue that the list is of; empty: it is of all.
	Queue string
	// Open: the list is of what an operation can deal with.
	Open bool
	// Narrowed: something is filtered by but queue and state.
	Narrowed bool
	// All is the query of a form that begins an operation on all that match.
	All string
}

// letterFilters are the parameters of a list of dead letters but its state, as the API has them.
var letterFilters = []string{"queue", "reason", "type", "event_id", "key", "since", "until"}

func (p *Pages) letters(v *visit) (any, error) {
	view := letters{}
	for _, state := range deadletter.States {
		view.States = append(view.States, string(state))
	}
	view.States = append(view.States, "all")
	for _, q := range p.Catalog.Queues {
		if !q.DeadLetter.Drop {
			view.Queues = append(view.Queues, q.ID)
		}
	}
	if q, ok := p.Catalog.DeadLetters(v.query("queue")); ok {
		view.Queue = q.ID
	}
	list, reasons := with("/v1/ops/dead-letters", "state", v.query("state"), "limit", rows, "page", v.query("page")), "/v1/ops/dead-letters/reasons"
	view.All = "?"
	for _, name := range letterFilters {
		value := strings.TrimSpace(v.query(name))
		list, reasons, view.All = with(list, name, value), with(reasons, name, value), with(view.All, name, value)
		view.Narrowed = view.Narrowed || (name != "queue" && value != "")
	}
	if err := v.get(list, &view.DeadLetters); err != nil {
		return view, v.refused(err)
	}
	view.Open = v.query("state") == "" || v.query("state") == string(deadletter.Open)
	if !view.Open || v.query("page") != "" {
		return view, nil
	}
	var counted ops.List[deadletter.Reason]
	err := v.get(reasons, &counted)
	view.Reasons = counted.Items
	return view, err
}

var verbs = map[deadletter.Kind]string{deadletter.Replay: "Replay", deadletter.Discard: "Discard", deadletter.Complete: "Complete by hand"}

// would is what an operation of a kind would touch, and what would become of some of it now.
type would struct {
	Kind deadletter.Kind
	ops.Preview
}

type beginning struct {
	deadletter.Filter
	Would would
	// Back is the list of what would be touched.
	Back string
	// FourEyes: somebody else has to approve it. Refusal is why this person cannot begin it then; nil: they can.
	FourEyes bool
	Refusal  error
	// Rate is how many a second are replayed unless the form says otherwise, and Most how many it may say.
	Rate, Most int
}

var (
	errNoneChosen = serve.Refuse(http.StatusUnprocessableEntity, "none_chosen", "Choose at least one dead letter, or take all that match.")
	errSpan       = serve.Refuse(http.StatusUnprocessableEntity, "span_invalid", "Since and until are a time such as 2026-11-21T09:00:00Z, or an age such as 36h or 7d.")
	errNoReason   = serve.Refuse(http.StatusUnprocessableEntity, "reason_needed", "Say why: the reason is kept in the audit.")
)

// chosen is what the address chooses: some dead letters by their ids, or all that match. An age in it
// counts back from the time at which the form was shown, which the form sends along.
func (v *visit) chosen() (deadletter.Filter, error) {
	f := deadletter.Filter{
		Queue: v.query("queue"), Reason: strings.TrimSpace(v.query("reason")), EventType: strings.TrimSpace(v.query("type")),
		EventID: strings.TrimSpace(v.query("event_id")), OrderingKey: strings.TrimSpace(v.query("key")), Items: v.request.URL.Query()["item"],
	}
	if v.query("chosen") != "" && len(f.Items) == 0 {
		return f, errNoneChosen
	}
	for name, at := range map[string]*time.Time{"since": &f.Since, "until": &f.Until} {
		text := v.form(name)
		if text == "" {
			text = strings.TrimSpace(v.query(name))
		}
		if text == "" {
			continue
		}
		var err error
		if *at, err = time.Parse(time.RFC3339Nano, text); err == nil {
			continue
		}
		age, err := ops.ParseAge(text)
		if err != nil {
			return f, errSpan
		}
		*at = v.now.Add(-age).Truncate(time.Microsecond)
	}
	return f, nil
}

func asked(path string, f deadletter.Filter) string {
	path = with(path, "queue", f.Queue, "reason", f.Reason, "type", f.EventType, "event_id", f.EventID, "key", f.OrderingKey, "items", strings.Join(f.Items, ","))
	for name, at := range map[string]time.Time{"since": f.Since, "until": f.Until} {
		if !at.IsZero() {
			path = with(path, name, at.Format(time.RFC3339Nano))
		}
	}
	return path
}

func (p *Pages) confirm(v *visit, kind deadletter.Kind) (any, error) {
	f, err := v.chosen()
	view := beginning{Filter: f, Would: would{Kind: kind}, Rate: deadletter.Rate, Most: deadletter.MaxRate}
	view.Back = "/ops/dead-letters"
	for _, name := range letterFilters {
		view.Back = with(view.Back, name, v.query(name))
	}
	if err != nil {
		return view, v.refused(err)
	}
	if err := v.get(asked("/v1/ops/dead-letters/preview", f), &view.Would.Preview); err != nil {
		return view, v.refused(err)
	}
	if q, ok := p.Catalog.DeadLetters(f.Queue); ok {
		view.Queue, view.FourEyes = q.ID, q.FourEyes
	}
	if view.FourEyes {
		view.Refusal = audit.TwoPeople("", ops.Author(v.ctx))
	}
	return view, nil
}

func (p *Pages) begin(v *visit, kind deadletter.Kind) (string, error) {
	f, err := v.chosen()
	if err != nil {
		return "", err
	}
	if strings.TrimSpace(v.form("why")) == "" {
		return "", errNoReason
	}
	expect, err := v.whole("expect")
	if err != nil {
		return "", err
	}
	request := ops.Request{Filter: f, Why: v.form("why"), Expect: int(expect), Force: v.form("force") != ""}
	if kind == deadletter.Replay {
		if request.Rate, err = v.whole("rate"); err != nil {
			return "", err
		}
	}
	var op deadletter.Operation
	if err := v.post("/v1/ops/dead-letters/"+string(kind), request, &op); err != nil {
		return "", err
	}
	return v.started(op)
}

// started lets an operation that may run do what it does within this request.
func (v *visit) started(op deadletter.Operation) (string, error) {
	if op.Progress == deadletter.Running {
		_, _ = v.partly(http.MethodPost, href("/v1/ops/operations/%s/run", op.ID), nil, nil) // it has begun, whatever comes of this
	}
	return href("/ops/operations/%s", op.ID), nil
}

// operationRoutes adds the operations on dead letters, and what people decide about one.
func (p *Pages) operationRoutes(r chi.Router) {
	p.page(r, "/operations", "operations.html", p.operations)
	p.page(r, "/operations/{id}", "operation.html", p.operation)
	for _, step := range steps {
		load := func(v *visit) (any, error) { return p.stepNow(v, step) }
		act := func(v *visit) (string, error) { return p.take(v, step) }
		p.change(r, "/operations/{id}/"+step.Name, "operation_step.html", load, act)
	}
}

type operations struct {
	ops.List[deadletter.Operation]
	Stages []deadletter.Progress
}

func (p *Pages) operations(v *visit) (any, error) {
	view := operations{Stages: []deadletter.Progress{deadletter.Waiting, deadletter.Running, deadletter.Finished, deadletter.Cancelled, deadletter.Rejected}}
	err := v.get(with("/v1/ops/operations", "progress", v.query("progress"), "limit", rows, "page", v.query("page")), &view.List)
	return view, err
}

type operation struct {
	ops.Operation
	Touched ops.DeadLetters
	// States are those to choose from, and State the one that is shown; empty: all.
	States []deadletter.State
	State  string
	// Own: who looks has begun it, and so cannot reject it. Refusal is why they cannot approve it; nil: they can.
	Own     bool
	Refusal error
	// Live: something is still to come of it.
	Live bool
}

func (p *Pages) operation(v *visit) (any, error) {
	view := operation{State: v.query("state"), States: deadletter.States}
	if err := v.get(href("/v1/ops/operations/%s", v.param("id")), &view.Operation); err != nil {
		return view, err
	}
	view.Own, view.Refusal = view.Who == ops.Who(v.ctx), audit.TwoPeople(view.Who, ops.Author(v.ctx))
	view.Live = !view.Progress.Over() || (view.Outcomes != nil && view.Outcomes.Waiting > 0)
	items := with(href("/v1/ops/operations/%s/items", v.param("id")), "state", view.State, "limit", rows, "page", v.query("page"))
	return view, v.get(items, &view.Touched)
}

type step struct {
	// Name is the last part of its address, here and in the API.
	Name string
	// Title begins its heading and its button.
	Title, Note string
	// Reason: it needs one.
	Reason bool
}

var steps = []step{
	{Name: "approve", Title: "Approve", Note: "It begins to run at once. Your name and your reason stand in it beside those of the person who has asked for it.", Reason: true},
	{Name: "reject", Title: "Reject", Note: "Nothing of it is done, now or later.", Reason: true},
	{Name: "cancel", Title: "Cancel", Note: "What it has done stays done, and no other dead letter is touched.", Reason: true},
	{Name: "run", Title: "Go on with", Note: "It goes on for a few seconds at once. Without that a task goes on with it every minute."},
}

type stepped struct {
	deadletter.Operation
	Step step
	// Would is what an approval would touch, made anew.
	Would would
}

func (p *Pages) stepNow(v *visit, s step) (any, error) {
	view := stepped{Step: s}
	if err := v.get(href("/v1/ops/operations/%s", v.param("id")), &view.Operation); err != nil || s.Name != "approve" {
		return view, err
	}
	view.Would.Kind = view.Kind
	return view, v.get(href("/v1/ops/operations/%s/preview", v.param("id")), &view.Would.Preview)
}

func (p *Pages) take(v *visit, s step) (string, error) {
	var question any
	switch {
	case s.Name == "approve":
		expect, err := v.whole("expect")
		if err != nil {
			return "", err
		}
		question = ops.Approval{Why: v.form("why"), Expect: int(expect)}
	case s.Reason:
		question = ops.Reason{Why: v.form("why")}
	}
	path, op := href("/v1/ops/operations/%s/", v.param("id"))+s.Name, deadletter.Operation{}
	if s.Name == "run" {
		_, err := v.partly(http.MethodPost, path, nil, nil)
		return href("/ops/operations/%s", v.param("id")), err
	}
	if err := v.post(path, question, &op); err != nil {
		return "", err
	}
	return v.started(op)
}
