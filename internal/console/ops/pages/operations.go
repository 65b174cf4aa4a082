package pages

import (
	"net/http"

	"github.com/go-chi/chi/v5"

	"billhook/internal/console/ops"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/platform/audit"
)

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

// operations is a page of operations, and the stages to choose from.
type operations struct {
	ops.List[deadletter.Operation]
	Stages []deadletter.Progress
}

func (p *Pages) operations(v *visit) (any, error) {
	view := operations{Stages: []deadletter.Progress{deadletter.Waiting, deadletter.Running, deadletter.Finished, deadletter.Cancelled, deadletter.Rejected}}
	err := v.get(with("/v1/ops/operations", "progress", v.query("progress"), "limit", rows, "page", v.query("page")), &view.List)
	return view, err
}

// operation is one with a page of the dead letters that it was the last to deal with.
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

// step is a decision about an operation.
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

// stepped is an operation and a decision about it.
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
