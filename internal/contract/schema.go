package contract

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/invopop/jsonschema"
)

//go:generate go run billhook/internal/contract/schemagen schema

// Schemas returns the JSON Schemas (2020-12) of the messages, by file name, generated
// from the Go types and their tags.
func Schemas() (map[string][]byte, error) {
	reflector := &jsonschema.Reflector{Anonymous: true, DoNotReference: true}
	of := func(title string, message any) *jsonschema.Schema {
		schema := reflector.Reflect(message)
		schema.Title = title
		bound(schema, reflect.TypeOf(message))
		return schema
	}
	payNow, envelope, attributes := of(PayNowV1, &PayNow{}), of(EnvelopeV1, &Envelope{}), of(PayNowV1+" attributes", &Attributes{})
	payNow.AllOf = relationSchemas()
	payload, _ := envelope.Properties.Get("payload")
	payload.DependentRequired = map[string][]string{"amount": {"currency"}}
	// A message may carry more, such as a trace context.
	attributes.AdditionalProperties = jsonschema.TrueSchema
	out := map[string][]byte{}
	for name, schema := range map[string]*jsonschema.Schema{
		PayNowV1 + ".json": payNow, PayNowV1 + ".attributes.json": attributes, EnvelopeV1 + ".json": envelope,
	} {
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
	"uid":        `^[A-Za-z0-9_-][A-Za-z0-9._:|-]{0,127}$`,
	"code":       `^[A-Za-z][A-Za-z0-9._-]{0,63}$`,
	"event_type": `^[A-Za-z][A-Za-z0-9._-]{0,63}$`,
	"currency":   `^[A-Z]{3}$`,
	"amount":     `^(0|[1-9][0-9]{0,18})(\.[0-9]{1,4})?$`,
	"number":     `^[0-9]+$`,
	"timestamp":  `^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?(Z|[+-][0-9]{2}:[0-9]{2})$`,
}

// relationSchemas are the rules between fields that a schema can express; see
// relations. That an amount has exactly its currency's digits is not one.
func relationSchemas() []*jsonschema.Schema {
	of := func(name string, schema *jsonschema.Schema) *jsonschema.Schema {
		properties := jsonschema.NewProperties()
		properties.Set(name, schema)
		return &jsonschema.Schema{Properties: properties, Required: []string{name}}
	}
	items, least := of("items", &jsonschema.Schema{}), uint64(1)
	items.Properties.Value("items").MinItems = &least
	return []*jsonschema.Schema{
		{
			If:   of("eventType", &jsonschema.Schema{Pattern: `^order\.`}),
			Then: of("data", of("order", &jsonschema.Schema{})),
		},
		{
			If:   of("eventType", &jsonschema.Schema{Const: OrderPaid}),
			Then: of("data", of("order", items)),
		},
		{
			If:   of("eventType", &jsonschema.Schema{Pattern: `^(subscription|trial)\.`}),
			Then: of("data", of("subscription", &jsonschema.Schema{})),
		},
	}
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
		if slices.Contains(tags, "required") || !strings.Contains(field.Tag.Get("json"), ",omit") {
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
			if tag == "ordering_key" {
				tag = "uid" // each form of an id is one of a uid
			}
			if pattern, ok := patterns[tag]; ok {
				property.Pattern = pattern
			}
			word, limit, _ := strings.Cut(tag, "=")
			switch {
			case word == "min":
				property.Minimum = json.Number(limit)
			case word == "max" && of.Kind() == reflect.String:
				property.MaxLength = number(limit)
			case word == "max":
				property.Maximum = json.Number(limit)
			case word == "oneof":
				for _, one := range strings.Fields(limit) {
					property.Enum = append(property.Enum, one)
				}
			}
		}
	}
	schema.Required = required
}

func number(text string) *uint64 {
	n, err := strconv.ParseUint(text, 10, 64)
	must(err)
	return &n
}
