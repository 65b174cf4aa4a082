// Package console declares once what people can do. An Operation is a row (name, path, what it needs) and a
// typed function; the API's route, its entry in the OpenAPI document, the command and the page are derived
// from them. The package knows no operation: each is declared in the package that it is about.
package console

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"billhook/internal/contract/money"
	"billhook/internal/platform/audit"
)

// Needs is what an operation requires of its caller.
type Needs int

const (
	// Look changes nothing. It is the only need of a GET.
	Look Needs = iota
	// Act does something that the audit does not record, such as a trial request.
	Act
	// Reason is a change: the request has a member why, which the audit records together with the author.
	Reason
	// TwoPeople is a change that a second person completes, both known by name: a shared token names nobody.
	// The operation itself refuses the first person, with audit.TwoPeople.
	TwoPeople
)

// Row declares an operation.
type Row struct {
	// Name is the command's name: a noun and a verb, such as "stock set", or one word, such as "status".
	Name string
	// Path is the route: method and pattern, such as "PUT /v1/ops/stock/{id}".
	Path string
	// Summary is one sentence that begins with a verb. Help says more.
	Summary, Help string
	Needs         Needs
	// Before names the operation whose answer people see before they confirm a change.
	Before string
	// Follow names the operation that a command repeats until its answer, a Followed, has ended.
	Follow string
	// Beside names the operations with the same path parameters whose answers a page shows below this one's.
	Beside []string
	// Created: the answer is a new thing, with the status 201.
	Created bool
	// Once: the answer, such as a secret, is shown to its caller once and kept nowhere.
	Once bool
	// Body is the largest body of a request, in bytes; 0: 64 KiB.
	Body int64
	// Empty is shown for an empty list: what would be in it, and how it gets there.
	Empty string
	// Errors are the answers to its errors; any other error means that the store did not answer.
	Errors []Refusal
}

// Operation is a row with its function.
type Operation struct {
	Row

	Method, Pattern string
	// Fields are the parts of its request, and Columns the shown parts of its answer, or of each item of a list.
	Fields  []Field
	Columns []Column
	List    bool

	request, response reflect.Type
	do                func(ctx context.Context, by audit.Author, in Input, request reflect.Value) (any, error)
}

// New makes an operation from its row and its function. The function gets a request that satisfies the rules
// in its tags, and a caller who has what the row needs. New panics if the row cannot be served.
func New[Request, Answer any](
	row Row, do func(context.Context, audit.Author, Request) (Answer, error),
) Operation {
	o := Operation{Row: row, request: reflect.TypeFor[Request](), response: reflect.TypeFor[Answer]()}
	if o.Needs == TwoPeople {
		const both = " It takes two people, each with an identity of their own: a shared token is nobody's."
		o.Help = strings.TrimSpace(o.Help + both)
	}
	var found bool
	if o.Method, o.Pattern, found = strings.Cut(row.Path, " "); !found || o.Noun() == "" {
		panic("console: a row needs a name, a method and a path: " + row.Name)
	}
	o.Fields = fieldsOf(o.request)
	shown := o.response
	var empty Answer
	if list, ok := any(empty).(interface{ item() reflect.Type }); ok {
		shown, o.List = list.item(), true
	}
	if o.Columns = columnsOf(shown); o.List && shown.Kind() != reflect.Struct {
		o.Columns = []Column{{Label: o.Verb()}}
	}
	for _, f := range o.Fields {
		if tag := o.request.FieldByIndex(f.index).Tag.Get("json"); f.In != InBody && tag != "-" {
			panic("console: " + row.Name + ": a body must not have " + f.Name)
		}
		if f.In == InPath && !strings.Contains(o.Pattern, "{"+f.Name+"}") {
			panic("console: " + row.Name + " has no {" + f.Name + "} in its path")
		}
	}
	if change := partOf[Change](reflect.New(o.request).Elem()); (change != nil) != (o.Needs >= Reason) {
		panic("console: a change embeds Change, and nothing else does: " + row.Name)
	}
	o.do = func(ctx context.Context, by audit.Author, in Input, request reflect.Value) (any, error) {
		answer, err := do(ctx, by, request.Interface().(Request)) //nolint:forcetypeassert // made of it
		if err != nil {
			return nil, err
		}
		o.next(in, request, reflect.ValueOf(&answer).Elem())
		return answer, nil
	}
	return o
}

// Noun is the first word of the name: what the operation is about.
func (o Operation) Noun() string { noun, _, _ := strings.Cut(o.Name, " "); return noun }

// Verb is the rest of the name: what the operation does.
func (o Operation) Verb() string { _, verb, _ := strings.Cut(o.Name, " "); return verb }

// Field returns the field with this name; zero: there is none.
func (o Operation) Field(name string) Field {
	for _, f := range o.Fields {
		if f.Name == name {
			return f
		}
	}
	return Field{}
}

// Field is one part of a request.
type Field struct {
	Name     string
	In       In
	Help     string
	Required bool
	// OneOf are the allowed values; none: any. Standard is the default value.
	OneOf    []string
	Standard string
	// Expects names the member of Before's answer that this one repeats, to detect another person's change.
	Expects string
	// Argument: a command takes it as an argument, not as a flag. Called is its name there.
	Argument bool
	Called   string
	Type     reflect.Type

	index []int
	Rules string
}

// In is the part of an HTTP request that has a field.
type In string

// The parts of a request.
const (
	InPath  In = "path"
	InQuery In = "query"
	InBody  In = "body"
)

// fieldsOf reads the fields of a request's type from its tags.
func fieldsOf(t reflect.Type) (fields []Field) {
	for _, s := range reflect.VisibleFields(t) {
		f := Field{
			Help: s.Tag.Get("help"), Standard: s.Tag.Get("default"), Expects: s.Tag.Get("expects"), Type: s.Type,
			index: s.Index, Rules: s.Tag.Get("validate"),
		}
		f.Called, f.Argument = s.Tag.Lookup("arg")
		f.Argument = f.Argument || s.Tag.Get("path") != ""
		body, _, _ := strings.Cut(s.Tag.Get("json"), ",")
		switch path, query := s.Tag.Get("path"), s.Tag.Get("query"); {
		case path != "":
			f.Name, f.In = path, InPath
		case query != "":
			f.Name, f.In = query, InQuery
		case body != "" && body != "-":
			f.Name, f.In = body, InBody
		default:
			continue
		}
		values, _ := f.Rule("oneof")
		_, required := f.Rule("required")
		f.OneOf, f.Required = strings.Fields(values), required || f.In == InPath
		if f.Type.Kind() == reflect.Pointer {
			f.Type = f.Type.Elem()
		}
		fields = append(fields, f)
	}
	return fields
}

// Column is a member of an answer that is shown to people.
type Column struct {
	Label, Name string
	// Less: a table leaves it out first if there is no room. Detail: only the view of a single thing has it.
	Less, Detail bool
	// ID: its values are generated, and the beginning of one finds it. Code: they are codes, such as states and
	// reasons, which docs/reference/reasons.md explains.
	ID, Code bool
	// Address: it is an address of the API; a table shows it as a command, and a page as a link.
	Address bool
	// Link is the noun whose page the value leads to; empty: none.
	Link string
	// Inside are the columns of a list within; none: it is a value.
	Inside []Column
	// Block: its text has several lines, such as a payload, and is never shown in a table.
	Block bool

	index []int
	// unit is the member that has the currency of an amount; nil: it is no amount of money.
	unit []int
	// bare: the currency is a column of its own.
	bare bool
}

// columnsOf reads tags `show:"Label,less"`; `show:"*"` takes the columns of the struct within. A list within
// is a table of its own; with the option brief it is also shown as a value in a list. An amount in minor
// units is tagged `in:"<its currency's field>"`; the currency follows it, unless it has a column of its own.
func columnsOf(t reflect.Type) (columns []Column) {
	if t.Kind() != reflect.Struct {
		return nil
	}
	for _, s := range reflect.VisibleFields(t) {
		label, options, _ := strings.Cut(s.Tag.Get("show"), ",")
		if label == "" {
			continue
		}
		name, _, _ := strings.Cut(s.Tag.Get("json"), ",")
		if label == "*" {
			for _, inner := range columnsOf(s.Type) {
				inner.Name, inner.index = "", slices.Concat(s.Index, inner.index)
				if inner.unit != nil {
					inner.unit = slices.Concat(s.Index, inner.unit)
				}
				columns = append(columns, inner)
			}
			continue
		}
		c := Column{
			Label: label, Name: name, Less: options == "less", Detail: options == "detail", ID: options == "id",
			Address: options == "address", Link: s.Tag.Get("link"), index: s.Index,
			Code: s.Type.Kind() == reflect.String &&
				(s.Type != reflect.TypeFor[string]() || slices.Contains(codes, name)),
		}
		if in := s.Tag.Get("in"); in != "" {
			unit, _ := t.FieldByNameFunc(func(name string) bool { return strings.EqualFold(name, in) })
			c.unit, c.bare = unit.Index, unit.Tag.Get("show") != ""
		}
		c.Block = s.Type == reflect.TypeFor[jsontext.Value]() || s.Type == reflect.TypeFor[[]byte]()
		if s.Type.Kind() == reflect.Slice && s.Type.Elem().Kind() == reflect.Struct {
			c.Inside, c.Detail = columnsOf(s.Type.Elem()), options != "brief"
			if len(c.Inside) == 0 {
				c.Inside = []Column{{Label: label}}
			}
		}
		if s.Type == reflect.TypeFor[[]string]() && c.Link != "" {
			c.Inside, c.Detail = []Column{{Label: label, Link: c.Link}}, true
		}
		columns = append(columns, c)
	}
	return columns
}

// codes are the members whose values are codes without a type of their own.
var codes = []string{"reason", "result", "failure", "code"}

// Value returns the column's value in an answer; invalid if it is a nil pointer.
func (c Column) Value(of any) reflect.Value {
	v := reflect.Indirect(reflect.ValueOf(of))
	if c.index != nil {
		v = reflect.Indirect(v.FieldByIndex(c.index))
	}
	return v
}

// Text returns the column's value in an answer, as text for people.
func (c Column) Text(of any) string {
	v := c.Value(of)
	if c.unit == nil || !v.IsValid() {
		return Text(v)
	}
	currency := reflect.Indirect(reflect.ValueOf(of)).FieldByIndex(c.unit).String()
	if c.bare {
		return money.Text(v.Int(), currency)
	}
	return strings.TrimSpace(money.Text(v.Int(), currency) + " " + currency)
}

// Member returns the value of a member by its JSON name, such as id or filter.queue, as a request may repeat
// it; empty: there is none.
func Member(of any, name string) string {
	v := reflect.Indirect(reflect.ValueOf(of))
	if v.Kind() != reflect.Struct {
		return ""
	}
	name, rest, inside := strings.Cut(name, ".")
	for _, s := range reflect.VisibleFields(v.Type()) {
		if known, _, _ := strings.Cut(s.Tag.Get("json"), ","); known != name {
			continue
		}
		switch v = reflect.Indirect(v.FieldByIndex(s.Index)); {
		case !v.IsValid():
			return ""
		case inside:
			return Member(v.Interface(), rest)
		}
		if at, ok := reflect.TypeAssert[time.Time](v); ok && !at.IsZero() {
			return at.UTC().Format(time.RFC3339Nano)
		}
		return Text(v)
	}
	return ""
}

// Columns returns the columns of a type, from its tags.
func Columns[T any]() []Column { return columnsOf(reflect.TypeFor[T]()) }

// Blocks reports whether one of the columns is a block.
func Blocks(columns []Column) bool {
	return slices.ContainsFunc(columns, func(c Column) bool { return c.Block })
}

// Catalog is all operations, by name.
type Catalog struct{ Operations []Operation }

// NewCatalog collects operations. It panics if two have the same name or path.
func NewCatalog(all ...[]Operation) *Catalog {
	c := &Catalog{Operations: slices.Concat(all...)}
	seen := map[string]bool{}
	for _, o := range c.Operations {
		for _, key := range []string{o.Name, o.Path} {
			if seen[key] {
				panic("console: two operations are called " + key)
			}
			seen[key] = true
		}
	}
	slices.SortFunc(c.Operations, func(a, b Operation) int { return cmp.Compare(a.Name, b.Name) })
	for _, o := range c.Operations {
		for _, name := range append(slices.Clone(o.Beside), o.Before, o.Follow) {
			if _, ok := c.Find(name); name != "" && !ok {
				panic(fmt.Sprintf("console: %s names %s, which is no operation", o.Name, name))
			}
		}
	}
	return c
}

// Find returns the operation of a name, and reports whether there is one.
func (c *Catalog) Find(name string) (Operation, bool) {
	for _, o := range c.Operations {
		if o.Name == name {
			return o, true
		}
	}
	return Operation{}, false
}

// At returns the operation that an address of the API calls by GET, with its input.
func (c *Catalog) At(address string) (o Operation, in Input, found bool) {
	path, query, _ := strings.Cut(address, "?")
	given := strings.Split(path, "/")
	for _, o = range c.Operations {
		parts := strings.Split(o.Pattern, "/")
		in = Input{Path: map[string]string{}}
		found = o.Needs == Look && len(parts) == len(given)
		for i := 0; found && i < len(parts); i++ {
			name, is := strings.CutPrefix(parts[i], "{")
			if found = is || parts[i] == given[i]; is {
				in.Path[strings.TrimSuffix(name, "}")], _ = url.PathUnescape(given[i])
			}
		}
		if found {
			in.Query, _ = url.ParseQuery(query)
			return o, in, true
		}
	}
	return Operation{}, Input{}, false
}

// Call decodes the request and calls the operation for an authorized caller. The answer is a value of the
// operation's answer type. The error is one that Refusal knows, or means that the store has failed.
func (o Operation) Call(ctx context.Context, by audit.Author, in Input) (any, error) {
	request, err := o.decode(in)
	if err == nil && o.Needs == TwoPeople {
		err = audit.TwoPeople("", by)
	}
	if err != nil {
		return nil, err
	}
	return o.do(ctx, by, in, request)
}
