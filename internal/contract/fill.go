package contract

import (
	"cmp"
	"reflect"
	"slices"
	"strconv"
	"time"

	"billhook/internal/pii"
)

// Typed returns the newest contract that decodes bodies of an event type; nil: none is declared.
func (s *Set) Typed(format, eventType string) (newest *Contract) {
	f := s.format(format)
	if f == nil {
		return nil
	}
	versions, _ := f.declared.Find(eventType)
	for _, c := range versions {
		if newest == nil || c.Version > newest.Version {
			newest = c
		}
	}
	return newest
}

// Required returns the paths that bodies of the event type must have wherever the object around is present.
func (c *Contract) Required(eventType string) (paths []string) {
	for _, f := range c.rules.all() {
		if f.inside == nil && (f.required || f.low == 1) {
			paths = append(paths, f.path)
		}
	}
	for _, n := range c.format.Needs {
		if n.of(eventType) {
			paths = append(paths, n.Path)
		}
	}
	return paths
}

// Slot is the position of a member in the bodies of a contract, used to set it.
type Slot struct {
	Rule pii.Rule
	at   []int
}

// Slot finds the member at a path, such as data.order.items[].price.
func (c *Contract) Slot(path string) (s Slot, ok bool) {
	if f := c.members[path]; f != nil {
		s = Slot{f.shape, f.at}
	}
	return s, s.Rule != (pii.Rule{})
}

// New returns a body of an event type without content, to be filled by Set.
func (c *Contract) New(id, eventType, at string) Body {
	b := Body{c, reflect.New(c.typ).Interface()}
	b.at(c.format.ID).SetString(id)
	b.at(c.format.Type).SetString(eventType)
	b.at(c.format.Time).SetString(at)
	if c.format.Version != "" {
		b.at(c.format.Version).SetInt(c.Version)
	}
	return b
}

// Grow makes the slot's list, with n empty elements.
func (b Body) Grow(s Slot, n int) {
	list := reach(b.whole(), s.at[:slices.Index(s.at, element)], 0)
	list.Set(reflect.MakeSlice(list.Type(), n, n))
}

// Set sets a member to a value that must keep the slot's rule. Inside a list, i is the element's index.
func (b Body) Set(s Slot, i int, text string) {
	switch at := reach(b.whole(), s.at, i); at.Kind() {
	case reflect.String:
		at.SetString(text)
	case reflect.Bool:
		at.SetBool(text == "true")
	default:
		n, _ := strconv.ParseInt(text, 10, 64) // the slot's rule allows only integers
		at.SetInt(n)
	}
}

// Touch creates the object around a slot that is in no list.
func (b Body) Touch(s Slot) { reach(b.whole(), s.at[:len(s.at)-1], 0) }

// reach returns the value at a slot; inside a list, i is the index. It creates missing objects around it.
func reach(v reflect.Value, at []int, i int) reflect.Value {
	for _, n := range at {
		if v = made(v); n == element {
			v = v.Index(i)
		} else {
			v = v.Field(n)
		}
	}
	return made(v)
}

func made(v reflect.Value) reflect.Value {
	if v.Kind() != reflect.Pointer {
		return v
	}
	if v.IsNil() {
		v.Set(reflect.New(v.Type().Elem()))
	}
	return v.Elem()
}

// Stamp has the values that are added to a message that a handler made.
type Stamp struct {
	ID, Tenant, RoutingKey string
	// OrderingKey is the message's ordering key; empty: none.
	OrderingKey string
	// Since is the time from which the message's age counts; zero: At.
	Since time.Time
	At    time.Time
}

// Compose makes a message from a program's body: it sets id and time, and validates the result.
func (s *Set) Compose(made Body, stamp Stamp) (Body, Message, error) {
	f := made.contract.format
	stamped := reflect.New(f.Head)
	stamped.Elem().Set(made.whole())
	at := stamp.At.UTC().Format(time.RFC3339Nano)
	since := at
	if !stamp.Since.IsZero() {
		since = stamp.Since.UTC().Format(time.RFC3339Nano)
	}
	own := Of(stamped.Interface())
	own.at(f.ID).SetString(stamp.ID)
	own.at(f.Time).SetString(at)
	body, err := s.Held(own)
	if err != nil {
		return Body{}, Message{}, err
	}
	attributes := body.Attributes()
	attributes.Tenant, attributes.RoutingKey, attributes.FirstPublished = stamp.Tenant, stamp.RoutingKey, since
	m := Message{OrderingKey: attributes.Order(stamp.OrderingKey), Attributes: attributes.Map()}
	if err = attributes.Validate(); err == nil {
		m.Data, err = body.Append(nil)
	}
	return body, m, cmp.Or(err, m.Check())
}
