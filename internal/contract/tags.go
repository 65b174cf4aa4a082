package contract

import (
	"errors"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/go-playground/validator/v10"

	"billhook/internal/contract/money"
	"billhook/internal/pii"
)

type shape struct {
	// rule comes from package pii, so that a shape is declared once.
	rule pii.Rule
	// valid checks a value; nil: the validator does, or isAmount, which also needs the currency.
	valid func(string) bool
	// pattern is the shape as a regular expression, for the JSON Schemas.
	pattern string
}

var shapes = map[string]shape{
	"id":         {pii.ID, pii.ID.Valid, `^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$`},
	"uid":        {pii.UID, pii.UID.Valid, `^[A-Za-z0-9_-][A-Za-z0-9._:|-]{0,127}$`},
	"code":       {pii.Code, pii.Code.Valid, codes},
	"event_type": {pii.Code, pii.Code.Valid, codes},
	"currency":   {pii.Currency, isCurrency, `^[A-Z]{3}$`},
	"amount":     {pii.Amount, nil, `^(0|[1-9][0-9]{0,18})(\.[0-9]{1,4})?$`},
	"number":     {pii.Rule{}, nil, `^[0-9]+$`},
	"timestamp": {
		pii.Time, pii.Time.Valid,
		`^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?(Z|[+-][0-9]{2}:[0-9]{2})$`,
	},
	// This rule is for an ordering key that is not the uid; see Attributes.Rules.
	"ordering_key": {
		pii.ID, func(key string) bool { return pii.ID.Valid(key) || pii.UID.Valid(key) },
		`^[A-Za-z0-9_-][A-Za-z0-9._:|-]{0,127}$`,
	},
}

const codes = `^[A-Za-z][A-Za-z0-9._-]{0,63}$`

func isCurrency(code string) bool {
	_, ok := money.Exponent(code)
	return ok
}

// rules are the source of projections and schemas; go-playground/validator checks values against the tags.
type rules []rule

type rule struct {
	// path is the full name, such as data.items[].price; at has its field indexes, and element for a list.
	name, path string
	at         []int
	// kind is the kind of the value; for a list, of its elements.
	kind reflect.Kind
	list bool
	// required: it must not be empty. Otherwise an empty text is not checked.
	required bool
	// omitted: JSON leaves out an empty value. optional: a provider's bad value may be left out, too.
	omitted, optional bool
	words             []string
	// bounded: a number is from low to high. For a text or a list, high is its maximum length, if not 0.
	bounded   bool
	low, high int64
	oneOf     []string
	// priced: it is an amount, in the currency of the same object.
	priced bool
	shape  pii.Rule
	inside rules
}

const element = -1

func compile(t reflect.Type, prefix string, in []int) rules {
	r := make(rules, t.NumField())
	for i := range r {
		field, f := t.Field(i), &r[i]
		of := deref(field.Type)
		if f.list = of.Kind() == reflect.Slice; f.list {
			of = deref(of.Elem())
		}
		f.name, f.kind, f.omitted = jsonName(field), of.Kind(), strings.Contains(field.Tag.Get("json"), ",omit")
		f.path, f.at = prefix+f.name, append(slices.Clone(in), i)
		for tag := range strings.SplitSeq(field.Tag.Get("validate"), ",") {
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
				f.priced = true
			case "order_amount", "order_price":
				key = "amount"
			}
			if _, ok := shapes[key]; ok {
				f.words = append(f.words, key)
			}
		}
		f.optional = f.omitted && !f.required && field.Tag.Get("pii") != "strict"
		switch {
		case f.kind == reflect.Struct && f.list:
			f.inside = compile(of, f.path+"[].", append(f.at, element))
		case f.kind == reflect.Struct:
			f.inside = compile(of, f.path+".", f.at)
		case f.kind == reflect.Bool:
			f.shape = pii.Boolean
		case f.kind == reflect.Int64 && f.low == 1:
			f.shape = pii.Quantity
		case f.kind == reflect.Int64:
			f.shape = pii.Integer
		case f.kind == reflect.String && f.words != nil:
			f.shape = shapes[f.words[0]].rule
		}
	}
	return r
}

// all returns the rules, each followed by the rules inside it.
func (r rules) all() (all []*rule) {
	for i := range r {
		all = append(append(all, &r[i]), r[i].inside.all()...)
	}
	return all
}

// project panics on a text without a shape: free text cannot be declared.
func (r rules) project() *pii.Projection {
	allowed, optional := map[string]pii.Rule{}, []string(nil)
	for _, f := range r.all() {
		if f.optional {
			optional = append(optional, f.path)
		}
		switch {
		case f.inside != nil:
		case f.shape == (pii.Rule{}):
			panic("contract: " + f.path + " has no shape")
		case f.list:
			allowed[f.path+"[]"] = f.shape
		default:
			allowed[f.path] = f.shape
		}
	}
	return pii.NewProjection(allowed, optional...)
}

func integer(text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		panic("contract: a bound that is no number: " + text)
	}
	return n
}

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

// each calls do with the value at a position, if there is one; inside a list, once per element.
func each(v reflect.Value, at []int, do func(reflect.Value)) {
	for n, i := range at {
		switch v = reflect.Indirect(v); {
		case !v.IsValid():
			return
		case i == element:
			for j := range v.Len() {
				each(v.Index(j), at[n+1:], do)
			}
			return
		}
		v = v.Field(i)
	}
	do(v)
}

// Invalid lists the contract's rules that a message breaks, by path and rule, without values.
type Invalid struct{ Violations []pii.Violation }

func (e *Invalid) Error() string { return pii.Describe("contract", e.Violations) }

// Broken returns an Invalid with one violation.
func Broken(path, rule string) error { return invalid(pii.Violation{Path: path, Rule: rule}) }

func invalid(violations ...pii.Violation) error {
	if len(violations) == 0 {
		return nil
	}
	return &Invalid{violations}
}

const maxViolations = 20

// validation checks values against their tags. It names members as JSON does.
var validation = func() *validator.Validate {
	v := validator.New(validator.WithRequiredStructEnabled())
	v.RegisterTagNameFunc(jsonName)
	register := func(tag string, keeps validator.Func) {
		if err := v.RegisterValidation(tag, keeps); err != nil {
			panic(err)
		}
	}
	for word, s := range shapes {
		if s.valid != nil {
			register(word, func(field validator.FieldLevel) bool { return s.valid(field.Field().String()) })
		}
	}
	register("amount", func(field validator.FieldLevel) bool {
		return isAmount(field.Field().String(), field.Parent().FieldByName(field.Param()).String(), false)
	})
	ofOrder := func(bare bool) validator.Func {
		return func(field validator.FieldLevel) bool {
			// the validator's own lookup by path costs more than the check
			order := field.Top().Interface().(*checked).value.(*Payment).Data.Order
			return order != nil && isAmount(field.Field().String(), order.Currency, bare)
		}
	}
	register("order_amount", ofOrder(false))
	register("order_price", ofOrder(true))
	return v
}()

// isAmount: 0 to money.Max, with the currency's digits. Beside a bad currency, only that is reported.
func isAmount(text, currency string, bare bool) bool {
	if currency == "" {
		return bare && pii.Amount.Valid(text)
	}
	minor, err := money.Parse(text, currency)
	return !isCurrency(currency) || err == nil && 0 <= minor && minor <= money.Max
}

// checked hides a value in a private type, because the validator makes a copy of each value that it can read
// as an interface. It is embedded, so that the validator looks into it.
type (
	checked struct{ value }
	value   any
)

func check(of any, prefix string) (violations []pii.Violation) {
	broken, _ := errors.AsType[validator.ValidationErrors](validation.Struct(&checked{of}))
	for _, b := range broken[:min(len(broken), maxViolations)] {
		rule := b.Tag()
		switch {
		case rule == "order_amount", rule == "order_price":
			rule = "amount"
		case rule == "min" && b.Kind() == reflect.Slice:
			rule = "required"
		case slices.Contains([]string{"min", "max", "oneof"}, rule):
			rule += "=" + b.Param()
		}
		path := prefix + strings.TrimPrefix(b.Namespace(), "checked.value.")
		violations = append(violations, pii.Violation{Path: path, Rule: rule})
	}
	return violations
}

var indexes = regexp.MustCompile(`\[[0-9]+\]`)

// Relax clears bad optional members of a provider's body, and returns dropped with them added. This never
// changes the event's effect on money: a currency is cleared with its amounts, an order's total with its
// prices, and a refund's amount is kept, since a refund without an amount is a full one.
func (b Body) Relax(dropped pii.Dropped) pii.Dropped {
	for _, v := range slices.Clone(dropped) {
		b.clearWith(v.Path, &dropped)
	}
	for again := true; again; {
		again = false
		invalid := &Invalid{}
		_ = errors.As(b.Validate(), &invalid)
		for _, v := range invalid.Violations {
			path := indexes.ReplaceAllString(v.Path, "[]")
			if b.clear(path, v.Rule, &dropped) {
				b.clearWith(path, &dropped)
				again = true
			}
		}
	}
	return dropped
}

// clearWith clears the amounts that mean nothing without the cleared currency or total at a path.
func (b Body) clearWith(path string, dropped *pii.Dropped) {
	from, in := b.contract.members[path], path[:strings.LastIndexByte(path, '.')+1]
	for _, other := range b.contract.rules.all() {
		switch {
		case from == nil || other.shape != pii.Amount || !strings.HasPrefix(other.path, in):
		case from.shape == pii.Currency:
			b.clear(other.path, "needs_currency", dropped)
		case from.shape == pii.Amount && strings.Contains(strings.TrimPrefix(other.path, in), "[]"):
			b.clear(other.path, "needs_total", dropped)
		}
	}
}

// clear clears an optional value at a path, in each element of a list, and reports whether there was one. It
// keeps the currency of a refund's amount.
func (b Body) clear(path, rule string, dropped *pii.Dropped) (cleared bool) {
	f := b.contract.members[path]
	if f == nil || !f.optional || f.inside != nil {
		return false
	}
	if f.shape == pii.Currency && b.text("data.refund.amount") != "" {
		return false
	}
	each(b.whole(), f.at, func(at reflect.Value) {
		cleared = cleared || !at.IsZero()
		at.SetZero()
	})
	if cleared {
		dropped.Add(path, rule)
	}
	return cleared
}
