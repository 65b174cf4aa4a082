package pages

import (
	"cmp"
	"net/http"
	"reflect"
	"strings"

	"billhook/internal/console"
)

func (p *Pages) form(v *visit, o console.Operation) (any, error) {
	view := declaredView{Summary: o.Summary, Help: o.Help, Noun: o.Noun(), ID: v.param(lastParam(o)), Button: title(verb(o))}
	view.Title = named(o, view.ID)
	view.Back, view.Reason = p.back(v, o), o.Needs >= console.Reason
	var seen any
	if before, ok := p.Declared.Find(o.Before); ok {
		answer, err := p.now(v, before)
		if view.Absent = notFound(err); err != nil && view.Absent == nil {
			return view, err
		}
		if answer != nil {
			seen = answer
			view.Facts, view.Tables = p.facts(v, before, answer)
			view.Notes = console.Notes(answer)
		}
	}
	for _, f := range o.Fields {
		if f.In == console.InBody && f.Name != "why" && f.Typed() && (f.Expects == "" || seen != nil) {
			made := input{Field: f, Label: title(f.Name), Value: cmp.Or(v.form(f.Name), v.query(f.Name)), Number: f.Type.Kind() == reflect.Int64, Hidden: f.Expects != ""}
			if made.Hidden {
				made.Value = console.Member(seen, f.Expects)
			}
			view.Fields = append(view.Fields, made)
		}
	}
	return view, nil
}

// once makes the change that a form asks for, and shows what it answers: that is seen at no address, such as a new secret.
func (p *Pages) once(v *visit, o console.Operation) error {
	answer, err := p.send(v, o)
	if err != nil {
		return err
	}
	view := declaredView{Title: named(o, ""), Noun: o.Noun(), Back: p.back(v, o), Done: true}
	view.Facts, view.Tables = p.facts(v, o, answer)
	view.Notes = console.Notes(answer)
	p.render(v, http.StatusOK, "declared_form.html", view)
	return nil
}

// back is the address where the outcome of a change is seen.
func (p *Pages) back(v *visit, o console.Operation) string {
	pattern := strings.TrimSuffix(strings.TrimSuffix(pageOf(o), "/"+o.Verb()), "/-")
	if o.Verb() == "rm" {
		pattern = "/ops/" + o.Noun()
	}
	return p.at(v, pattern)
}

func (p *Pages) send(v *visit, o console.Operation) (any, error) {
	return p.call(v, o, func(f console.Field) (string, bool) {
		switch f.In {
		case console.InPath:
			return v.param(f.Name), true
		case console.InQuery:
			return v.query(f.Name), true
		default:
			return v.form(f.Name), v.request.PostForm.Has(f.Name)
		}
	})
}
