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

	"billhook/internal/contract/routing"
	"billhook/internal/pii"
)

// ErrMalformed: not one JSON document in valid UTF-8 without duplicate names, or its shape is wrong.
var ErrMalformed = errors.New("contract: not a body of the contract")

// ErrFormat: the data is not a body of the requested format.
var ErrFormat = errors.New("contract: a body of another format")

// Undeclared is the rule that an undeclared event type or version breaks.
const Undeclared = "undeclared"

// Set has every format with its declarations. It is safe for concurrent use.
type Set struct {
	formats []*known
}

type known struct {
	*Format
	// whole has the members that all bodies of the format share; it is used for undeclared bodies.
	whole    *Contract
	all      []*Contract
	declared routing.Table[map[int64]*Contract]
}

// Contract has the Go type for bodies of one format, event type and version, and all that is derived from it.
type Contract struct {
	// Declaration has no members, and # as its type, if the format declares no contents.
	Declaration

	format     *Format
	typ        reflect.Type
	rules      rules
	projection *pii.Projection
	// members has all possible members by path; keys has the paths of possible ordering keys by name.
	members map[string]*rule
	keys    map[string]string
}

// NewSet compiles the formats and their declarations. The error joins all mistakes.
func NewSet(formats []Format, declared []Declaration) (*Set, error) {
	s := &Set{}
	for i := range formats {
		f := &known{Format: &formats[i], declared: map[string]map[int64]*Contract{}}
		whole := Declaration{Format: f.Name, Version: 1}
		if f.Content == "" {
			whole.Type = "#"
		}
		f.whole = newContract(whole, f.Format, withContent(f.Head, f.Content, reflect.TypeFor[struct{}]()))
		if f.Content == "" {
			f.all, f.declared["#"] = []*Contract{f.whole}, map[int64]*Contract{1: f.whole}
		}
		s.formats = append(s.formats, f)
	}
	var mistakes []error
	for _, d := range declared {
		for _, err := range s.declare(d) {
			mistakes = append(mistakes, fmt.Errorf("%s: %s: version %d: %w", d.Format, d.Type, d.Version, err))
		}
	}
	return s, errors.Join(mistakes...)
}

func (s *Set) declare(d Declaration) (mistakes []error) {
	f := s.format(d.Format)
	if f == nil || f.Content == "" {
		return []error{errors.New("no format of that name has declared contents")}
	}
	if _, err := routing.Parse(d.Type); err != nil {
		mistakes = append(mistakes, err)
	}
	if d.Version < 1 || d.Version > 1000 || (f.Version == "" && d.Version != 1) {
		mistakes = append(mistakes, errors.New("versions are 1 to 1000, and 1 where bodies have none"))
	}
	if f.declared[d.Type][d.Version] != nil {
		mistakes = append(mistakes, errors.New("is declared twice"))
	}
	content, err := structOf(d.Members)
	if err != nil {
		mistakes = append(mistakes, err)
	}
	if len(mistakes) > 0 {
		return mistakes
	}
	c := newContract(d, f.Format, withContent(f.Head, f.Content, content))
	if f.declared[d.Type] == nil {
		f.declared[d.Type] = map[int64]*Contract{}
	}
	f.declared[d.Type][d.Version] = c
	f.all = append(f.all, c)
	return nil
}

func (s *Set) format(name string) *known {
	if s == nil {
		return nil
	}
	for _, f := range s.formats {
		if f.Name == name {
			return f
		}
	}
	return nil
}

// Known reports whether bodies of the format can be read.
func (s *Set) Known(format string) bool { return s.format(format) != nil }

// NamesKeys reports whether bodies of the format can have an idempotency key beside their id.
func (s *Set) NamesKeys(format string) bool {
	f := s.format(format)
	return f != nil && f.IdempotencyKey != ""
}

// Names returns the names of the formats.
func (s *Set) Names() (names []string) {
	for _, f := range s.formats {
		names = append(names, f.Name)
	}
	return names
}

// newContract compiles a type. A type that leaves its content open has no projection. Ordering keys are taken
// from the content's members before those of the head.
func newContract(d Declaration, format *Format, t reflect.Type) *Contract {
	c := &Contract{Declaration: d, format: format, typ: t, rules: compile(t, "", nil)}
	c.members, c.keys = map[string]*rule{}, map[string]string{}
	if format.Content == "" || t != format.Head {
		c.projection = c.rules.project()
	}
	for _, f := range c.rules.all() {
		c.members[f.path] = f
		ofContent, first := f.path == format.Content+"."+f.name, f.path == f.name && c.keys[f.name] == ""
		if f.kind == reflect.String && !f.list && (ofContent || first) {
			c.keys[f.name] = f.path
		}
	}
	if i := slices.IndexFunc(d.Members, func(m Member) bool { return m.Required && m.Shape == "id" }); i >= 0 {
		c.keys["subject"] = format.Content + "." + d.Members[i].Name
	}
	return c
}

func (c *Contract) typeAt(path string) reflect.Type {
	return deref(c.typ.FieldByIndex(c.members[path].at).Type)
}

// Projection returns the allow-list for the contract's bodies.
func (c *Contract) Projection() *pii.Projection { return c.projection }

// Decode decodes a body of the contract and checks its shape, but not its rules. The error is ErrMalformed,
// without any of the data.
func (c *Contract) Decode(data []byte) (Body, error) {
	value := reflect.New(c.typ).Interface()
	if err := json.Unmarshal(data, value, strict); err != nil {
		return Body{}, ErrMalformed
	}
	return Body{c, value}, nil
}

// strict refuses members that the contract does not name, so that consumers never see them.
var strict = json.RejectUnknownMembers(true)

// Detect finds the format's name by the contract attribute or else by the body's marks; empty: unknown.
func (s *Set) Detect(attributes map[string]string, data []byte) string {
	if name, ok := attributes[AttrContract]; ok {
		if s.Known(name) {
			return name
		}
		return ""
	}
	names := map[string]bool{}
	if !EachMember(data, func(name string, _ jsontext.Value) { names[name] = true }) {
		return ""
	}
	for _, f := range s.formats {
		if len(f.Marks) > 0 && !slices.ContainsFunc(f.Marks, func(mark string) bool { return !names[mark] }) {
			return f.Name
		}
	}
	return ""
}

// Find returns the contract for a body of the format, by its event type and version. If they are undeclared,
// the error is an *Invalid, and the contract is the one of all bodies of the format. Other errors are
// ErrMalformed and ErrFormat.
func (s *Set) Find(format string, data []byte) (*Contract, error) {
	f := s.format(format)
	switch {
	case f == nil:
		return nil, ErrFormat
	case f.Content == "":
		return f.whole, nil
	}
	var kind string
	version, versioned := int64(1), f.Version == ""
	if !EachMember(data, func(name string, value jsontext.Value) {
		switch name {
		case f.Type:
			kind = text(value)
		case cmp.Or(f.Version, f.Type):
			if n, err := strconv.ParseInt(string(value), 10, 64); err == nil {
				version, versioned = n, true
			}
		}
	}) {
		return f.whole, ErrMalformed
	}
	if kind == "" {
		return f.whole, Broken(f.Type, "required")
	}
	versions, ok := f.declared.Find(kind)
	switch {
	case !ok:
		return f.whole, Broken(f.Type, Undeclared)
	case !versioned:
		return f.whole, Broken(f.Version, "required")
	case versions[version] == nil:
		return f.whole, Broken(f.Version, Undeclared)
	}
	return versions[version], nil
}

// Decode finds a body's contract and decodes the body with it. It returns the same errors as Find.
func (s *Set) Decode(format string, data []byte) (Body, error) {
	c, err := s.Find(format, data)
	if err == nil {
		return c.Decode(data)
	}
	EachMember(data, func(name string, _ jsontext.Value) {
		if c != nil && c.members[name] == nil {
			err = ErrMalformed // it is not a body of the format
		}
	})
	return Body{}, err
}

// Receive decodes a message of a queue with this format. It returns the attributes, and completes them for a
// raw message. It returns the same errors as Decode.
func (s *Set) Receive(
	format string, orderingKey []string, m Message, publishedAt time.Time,
) (Body, map[string]string, error) {
	found := s.Detect(m.Attributes, m.Data)
	if _, named := m.Attributes[AttrContract]; found == "" && !named && s.Known(format) &&
		s.format(format).Content != "" {
		data, err := s.Complete(format, m.Data, Given{
			ID: m.Attributes[AttrEventID], Type: cmp.Or(m.Attributes[AttrEventType], m.Attributes[AttrRoutingKey]),
			CorrelationID: m.Attributes[AttrCorrelationID], At: publishedAt,
		})
		body := Body{}
		if err == nil {
			body, err = s.Decode(format, data)
		}
		if err != nil {
			return Body{}, nil, err
		}
		made := body.Attributes()
		made.Order(body.OrderingKey(orderingKey, &made))
		all := made.Map()
		maps.Copy(all, m.Attributes)
		return body, all, nil
	}
	if found != format || !s.Known(format) {
		return Body{}, nil, ErrFormat
	}
	body, err := s.Decode(format, m.Data)
	return body, m.Attributes, err
}

// Held decodes and validates a body that a program made, by its declaration.
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
