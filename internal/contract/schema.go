package contract

import (
	"errors"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"billhook/internal/contract/routing"
)

type object []member

type member struct {
	name  string
	value any
}

func (o object) MarshalJSONTo(e *jsontext.Encoder) error {
	err := e.WriteToken(jsontext.BeginObject)
	for _, m := range o {
		err = errors.Join(err, e.WriteToken(jsontext.String(m.name)), json.MarshalEncode(e, m.value))
	}
	return errors.Join(err, e.WriteToken(jsontext.EndObject))
}

// Schemas returns the JSON Schemas (2020-12) of the messages, by file name.
func (s *Set) Schemas() map[string][]byte {
	// A message may have other attributes, such as a trace context.
	all := map[string]object{
		PaymentV1 +
			" attributes": attributeRules.schema(map[string]any{AttrContract: object{{"enum", s.Names()}}}, true),
	}
	for _, f := range s.formats {
		all[f.Name] = f.schema()
	}
	out := map[string][]byte{}
	for title, of := range all {
		out[strings.ReplaceAll(title, " ", ".")+".json"] = append(document(title, of), '\n')
	}
	return out
}

func document(title string, of object) []byte {
	text, err := json.Marshal(append(object{
		{"$schema", "https://json-schema.org/draft/2020-12/schema"}, {"title", title},
	}, of...), jsontext.WithIndent("  "))
	if err != nil {
		panic(err) // no name occurs twice in a declaration
	}
	return text
}

// Schema returns the JSON Schema (2020-12) of the contract's bodies.
func (s *Set) Schema(c *Contract) []byte {
	f := s.format(c.Format)
	of := f.schema()
	if f.Content != "" {
		instead := map[string]any{}
		if when := c.typeSchema(); when != nil {
			instead[f.Type] = when
		}
		if f.Version != "" {
			instead[f.Version] = object{{"const", c.Version}}
		}
		of = c.rules.schema(instead, false)
	}
	return document(c.ID(), of)
}

// typeSchema returns the schema of the event type in the contract's bodies; nil: any type.
func (c *Contract) typeSchema() object {
	switch p := routing.Pattern(c.Type); {
	case p.Exact():
		return object{{"const", p}}
	case p != "#":
		return object{{"pattern", expression(p)}}
	}
	return nil
}

func (k *known) schema() object {
	if k.Content == "" {
		return append(k.whole.rules.schema(nil, false), k.relations()...)
	}
	var kinds []object
	for _, c := range k.all {
		var when object
		if of := c.typeSchema(); of != nil {
			when = object{{k.Type, of}}
		}
		if k.Version != "" {
			when = append(when, member{k.Version, object{{"const", c.Version}}})
		}
		kinds = append(kinds,
			object{{"properties", append(when, member{k.Content, c.members[k.Content].inside.schema(nil, false)})}})
	}
	return append(k.whole.rules.schema(map[string]any{k.Content: true}, false), member{"anyOf", kinds})
}

// relations has the needs of each type. JSON Schema cannot bind an amount's digits to its currency.
func (k *known) relations() object {
	has := func(name string, inside object) object {
		return object{{"properties", object{{name, inside}}}, {"required", []string{name}}}
	}
	var all []object
	for _, n := range k.Needs {
		types, then := object{{"const", n.Types}}, object{}
		if strings.HasSuffix(n.Types, ".") {
			types = object{{"pattern", "^" + regexp.QuoteMeta(n.Types)}}
		}
		if k.whole.members[n.Path].list {
			then = object{{"minItems", 1}}
		}
		for _, name := range slices.Backward(strings.Split(n.Path, ".")) {
			then = has(name, then)
		}
		all = append(all, object{{"if", has(k.Type, types)}, {"then", then}})
	}
	if all == nil {
		return nil
	}
	return object{{"allOf", all}}
}

func expression(p routing.Pattern) string {
	return "^" + strings.NewReplacer(`.#`, `(\..+)?`, `#.`, `(.+\.)?`, `*`, `[^.]+`, `.`, `\.`, `#`,
		`.*`).Replace(string(p)) + "$"
}

// schema takes the schemas of members in instead from there. others: the object may have more members.
func (r rules) schema(instead map[string]any, others bool) object {
	required, currency := []string{}, ""
	properties, needs := object{}, object{}
	for i := range r {
		f := &r[i]
		if f.required || !f.omitted {
			required = append(required, f.name)
		}
		if slices.Contains(f.words, "currency") {
			currency = f.name
		}
		var schema any = f.schema()
		if other, ok := instead[f.name]; ok {
			schema = other
		}
		properties = append(properties, member{f.name, schema})
	}
	for i := range r {
		if f := &r[i]; currency != "" && f.priced {
			needs = append(needs, member{f.name, []string{currency}})
		}
	}
	out := object{{"type", "object"}, {"properties", properties}}
	if len(required) > 0 {
		out = append(out, member{"required", required})
	}
	if len(needs) > 0 {
		out = append(out, member{"dependentRequired", needs})
	}
	return append(out, member{"additionalProperties", others})
}

func (f *rule) schema() object {
	if f.list {
		element := *f
		element.list, element.high = false, 0
		list := object{{"type", "array"}, {"items", element.schema()}}
		if f.high > 0 {
			list = append(list, member{"maxItems", f.high})
		}
		return list
	}
	switch f.kind {
	case reflect.Struct:
		return f.inside.schema(nil, false)
	case reflect.Bool:
		return object{{"type", "boolean"}}
	case reflect.Int64:
		number := object{{"type", "integer"}}
		if f.bounded {
			number = append(number, member{"minimum", f.low}, member{"maximum", f.high})
		}
		return number
	default:
	}
	text := object{{"type", "string"}}
	for _, word := range f.words {
		if word != "id" || len(f.words) == 1 { // id is the wider of two shapes
			text = append(text, member{"pattern", shapes[word].pattern})
		}
	}
	if f.high > 0 {
		text = append(text, member{"maxLength", f.high})
	}
	if f.oneOf != nil {
		text = append(text, member{"enum", f.oneOf})
	}
	return text
}
