package contract

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/invopop/jsonschema"
)

//go:generate go run billhook/internal/contract/schemagen schema

// Schemas returns the JSON Schemas (2020-12) of the messages, by file name, generated
// from the Go types and their tags.
func Schemas() (map[string][]byte, error) {
	reflector := &jsonschema.Reflector{Anonymous: true, DoNotReference: true}
	body := reflector.Reflect(&PayNow{})
	body.Title = "paynow.v1"
	bound(body, reflect.TypeFor[PayNow]())
	attributes := &jsonschema.Schema{
		Version: jsonschema.Version, Title: "paynow.v1 attributes", Type: "object",
		Properties: jsonschema.NewProperties(), Required: []string{AttrEventID, AttrOrderingKey},
		AdditionalProperties: jsonschema.TrueSchema,
	}
	names := make([]string, 0, len(AttributeRules))
	for name := range AttributeRules {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		attributes.Properties.Set(name, &jsonschema.Schema{Type: "string", Pattern: patterns[AttributeRules[name].Name()]})
	}
	out := map[string][]byte{}
	for name, schema := range map[string]*jsonschema.Schema{"paynow.v1.json": body, "paynow.v1.attributes.json": attributes} {
		text, err := json.MarshalIndent(schema, "", "  ")
		if err != nil {
			return nil, fmt.Errorf("contract: schema: %w", err)
		}
		out[name] = append(text, '\n')
	}
	return out, nil
}

// patterns are the shapes of the pii package's rules, for readers in other languages.
var patterns = map[string]string{
	"id":         `^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$`,
	"uid":        `^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$`,
	"code":       `^[A-Za-z][A-Za-z0-9._-]{0,63}$`,
	"event_type": `^[A-Za-z][A-Za-z0-9._-]{0,63}$`,
	"currency":   `^[A-Z]{3}$`,
	"amount":     `^-?[0-9]{1,24}$|^-?[0-9]+\.[0-9]+$`,
	"timestamp":  `^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?(Z|[+-][0-9]{2}:[0-9]{2})$`,
}

// bound writes into a schema what the validate tags say.
func bound(schema *jsonschema.Schema, t reflect.Type) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	var required []string
	for i := range t.NumField() {
		field := t.Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		property, ok := schema.Properties.Get(name)
		if !ok {
			continue
		}
		of := field.Type
		tags := strings.Split(field.Tag.Get("validate"), ",")
		if slices.Contains(tags, "required") || !strings.Contains(field.Tag.Get("json"), "omitempty") {
			required = append(required, name)
		}
		if of.Kind() == reflect.Slice {
			of = of.Elem()
			for _, tag := range tags {
				if limit, ok := strings.CutPrefix(tag, "max="); ok {
					property.MaxItems = number(limit)
				}
			}
			property = property.Items
		}
		for of.Kind() == reflect.Pointer {
			of = of.Elem()
		}
		if of.Kind() == reflect.Struct {
			bound(property, of)
			continue
		}
		for _, tag := range tags {
			if pattern, ok := patterns[tag]; ok {
				property.Pattern = pattern
			}
			if limit, ok := strings.CutPrefix(tag, "min="); ok {
				property.Minimum = json.Number(limit)
			}
			if limit, ok := strings.CutPrefix(tag, "max="); ok {
				property.Maximum = json.Number(limit)
			}
		}
	}
	schema.Required = required
}

func number(text string) *uint64 {
	var n uint64
	_, _ = fmt.Sscanf(text, "%d", &n) // the tags are constants
	return &n
}
