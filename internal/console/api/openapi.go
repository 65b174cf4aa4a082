package api

import (
	"maps"
	"path"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"billhook/internal/console"
	"billhook/internal/platform/serve"
	"billhook/internal/platform/store"
)

type object = map[string]any

// content is the body of a request or an answer.
func content(kind string, schema object) object { return object{kind: object{"schema": schema}} }

// OpenAPI returns the OpenAPI 3.1 document of all operations.
func (s *Server) OpenAPI() map[string]any {
	schemas, paths := schemas{all: object{}, types: map[string]reflect.Type{}}, map[string]object{}
	problem := object{
		"description": "Why it is refused, or was not done",
		"content":     content("application/problem+json", schemas.of(reflect.TypeFor[serve.Problem]())),
	}
	for _, o := range s.Operations {
		answer := schemas.of(reflect.TypeOf(o.Answer()).Elem())
		entry := object{
			"operationId": strings.ReplaceAll(o.Name, " ", "-"), "summary": o.Summary, "tags": []string{o.Noun()},
			"responses": object{"default": problem, "200": object{
				"description": "What is so now", "content": content("application/json", answer),
			}},
		}
		if o.Help != "" {
			entry["description"] = o.Help
		}
		parameters, members, required := []any{}, object{}, []string{}
		for _, f := range o.Fields {
			schema := maps.Clone(schemas.of(f.Type))
			if len(f.OneOf) > 0 {
				schema["enum"] = f.OneOf
			}
			for rule, bound := range map[string]string{"min": "minimum", "max": "maximum"} {
				value, _ := f.Rule(rule)
				if n, err := strconv.ParseInt(value, 10, 64); err == nil {
					schema[bound] = n
				}
			}
			if f.In != console.InBody {
				parameters = append(parameters, object{
					"name": f.Name, "in": string(f.In), "required": f.Required, "description": f.Help, "schema": schema,
				})
				continue
			}
			schema["description"], members[f.Name] = f.Help, schema
			if f.Required {
				required = append(required, f.Name)
			}
		}
		if o.Needs >= console.Reason {
			parameters = append(parameters, object{
				"name": headerKey, "in": "header", "required": false, "schema": object{"type": "string"},
				"description": "Names the change: sent again with the same key, it is done once and answered as " +
					"before, for 24 hours.",
			})
		}
		if len(parameters) > 0 {
			entry["parameters"] = parameters
		}
		if len(members) > 0 {
			entry["requestBody"] = object{"required": true, "content": content("application/json", object{
				"type": "object", "properties": members, "required": required, "additionalProperties": false,
			})}
		}
		if paths[o.Pattern] == nil {
			paths[o.Pattern] = object{}
		}
		paths[o.Pattern][strings.ToLower(o.Method)] = entry
	}
	return object{
		"openapi": "3.1.0", "info": object{"title": "Billhook operations", "version": "1"},
		"paths": paths, "components": object{"schemas": schemas.all},
	}
}

// schemas has the schemas of structs by type name, after the package's name if two types share one.
type schemas struct {
	all   object
	types map[string]reflect.Type
}

// nameOf is a type's name, such as ListOfOrder for List[orders.Order].
func (s schemas) nameOf(t reflect.Type) string {
	if strings.HasPrefix(t.Name(), "List[") {
		items, _ := t.FieldByName("Items")
		return "ListOf" + s.nameOf(items.Type.Elem())
	}
	name := capital(t.Name())
	if other, ok := s.types[name]; ok && other != t {
		return capital(path.Base(t.PkgPath())) + name
	}
	return name
}

func capital(name string) string { return strings.ToUpper(name[:1]) + name[1:] }

func (s schemas) of(t reflect.Type) object {
	switch {
	case t == reflect.TypeFor[time.Time]():
		return object{"type": "string", "format": "date-time"}
	case t == reflect.TypeFor[console.Moment](), t == reflect.TypeFor[store.Version]():
		return object{"type": "string"}
	case t == reflect.TypeFor[jsontext.Value](), t.Kind() == reflect.Interface:
		return object{}
	case t.Kind() == reflect.Pointer:
		return object{"anyOf": []any{s.of(t.Elem()), object{"type": "null"}}}
	case t.Kind() == reflect.Slice && t.Elem().Kind() != reflect.Uint8:
		return object{"type": "array", "items": s.of(t.Elem())}
	case t.Kind() == reflect.Map:
		return object{"type": []string{"object", "null"}, "additionalProperties": s.of(t.Elem())}
	case t.Kind() == reflect.Struct:
		return s.object(t)
	case t.Kind() == reflect.Bool:
		return object{"type": "boolean"}
	case t.Kind() >= reflect.Int && t.Kind() <= reflect.Uint64:
		return object{"type": "integer"}
	case t.Kind() == reflect.Float64:
		return object{"type": "number"}
	default:
		return object{"type": "string"}
	}
}

func (s schemas) object(t reflect.Type) object {
	name := s.nameOf(t)
	reference := object{"$ref": "#/components/schemas/" + name}
	if s.types[name] == t {
		return reference
	}
	s.types[name] = t // before its members: a struct may hold itself
	properties, required := object{}, []string{}
	for parts := []reflect.Type{t}; len(parts) > 0; parts = parts[1:] { // outer members hide inner ones
		for f := range parts[0].Fields() {
			member, options, _ := strings.Cut(f.Tag.Get("json"), ",")
			switch {
			case f.Anonymous && member == "":
				parts = append(parts, f.Type)
			case member == "", member == "-", properties[member] != nil:
			default:
				properties[member] = s.of(f.Type)
				if !strings.Contains(options, "omit") {
					required = append(required, member)
				}
			}
		}
	}
	slices.Sort(required)
	s.all[name] = object{"type": "object", "properties": properties, "required": required}
	return reference
}
