package contract

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"billhook/internal/pii"
)

// Declaration lists the members that the content may have in one version of an event type.
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
	// Shape names a pii.Rule, with bounds as in "integer 0..100". For a list it bounds the length: "0..100".
	Shape    string
	Required bool
	// List has the members of each list element. Object has an object's members, which must be scalars.
	List, Object []Member
}

var declarable = strings.Fields("amount boolean code currency id integer quantity timestamp uid")

const maxListed = 5000

// structOf makes the Go type of declared members. Required numbers and booleans are pointers: nil is absent.
func structOf(members []Member) (reflect.Type, error) {
	var fields []reflect.StructField
	var mistakes []error
	currencies := 0
	for i, m := range members {
		if !pii.Code.Valid(m.Name) || strings.ContainsAny(m.Name, ".-") ||
			slices.ContainsFunc(members[:i], func(o Member) bool { return o.Name == m.Name }) {
			mistakes = append(mistakes, fmt.Errorf("%q is no name of a member, or one of two", m.Name))
			continue
		}
		of, tag, err := m.typed(members)
		if err != nil {
			mistakes = append(mistakes, fmt.Errorf("%s: %w", m.Name, err))
			continue
		}
		presence, omit, strict := "omitempty,", ",omitempty", ""
		bare := of.Kind() == reflect.Int64 || of.Kind() == reflect.Bool
		switch {
		case m.Required:
			presence, omit = "required,", ""
			if bare {
				of = reflect.PointerTo(of)
			}
		case bare:
			omit = ",omitzero"
		}
		if m.Shape == "currency" || m.Shape == "amount" {
			strict = ` pii:"strict"`
		}
		if m.Shape == "currency" {
			currencies++
		}
		fields = append(fields, reflect.StructField{
			Name: "M" + strconv.Itoa(i), Type: of, Tag: reflect.StructTag(fmt.Sprintf(`json:"%s%s" validate:"%s"%s`,
				m.Name, omit, strings.TrimSuffix(presence+tag, ","), strict)),
		})
	}
	if currencies > 1 {
		mistakes = append(mistakes, errors.New("more than one currency: nobody could say whose an amount is"))
	}
	if err := errors.Join(mistakes...); err != nil {
		return nil, err
	}
	return reflect.StructOf(fields), nil
}

// typed returns a member's Go type and its validation tags, without the tag for presence.
func (m Member) typed(beside []Member) (of reflect.Type, tag string, err error) {
	name, bounds, bounded := strings.Cut(m.Shape, " ")
	switch {
	case m.List != nil:
		if of, err = structOf(m.List); err != nil {
			return nil, "", err
		}
		high, ok := strings.CutPrefix(cmp.Or(m.Shape, "0.."+strconv.Itoa(maxListed)), "0..")
		if most, err := strconv.Atoi(high); !ok || err != nil || most < 1 || most > maxListed {
			return nil, "", fmt.Errorf("a list has 0..1 to 0..%d elements", maxListed)
		}
		if tag = "max=" + high + ",dive"; m.Required {
			tag = "min=1," + tag
		}
		return reflect.SliceOf(of), tag, nil
	case m.Object != nil:
		if of, err = structOf(m.Object); slices.ContainsFunc(m.Object, func(o Member) bool {
			return o.List != nil || o.Object != nil
		}) {
			err = errors.Join(err, errors.New("an object has members of shapes alone"))
		}
		if err != nil {
			return nil, "", err
		}
		return reflect.PointerTo(of), "", nil
	case !slices.Contains(declarable, name) || (bounded && name != "integer"):
		return nil, "", fmt.Errorf("%q is not a shape: %s, an integer's bounds such as \"integer 0..100\", a "+
			"list or an object", m.Shape, strings.Join(declarable, ", "))
	case bounded:
		low, high, _ := strings.Cut(bounds, "..")
		l, errLow := strconv.ParseInt(low, 10, 64)
		h, errHigh := strconv.ParseInt(high, 10, 64)
		if errLow != nil || errHigh != nil || l > h || (l > 0 && !m.Required) {
			return nil, "", errors.New("bounds are two numbers, 0 between them unless it is required")
		}
		return reflect.TypeFor[int64](), "min=" + low + ",max=" + high, nil
	case name == "quantity" && !m.Required:
		return reflect.TypeFor[int64](), "min=0,max=9007199254740991", nil // 0 is absent
	case name == "quantity":
		return reflect.TypeFor[int64](), "min=1,max=9007199254740991", nil
	case name == "integer":
		return reflect.TypeFor[int64](), "", nil
	case name == "boolean":
		return reflect.TypeFor[bool](), "", nil
	case name == "amount":
		currency := slices.IndexFunc(beside, func(o Member) bool { return o.Shape == "currency" })
		if currency < 0 {
			return nil, "", errors.New("an amount has its currency beside it")
		}
		name += "=M" + strconv.Itoa(currency)
	}
	return reflect.TypeFor[string](), name, nil
}

// withContent returns the Go type of a whole body: head, with this content type for the named member.
func withContent(head reflect.Type, member string, content reflect.Type) reflect.Type {
	if member == "" {
		return head
	}
	fields := reflect.VisibleFields(head)
	for i := range fields {
		if jsonName(fields[i]) == member {
			fields[i].Type = content
		}
	}
	return reflect.StructOf(fields)
}
