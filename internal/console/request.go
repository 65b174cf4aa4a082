package console

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/go-playground/validator/v10"

	"billhook/internal/pii"
	"billhook/internal/platform/audit"
	"billhook/internal/platform/store"
)

// Change is the part of a request that each change has.
type Change struct {
	Why string `json:"why" validate:"required" help:"the reason, for the audit"`
}

// By returns the change with its author.
func (c Change) By(who audit.Author) audit.Change { return audit.Change{Who: who, Why: c.Why} }

// Edit is the part of a request to change a record that the operation Before has shown at a version. The
// change is refused if the record has another version by then.
type Edit struct {
	Change
	Expect *store.Version `json:"expect" expects:"version" help:"the version that was seen; 0: none was there. Refused if it is another one now"`
}

// By returns the change with its author.
func (e Edit) By(who audit.Author) audit.Change {
	return audit.Change{Who: who, Why: e.Why, Expect: e.Expect}
}

// Span is the part of a request for a list that narrows it to a span of time.
type Span struct {
	Since Moment `json:"-" query:"since" help:"only from then on: a time (2026-11-21T09:00:00Z) or an age (90m, 36h, 7d)"`
	Until Moment `json:"-" query:"until" help:"only before then: a time or an age"`
}

// Moment is a time that may be given as an age. It has whole microseconds, as in the store.
type Moment struct{ time.Time }

// maxAge bounds an age: a longer one is a mistake.
const maxAge = 10 * 366 * 24 * time.Hour

func momentOf(text string, now time.Time) (Moment, error) {
	if at, err := time.Parse(time.RFC3339Nano, text); err == nil {
		return Moment{at.UTC().Truncate(time.Microsecond)}, nil
	}
	age, err := time.ParseDuration(text)
	if number, isDays := strings.CutSuffix(text, "d"); isDays {
		var days uint64
		if days, err = strconv.ParseUint(number, 10, 12); err == nil {
			age = time.Duration(days) * 24 * time.Hour
		}
	}
	if err != nil || age <= 0 || age > maxAge {
		return Moment{}, errors.New("a time such as 2026-11-21T09:00:00Z or an age such as 36h or 7d")
	}
	return Moment{now.Add(-age).UTC().Truncate(time.Microsecond)}, nil
}

// Owned is the part of a request that names the tenant.
type Owned struct {
	Tenant string `json:"-" query:"tenant" validate:"omitempty,id" default:"default" help:"the tenant, where messages name one"`
}

// rules checks requests by their tags.
var rules = func() *validator.Validate {
	v := validator.New(validator.WithRequiredStructEnabled())
	for name, shape := range shapes {
		holds := func(f validator.FieldLevel) bool { return shape.holds(f.Field().String()) }
		if err := v.RegisterValidation(name, holds); err != nil {
			panic(err)
		}
	}
	return v
}()

// shapes are our own rules for texts, each with a description.
var shapes = map[string]struct {
	is    string
	holds func(text string) bool
}{
	"id":  {"an id: at most 128 of letters, digits and . _ : -, beginning with a letter or digit", pii.ID.Valid},
	"uid": {"an id of letters, digits and . _ : | -", pii.UID.Valid},
	"month": {"a year and a month such as 2026-11", func(text string) bool {
		_, err := time.Parse("2006-01", text)
		return err == nil
	}},
	"printable": {"a text of at most 500 bytes, and none that a terminal would act on", func(text string) bool {
		return len(text) <= 500 && utf8.ValidString(text) && audit.Escape(text) == text
	}},
}

// Input is a request before it is decoded, whether it came by HTTP, a form or a command line.
type Input struct {
	Path  map[string]string
	Query url.Values
	Body  []byte
	// Now is the time of the request. Ages count from then.
	Now time.Time
}

// decode makes the request. The error says what is wrong with it: a *Refusal, or one of the audit's.
func (o Operation) decode(in Input) (reflect.Value, error) {
	request := reflect.New(o.request).Elem()
	if err := cmp.Or(o.known(in.Query), o.body(in.Body, request)); err != nil {
		return request, err
	}
	for _, f := range o.Fields {
		given := map[In]string{InPath: in.Path[f.Name], InQuery: in.Query.Get(f.Name)}
		text := cmp.Or(given[f.In], f.Standard)
		if f.In == InBody || text == "" {
			continue
		}
		for _, value := range f.OneOf {
			if strings.EqualFold(value, text) {
				text = value
			}
		}
		if err := set(request.FieldByIndex(f.index), text, in.Now); err != nil {
			return request, f.refused(err.Error())
		}
	}
	span := cmp.Or(partOf[Span](request), &Span{})
	if !span.Until.IsZero() && !span.Since.Before(span.Until.Time) {
		return request, Refuse(Malformed, "since_invalid", "The parameter since is before until.")
	}
	for _, f := range o.Fields {
		if rules.Var(request.FieldByIndex(f.index).Interface(), f.Rules) != nil {
			return request, f.refused("required")
		}
	}
	return request, o.page(in, request)
}

// names returns the names of the fields in a part of the request.
func (o Operation) names(place In) (names []string) {
	for _, f := range o.Fields {
		if f.In == place {
			names = append(names, f.Name)
		}
	}
	return names
}

// known refuses a parameter that is unknown, repeated or empty: an ignored filter shows too much.
func (o Operation) known(query url.Values) error {
	names := o.names(InQuery)
	for name, given := range query {
		switch {
		case !slices.Contains(names, name):
			only := "This takes " + strings.Join(names, ", ") + " and no other parameter."
			return Refuse(Malformed, "parameter_unknown", only)
		case len(given) != 1 || given[0] == "":
			return Refuse(Malformed, "parameter_invalid", "Give each parameter once, with a value.")
		}
	}
	return nil
}

// body decodes the body. It refuses unknown members, and repeated ones: other programs may read the other.
func (o Operation) body(body []byte, into reflect.Value) error {
	names := o.names(InBody)
	if names == nil {
		return nil
	}
	malformed := Refuse(Malformed, "body_malformed", "Send a JSON object of "+strings.Join(names, ", ")+
		", each once at most; the route's entry in /v1/ops/openapi.json says which it needs.")
	if json.Unmarshal(body, into.Addr().Interface(), json.RejectUnknownMembers(true)) != nil {
		return malformed
	}
	if change := partOf[Change](into); change != nil {
		if strings.TrimSpace(change.Why) == "" {
			return fmt.Errorf("%w: a change needs a reason: say why", audit.ErrInvalid)
		}
		if err := audit.CheckWhy(change.Why); err != nil {
			return err
		}
	}
	for _, f := range o.Fields {
		v := into.FieldByIndex(f.index)
		if f.In == InBody && f.Required && v.Kind() == reflect.Pointer && v.IsNil() {
			return malformed
		}
	}
	return nil
}

// refused says what the field must be: its rule, or otherwise if it has none.
func (f Field) refused(otherwise string) *Refusal {
	is := f.Name + " is " + cmp.Or(f.rule(), otherwise) + "."
	if f.In == InBody {
		return Refuse(Refused, "refused", "The member "+is)
	}
	return Refuse(Malformed, f.Name+"_invalid", "The parameter "+is)
}

// Rule returns the value of a rule of the field, such as 9 of max=9, and whether it has the rule.
func (f Field) Rule(name string) (value string, has bool) {
	for rule := range strings.SplitSeq(f.Rules, ",") {
		if known, value, _ := strings.Cut(rule, "="); known == name {
			return value, true
		}
	}
	return "", false
}

// rule describes what the field's rules accept; empty: anything of its type.
func (f Field) rule() string {
	for name, shape := range shapes {
		if _, has := f.Rule(name); has {
			return shape.is
		}
	}
	low, _ := f.Rule("min")
	if high, has := f.Rule("max"); has {
		return "a number from " + low + " to " + high
	}
	return strings.Join(f.OneOf, ", ")
}

func set(into reflect.Value, text string, now time.Time) error {
	if into.Kind() == reflect.Pointer {
		into.Set(reflect.New(into.Type().Elem()))
		into = into.Elem()
	}
	switch {
	case into.Type() == reflect.TypeFor[Moment]():
		at, err := momentOf(text, now)
		if err != nil {
			return err
		}
		into.Set(reflect.ValueOf(at))
	case into.Type() == reflect.TypeFor[time.Time]():
		at, err := time.Parse(time.RFC3339Nano, text)
		if err != nil {
			return errors.New("a time such as 2026-11-21T09:00:00Z")
		}
		into.Set(reflect.ValueOf(at.UTC()))
	case into.Kind() == reflect.String:
		into.SetString(text)
	case into.CanInt():
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return errors.New("a whole number")
		}
		into.SetInt(n)
	case into.Kind() == reflect.Bool:
		b, err := strconv.ParseBool(text)
		if err != nil {
			return errors.New("true or false")
		}
		into.SetBool(b)
	case into.Kind() == reflect.Slice:
		separates := func(r rune) bool { return r == ',' || unicode.IsSpace(r) }
		into.Set(reflect.ValueOf(strings.FieldsFunc(text, separates)))
	default:
		panic("console: a text cannot become a " + into.Type().String())
	}
	return nil
}

// Typed reports whether a person can type the value: it has no members of its own.
func (f Field) Typed() bool {
	if f.Type == reflect.TypeFor[jsontext.Value]() {
		return false
	}
	moment := f.Type == reflect.TypeFor[Moment]() || f.Type == reflect.TypeFor[time.Time]()
	return moment || (f.Type.Kind() != reflect.Struct && f.Type.Kind() != reflect.Map)
}

// Check reports what is wrong with a text for the field; nil: nothing. An empty text leaves the field out.
func (f Field) Check(text string) error {
	value := reflect.New(f.Type) // a pointer that is set, so that the rule required holds
	err := set(value.Elem(), text, time.Time{}.Add(maxAge))
	if err != nil || text == "" || rules.Var(value.Interface(), f.Rules) == nil {
		return err
	}
	return errors.New(cmp.Or(f.rule(), "another value"))
}

// Input makes the input of an operation from the texts of a form or a command line; the text is JSON if a
// value cannot be typed. The error names the text that is wrong.
func (o Operation) Input(get func(Field) (text string, given bool)) (in Input, err error) {
	in, members := Input{Path: map[string]string{}, Query: url.Values{}}, map[string]any{}
	for _, f := range o.Fields {
		text, given := get(f)
		switch {
		case !given:
		case f.In == InPath:
			in.Path[f.Name] = text
		case f.In == InQuery && text != "":
			in.Query.Set(f.Name, text)
		case f.In == InBody && f.Typed():
			value := reflect.New(f.Type).Elem()
			if err := set(value, text, time.Time{}); err != nil {
				return in, Refuse(Refused, "refused", "The field "+f.Name+" takes "+err.Error()+".")
			}
			members[f.Name] = value.Interface()
		case f.In == InBody && text != "":
			members[f.Name] = jsontext.Value(text)
		}
	}
	if len(members) == 0 {
		return in, nil
	}
	in.Body, err = json.Marshal(members, json.Deterministic(true), jsontext.EscapeForHTML(false))
	return in, err
}

// URL returns the operation's address with an input: path and query.
func (o Operation) URL(in Input) string {
	address := o.Pattern
	for name, value := range in.Path {
		address = strings.Replace(address, "{"+name+"}", url.PathEscape(value), 1)
	}
	if len(in.Query) > 0 {
		address += "?" + in.Query.Encode()
	}
	return address
}
