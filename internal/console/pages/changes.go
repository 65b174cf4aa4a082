package pages

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"reflect"
	"strings"

	"billhook/internal/console"
	"billhook/internal/platform/serve"
)

var errNoneChosen = serve.Refuse(http.StatusUnprocessableEntity, "none_chosen",
	"Choose at least one of the list, or take all that match.")

func (p *Pages) form(v *visit, o console.Operation) (view declaredView, err error) {
	view = declaredView{
		Summary: o.Summary, Help: o.Help, Noun: o.Noun(), ID: v.param(lastParam(o)), Button: title(verb(o)),
		Others: map[string]any{},
	}
	view.Title = named(o, view.ID)
	view.Back, view.Reason = p.back(v, o), o.Needs >= console.Reason
	if before, ok := p.Declared.Find(o.Before); ok {
		if v.query("chosen") != "" && v.query("items") == "" {
			err = errNoneChosen
		} else {
			view.Answer, err = p.ask(v, before)
		}
		if view.Absent = notFound(err); view.Absent == nil && v.refused(err) != nil {
			return view, err
		}
		if view.Answer != nil {
			p.show(v, &view, before, view.Answer)
		}
	}
	for _, name := range o.Beside {
		if view.Others[name], err = p.ask(v, p.row(name)); err != nil {
			return view, err
		}
	}
	for _, f := range o.Fields {
		made := input{
			Field: f, Label: title(f.Name), Value: cmp.Or(v.form(f.Name), v.query(f.Name), f.Standard),
			Number: f.Type.Kind() == reflect.Int64, Hidden: f.Expects != "",
		}
		if made.Hidden {
			made.Value = console.Member(view.Answer, f.Expects)
		}
		if f.In == console.InBody && f.Name != "why" && f.Typed() && (!made.Hidden || made.Value != "") {
			view.Fields = append(view.Fields, made)
		}
	}
	return view, nil
}

// act makes the change that a form requests, and returns the address that shows its outcome. An answer
// without an address, such as a new secret, it shows itself.
func (p *Pages) act(v *visit, o console.Operation) (next string, err error) {
	if o.Follow == o.Name {
		return p.follow(v, o, v.param(lastParam(o)))
	}
	answer, err := p.ask(v, o)
	switch {
	case err != nil:
		return "", err
	case o.Follow != "":
		next, _ = p.follow(v, p.row(o.Follow), console.Member(answer, "id")) // the change itself was made
		return next, nil
	case !o.Once:
		return p.back(v, o), nil
	}
	view := declaredView{Title: named(o, ""), Noun: o.Noun(), Back: p.back(v, o), Done: true}
	p.show(v, &view, o, answer)
	p.render(v, http.StatusOK, "declared_form.html", view)
	return "", nil
}

// follow continues an operation for most of the time that a page may take. Its progress is stored.
func (p *Pages) follow(v *visit, o console.Operation, id string) (string, error) {
	ctx, cancel := context.WithTimeout(v.ctx, p.Longest*3/4)
	defer cancel()
	_, err := p.API.Call(ctx, o, console.Input{Path: map[string]string{lastParam(o): id}})
	if errors.Is(err, context.DeadlineExceeded) && v.ctx.Err() == nil {
		err = nil
	}
	return pageWith(p.row(o.Before), id), err
}

// back returns the address that shows the outcome of a change.
func (p *Pages) back(v *visit, o console.Operation) string {
	pattern := strings.TrimSuffix(strings.TrimSuffix(pageOf(o), "/"+o.Verb()), "/-")
	if o.Verb() == "rm" {
		pattern = "/ops/" + o.Noun()
	}
	return p.at(v, pattern)
}
