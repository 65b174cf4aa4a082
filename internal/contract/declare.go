package contract

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"billhook/internal/pii"
)

// Declaration is what the content of one version of an event type may hold.
type Declaration struct {
	Format string
	// Type is an event type, or a pattern of package routing; the narrowest wins.
	Type    string
	Version int64
	Members []Member
}

// Member is one member of a declaration: a shape of package pii, a list, or an object.
type Member struct {
	Name string
	// Shape names a pii.Rule, with bounds as in "integer 0..100"; of a list, how many elements: "0..100".
	Shape    string
	Required bool
	// List are the members of a list's elements, and Object those of an object, which have shapes alone.
	List, Object []Member
}

// shapeTags are the shapes that a member may be declared with, as tags.
var shapeTags = map[string]string{
	"id": "id", "uid": "uid", "flake": "flake", "code": "code", "timestamp": "timestamp", "currency": "currency", "amount": "amount",
	"integer": "", "quantity": "min=1,max=9007199254740991", "boolean": "",
}

// maxListed is how many elements a declared list has at most.
const maxListed = 5000

// structOf makes the Go type of declared members. Required numbers and booleans are pointers, to tell 0 from
// none.
func structOf(members []Member) (reflect.Type, error) {
	var fields []reflect.StructField
	var mistakes []error
	wrong := func(format string, arguments ...any) { mistakes = append(mistakes, fmt.Errorf(format, arguments...)) }
	currencies := 0
	for i, m := range members {
		name, bounds, bounded := strings.Cut(m.Shape, " ")
		tag, ok := shapeTags[name]
		of, omit, strict := reflect.TypeFor[string](), ",omitempty", ""
		switch {
		case !pii.Code.Valid(m.Name) || strings.ContainsAny(m.Name, ".-") || slices.ContainsFunc(members[:i], func(o Member) bool { return o.Name == m.Name }):
			wrong("%q is no name of a member, or one of two", m.Name)
			continue
		case m.List != nil:
			element, err := structOf(m.List)
			if err != nil {
				wrong("%s: %w", m.Name, err)
				continue
			}
			most := maxListed
			if m.Shape != "" {
				high, ok := strings.CutPrefix(m.Shape, "0..")
				if most, err = strconv.Atoi(high); !ok || err != nil || most < 1 || most > maxListed {
					wrong("%s: a list has 0..1 to 0..%d elements", m.Name, maxListed)
				}
			}
			of, tag = reflect.SliceOf(element), "max="+strconv.Itoa(most)+",dive"
			if m.Required {
				tag = "min=1," + tag
			}
		case m.Object != nil:
			object, err := structOf(m.Object)
			if slices.ContainsFunc(m.Object, func(o Member) bool { return o.List != nil || o.Object != nil }) {
				err = errors.Join(err, errors.New("an object has members of shapes alone"))
			}
			if err != nil {
				wrong("%s: %w", m.Name, err)
				continue
			}
			of, tag = reflect.PointerTo(object), ""
		case !ok || (bounded && name != "integer"):
			wrong("%s: %q is not a shape: %s, an integer's bounds such as \"integer 0..100\", a list or an object", m.Name, m.Shape, strings.Join(slices.Sorted(maps.Keys(shapeTags)), ", "))
			continue
		case name == "integer" || name == "quantity":
			of, omit = reflect.TypeFor[int64](), ",omitzero"
			if bounded {
				low, high, _ := strings.Cut(bounds, "..")
				l, errLow := strconv.ParseInt(low, 10, 64)
				h, errHigh := strconv.ParseInt(high, 10, 64)
				if errLow != nil || errHigh != nil || l > h || (l > 0 && !m.Required) {
					wrong("%s: bounds are two numbers, 0 between them unless it is required", m.Name)
				}
				tag = "min=" + low + ",max=" + high
			} else if tag != "" && !m.Required {
				tag = strings.Replace(tag, "min=1", "min=0", 1) // absent
			}
			if m.Required {
				of = reflect.PointerTo(of)
			}
		case name == "boolean":
			of, omit = reflect.TypeFor[bool](), ",omitzero"
			if m.Required {
				of = reflect.PointerTo(of)
			}
		case name == "currency":
			currencies++
		case name == "amount":
			beside := slices.IndexFunc(members, func(o Member) bool { return o.Shape == "currency" })
			if beside < 0 {
				wrong("%s: an amount has its currency beside it", m.Name)
			}
			tag += "=M" + strconv.Itoa(beside)
		}
		if name == "currency" || name == "amount" {
			strict = ` pii:"strict"`
		}
		presence := "omitempty,"
		if m.Required {
			presence, omit = "required,", ""
		}
		tag = strings.TrimSuffix(presence+tag, ",")
		fields = append(fields, reflect.StructField{
			Name: "M" + strconv.Itoa(i), Type: of, Tag: reflect.StructTag(fmt.Sprintf(`json:"%s%s" validate:"%s"%s`, m.Name, omit, tag, strict)),
		})
	}
	if currencies > 1 {
		wrong("more than one currency: nobody could say whose an amount is")
	}
	if err := errors.Join(mistakes...); err != nil {
		return nil, err
	}
	return reflect.StructOf(fields), nil
}

// withContent is the Go type of a whole body, whose member of that name has the content.
func withContent(head reflect.Type, member string, content reflect.Type) reflect.Type {
	if member == "" {
		return head
	}
	var fields []reflect.StructField
	for i := range head.NumField() {
		field := head.Field(i)
		if field.Offset, field.Index = 0, nil; jsonName(field) == member {
			field.Type = content
		}
		fields = append(fields, field)
	}
	return reflect.StructOf(fields)
}
