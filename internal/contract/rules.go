package contract

import (
	"reflect"
	"slices"
	"strconv"
	"strings"

	"billhook/internal/contract/money"
	"billhook/internal/pii"
)

// Invalid says which rules of the contract a message breaks. Its text holds paths
// and rules alone.
type Invalid struct{ Violations []pii.Violation }

func (e *Invalid) Error() string { return pii.Describe("contract", e.Violations) }

// Broken is an Invalid of one violation.
func Broken(path, rule string) error { return &Invalid{[]pii.Violation{{Path: path, Rule: rule}}} }

// maxViolations bounds what an Invalid lists: a body with thousands of bad lines
// needs no answer of thousands of entries.
const maxViolations = 20

// shape is a word of tags: what a text looks like.
type shape struct {
	// rule is package pii's, so that a shape is declared once.
	rule pii.Rule
	// valid is the check; nil: an amount is checked with its currency.
	valid func(string) bool
	// pattern is the shape for readers in other languages.
	pattern string
}

var shapes = map[string]shape{
	"id":         {pii.ID, pii.ID.Valid, `^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$`},
	"uid":        {pii.UID, pii.UID.Valid, `^[A-Za-z0-9_-][A-Za-z0-9._:|-]{0,127}$`},
	"flake":      {pii.Flake, pii.Flake.Valid, `^[0-9]{1,32}$`},
	"code":       {pii.Code, pii.Code.Valid, codes},
	"event_type": {pii.Code, pii.Code.Valid, codes},
	"currency":   {pii.Currency, isCurrency, `^[A-Z]{3}$`},
	"amount":     {pii.Amount, nil, `^(0|[1-9][0-9]{0,18})(\.[0-9]{1,4})?$`},
	"number":     {pii.Rule{}, isNumber, `^[0-9]+$`},
	"timestamp":  {pii.Time, pii.Time.Valid, `^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?(Z|[+-][0-9]{2}:[0-9]{2})$`},
	// Each form of an id is one of a uid. The rule is that of an ordering key which is not
	// the uid; see Attributes.Rules.
	"ordering_key": {pii.ID, func(key string) bool { return pii.ID.Valid(key) || pii.UID.Valid(key) }, `^[A-Za-z0-9_-][A-Za-z0-9._:|-]{0,127}$`},
}

const codes = `^[A-Za-z][A-Za-z0-9._-]{0,63}$`

func isCurrency(code string) bool {
	_, ok := money.Exponent(code)
	return ok
}

func isNumber(text string) bool {
	return text != "" && strings.Trim(text, "0123456789") == ""
}

// rules are those of a struct type's fields, in the fields' order: the one table that the
// tags are compiled to. From it a value is validated, which allocates nothing while the value
// keeps the rules; the projection and the JSON Schema are made from it too.
type rules []rule

// rule is what the tags of one field say.
type rule struct {
	name string
	// kind is a value's, or an element's where the field is a list.
	kind reflect.Kind
	list bool
	// required: it must not be empty. Otherwise an empty text is not looked at.
	required bool
	// omitted: JSON leaves out an empty value. optional: so may a provider's bad value be.
	omitted, optional bool
	// words name the shapes of a text, the same as in shapes.
	words  []string
	shapes []shape
	// bounded numbers are from low to high. high is also the most bytes of a text and the
	// most elements of a list, where it is not 0.
	bounded   bool
	low, high int64
	oneOf     []string
	// money is set for an amount.
	money *amountRule
	// inside are the rules of an object, or of each element of a list.
	inside rules
}

// amountRule says which currency an amount is in: that of a field beside it, or that at a
// path from the top. bare: it may have none.
type amountRule struct {
	beside int
	top    []int
	bare   bool
}

// compile reads the tags of a struct type; top is the type of the whole value.
func compile(t, top reflect.Type) rules {
	r := make(rules, t.NumField())
	currency := -1
	for i := range r {
		if slices.Contains(tagsOf(t.Field(i)), "currency") {
			currency = i
		}
	}
	for i := range r {
		field, f := t.Field(i), &r[i]
		of := deref(field.Type)
		if f.list = of.Kind() == reflect.Slice; f.list {
			of = deref(of.Elem())
		}
		f.name, f.kind, f.omitted = jsonName(field), of.Kind(), strings.Contains(field.Tag.Get("json"), ",omit")
		for _, tag := range tagsOf(field) {
			key, value, _ := strings.Cut(tag, "=")
			switch key {
			case "required":
				f.required = true
			case "min":
				f.bounded, f.low = true, integer(value)
			case "max":
				f.bounded, f.high = f.kind == reflect.Int64 && !f.list, integer(value)
			case "oneof":
				f.oneOf = strings.Fields(value)
			case "amount":
				f.money = &amountRule{beside: currency}
				if path := field.Tag.Get("currency"); path != "" {
					f.money = &amountRule{beside: -1, top: locate(top, path), bare: slices.Contains(tagsOf(field), "bare")}
				}
			}
			if s, ok := shapes[key]; ok {
				f.words, f.shapes = append(f.words, key), append(f.shapes, s)
			}
		}
		f.optional = f.omitted && !f.required && field.Tag.Get("pii") != "strict"
		if f.kind == reflect.Struct {
			f.inside = compile(of, top)
		}
	}
	return r
}

// project is the allow-list of everything that the rules name. It panics on a text without a
// shape: free text cannot be declared.
func (r rules) project() *pii.Projection {
	allowed := map[string]pii.Rule{}
	return pii.NewProjection(allowed, r.allow("", allowed)...)
}

// allow notes the rule of every path, and returns the optional paths.
func (r rules) allow(prefix string, allowed map[string]pii.Rule) (optional []string) {
	for i := range r {
		f := &r[i]
		path := prefix + f.name
		if f.optional {
			optional = append(optional, path)
		}
		if f.list {
			path += "[]"
		}
		switch {
		case f.inside != nil:
			optional = append(optional, f.inside.allow(path+".", allowed)...)
		case f.kind == reflect.Bool:
			allowed[path] = pii.Boolean
		case f.kind == reflect.Int64 && f.low == 1:
			allowed[path] = pii.Quantity
		case f.kind == reflect.Int64:
			allowed[path] = pii.Integer
		case f.kind != reflect.String || len(f.shapes) == 0:
			panic("contract: " + path + " has no shape")
		default:
			allowed[path] = f.shapes[0].rule
		}
	}
	return optional
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

// validation is one walk over a value. Where relax is set, a bad optional value is cleared,
// and noted there.
type validation struct {
	top   reflect.Value
	path  pii.Path
	found []pii.Violation
	relax *relaxing
}

func (w *validation) object(r rules, v reflect.Value) {
	for i := range r {
		w.path.Name(r[i].name)
		w.field(&r[i], v.Field(i), v)
		w.path.Up()
		if len(w.found) == maxViolations {
			return
		}
	}
}

func (w *validation) field(f *rule, v, parent reflect.Value) {
	if v = behind(v); !v.IsValid() {
		if f.required {
			w.violate("required")
		}
		return
	}
	if f.list {
		w.list(f, v)
		return
	}
	w.value(f, v, parent)
}

func (w *validation) value(f *rule, v, parent reflect.Value) {
	switch f.kind {
	case reflect.Struct:
		w.object(f.inside, v)
	case reflect.Int64:
		switch n := v.Int(); {
		case f.bounded && n < f.low:
			w.number(f, v, "min="+strconv.FormatInt(f.low, 10))
		case f.bounded && n > f.high:
			w.number(f, v, "max="+strconv.FormatInt(f.high, 10))
		}
	case reflect.String:
		if broken := w.text(f, v.String(), parent); broken != "" {
			w.violate(broken)
		}
	default: // content that is not declared yet
	}
}

func (w *validation) list(f *rule, v reflect.Value) {
	switch {
	case f.required && v.Len() == 0:
		w.violate("required")
		return
	case f.high > 0 && int64(v.Len()) > f.high:
		w.violate("max=" + strconv.FormatInt(f.high, 10))
		return
	}
	for i := range v.Len() {
		w.path.Index(i)
		w.value(f, v.Index(i), v)
		w.path.Up()
		if len(w.found) == maxViolations {
			return
		}
	}
}

// number notes that a number is out of its bounds, or sets it to 0, which is none.
func (w *validation) number(f *rule, v reflect.Value, rule string) {
	if w.relax != nil && f.optional {
		v.SetInt(0)
		w.relax.drop(w.path.Text(true), rule)
		return
	}
	w.violate(rule)
}

// text is the rule that a text breaks; empty: none.
func (w *validation) text(f *rule, text string, parent reflect.Value) string {
	if text == "" {
		if f.required {
			return "required"
		}
		return ""
	}
	for i := range f.shapes {
		if valid := f.shapes[i].valid; valid != nil && !valid(text) {
			return f.words[i]
		}
	}
	switch {
	case f.high > 0 && int64(len(text)) > f.high:
		return "max=" + strconv.FormatInt(f.high, 10)
	case f.oneOf != nil && !slices.Contains(f.oneOf, text):
		return "oneof=" + strings.Join(f.oneOf, " ")
	case f.money != nil && !w.isAmount(f.money, text, parent):
		return "amount"
	}
	return ""
}

// isAmount: an amount in its currency, which must be there.
// Where the currency is given and wrong, that is the violation, once.
func (w *validation) isAmount(a *amountRule, text string, parent reflect.Value) bool {
	currency := ""
	if a.beside >= 0 {
		currency = parent.Field(a.beside).String()
	} else if at := follow(w.top, a.top); at.IsValid() {
		currency = at.String()
	} else {
		return false
	}
	if currency == "" {
		return a.bare && pii.Amount.Valid(text)
	}
	_, issued := money.Exponent(currency)
	return !issued || isAmountIn(text, currency)
}

// isAmountIn: 0 to money.Max, with exactly the digits of the currency.
func isAmountIn(text, currency string) bool {
	minor, err := money.Parse(text, currency)
	return err == nil && 0 <= minor && minor <= money.Max
}

func (w *validation) violate(rule string) {
	if len(w.found) < maxViolations {
		w.found = append(w.found, pii.Violation{Path: w.path.Text(false), Rule: rule})
	}
}

// check reports every rule that the value breaks, as an *Invalid; v is a struct.
func (r rules) check(v reflect.Value, prefix string) error {
	w := validation{top: v}
	if w.object(r, v); len(w.found) == 0 {
		return nil
	}
	for i := range w.found {
		w.found[i].Path = prefix + w.found[i].Path
	}
	return &Invalid{w.found}
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
		if v = behind(v); !v.IsValid() {
			return v
		}
		v = v.Field(i)
	}
	return behind(v)
}

// behind is the value behind pointers; not valid for nil.
func behind(v reflect.Value) reflect.Value {
	for v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	return v
}
