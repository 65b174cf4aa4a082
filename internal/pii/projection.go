package pii

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/go-json-experiment/json/jsontext"
)

// Projection is an allow-list of JSON paths with a rule for each. It is safe for
// concurrent use.
type Projection struct {
	root  *node
	rules map[string]Rule
	pool  sync.Pool
}

// node is one place of the allow-list: an object, an array, or a scalar.
type node struct {
	// quoted is the field's name as it is written, with quotes and colon.
	quoted   []byte
	children map[string]*node
	element  *node
	rule     Rule
}

// NewProjection makes a projection of paths such as body.lines[].product_id. It
// panics on a path that is malformed or lies inside another: that is a mistake of
// the program.
func NewProjection(rules map[string]Rule) *Projection {
	p := &Projection{root: &node{children: map[string]*node{}}, rules: rules}
	p.pool.New = func() any { return &state{decoder: jsontext.NewDecoder(nothing{})} }
	for path, r := range rules {
		at := p.root
		for name := range strings.SplitSeq(path, ".") {
			name, array := strings.CutSuffix(name, "[]")
			if name == "" || at.rule.rule != nil {
				panic("pii: bad path " + path)
			}
			if at.children == nil {
				at.children = map[string]*node{}
			}
			next := at.children[name]
			if next == nil {
				next = &node{quoted: append(strconv.AppendQuote(nil, name), ':')}
				at.children[name] = next
			}
			if array {
				if next.element == nil {
					next.element = &node{}
				}
				next = next.element
			}
			at = next
		}
		if at.children != nil || at.element != nil || r.rule == nil {
			panic("pii: bad path " + path)
		}
		at.rule = r
	}
	return p
}

// nothing is a reader that is at its end: what a decoder has before it is first reset.
type nothing struct{}

func (nothing) Read([]byte) (int, error) { return 0, io.EOF }

// For makes the projection of a Go type: its JSON names are the paths, and the word
// in each `validate` tag that names a shape is the rule. It panics on a string
// without such a word: free text cannot be declared.
func For[T any]() *Projection {
	rules := map[string]Rule{}
	collect(reflect.TypeFor[T](), "", rules)
	return NewProjection(rules)
}

var words = map[string]Rule{
	"id": ID, "uid": UID, "flake": Flake, "event_type": Code, "code": Code,
	"timestamp": Time, "currency": Currency, "amount": Amount,
}

func collect(t reflect.Type, prefix string, rules map[string]Rule) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	for i := range t.NumField() {
		field := t.Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name == "" || name == "-" {
			panic("pii: " + t.Name() + "." + field.Name + " has no JSON name")
		}
		path, of := prefix+name, field.Type
		if of.Kind() == reflect.Slice {
			path, of = path+"[]", of.Elem()
		}
		for of.Kind() == reflect.Pointer {
			of = of.Elem()
		}
		tags := strings.Split(field.Tag.Get("validate"), ",")
		switch of.Kind() {
		case reflect.Struct:
			collect(of, path+".", rules)
		case reflect.Int64:
			rules[path] = Integer
			if slices.Contains(tags, "min=1") {
				rules[path] = Quantity
			}
		case reflect.String:
			for _, tag := range tags {
				if r, ok := words[tag]; ok {
					rules[path] = r
				}
			}
			if rules[path].rule == nil {
				panic("pii: " + path + " has no shape")
			}
		default:
			panic("pii: " + path + " has a type that cannot be bounded")
		}
	}
}

// Rules returns the rule of every path.
func (p *Projection) Rules() map[string]Rule { return p.rules }

// Violation names a path and the rule that its value breaks, or the detector that
// fired. The path comes from the allow-list, with indexes; the value never does.
type Violation struct {
	Path string
	Rule string
}

// Error says why a document was not projected. Its text holds no value.
type Error struct {
	// Malformed: not one JSON document in valid UTF-8, without duplicate names.
	Malformed bool
	// Violations lists the first twenty.
	Violations []Violation
}

func (e *Error) Error() string {
	if e.Malformed {
		return "pii: not well-formed JSON"
	}
	var text strings.Builder
	text.WriteString("pii: ")
	for i, v := range e.Violations {
		if i > 0 {
			text.WriteString(", ")
		}
		fmt.Fprintf(&text, "%s: %s", v.Path, v.Rule)
	}
	return text.String()
}

const maxViolations = 20

// state is one run of a projection.
type state struct {
	decoder *jsontext.Decoder
	source  bytes.Buffer
	scratch []byte
	// path holds the names and indexes that lead to where the run is.
	path       []step
	violations []Violation
}

type step struct {
	name  []byte
	index int
}

var errMalformed = errors.New("pii: malformed")

// Append projects src in one pass and appends the result, compact, in the order of
// the input: allowed fields alone, nulls and empty strings left out. Reading what is
// dropped whole is faster than the decoder's SkipValue, and checks the same. Every value is checked against
// its rule and by the detectors; what is dropped is only checked to be well-formed.
// The error is an *Error.
func (p *Projection) Append(dst, src []byte) ([]byte, error) {
	s := p.pool.Get().(*state) //nolint:errcheck // the pool holds nothing else
	defer func() {
		// Nothing of a document stays behind in the pool.
		s.source, s.violations, s.path = bytes.Buffer{}, nil, s.path[:0]
		p.pool.Put(s)
	}()
	s.source = *bytes.NewBuffer(src)
	s.decoder.Reset(&s.source)
	out, err := s.value(dst, p.root)
	if err == nil {
		_, err = s.decoder.ReadToken()
		if errors.Is(err, io.EOF) {
			err = nil
		} else {
			err = errMalformed
		}
	}
	switch {
	case err != nil:
		return dst, &Error{Malformed: true}
	case len(s.violations) > 0:
		return dst, &Error{Violations: slices.Clone(s.violations)}
	}
	return out, nil
}

func (s *state) value(dst []byte, at *node) ([]byte, error) {
	kind := s.decoder.PeekKind()
	switch {
	case at.rule.rule != nil:
		return s.scalar(dst, at.rule, kind)
	case at.element != nil:
		if kind != '[' {
			return s.mismatch(dst, "array")
		}
		return s.array(dst, at.element)
	default:
		if kind != '{' {
			return s.mismatch(dst, "object")
		}
		return s.object(dst, at)
	}
}

func (s *state) mismatch(dst []byte, wanted string) ([]byte, error) {
	if _, err := s.decoder.ReadValue(); err != nil {
		return dst, errMalformed
	}
	s.violate(wanted)
	return dst, nil
}

func (s *state) object(dst []byte, at *node) ([]byte, error) {
	if _, err := s.decoder.ReadToken(); err != nil {
		return dst, errMalformed
	}
	dst = append(dst, '{')
	first := true
	for s.decoder.PeekKind() != '}' {
		quoted, err := s.decoder.ReadValue()
		if err != nil {
			return dst, errMalformed
		}
		name, err := s.unquote(quoted)
		if err != nil {
			return dst, errMalformed
		}
		child := at.children[string(name)]
		if child == nil || s.decoder.PeekKind() == 'n' {
			if _, err := s.decoder.ReadValue(); err != nil {
				return dst, errMalformed
			}
			continue
		}
		before := len(dst)
		if !first {
			dst = append(dst, ',')
		}
		dst = append(dst, child.quoted...)
		s.path = append(s.path, step{name: child.quoted})
		start := len(dst)
		dst, err = s.value(dst, child)
		if err != nil {
			return dst, err
		}
		s.path = s.path[:len(s.path)-1]
		if len(dst) == start { // empty, or a violation: nothing was written
			dst = dst[:before]
			continue
		}
		first = false
	}
	if _, err := s.decoder.ReadToken(); err != nil {
		return dst, errMalformed
	}
	return append(dst, '}'), nil
}

func (s *state) array(dst []byte, element *node) ([]byte, error) {
	if _, err := s.decoder.ReadToken(); err != nil {
		return dst, errMalformed
	}
	dst = append(dst, '[')
	s.path = append(s.path, step{})
	for i := 0; s.decoder.PeekKind() != ']'; i++ {
		if i > 0 && dst[len(dst)-1] != '[' {
			dst = append(dst, ',')
		}
		s.path[len(s.path)-1].index = i
		var err error
		if dst, err = s.value(dst, element); err != nil {
			return dst, err
		}
	}
	s.path = s.path[:len(s.path)-1]
	if _, err := s.decoder.ReadToken(); err != nil {
		return dst, errMalformed
	}
	return append(dst, ']'), nil
}

func (s *state) scalar(dst []byte, r Rule, kind jsontext.Kind) ([]byte, error) {
	raw, err := s.decoder.ReadValue()
	if err != nil {
		return dst, errMalformed
	}
	if (r.number && kind != '0') || (!r.number && kind != '"') {
		s.violate(r.name)
		return dst, nil
	}
	value := []byte(raw)
	if !r.number {
		if value, err = s.unquote(raw); err != nil {
			return dst, errMalformed
		}
	}
	if len(value) == 0 {
		return dst, nil // providers write absent as empty; a field that is required is missed later
	}
	if !r.valid(value) {
		s.violate(r.name)
		return dst, nil
	}
	if found := detect(r, value); found != "" {
		s.violate(found)
		return dst, nil
	}
	if r.number {
		return append(dst, value...), nil
	}
	// No shape has a character that JSON would escape.
	dst = append(dst, '"')
	dst = append(dst, value...)
	return append(dst, '"'), nil
}

// unquote returns the text of a JSON string, in place where nothing is escaped.
func (s *state) unquote(quoted jsontext.Value) ([]byte, error) {
	if bytes.IndexByte(quoted, '\\') < 0 {
		return quoted[1 : len(quoted)-1], nil
	}
	var err error
	s.scratch, err = jsontext.AppendUnquote(s.scratch[:0], quoted)
	return s.scratch, err
}

func (s *state) violate(what string) {
	if len(s.violations) == maxViolations {
		return
	}
	var path strings.Builder
	for _, step := range s.path {
		if step.name == nil {
			fmt.Fprintf(&path, "[%d]", step.index)
			continue
		}
		if path.Len() > 0 {
			path.WriteByte('.')
		}
		path.Write(step.name[1 : len(step.name)-2])
	}
	s.violations = append(s.violations, Violation{Path: path.String(), Rule: what})
}

// CheckAttributes looks over the attributes of a message that is about to leave:
// each needs a rule, its shape, and silence from the detectors. The error is an
// *Error; an attribute without a rule is not named, since its name may be anything.
func CheckAttributes(attributes map[string]string, rules map[string]Rule) error {
	var violations []Violation
	for name, value := range attributes {
		r, ok := rules[name]
		switch {
		case !ok:
			violations = append(violations, Violation{Path: "attribute", Rule: "unknown"})
		case !r.Valid(value):
			violations = append(violations, Violation{Path: name, Rule: r.name})
		default:
			if found := detect(r, []byte(value)); found != "" {
				violations = append(violations, Violation{Path: name, Rule: found})
			}
		}
	}
	if len(violations) == 0 {
		return nil
	}
	slices.SortFunc(violations, func(a, b Violation) int { return strings.Compare(a.Path, b.Path) })
	return &Error{Violations: violations}
}
