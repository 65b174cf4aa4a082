package pages

import (
	"cmp"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"

	"billhook/internal/console"
	"billhook/internal/platform/serve"
)

func (p *Pages) declaredRoutes(r chi.Router) {
	for _, o := range p.Declared.Operations {
		address := strings.TrimPrefix(pageOf(o), "/ops")
		switch {
		case o.Needs != console.Look:
			form := func(v *visit) (any, error) { return p.form(v, o) }
			p.change(r.With(p.named), address, shape("form "+o.Before, "declared_form.html"), form,
				func(v *visit) (string, error) { return p.act(v, o) })
		case o.List && (!strings.Contains(o.Pattern, "{") || !p.beside(o)):
			load := func(v *visit) (any, error) { return p.list(v, o) }
			p.page(r, address, shape(o.Name, "declared_list.html"), load)
		case !o.List && !p.beside(o):
			load := func(v *visit) (any, error) { return p.detail(v, o) }
			p.page(r, address, shape(o.Name, "declared_detail.html"), load)
		}
	}
}

// shape returns the template of an operation, or of the forms that show its answer; without one, declared.
func shape(name, declared string) string {
	if own := strings.ReplaceAll(name, " ", "_") + ".html"; templates[own] != nil {
		return own
	}
	return declared
}

func (p *Pages) beside(o console.Operation) bool {
	return slices.ContainsFunc(p.Declared.Operations, func(other console.Operation) bool {
		return other.Needs == console.Look && slices.Contains(other.Beside, o.Name)
	})
}

// pageOf returns the address of an operation's page. For a change it ends with the verb, which follows a dash
// if there is no id, because no id is a dash.
func pageOf(o console.Operation) string {
	pattern := strings.TrimPrefix(o.Pattern, "/v1")
	if o.Needs != console.Look && !strings.Contains(pattern, "{") {
		return strings.TrimSuffix(pattern, "/"+o.Verb()) + "/-/" + o.Verb()
	}
	if o.Needs != console.Look && !strings.HasSuffix(pattern, "/"+o.Verb()) {
		pattern += "/" + o.Verb()
	}
	return pattern
}

type declaredView struct {
	Title, Summary, Help string
	// Answer is the operation's answer, or on a form that of Before; Others has those of Beside, by name.
	Answer any
	Others map[string]any
	// Noun is the kind of thing that the page is about, and ID the thing's id; empty: it is a list.
	Noun, ID      string
	Facts         []cell
	Notes, More   []string
	Alerts        bool
	Tables        []grid
	Actions       []link
	Filters, Rest []input
	Narrowed      bool
	Next          string
	// Absent says that there is no such thing yet; nil: there is one.
	Absent       *serve.Problem
	Fields       []input
	Button, Back string
	// Refreshes: the list is by time, and reloads itself.
	Reason, Done, Refreshes bool
}

type input struct {
	console.Field
	Label, Value   string
	Hidden, Number bool
}

func (p *Pages) list(v *visit, o console.Operation) (declaredView, error) {
	show := console.Operation{}
	if o.Verb() == "ls" && lastParam(o) == "" {
		show = p.row(o.Noun() + " show")
	}
	if id := v.query("id"); id != "" && show.Name != "" {
		return declaredView{}, elsewhere(with(pageWith(show, id), "tenant", v.query("tenant")))
	}
	view := declaredView{Title: named(o, v.param(lastParam(o))), Summary: about(o), Noun: o.Noun()}
	table, err := p.table(v, o)
	if err = v.refused(err); err != nil {
		return view, err
	}
	table.Title = view.Title
	view.Tables = []grid{table}
	if v.query("page") == "" && v.problem == nil {
		view.Refreshes = o.Field("since").Name != ""
		for _, name := range o.Beside {
			if err := p.besides(v, &view, name); err != nil {
				return view, err
			}
		}
	}
	for _, other := range p.Declared.Operations {
		if other.Noun() == o.Noun() && other.Needs != console.Look && !strings.Contains(other.Pattern, "{") {
			view.Actions = append(view.Actions, link{Address: pageOf(other), Name: title(verb(other))})
		}
	}
	param := lastParam(show)
	if param != "" {
		byID := input{Field: console.Field{Name: "id"}, Label: title(show.Field(param).Help), Value: v.query("id")}
		view.Filters = append(view.Filters, byID)
	}
	view.Filters = append(view.Filters, p.filters(v, o, "id", param)...)
	shown := min(len(view.Filters), filtersShown)
	view.Filters, view.Rest = view.Filters[:shown], view.Filters[shown:]
	view.Narrowed = slices.ContainsFunc(view.Rest, func(f input) bool { return f.Value != "" })
	return view, nil
}

func (p *Pages) filters(v *visit, o console.Operation, without ...string) (all []input) {
	for _, f := range o.Fields {
		if f.In != console.InQuery || slices.Contains(append(without, "limit", "page", "items"), f.Name) {
			continue
		}
		for _, q := range p.Catalog.Queues {
			if f.Name == "queue" && (o.Noun() != "dlq" || !q.DeadLetter.Drop) {
				f.OneOf = append(f.OneOf, q.ID)
			}
		}
		all = append(all, input{Field: f, Label: title(f.Name), Value: v.query(f.Name)})
	}
	return all
}

func (p *Pages) table(v *visit, o console.Operation) (grid, error) {
	answer, err := p.ask(v, o, "limit", rows)
	if err != nil {
		return grid{}, err
	}
	list := reflect.ValueOf(answer)
	table := gridOf(o.Columns, list.FieldByName("Items"), v.query("tenant"))
	table.Notes = append(console.Notes(answer), table.Notes...)
	if table.Title = title(o.Verb()); o.Verb() == "ls" {
		table.Title = title(o.Noun())
	}
	table.Empty, table.Next = o.Empty, v.next(list.FieldByName("Next").String())
	return table, nil
}

// pageWith returns the address of a thing's page by its id.
func pageWith(o console.Operation, id string) string {
	return strings.Replace(pageOf(o), "{"+lastParam(o)+"}", url.PathEscape(id), 1)
}

// look calls ask for the operation with this name, whose answer is a T.
func look[T any](p *Pages, v *visit, name string, given ...string) (found T, err error) {
	answer, err := p.ask(v, p.row(name), given...)
	found, _ = answer.(T)
	return found, err
}

func (p *Pages) row(name string) console.Operation {
	o, _ := p.Declared.Find(name)
	return o
}

// ask calls an operation with the parameters of the visit's address and form, or with given names and values.
func (p *Pages) ask(v *visit, o console.Operation, given ...string) (any, error) {
	in, err := o.Input(func(f console.Field) (string, bool) {
		i := slices.Index(given, f.Name)
		switch {
		case f.In == console.InBody:
			return v.form(f.Name), v.request.PostForm.Has(f.Name)
		case f.In == console.InPath:
			return v.param(f.Name), true
		case i >= 0:
			return given[i+1], true
		default: // a list on the page of a thing is about that thing
			return cmp.Or(v.query(f.Name), v.param(f.Name)), true
		}
	})
	if err != nil {
		return nil, err
	}
	return p.API.Call(v.ctx, o, in)
}

func (p *Pages) detail(v *visit, o console.Operation) (declaredView, error) {
	view := declaredView{Summary: about(o), Noun: o.Noun(), ID: v.param(lastParam(o))}
	view.Title = named(o, view.ID)
	answer, err := p.ask(v, o)
	if err != nil && problemOf(err).Code == "queue_needed" {
		several, err := p.table(v, p.row(o.Noun()+" ls"))
		view.Tables = []grid{several}
		return view, err
	}
	view.Absent = notFound(err)
	for _, other := range p.Declared.Operations {
		allowed := view.Absent == nil && console.Allows(answer, other.Verb()) ||
			view.Absent != nil && other.Method == http.MethodPut
		if acts(other, o) && allowed {
			view.Actions = append(view.Actions, link{Address: p.at(v, pageOf(other)), Name: title(verb(other))})
		}
	}
	more := slices.ContainsFunc(o.Beside, func(name string) bool { return !p.row(name).List })
	if err != nil && (view.Absent == nil || view.Actions == nil && !more) {
		return view, err
	}
	if answer != nil {
		if view.Answer, err = p.parts(v, o, answer); err != nil {
			return view, err
		}
		p.show(v, &view, o, view.Answer)
		view.Next = v.next(console.Member(view.Answer, "next"))
	}
	for _, name := range o.Beside {
		if err := p.besides(v, &view, name); err != nil {
			return view, err
		}
	}
	if view.Filters = p.filters(v, o); len(view.Filters) == 1 && view.Filters[0].Name == "tenant" {
		view.Filters = nil // the thing has one tenant
	}
	shown := min(len(view.Notes), notesShown)
	view.Notes, view.More = view.Notes[:shown], view.Notes[shown:]
	return view, nil
}

const (
	notesShown   = 6
	filtersShown = 5
)

// partsFor is how long a page requests further parts of an answer.
const partsFor = time.Second / 2

func (p *Pages) parts(v *visit, o console.Operation, answer any) (all any, err error) {
	for begun, before := p.Now(), o.Answer(); ; {
		whole := reflect.New(reflect.TypeOf(answer))
		whole.Elem().Set(reflect.ValueOf(answer))
		part, ok := whole.Interface().(console.Parted)
		if !ok {
			return answer, nil
		}
		page := part.Join(before)
		before = part
		if page == "" || p.Now().Sub(begun) > partsFor {
			return whole.Elem().Interface(), nil
		}
		if answer, err = p.ask(v, o, "page", page); err != nil {
			return nil, err
		}
	}
}

func acts(change, show console.Operation) bool {
	return change.Before == show.Name || (change.Needs != console.Look && change.Pattern == show.Pattern)
}

// besides adds another operation's answer to the page of a thing.
func (p *Pages) besides(v *visit, view *declaredView, name string) error {
	o := p.row(name)
	if o.List {
		table, err := p.table(v, o)
		view.Tables = append(view.Tables, table)
		return err
	}
	answer, err := p.ask(v, o, "page", "") // the parameter page is for a list on the same page
	if err == nil {
		p.show(v, view, o, answer)
	}
	return err
}

// show adds an answer to a page. The facts are those of the first answer, or of the last if the thing is
// absent.
func (p *Pages) show(v *visit, view *declaredView, o console.Operation, answer any) {
	facts, tables, empty := []cell(nil), []grid(nil), []string(nil)
	for _, c := range o.Columns {
		if c.Inside == nil {
			fact := cellOf(c, answer, v.query("tenant"))
			if address, _, _ := strings.Cut(fact.Href, "?"); address == v.request.URL.EscapedPath() {
				fact.ID, fact.Href = true, "" // the page itself
			}
			if fact.Text != "" {
				facts = append(facts, fact)
			}
			continue
		}
		table := gridOf(c.Inside, c.Value(answer), v.query("tenant"))
		if table.Title, table.Empty = c.Label, "None."; table.Rows == nil && table.Records == nil {
			empty = append(empty, strings.ToLower(c.Label[:1])+c.Label[1:])
		}
		tables = append(tables, table)
	}
	slices.SortStableFunc(facts, func(a, b cell) int {
		return cmp.Compare(strconv.FormatBool(a.ID), strconv.FormatBool(b.ID))
	})
	if len(empty) > 1 {
		tables = slices.DeleteFunc(tables, func(g grid) bool { return g.Rows == nil && g.Records == nil })
		tables = append(tables, grid{Title: "None yet", Empty: title(strings.Join(empty, ", ")) + "."})
	}
	if view.Absent != nil || view.Facts == nil {
		view.Facts = facts
	}
	view.Tables, view.Notes = append(view.Tables, tables...), append(view.Notes, console.Notes(answer)...)
	view.Alerts = view.Alerts || console.Alerts(answer)
}

func (p *Pages) at(v *visit, pattern string) string {
	address := braces.ReplaceAllStringFunc(pattern, func(name string) string {
		return url.PathEscape(v.param(strings.Trim(name, "{}")))
	})
	return with(address, "tenant", v.query("tenant"), "queue", v.query("queue"))
}

func lastParam(o console.Operation) (name string) {
	for _, f := range o.Fields {
		if f.In == console.InPath {
			name = f.Name
		}
	}
	return name
}
