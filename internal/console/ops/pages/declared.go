package pages

import (
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/go-chi/chi/v5"

	"billhook/internal/apps/orders"
	"billhook/internal/console"
	"billhook/internal/platform/serve"
)

// declaredRoutes adds a page for each operation: a list, what there is of one thing, or the form of a change.
func (p *Pages) declaredRoutes(r chi.Router) {
	if p.Declared == nil {
		return
	}
	for _, o := range p.Declared.Operations {
		address := strings.TrimPrefix(pageOf(o), "/ops")
		switch {
		case o.Needs != console.Look:
			load := func(v *visit) (any, error) { return p.form(v, o) }
			if o.Once {
				p.outcome(r, address, "declared_form.html", load, func(v *visit) (any, error) { return p.once(v, o) })
				continue
			}
			p.change(r, address, "declared_form.html", load, func(v *visit) (string, error) {
				_, err := p.send(v, o)
				return p.back(v, o), err
			})
		case o.List && !strings.Contains(o.Pattern, "{"):
			p.page(r, address, "declared_list.html", func(v *visit) (any, error) { return p.list(v, o) })
		case shaped[o.Name].file != "":
			p.page(r, address, shaped[o.Name].file, func(v *visit) (any, error) {
				answer, err := p.now(v, o)
				if err != nil {
					return nil, err
				}
				return shaped[o.Name].of(answer), nil
			})
		case !o.List:
			p.page(r, address, "declared_detail.html", func(v *visit) (any, error) { return p.detail(v, o) })
		}
	}
}

// shaped are the operations whose answer has a page of a shape of its own.
var shaped = map[string]struct {
	file string
	of   func(answer any) any
}{
	"orders show": {"order.html", func(answer any) any { o := answer.(orders.Order); return orderPage{o, machine(o)} }}, //nolint:forcetypeassert // It is that operation's.
}

// pageOf is the pattern of an operation's page: its route, with the verb behind it where another page has the route.
// Behind a list stands a mark before the verb that no id begins with.
func pageOf(o console.Operation) string {
	pattern := strings.TrimPrefix(o.Pattern, "/v1")
	if o.Needs != console.Look && !strings.Contains(pattern, "{") {
		return pattern + "/-/" + o.Verb()
	}
	if o.Needs != console.Look && !strings.HasSuffix(pattern, "/"+o.Verb()) {
		pattern += "/" + o.Verb()
	}
	return pattern
}

// cell is a value on a page. Its label is beside it or above it.
type cell struct {
	Label, Text, Href string
	// Amount: it is a number. State: it is one of a few words, which has a colour.
	Amount, State bool
	Time          time.Time
}

// cellOf is the value of a column, with the page that it leads to.
func cellOf(c console.Column, of any, tenant string) cell {
	v := c.Value(of)
	made := cell{Label: c.Label, Text: console.Text(v)}
	if !v.IsValid() {
		return made
	}
	if at, ok := v.Interface().(time.Time); ok {
		made.Time = at
	}
	if made.Amount = v.CanInt(); made.Amount {
		made.Text = number(v.Int())
	}
	made.State = v.Kind() == reflect.String && v.Type() != reflect.TypeFor[string]()
	if c.Link != "" && made.Text != "" {
		made.Href = linkTo(c.Link, tenant, made.Text)
	}
	return made
}

// linkTo is the address of the page of a noun's thing.
func linkTo(noun, tenant, id string) string { return of("/ops/"+noun+"/%s", tenant, id) }

// grid is a table of a page.
type grid struct {
	Title, Empty string
	Heads        []cell
	Rows         [][]cell
	Notes        []string
	Next         string
}

// gridOf is the table of some items.
func gridOf(columns []console.Column, items reflect.Value, tenant string) (g grid) {
	for _, c := range columns {
		if !c.Detail {
			g.Heads = append(g.Heads, cell{Label: c.Label})
		}
	}
	for i := range items.Len() {
		item, row := items.Index(i).Interface(), []cell{}
		whose := tenant
		if t := reflect.Indirect(reflect.ValueOf(item)).FieldByName("Tenant"); t.IsValid() && t.Kind() == reflect.String {
			whose = t.String()
		}
		for _, c := range columns {
			if !c.Detail {
				row = append(row, cellOf(c, item, whose))
			}
		}
		g.Rows = append(g.Rows, row)
		g.Notes = append(g.Notes, console.Notes(item)...)
		for at := range row {
			g.Heads[at].Amount = g.Heads[at].Amount || row[at].Amount
		}
	}
	return g
}

// action leads to another page of the same thing.
type action struct{ Name, Href string }

// declaredView is what the pages of operations are made of.
type declaredView struct {
	Title, Summary, Help string
	// Noun is what it is about, and ID which one; empty: it is a list.
	Noun, ID string
	Facts    []cell
	Notes    []string
	Tables   []grid
	Actions  []action
	Filters  []input
	// Absent says that there is no such thing yet; nil: there is one.
	Absent *serve.Problem
	// Fields are the form's. Button is what it does, and Back where it leads without doing it.
	Fields       []input
	Button, Back string
	// Reason: the form asks for one. Done: it was sent, and this is what came of it.
	Reason, Done bool
}

// input is a field of a form.
type input struct {
	console.Field
	Label, Value   string
	Hidden, Number bool
}

// list is the page of a list.
func (p *Pages) list(v *visit, o console.Operation) (any, error) {
	show, shows := p.Declared.Find(o.Noun() + " show")
	if id := strings.TrimSpace(v.query("id")); id != "" && shows {
		return nil, elsewhere(with(strings.Replace(pageOf(show), "{"+lastParam(show)+"}", url.PathEscape(id), 1), "tenant", v.query("tenant")))
	}
	view := declaredView{Title: title(o.Noun()), Summary: o.Summary, Noun: o.Noun()}
	table, err := p.table(v, o)
	if err != nil {
		return view, err
	}
	table.Title, view.Tables = view.Title, []grid{table}
	for _, other := range p.Declared.Operations {
		if other.Noun() == o.Noun() && other.Needs != console.Look && !strings.Contains(other.Pattern, "{") {
			view.Actions = append(view.Actions, action{title(other.Verb()), pageOf(other)})
		}
	}
	if shows {
		for _, f := range show.Fields {
			if f.In == console.InPath {
				view.Filters = append(view.Filters, input{Field: console.Field{Name: "id"}, Label: title(f.Help), Value: v.query("id")})
			}
		}
	}
	for _, f := range o.Fields {
		if f.In == console.InQuery && f.Name != "limit" && f.Name != "page" && f.Name != "id" {
			view.Filters = append(view.Filters, input{Field: f, Label: title(f.Name), Value: v.query(f.Name)})
		}
	}
	return view, nil
}

// table is a page of a list, by the parameters of the visit.
func (p *Pages) table(v *visit, o console.Operation) (grid, error) {
	in, err := o.Input(func(f console.Field) (string, bool) {
		switch {
		case f.In == console.InPath:
			return v.param(f.Name), true
		case f.Name == "limit":
			return rows, true
		default:
			return v.query(f.Name), true
		}
	})
	if err != nil {
		return grid{}, err
	}
	answer, err := p.API.Do(v.ctx, o, in)
	if err != nil {
		return grid{}, err
	}
	list := reflect.ValueOf(answer)
	table := gridOf(o.Columns, list.FieldByName("Items"), v.query("tenant"))
	table.Title, table.Empty, table.Next = title(o.Verb()), o.Empty, next(v.request.URL.RequestURI(), list.FieldByName("Next").String())
	return table, nil
}

// look asks for the answer of the operation of a name, with the parameters of the visit.
func look[T any](p *Pages, v *visit, name string) (found T, err error) {
	o, ok := p.Declared.Find(name)
	if !ok {
		return found, errNoPage
	}
	answer, err := p.now(v, o)
	found, _ = answer.(T)
	return found, err
}

// now is the answer of a look at one thing, with the parameters of the visit.
func (p *Pages) now(v *visit, o console.Operation) (any, error) {
	in, err := o.Input(func(f console.Field) (string, bool) {
		if f.In == console.InPath {
			return v.param(f.Name), true
		}
		return v.query(f.Name), true
	})
	if err != nil {
		return nil, err
	}
	return p.API.Do(v.ctx, o, in)
}

// detail is the page of one thing. Where there is none and one can be made by its id, it says so.
func (p *Pages) detail(v *visit, o console.Operation) (any, error) {
	view := declaredView{Summary: o.Summary, Noun: o.Noun(), ID: v.param(lastParam(o))}
	view.Title = title(o.Noun()) + " " + view.ID
	answer, err := p.now(v, o)
	made := slices.ContainsFunc(p.Declared.Operations, func(other console.Operation) bool { return other.Before == o.Name && other.Method == http.MethodPut })
	if view.Absent = notFound(err); err != nil && (view.Absent == nil || !made) {
		return view, err
	}
	if answer != nil {
		view.Facts, view.Tables = p.facts(v, o, answer)
		view.Notes = console.Notes(answer)
	}
	for _, name := range o.Beside {
		beside, _ := p.Declared.Find(name)
		table, err := p.table(v, beside)
		if err != nil {
			return view, err
		}
		view.Tables = append(view.Tables, table)
	}
	for _, other := range p.Declared.Operations {
		if other.Before == o.Name && (view.Absent == nil || other.Method == http.MethodPut) {
			view.Actions = append(view.Actions, action{title(other.Verb()), p.at(v, pageOf(other))})
		}
	}
	return view, nil
}

// facts are the values of an answer, and the lists in it.
func (p *Pages) facts(v *visit, o console.Operation, answer any) (facts []cell, tables []grid) {
	for _, c := range o.Columns {
		if c.Inside == nil {
			facts = append(facts, cellOf(c, answer, v.query("tenant")))
			continue
		}
		table := gridOf(c.Inside, c.Value(answer), v.query("tenant"))
		table.Title, table.Empty = c.Label, "none"
		tables = append(tables, table)
	}
	return facts, tables
}

// form is the page of a change: what there is, and what to say.
func (p *Pages) form(v *visit, o console.Operation) (any, error) {
	view := declaredView{Summary: o.Summary, Help: o.Help, Noun: o.Noun(), ID: v.param(lastParam(o)), Button: title(o.Verb())}
	view.Title = strings.TrimSpace(title(o.Verb()) + " " + o.Noun() + " " + view.ID)
	view.Back, view.Reason = p.back(v, o), o.Needs >= console.Reason
	expected := map[string]string{}
	if before, ok := p.Declared.Find(o.Before); ok {
		answer, err := p.now(v, before)
		if view.Absent = notFound(err); err != nil && view.Absent == nil {
			return view, err
		}
		if answer == nil {
			answer = reflect.Zero(reflect.TypeOf(before.Answer()).Elem()).Interface()
		} else {
			view.Facts, _ = p.facts(v, before, answer)
		}
		for _, c := range before.Columns {
			expected[c.Name] = console.Text(c.Value(answer))
		}
	}
	for _, f := range o.Fields {
		if f.In == console.InBody && f.Name != "why" {
			made := input{Field: f, Label: title(f.Name), Value: v.form(f.Name), Number: f.Type.Kind() == reflect.Int64, Hidden: f.Expects != ""}
			if made.Hidden {
				made.Value = expected[f.Expects]
			}
			view.Fields = append(view.Fields, made)
		}
	}
	return view, nil
}

// once makes the change that a form asks for, and shows what it answers.
func (p *Pages) once(v *visit, o console.Operation) (any, error) {
	answer, err := p.send(v, o)
	if err != nil {
		return nil, err
	}
	view := declaredView{Title: title(o.Verb()) + " " + o.Noun(), Noun: o.Noun(), Back: p.back(v, o), Done: true}
	view.Facts, view.Tables = p.facts(v, o, answer)
	return view, nil
}

// back is the address where the outcome of a change is seen.
func (p *Pages) back(v *visit, o console.Operation) string {
	pattern := strings.TrimSuffix(strings.TrimSuffix(pageOf(o), "/"+o.Verb()), "/-")
	if o.Verb() == "rm" {
		pattern = "/ops/" + o.Noun()
	}
	return p.at(v, pattern)
}

// send makes the change that a form asks for.
func (p *Pages) send(v *visit, o console.Operation) (any, error) {
	in, err := o.Input(func(f console.Field) (string, bool) {
		switch f.In {
		case console.InPath:
			return v.param(f.Name), true
		case console.InQuery:
			return v.query(f.Name), true
		default:
			return v.form(f.Name), v.request.PostForm.Has(f.Name)
		}
	})
	if err != nil {
		return nil, err
	}
	return p.API.Do(v.ctx, o, in)
}

// at is the address of a page about the thing of the visit.
func (p *Pages) at(v *visit, pattern string) string {
	for {
		before, rest, found := strings.Cut(pattern, "{")
		if !found {
			return with(pattern, "tenant", v.query("tenant"))
		}
		name, after, _ := strings.Cut(rest, "}")
		pattern = before + url.PathEscape(v.param(name)) + after
	}
}

// lastParam is the parameter of the path that says which thing it is; empty: there is none.
func lastParam(o console.Operation) (name string) {
	for _, f := range o.Fields {
		if f.In == console.InPath {
			name = f.Name
		}
	}
	return name
}

// title is a word with a capital.
func title(word string) string {
	first, size := utf8.DecodeRuneInString(word)
	return string(unicode.ToUpper(first)) + strings.ReplaceAll(word[size:], "_", " ")
}
