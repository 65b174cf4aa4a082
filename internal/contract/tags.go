package contract

import (
	"reflect"
	"slices"
	"strconv"
	"strings"

	"billhook/internal/contract/money"
	"billhook/internal/pii"
)

// shape is a word of tags: what a text looks like.
type shape struct {
	// rule is package pii's, so that a shape is declared once.
	rule pii.Rule
	// valid is the check; nil: an amount is checked with its currency, by isAmount.
	valid func(string) bool
	// pattern is the shape for readers in other languages.
	pattern string
}

var shapes = map[string]shape{
	"id":         {pii.ID, pii.ID.Valid, `^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$`},
	"uid":        {pii.UID, pii.UID.Valid, `^[A-Za-z0-9_-][A-Za-z0-9._:|-]{0,127}$`},
	"code":       {pii.Code, pii.Code.Valid, codes},
	"event_type": {pii.Code, pii.Code.Valid, codes},
	"currency":   {pii.Currency, isCurrency, `^[A-Z]{3}$`},
	"amount":     {pii.Amount, nil, `^(0|[1-9][0-9]{0,18})(\.[0-9]{1,4})?$`},
	"number":     {pii.Rule{}, isNumber, `^[0-9]+$`},
	"timestamp":  {pii.Time, pii.Time.Valid, `^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?(Z|[+-][0-9]{2}:[0-9]{2})$`},
	// The rule is that of an ordering key which is not the uid; see Attributes.Rules.
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

// rules are what projection and schema are made from; go-playground/validator holds values to the tags.
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
	// words name the shapes of a text.
	words []string
	// bounded: from low to high, which is also the most bytes of a text or elements of a list, if not 0.
	bounded   bool
	low, high int64
	oneOf     []string
	// priced: it is an amount in the currency beside it.
	priced bool
	// inside are the rules of an object, or of each element of a list.
	inside rules
}

// compile reads the tags of a struct type.
func compile(t reflect.Type) rules {
	r := make(rules, t.NumField())
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
				f.priced = true
			case "order_amount", "order_price":
				key = "amount"
			}
			if _, ok := shapes[key]; ok {
				f.words = append(f.words, key)
			}
		}
		f.optional = f.omitted && !f.required && field.Tag.Get("pii") != "strict"
		if f.kind == reflect.Struct {
			f.inside = compile(of)
		}
	}
	return r
}

// project panics on a text without a shape: free text cannot be declared.
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
		case f.kind != reflect.String || f.words == nil:
			panic("contract: " + path + " has no shape")
		default:
			allowed[path] = shapes[f.words[0]].rule
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
	return deref(t.FieldByIndex(locate(t, path)).Type)
}

// follow is the value at a place that locate has found; not valid where it is not there.
func follow(v reflect.Value, index []int) reflect.Value {
	if index == nil {
		return reflect.Value{}
	}
	at, err := reflect.Indirect(v).FieldByIndexErr(index)
	if err != nil {
		return reflect.Value{}
	}
	return reflect.Indirect(at)
}
