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

// OpenAPI is the OpenAPI 3.1 document of all operations.
func (s *Server) OpenAPI() map[string]any {
	schemas, paths := schemas{all: map[string]any{}, types: map[string]reflect.Type{}},
		map[string]map[string]any{}
	problem := map[string]any{"description": "Why it is refused, or was not done", "content": map[string]any{
		"application/problem+json": map[string]any{"schema": schemas.of(reflect.TypeFor[serve.Problem]())},
	}}
	for _, o := range s.Operations {
		entry := map[string]any{
			"operationId": strings.ReplaceAll(o.Name, " ", "-"), "summary": o.Summary, "tags": []string{o.Noun()},
			"responses": map[string]any{"default": problem, "200": map[string]any{
				"description": "What is so now", "content": map[string]any{
					"application/json": map[string]any{"schema": schemas.of(reflect.TypeOf(o.Answer()).Elem())},
				},
			}},
		}
		if o.Help != "" {
			entry["description"] = o.Help
		}
		parameters, members, required := []any{}, map[string]any{}, []string{}
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
				parameters = append(parameters, map[string]any{
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
			parameters = append(parameters, map[string]any{
				"name": headerKey, "in": "header", "required": false, "schema": map[string]any{"type": "string"},
				"description": "Names the change: sent again with the same key, it is done once and answered as " +
					"before, for 24 hours.",
			})
		}
		if len(parameters) > 0 {
			entry["parameters"] = parameters
		}
		if len(members) > 0 {
			entry["requestBody"] = map[string]any{
				"required": true, "content": map[string]any{"application/json": map[string]any{
					"schema": map[string]any{
						"type": "object", "properties": members, "required": required, "additionalProperties": false,
					},
				}},
			}
		}
		if paths[o.Pattern] == nil {
			paths[o.Pattern] = map[string]any{}
		}
		paths[o.Pattern][strings.ToLower(o.Method)] = entry
	}
	return map[string]any{
		"openapi": "3.1.0", "info": map[string]any{"title": "Billhook operations", "version": "1"},
		"paths": paths, "components": map[string]any{"schemas": schemas.all},
	}
}

// schemas are those of the structs, by the name under which the document has them: the type's, behind its
// package's where two types share one.
type schemas struct {
	all   map[string]any
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

func (s schemas) of(t reflect.Type) map[string]any {
	switch {
	case t == reflect.TypeFor[time.Time]():
		return map[string]any{"type": "string", "format": "date-time"}
	case t == reflect.TypeFor[console.Moment](), t == reflect.TypeFor[store.Version]():
		return map[string]any{"type": "string"}
	case t == reflect.TypeFor[jsontext.Value](), t.Kind() == reflect.Interface:
		return map[string]any{}
	case t.Kind() == reflect.Pointer:
		return map[string]any{"anyOf": []any{s.of(t.Elem()), map[string]any{"type": "null"}}}
	case t.Kind() == reflect.Slice && t.Elem().Kind() != reflect.Uint8:
		return map[string]any{"type": "array", "items": s.of(t.Elem())}
	case t.Kind() == reflect.Map:
		return map[string]any{"type": []string{"object", "null"}, "additionalProperties": s.of(t.Elem())}
	case t.Kind() == reflect.Struct:
		return s.object(t)
	case t.Kind() == reflect.Bool:
		return map[string]any{"type": "boolean"}
	case t.Kind() >= reflect.Int && t.Kind() <= reflect.Uint64:
		return map[string]any{"type": "integer"}
	case t.Kind() == reflect.Float64:
		return map[string]any{"type": "number"}
	default:
		return map[string]any{"type": "string"}
	}
}

func (s schemas) object(t reflect.Type) map[string]any {
	name := s.nameOf(t)
	reference := map[string]any{"$ref": "#/components/schemas/" + name}
	if s.types[name] == t {
		return reference
	}
	s.types[name] = t // before its members: a struct may hold itself
	properties, required := map[string]any{}, []string{}
	for parts := []reflect.Type{t}; len(parts) > 0; parts = parts[1:] { // the outer hide the inner
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
	s.all[name] = map[string]any{"type": "object", "properties": properties, "required": required}
	return reference
}
