package pages

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/go-chi/chi/v5"

	"billhook/internal/console"
	"billhook/internal/console/access"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/pipeline/dryrun"
	"billhook/internal/platform/audit"
	"billhook/internal/platform/serve"
)

func (p *Pages) letterRoutes(r chi.Router) {
	p.page(r, "/dead-letters", "letters.html", p.letters)
	p.page(r, "/dead-letters/{id}", "letter.html", func(v *visit) (any, error) { return look[deadletter.Kept](p, v, "dlq show") })
	for _, kind := range deadletter.Kinds {
		load := func(v *visit) (any, error) { return p.confirm(v, kind) }
		act := func(v *visit) (string, error) { return p.begin(v, kind) }
		p.change(r, "/dead-letters/-/"+string(kind), "letters_begin.html", load, act)
	}
	p.page(r, "/operations/{id}", "operation.html", p.operation)
	p.change(r, "/operations/{id}/approve", "operation_approve.html", p.approval, p.approve)
	form := func(v *visit) (any, error) { return p.form(v, p.row("operations run")) }
	p.change(r, "/operations/{id}/run", "declared_form.html", form, func(v *visit) (string, error) { return p.run(v, v.param("id")) })
}

// letters is a page of dead letters, and on the first page of open ones how many there are of each reason.
type letters struct {
	declaredView
	Reasons *grid
	Queue   string
	// Open: the list is of what an operation can deal with.
	Open bool
	All  string
}

var letterFilters = []string{"queue", "reason", "type", "event_id", "key", "since", "until"}

func (p *Pages) letters(v *visit) (any, error) {
	list, err := p.list(v, p.row("dlq ls"))
	if err != nil {
		return nil, err
	}
	view := letters{declaredView: list, All: with("?", v.filters(letterFilters...)...)}
	view.Title = "Dead letters"
	if q, ok := p.Catalog.DeadLetters(v.query("queue")); ok {
		view.Queue, view.Title = q.ID, "Dead letters of "+q.ID
	}
	view.Open = v.query("state") == "" || v.query("state") == string(deadletter.Open)
	for i := range view.Tables {
		view.Tables[i].Choose = view.Open && view.Queue != ""
	}
	var counted grid
	if view.Open && v.query("page") == "" && v.problem == nil {
		counted, err = p.table(v, p.row("dlq reasons"))
	}
	if counted.Title = "Open, by reason"; len(counted.Rows) > 0 {
		view.Reasons = &counted
	}
	return view, err
}

var verbs = map[deadletter.Kind]string{deadletter.Replay: "Replay", deadletter.Discard: "Discard", deadletter.Complete: "Complete by hand"}

// would is what an operation of a kind would touch, and what would become of some of it now.
type would struct {
	Kind deadletter.Kind
	dryrun.Preview
}

type beginning struct {
	Would would
	Back  string
	// FourEyes: somebody else has to approve it. Refusal is why this person cannot begin it then; nil: they can.
	FourEyes   bool
	Refusal    error
	Rate, Most int
}

var errNoneChosen = serve.Refuse(http.StatusUnprocessableEntity, "none_chosen", "Choose at least one dead letter, or take all that match.")

// chosen are the dead letters that the address names, by their ids; none: it means all that match.
func (v *visit) chosen() (string, error) {
	items := v.request.URL.Query()["item"]
	if v.query("chosen") != "" && len(items) == 0 {
		return "", errNoneChosen
	}
	return strings.Join(items, ","), nil
}

func (p *Pages) confirm(v *visit, kind deadletter.Kind) (any, error) {
	view := beginning{Would: would{Kind: kind}, Rate: deadletter.Rate, Most: deadletter.MaxRate}
	view.Back = with("/ops/dead-letters", v.filters(letterFilters...)...)
	items, err := v.chosen()
	if err != nil {
		return view, v.refused(err)
	}
	if view.Would.Preview, err = look[dryrun.Preview](p, v, "dlq preview", "items", items); err != nil {
		return view, v.refused(err)
	}
	if q, ok := p.Catalog.DeadLetters(view.Would.Filter.Queue); ok && q.FourEyes {
		view.FourEyes, view.Refusal = true, audit.TwoPeople("", access.Author(v.ctx))
	}
	return view, nil
}

// begin begins what the form shows. An age in the address counts back from the time at which the form was shown, which
// the form sends along.
func (p *Pages) begin(v *visit, kind deadletter.Kind) (string, error) {
	items, err := v.chosen()
	if err != nil {
		return "", err
	}
	answer, err := p.call(v, p.row("dlq "+string(kind)), func(f console.Field) (string, bool) {
		text := v.query(map[string]string{"queue": "queue", "reason": "reason", "event_id": "event_id", "event_type": "type", "ordering_key": "key"}[f.Name])
		if f.Name == "items" {
			text = items
		}
		text += v.form(f.Name)
		return text, text != ""
	})
	if err != nil {
		return "", err
	}
	return p.started(v, answer)
}

func (p *Pages) started(v *visit, answer any) (string, error) {
	op, _ := answer.(deadletter.Operation)
	if op.Progress == deadletter.Running {
		_, _ = p.run(v, op.ID) // it has begun, whatever comes of this
	}
	return href("/ops/operations/%s", op.ID), nil
}

// run goes on with an operation for most of the time that a page may take. What it has done until then stays done.
func (p *Pages) run(v *visit, id string) (string, error) {
	ctx, cancel := context.WithTimeout(v.ctx, p.Longest*3/4)
	defer cancel()
	_, err := p.API.Call(ctx, p.row("operations run"), console.Input{Path: map[string]string{"id": id}})
	if errors.Is(err, context.DeadlineExceeded) && v.ctx.Err() == nil {
		err = nil
	}
	return href("/ops/operations/%s", id), err
}

type operation struct {
	deadletter.Operation
	Facts   []cell
	Touched grid
	// Own: who looks has begun it, and so cannot reject it. Refusal is why they cannot approve it; nil: they can.
	Own     bool
	Refusal error
	Live    bool
	Would   would
}

func (p *Pages) operation(v *visit) (any, error) {
	shown, err := look[deadletter.Operation](p, v, "operations show")
	view := operation{Operation: shown}
	if err != nil {
		return view, err
	}
	view.Facts, _ = p.facts(v, p.row("operations show"), shown)
	view.Own, view.Refusal = audit.SamePerson(view.Who, access.Who(v.ctx)), audit.TwoPeople(view.Who, access.Author(v.ctx))
	view.Live = !view.Progress.Over() || (view.Outcomes != nil && view.Outcomes.Waiting > 0)
	view.Touched, err = p.table(v, p.row("operations items"))
	return view, err
}

func (p *Pages) approval(v *visit) (any, error) {
	op, err := look[deadletter.Operation](p, v, "operations show")
	if err != nil {
		return nil, err
	}
	preview, err := look[dryrun.Preview](p, v, "operations preview")
	return operation{Operation: op, Would: would{op.Kind, preview}}, err
}

func (p *Pages) approve(v *visit) (string, error) {
	answer, err := p.send(v, p.row("operations approve"))
	if err != nil {
		return "", err
	}
	return p.started(v, answer)
}
