package contract

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"billhook/internal/pii"
	"billhook/internal/routing"
)

// ErrMalformed: not one JSON document in valid UTF-8 without duplicate names, or not
// of the contract's shape.
var ErrMalformed = errors.New("contract: not a body of the contract")

// ErrFormat: not a body of the format that is asked for.
var ErrFormat = errors.New("contract: a body of another format")

// Undeclared is the rule of an event type, or version, that nothing declares.
const Undeclared = "undeclared"

// Set is every contract: those of the table, with what is declared for them. It is safe for
// concurrent use.
type Set struct {
	formats []*known
}

// known is a format at work.
type known struct {
	*Format
	// whole is the contract of a format without declarations; else it holds what every body
	// of the format has, and is that of what is not declared.
	whole *Contract
	types routing.Table[map[int64]*Contract]
	all   []*Contract
}

// Contract is what the bodies of one format, event type and version have: a Go type, and
// what follows from it.
type Contract struct {
	format  *Format
	pattern routing.Pattern
	version int64
	// declared are the members of the content.
	declared []Member
	// typ is the Go type, pointer that of a pointer to it.
	typ, pointer reflect.Type
	rules        *rules
	projection   *pii.Projection

	id, kind, time, made, attempts, numbered []int
	content                                  []int
	correlation                              [][]int
	said                                     []repeated
	hashed                                   [][]int
	posted, needs                            [][]int
	// keys are the places of what an ordering key may be made of, by name.
	keys map[string][]int
}

// repeated is an attribute, by its place among an Attributes' fields, that repeats one of these.
type repeated struct {
	attribute int
	of        [][]int
}

// NewSet compiles the formats and what is declared for them. The error joins all mistakes.
func NewSet(formats []Format, declared []Declaration) (*Set, error) {
	s := &Set{}
	var mistakes []error
	for i := range formats {
		s.formats = append(s.formats, newKnown(&formats[i]))
	}
	types := map[*known]map[string]map[int64]*Contract{}
	for _, d := range declared {
		wrong := func(err error) {
			mistakes = append(mistakes, fmt.Errorf("%s: %s: version %d: %w", d.Format, d.Type, d.Version, err))
		}
		f, err := s.format(d.Format), error(nil)
		if f == nil || f.Content == "" {
			wrong(errors.New("no format of that name has declared contents"))
			continue
		}
		c := &Contract{format: f.Format, version: d.Version, declared: d.Members}
		if c.pattern, err = routing.Parse(d.Type); err != nil {
			wrong(err)
		}
		if d.Version < 1 || d.Version > 1000 || (f.Version == "" && d.Version != 1) {
			wrong(errors.New("versions are 1 to 1000, and 1 where bodies have none"))
		}
		content, err := structOf(d.Members)
		if err != nil {
			wrong(err)
			continue
		}
		c.compile(withContent(f.Head, f.Content, content))
		c.projection = pii.ForType(c.typ)
		if types[f] == nil {
			types[f] = map[string]map[int64]*Contract{}
		}
		if types[f][d.Type] == nil {
			types[f][d.Type] = map[int64]*Contract{}
		}
		if types[f][d.Type][d.Version] != nil {
			wrong(errors.New("is declared twice"))
		}
		types[f][d.Type][d.Version] = c
		f.all = append(f.all, c)
	}
	for f, byType := range types {
		f.types, _ = routing.NewTable(byType) // patterns that are none were told above
	}
	return s, errors.Join(mistakes...)
}

func newKnown(f *Format) *known {
	k := &known{Format: f}
	switch {
	case f.Head == nil:
	case f.Content == "":
		k.whole = &Contract{format: f, version: 1}
		k.whole.compile(f.Head)
		k.whole.projection = pii.ForType(f.Head)
		k.all = []*Contract{k.whole}
	default:
		k.whole = &Contract{format: f, version: 1}
		k.whole.compile(withContent(f.Head, f.Content, reflect.TypeFor[struct{}]()))
		k.whole.projection = pii.ForType(k.whole.typ)
	}
	return k
}

func (s *Set) format(name string) *known {
	if s == nil {
		return nil
	}
	for _, f := range s.formats {
		if f.Name == name && f.Head != nil {
			return f
		}
	}
	return nil
}

// Known reports whether bodies of the format can be read.
func (s *Set) Known(format string) bool { return s.format(format) != nil }

// Names are those of the formats whose bodies can be read.
func (s *Set) Names() (names []string) {
	for _, f := range s.formats {
		if f.Head != nil {
			names = append(names, f.Name)
		}
	}
	return names
}

// compile finds out what follows from the type.
func (c *Contract) compile(t reflect.Type) {
	f := c.format
	c.typ, c.pointer, c.rules, c.keys = t, reflect.PointerTo(t), compile(t, t), map[string][]int{}
	at := func(path string) []int {
		if path == "" {
			return nil
		}
		return locate(t, path)
	}
	each := func(paths []string) (found [][]int) {
		for _, path := range paths {
			found = append(found, at(path))
		}
		return found
	}
	c.id, c.kind, c.time, c.made, c.attempts, c.numbered = at(f.ID), at(f.Type), at(f.Time), at(f.IdempotencyKey), at(f.MaxAttempts), at(f.Version)
	c.content, c.correlation, c.hashed = at(f.Content), each(f.Correlation), each(f.Hashed)
	c.takeKeys(t, nil)
	if c.content != nil {
		c.takeKeys(deref(t.FieldByIndex(c.content).Type), c.content)
	}
	if i := slices.IndexFunc(c.declared, func(m Member) bool { return m.Required && m.Shape == "id" }); i >= 0 {
		c.keys["subject"] = append(slices.Clone(c.content), i)
	}
	for i, attribute := range new(Attributes).fields() {
		if paths := f.Said[attribute.name]; paths != nil {
			c.said = append(c.said, repeated{i, each(paths)})
		}
	}
	for _, n := range f.Needs {
		c.needs = append(c.needs, at(n.Path))
	}
	for _, p := range f.Posted {
		c.posted = append(c.posted, at(p.Path))
	}
}

// takeKeys takes down the texts of a struct type.
func (c *Contract) takeKeys(t reflect.Type, at []int) {
	for i := 0; t.Kind() == reflect.Struct && i < t.NumField(); i++ {
		if t.Field(i).Type.Kind() == reflect.String {
			c.keys[jsonName(t.Field(i))] = append(slices.Clone(at), i)
		}
	}
}

// Projection is the allow-list of the contract's bodies.
func (c *Contract) Projection() *pii.Projection { return c.projection }

// Decode reads a body of the contract: its shape, not its rules, which Validate checks. The
// error is ErrMalformed and repeats nothing of the data: not even the name of an unknown
// field, which may be anything.
func (c *Contract) Decode(data []byte) (Body, error) {
	value := reflect.New(c.typ).Interface()
	if err := json.Unmarshal(data, value, strict); err != nil {
		return Body{}, ErrMalformed
	}
	return Body{c, value}, nil
}

// strict refuses what the contract does not name, so that nobody behind the topic
// ever sees more than it. Duplicate names and invalid UTF-8 are refused by default.
var strict = json.RejectUnknownMembers(true)

// Detect names the format of a message: the one its contract attribute names, else the
// one whose marks the body has at its top. It is empty for a format that is not known, and
// for data that is not a JSON object.
func (s *Set) Detect(attributes map[string]string, data []byte) string {
	if name, ok := attributes[AttrContract]; ok {
		if s.Known(name) {
			return name
		}
		return ""
	}
	names := map[string]bool{}
	if !members(data, func(name string, _ jsontext.Value) { names[name] = true }) {
		return ""
	}
	for _, f := range s.formats {
		if len(f.Marks) > 0 && !slices.ContainsFunc(f.Marks, func(mark string) bool { return !names[mark] }) {
			return f.Name
		}
	}
	return ""
}

// Find is the contract of a body of the format, by the event type and the version that it
// says. Where nothing declares them, the error is an *Invalid, and the contract is that of
// what every body of the format has. ErrMalformed is of what is not a JSON object, and
// ErrFormat of a format that is not known.
func (s *Set) Find(format string, data []byte) (*Contract, error) {
	f := s.format(format)
	switch {
	case f == nil:
		return nil, ErrFormat
	case f.Content == "":
		return f.whole, nil
	}
	var kind string
	version, said := int64(1), f.Version == ""
	if !members(data, func(name string, value jsontext.Value) {
		switch name {
		case f.Type:
			if text, err := jsontext.AppendUnquote(nil, value); err == nil {
				kind = string(text)
			}
		case cmp.Or(f.Version, f.Type):
			if n, err := strconv.ParseInt(string(value), 10, 64); err == nil {
				version, said = n, true
			}
		}
	}) {
		return f.whole, ErrMalformed
	}
	if kind == "" {
		return f.whole, broken(f.Type, "required")
	}
	versions, ok := f.types.Find(kind)
	switch {
	case !ok:
		return f.whole, broken(f.Type, Undeclared)
	case !said:
		return f.whole, broken(f.Version, "required")
	case versions[version] == nil:
		return f.whole, broken(f.Version, Undeclared)
	}
	return versions[version], nil
}

// Decode reads a body of the format, by what is declared of it: its shape, not its rules.
// The error is ErrMalformed, or as Find's.
func (s *Set) Decode(format string, data []byte) (Body, error) {
	c, err := s.Find(format, data)
	if err == nil {
		return c.Decode(data)
	}
	members(data, func(name string, _ jsontext.Value) {
		if c != nil && locate(c.typ, name) == nil {
			err = ErrMalformed // not only is it not declared: it is no body of the format
		}
	})
	return Body{}, err
}

// Receive reads a message of a queue of the format, and returns its attributes with it: a
// raw message lacks some, which are made up, the ordering key from the named fields. The
// error is as Decode's.
func (s *Set) Receive(format string, orderingKey []string, m Message, publishedAt time.Time) (Body, map[string]string, error) {
	found := s.Detect(m.Attributes, m.Data)
	if _, named := m.Attributes[AttrContract]; found == "" && !named {
		for _, f := range s.formats {
			if f.Wraps != format {
				continue
			}
			data, err := f.Wrap(m.Data, m.Attributes, publishedAt)
			if err != nil {
				return Body{}, nil, err
			}
			body, err := s.Decode(format, data)
			if err != nil {
				return Body{}, nil, err
			}
			made := body.Attributes()
			made.Order(body.OrderingKey(orderingKey, &made))
			all := made.Map()
			maps.Copy(all, m.Attributes)
			return body, all, nil
		}
	}
	if found != format || !s.Known(format) {
		return Body{}, nil, ErrFormat
	}
	body, err := s.Decode(format, m.Data)
	return body, m.Attributes, err
}

// Stamp is what a message that a handler made gets on its way out.
type Stamp struct {
	ID, Tenant, RoutingKey string
	// OrderingKey is what the message waits behind; empty: nothing.
	OrderingKey string
	At          time.Time
}

// Compose makes the message of a body that a program made: it gets its id and its time, and
// is held to what is declared of it. It returns the body as it leaves.
func (s *Set) Compose(made Body, stamp Stamp) (Body, Message, error) {
	f := made.contract.format
	stamped := reflect.New(f.Head)
	stamped.Elem().Set(made.v())
	at := stamp.At.UTC().Format(time.RFC3339Nano)
	stamped.Elem().FieldByIndex(locate(f.Head, f.ID)).SetString(stamp.ID)
	stamped.Elem().FieldByIndex(locate(f.Head, f.Time)).SetString(at)
	body, err := s.Held(Of(stamped.Interface()))
	if err != nil {
		return Body{}, Message{}, err
	}
	attributes := body.Attributes()
	attributes.Tenant, attributes.RoutingKey, attributes.FirstPublished = stamp.Tenant, stamp.RoutingKey, at
	m := Message{OrderingKey: attributes.Order(stamp.OrderingKey)}
	if err := attributes.Validate(); err != nil {
		return Body{}, Message{}, err
	}
	m.Attributes = attributes.Map()
	if m.Data, err = body.Append(nil); err != nil {
		return Body{}, Message{}, err
	}
	return body, m, m.Check()
}

// Held is a body that a program made, held to what is declared of it.
func (s *Set) Held(made Body) (Body, error) {
	data, err := made.Append(nil)
	if err != nil {
		return Body{}, err
	}
	body, err := s.Decode(made.Format(), data)
	if err != nil {
		return Body{}, err
	}
	return body, body.Validate()
}
