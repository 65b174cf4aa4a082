package contract

import (
	"errors"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"billhook/internal/money"
	"billhook/internal/pii"
)

// Violation names a field by its JSON path and the rule it breaks, never the value.
type Violation struct {
	Path string
	Rule string
}

// Invalid says which rules of the contract a message breaks. Its text holds paths
// and rules alone.
type Invalid struct{ Violations []Violation }

func (e *Invalid) Error() string {
	var text strings.Builder
	text.WriteString("contract: ")
	for i, v := range e.Violations {
		if i > 0 {
			text.WriteString(", ")
		}
		text.WriteString(v.Path + ": " + v.Rule)
	}
	return text.String()
}

// broken is an Invalid of one violation.
func broken(path, rule string) error { return &Invalid{[]Violation{{path, rule}}} }

// maxViolations bounds what an Invalid lists: a body with thousands of bad lines
// needs no answer of thousands of entries.
const maxViolations = 20

// rules are those of a Go type's fields, compiled from the `validate` tags: the one place
// where a rule is read. To look at a value by them allocates nothing while it keeps them.
type rules struct{ fields []fieldRule }

// fieldRule is what the tag of one field says.
type fieldRule struct {
	index int
	// name is the field's in JSON.
	name string
	// required: it must not be empty. Else an empty text is not looked at.
	required bool
	// optional: what is bad in it may be left out of a provider's body.
	optional bool
	words    []word
	// low and high bound a number; most is the longest text, or list; 0 is no limit.
	bounded   bool
	low, high int64
	most      int
	oneOf     []string
	// money is set for an amount.
	money *amountRule
	// inside are the rules of an object, or of each element of a list.
	inside *rules
}

// word is a shape, by its name in a tag.
type word struct {
	name  string
	valid func(string) bool
}

// amountRule says which currency an amount is in: that of a field beside it, else that at a
// path from the top. bare: it may have none.
type amountRule struct {
	beside int
	top    []int
	bare   bool
}

// shapes are the words that tags name a text's shape by. They are package pii's, so that a
// shape is declared once.
var shapes = map[string]func(string) bool{
	"id": pii.ID.Valid, "uid": pii.UID.Valid, "flake": pii.Flake.Valid, "event_type": pii.Code.Valid, "code": pii.Code.Valid,
	"timestamp": pii.Time.Valid, "currency": isCurrency, "number": isNumber,
	"ordering_key": func(key string) bool { return pii.ID.Valid(key) || pii.UID.Valid(key) },
}

func isCurrency(code string) bool {
	_, ok := money.Exponent(code)
	return ok
}

func isNumber(text string) bool {
	return text != "" && strings.Trim(text, "0123456789") == ""
}

// compile reads the tags of a struct type; top is the type that the whole value has.
func compile(t, top reflect.Type) *rules {
	r := &rules{}
	currency := -1
	for i := range t.NumField() {
		if slices.Contains(tagsOf(t.Field(i)), "currency") {
			currency = i
		}
	}
	for i := range t.NumField() {
		field := t.Field(i)
		f := fieldRule{index: i, name: jsonName(field)}
		f.optional = strings.Contains(field.Tag.Get("json"), ",omit") && field.Tag.Get("pii") != "strict"
		of := deref(field.Type)
		for _, tag := range tagsOf(field) {
			key, value, _ := strings.Cut(tag, "=")
			switch {
			case key == "required":
				f.required, f.optional = true, false
			case key == "min":
				f.bounded, f.low = true, integer(value)
			case key == "max" && of.Kind() == reflect.Int64:
				f.bounded, f.high = true, integer(value)
			case key == "max":
				f.most = int(integer(value))
			case key == "oneof":
				f.oneOf = strings.Fields(value)
			case key == "amount":
				f.money = &amountRule{beside: currency}
				if path := field.Tag.Get("currency"); path != "" {
					f.money = &amountRule{beside: -1, top: locate(top, path), bare: slices.Contains(tagsOf(field), "bare")}
				}
			case shapes[key] != nil:
				f.words = append(f.words, word{key, shapes[key]})
			}
		}
		if of.Kind() == reflect.Slice {
			of = deref(of.Elem())
		}
		if of.Kind() == reflect.Struct {
			f.inside = compile(of, top)
		}
		r.fields = append(r.fields, f)
	}
	return r
}

func integer(text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		panic("contract: a bound that is no number: " + text)
	}
	return n
}

func tagsOf(field reflect.StructField) []string { return strings.Split(field.Tag.Get("validate"), ",") }

func jsonName(field reflect.StructField) string {
	name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
	return name
}

func deref(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t
}

// look is one look at a value. Where relax is set, what is optional and bad is cleared, and
// taken down there.
type look struct {
	top   reflect.Value
	path  [16]step
	steps int
	found []Violation
	relax *relaxing
}

type step struct {
	name  string
	index int
}

func (l *look) where(every bool) string {
	var text strings.Builder
	for _, s := range l.path[:l.steps] {
		switch {
		case s.name != "":
			if text.Len() > 0 {
				text.WriteByte('.')
			}
			text.WriteString(s.name)
		case every:
			text.WriteString("[]")
		default:
			text.WriteString("[" + strconv.Itoa(s.index) + "]")
		}
	}
	return text.String()
}

func (l *look) object(r *rules, v reflect.Value) {
	for i := range r.fields {
		f := &r.fields[i]
		l.path[l.steps] = step{name: f.name}
		l.steps++
		l.field(f, v.Field(f.index), v)
		l.steps--
		if len(l.found) == maxViolations {
			return
		}
	}
}

func (l *look) field(f *fieldRule, v, beside reflect.Value) {
	for v.Kind() == reflect.Pointer {
		if v.IsNil() {
			if f.required {
				l.violate("required")
			}
			return
		}
		v = v.Elem()
	}
	switch v.Kind() {
	case reflect.Struct:
		l.object(f.inside, v)
	case reflect.Slice:
		l.list(f, v)
	case reflect.Int64:
		switch n := v.Int(); {
		case f.bounded && n < f.low:
			l.number(f, v, "min="+strconv.FormatInt(f.low, 10))
		case f.bounded && n > f.high:
			l.number(f, v, "max="+strconv.FormatInt(f.high, 10))
		}
	case reflect.String:
		if broken := l.text(f, v.String(), beside); broken != "" {
			l.violate(broken)
		}
	default: // content that is not declared yet
	}
}

func (l *look) list(f *fieldRule, v reflect.Value) {
	switch {
	case f.required && v.Len() == 0:
		l.violate("required")
		return
	case f.most > 0 && v.Len() > f.most:
		l.violate("max=" + strconv.Itoa(f.most))
		return
	}
	at := l.steps
	l.steps++
	for i := range v.Len() {
		l.path[at] = step{index: i}
		if l.object(f.inside, v.Index(i)); len(l.found) == maxViolations {
			break
		}
	}
	l.steps--
}

// number takes down that a number is out of its bounds, or sets it to 0, which is none.
func (l *look) number(f *fieldRule, v reflect.Value, rule string) {
	if l.relax != nil && f.optional {
		v.SetInt(0)
		l.relax.drop(l.where(true), rule)
		return
	}
	l.violate(rule)
}

// text is the rule that a text breaks; empty: none.
func (l *look) text(f *fieldRule, text string, beside reflect.Value) string {
	if text == "" {
		if f.required {
			return "required"
		}
		return ""
	}
	for _, w := range f.words {
		if !w.valid(text) {
			return w.name
		}
	}
	switch {
	case f.most > 0 && len(text) > f.most:
		return "max=" + strconv.Itoa(f.most)
	case f.oneOf != nil && !slices.Contains(f.oneOf, text):
		return "oneof=" + strings.Join(f.oneOf, " ")
	case f.money != nil && !l.isAmount(f.money, text, beside):
		return "amount"
	}
	return ""
}

// isAmount: not negative, with exactly the digits of its currency, which must be there.
// Where the currency is given and wrong, that is the violation, once.
func (l *look) isAmount(a *amountRule, text string, beside reflect.Value) bool {
	currency := ""
	if a.beside >= 0 {
		currency = beside.Field(a.beside).String()
	} else if at := follow(l.top, a.top); at.IsValid() {
		currency = at.String()
	} else {
		return false
	}
	if currency == "" {
		return a.bare && pii.Amount.Valid(text)
	}
	minor, err := money.Parse(text, currency)
	return errors.Is(err, money.ErrCurrency) || (err == nil && minor >= 0)
}

func (l *look) violate(rule string) {
	if len(l.found) < maxViolations {
		l.found = append(l.found, Violation{Path: l.where(false), Rule: rule})
	}
}

// check reports every rule that the value breaks, as an *Invalid; v is a struct.
func (r *rules) check(v reflect.Value, prefix string) error {
	l := look{top: v}
	if l.object(r, v); len(l.found) == 0 {
		return nil
	}
	for i := range l.found {
		l.found[i].Path = prefix + l.found[i].Path
	}
	return &Invalid{l.found}
}

// locate is where the member at a JSON path is in a struct type; nil: there is none.
func locate(t reflect.Type, path string) (index []int) {
	for name := range strings.SplitSeq(path, ".") {
		t = deref(t)
		if t.Kind() != reflect.Struct {
			return nil
		}
		i := slices.IndexFunc(reflect.VisibleFields(t), func(f reflect.StructField) bool { return jsonName(f) == name })
		if i < 0 {
			return nil
		}
		index, t = append(index, i), t.Field(i).Type
	}
	return index
}

// typeAt is the type of the member at a JSON path.
func typeAt(t reflect.Type, path string) reflect.Type {
	for _, i := range locate(t, path) {
		t = deref(t).Field(i).Type
	}
	return deref(t)
}

// follow is the value at a place that locate has found; not valid where an object on the
// way, or the place, is not there.
func follow(v reflect.Value, index []int) reflect.Value {
	if index == nil {
		return reflect.Value{}
	}
	for _, i := range index {
		for v.Kind() == reflect.Pointer {
			v = v.Elem() // not valid for nil
		}
		if !v.IsValid() {
			return v
		}
		v = v.Field(i)
	}
	for v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	return v
}
