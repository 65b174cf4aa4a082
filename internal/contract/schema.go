package contract

import (
	"bytes"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"billhook/internal/routing"
)

//go:generate go run billhook/internal/contract/schemagen schema ../../docs/contracts.md

// object is a JSON object whose members keep their order.
type object []member

type member struct {
	name  string
	value any
}

func (o object) MarshalJSONTo(e *jsontext.Encoder) error {
	if err := e.WriteToken(jsontext.BeginObject); err != nil {
		return err
	}
	for _, m := range o {
		if err := e.WriteToken(jsontext.String(m.name)); err != nil {
			return err
		}
		if err := json.MarshalEncode(e, m.value); err != nil {
			return err
		}
	}
	return e.WriteToken(jsontext.EndObject)
}

// Schemas returns the JSON Schemas (2020-12) of the messages, by file name.
func (s *Set) Schemas() (map[string][]byte, error) {
	out := map[string][]byte{}
	write := func(title string, of object) error {
		of = append(object{{"$schema", "https://json-schema.org/draft/2020-12/schema"}, {"title", title}}, of...)
		text, err := json.Marshal(of, jsontext.WithIndent("  "))
		out[strings.ReplaceAll(title, " ", ".")+".json"] = append(text, '\n')
		return err
	}
	for _, f := range s.formats {
		if f.Head == nil {
			continue
		}
		if err := write(f.Name, f.schema()); err != nil {
			return nil, fmt.Errorf("contract: schema of %s: %w", f.Name, err)
		}
	}
	// A message may carry more, such as a trace context.
	attributes := append(schemaOf(reflect.TypeFor[Attributes](), map[string]any{AttrContract: object{{"enum", s.Names()}}}), member{"additionalProperties", true})
	return out, write(PayNowV1+" attributes", attributes)
}

func (k *known) schema() object {
	if k.Content == "" {
		return append(append(schemaOf(k.Head, nil), member{"additionalProperties", false}), k.relations()...)
	}
	content := func(c *Contract) object {
		return append(schemaOf(c.typ.FieldByIndex(c.content).Type, nil), member{"additionalProperties", false})
	}
	var kinds []object
	for _, c := range k.all {
		var when object
		switch {
		case c.pattern.Exact():
			when = object{{k.Type, object{{"const", c.pattern.String()}}}}
		case c.pattern.String() != "#":
			when = object{{k.Type, object{{"pattern", expression(c.pattern)}}}}
		}
		if k.Version != "" {
			when = append(when, member{k.Version, object{{"const", c.version}}})
		}
		kinds = append(kinds, object{{"properties", append(when, member{k.Content, content(c)})}})
	}
	return append(schemaOf(k.whole.typ, map[string]any{k.Content: true}), member{"additionalProperties", false}, member{"anyOf", kinds})
}

// relations are what a body of an event type must have; that an amount has exactly its
// currency's digits no schema can say.
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
		if typeAt(k.Head, n.Path).Kind() == reflect.Slice {
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

// expression is a pattern of routing keys as a regular expression.
func expression(p routing.Pattern) string {
	return "^" + strings.NewReplacer(`.#`, `(\..+)?`, `#.`, `(.+\.)?`, `*`, `[^.]+`, `.`, `\.`, `#`, `.*`).Replace(p.String()) + "$"
}

// patterns are the shapes of the pii package's rules, for readers in other languages.
var patterns = map[string]string{
	"id":         `^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$`,
	"uid":        `^[A-Za-z0-9_-][A-Za-z0-9._:|-]{0,127}$`,
	"flake":      `^[0-9]{1,32}$`,
	"code":       `^[A-Za-z][A-Za-z0-9._-]{0,63}$`,
	"event_type": `^[A-Za-z][A-Za-z0-9._-]{0,63}$`,
	"currency":   `^[A-Z]{3}$`,
	"amount":     `^(0|[1-9][0-9]{0,18})(\.[0-9]{1,4})?$`,
	"number":     `^[0-9]+$`,
	"timestamp":  `^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?(Z|[+-][0-9]{2}:[0-9]{2})$`,
	// Each form of an id is one of a uid.
	"ordering_key": `^[A-Za-z0-9_-][A-Za-z0-9._:|-]{0,127}$`,
}

// schemaOf is the schema of a struct type, but for additionalProperties; members in instead
// have the schema that stands there.
func schemaOf(t reflect.Type, instead map[string]any) object {
	t = deref(t)
	r, required, currency := compile(t, t), []string{}, ""
	properties, needs := object{}, object{}
	for i := range r.fields {
		f, field := &r.fields[i], t.Field(i)
		if f.required || !strings.Contains(field.Tag.Get("json"), ",omit") {
			required = append(required, f.name)
		}
		for _, w := range f.words {
			if w.name == "currency" {
				currency = f.name
			}
		}
		var schema any = f.schema(field)
		if other, ok := instead[f.name]; ok {
			schema = other
		}
		properties = append(properties, member{f.name, schema})
	}
	for i := range r.fields {
		if f := &r.fields[i]; currency != "" && f.money != nil && f.money.beside >= 0 {
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
	return out
}

func (f *fieldRule) schema(field reflect.StructField) object {
	of := deref(field.Type)
	switch of.Kind() {
	case reflect.Slice:
		list := object{{"type", "array"}, {"items", append(schemaOf(of.Elem(), nil), member{"additionalProperties", false})}}
		if f.most > 0 {
			list = append(list, member{"maxItems", f.most})
		}
		return list
	case reflect.Struct:
		return append(schemaOf(of, nil), member{"additionalProperties", false})
	case reflect.Int64:
		number := object{{"type", "integer"}}
		if f.bounded {
			number = append(number, member{"minimum", f.low}, member{"maximum", f.high})
		}
		return number
	default:
	}
	text := object{{"type", "string"}}
	for _, w := range f.words {
		if w.name != "id" || len(f.words) == 1 { // the narrower of two
			text = append(text, member{"pattern", patterns[w.name]})
		}
	}
	if f.money != nil {
		text = append(text, member{"pattern", patterns["amount"]})
	}
	if f.most > 0 {
		text = append(text, member{"maxLength", f.most})
	}
	if f.oneOf != nil {
		text = append(text, member{"enum", f.oneOf})
	}
	return text
}

// Page describes every contract that is declared, in Markdown.
func (s *Set) Page() []byte {
	var page bytes.Buffer
	page.WriteString("# Contracts\n\nGenerated by `make generate` from `catalog/messages.yaml`. Members that are not listed do not pass;\n`!` is required. The JSON Schemas are in `internal/contract/schema/`.\n")
	for _, f := range s.formats {
		if f.Content == "" {
			continue
		}
		fmt.Fprintf(&page, "\n## %s\n", f.Name)
		for _, c := range f.all {
			fmt.Fprintf(&page, "\n### `%s`, version %d\n\n| `%s` | shape |\n| --- | --- |\n", c.pattern, c.version, f.Content)
			writeMembers(&page, c.declared, "")
		}
	}
	return page.Bytes()
}

func writeMembers(page *bytes.Buffer, members []Member, path string) {
	for _, m := range members {
		shape, name := m.Shape, path+m.Name
		if m.List != nil {
			shape, name = "list", name+"[]"
		}
		if m.Required {
			shape += "!"
		}
		fmt.Fprintf(page, "| `%s` | %s |\n", name, shape)
		writeMembers(page, m.List, name+".")
	}
}
