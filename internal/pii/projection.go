package pii

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// Projection is an allow-list of JSON paths with rules. It is safe for concurrent use.
type Projection struct {
	root  *node
	rules map[string]Rule
	paths map[string]*node
}

type node struct {
	name string
	// An object has members, and an array has an element.
	members []*node
	element *node
	rule    Rule
	// optional: Minimize leaves out a value that breaks the rule or has another JSON type.
	optional bool
	// number identifies the path in the values of Minimize.
	number int
}

// NewProjection makes a projection of paths such as body.lines[].product_id. Minimize leaves out bad values
// at optional paths, and bad objects whose members are all optional. It panics on a bad path, which is a
// programming error.
func NewProjection(rules map[string]Rule, optional ...string) *Projection {
	p := &Projection{root: &node{}, rules: maps.Clone(rules), paths: map[string]*node{}}
	for path, rule := range rules {
		at := p.add(path)
		if at == nil || at.members != nil || at.element != nil || rule == (Rule{}) {
			panic("pii: bad path " + path)
		}
		at.rule = rule
	}
	for _, path := range optional {
		at := p.paths[path]
		if at == nil {
			panic("pii: bad optional path " + path)
		}
		at.optional = true
	}
	p.root.settle()
	p.root.optional = false // the document itself is required
	return p
}

// Number returns the number in a Value, from 1 on, of a path or an array's elements such as lines[].
func (p *Projection) Number(path string) int {
	if at := p.paths[path]; at != nil {
		return at.number
	}
	return 0
}

// Value has a value's position in the output and its path's number. An array's element precedes its members.
type Value struct{ Number, Start, End int }

// add returns the node at a path and creates missing ones; nil: the path is bad.
func (p *Projection) add(path string) *node {
	at, so := p.root, ""
	for name := range strings.SplitSeq(strings.ReplaceAll(path, "[]", ".[]"), ".") {
		if so != "" && name != "[]" {
			so += "."
		}
		so += name
		next := p.paths[so]
		if next == nil {
			fits := isName(name) || name == "[]" && at.members == nil && !strings.Contains(path, "[][]")
			if !fits || at.rule != (Rule{}) || at.element != nil {
				return nil
			}
			next = &node{name: name, number: len(p.paths) + 1}
			if p.paths[so] = next; name == "[]" {
				at.element = next
			} else {
				at.members = append(at.members, next)
			}
		}
		at = next
	}
	return at
}

// settle makes an object optional if all in it is, but never an array's element: a gap would change a list.
func (n *node) settle() bool {
	every := n.rule == (Rule{})
	for _, child := range n.members {
		every = child.settle() && every
	}
	if n.element != nil {
		n.element.settle()
		n.element.optional, every = false, false
	}
	n.optional = n.optional || every
	return n.optional
}

// member returns the member of that name. Objects have few members, so a map would be slower.
func (n *node) member(name []byte) *node {
	for _, child := range n.members {
		if child.name == string(name) {
			return child
		}
	}
	return nil
}

// isName: a name that JSON does not escape and that a path can contain.
func isName(name string) bool {
	for i := range len(name) {
		if c := name[i]; c <= ' ' || c > '~' || c == '"' || c == '\\' || c == '[' || c == ']' {
			return false
		}
	}
	return name != "" && len(name) <= maxText
}

// Rules returns the rule of every path.
func (p *Projection) Rules() map[string]Rule { return maps.Clone(p.rules) }

// Violation has a path, with indexes, and the broken rule, the detector that fired, or the JSON type that is
// required there; never the value. A question mark replaces an unknown name that is not a code.
type Violation struct {
	Path string `json:"path"`
	Rule string `json:"rule"`
}

func (v Violation) String() string { return v.Path + ": " + v.Rule }

// Error is the reason why a document was not projected. Its text contains no value.
type Error struct {
	// Malformed: the input is not one JSON document, has duplicate names, or nests more than 64 deep.
	Malformed bool
	Offset    int64
	// Violations has at most twenty entries.
	Violations []Violation
}

func (e *Error) Error() string {
	if e.Malformed {
		return "pii: malformed JSON at byte " + strconv.FormatInt(e.Offset, 10)
	}
	return Describe("pii", e.Violations)
}

// Describe returns the text of an error that lists violations.
func Describe(by string, violations []Violation) string {
	texts := make([]string, len(violations))
	for i, v := range violations {
		texts[i] = v.String()
	}
	return by + ": " + strings.Join(texts, ", ")
}

const (
	maxViolations = 20
	maxDepth      = 64
	// maxText is the most bytes of a name or value; maxEscaped is its longest JSON spelling.
	maxText    = 128
	maxEscaped = 6*maxText + 2
)

// Document is one JSON document in valid UTF-8.
type Document struct{ text []byte }

// Parse checks that src is a document without duplicate names in an object. If an option allows duplicates,
// projections still refuse them in the objects they read. src must not change. The error is an *Error.
func Parse(src []byte, as ...jsontext.Options) (Document, error) {
	if !jsontext.Value(src).IsValid(as...) {
		return Document{}, &Error{Malformed: true, Offset: offset(src)}
	}
	return Document{src}, nil
}

// Append projects src and appends the result, compact, in the order of the input: only allowed fields,
// without nulls and empty strings. After an error, which is an *Error, dst is unchanged.
func (p *Projection) Append(dst, src []byte) ([]byte, error) {
	d, err := Parse(src)
	if err != nil {
		return dst, err
	}
	dst, _, err = p.walk(dst, nil, d, plain)
	return dst, err
}

// Again is Append for JSON that this process has encoded itself, which needs no check.
func (p *Projection) Again(dst, encoded []byte) ([]byte, error) {
	dst, _, err := p.walk(dst, nil, Document{encoded}, plain)
	return dst, err
}

// Minimize is like Append, but leaves out bad values at optional paths and accepts a uid that is a whole
// number. dropped lists the first twenty paths left out, with the broken rule, each once, with [] for every
// index. values, if not nil, receives the position of each value in out, without quotes.
func (p *Projection) Minimize(
	dst []byte, values *[]Value, d Document,
) (out []byte, dropped Dropped, err error) {
	return p.walk(dst, values, d, lenient)
}

// First returns the document's first value at an allowed path, and reads no further; empty: none.
func (p *Projection) First(dst []byte, values *[]Value, d Document) []byte {
	out, _, err := p.walk(dst, values, d, first)
	if err != nil || len(*values) == 0 {
		return nil
	}
	return out[(*values)[0].Start:(*values)[0].End]
}

// Exact is like Append, but refuses unknown names and reads a time without an offset as UTC.
func (p *Projection) Exact(dst []byte, d Document) ([]byte, error) {
	dst, _, err := p.walk(dst, nil, d, exact)
	return dst, err
}

func (p *Projection) walk(dst []byte, values *[]Value, d Document, as mode) ([]byte, Dropped, error) {
	w := walks.Get().(*walk)
	defer w.done()
	w.src, w.mode, w.values = d.text, as, values
	out := w.value(dst, p.root)
	switch {
	case w.malformed > 0:
		return dst, nil, &Error{Malformed: true, Offset: int64(w.malformed)}
	case len(w.violations) > 0:
		return dst, w.dropped, &Error{Violations: w.violations}
	}
	return out, w.dropped, nil
}

// Dropped has the violations of the values that were left out, each once, at most twenty.
type Dropped []Violation

// Add adds a violation, unless it is there or the list is full.
func (d *Dropped) Add(path, rule string) {
	if v := (Violation{Path: path, Rule: rule}); len(*d) < maxViolations && !slices.Contains(*d, v) {
		*d = append(*d, v)
	}
}

// Has reports whether something at the path was left out.
func (d *Dropped) Has(path string) bool {
	return slices.ContainsFunc(*d, func(v Violation) bool { return v.Path == path })
}

// CheckAttributes checks the attributes of a message before it is sent. The error is an *Error. It does not
// name an attribute without a rule, since such a name could be personal data.
func CheckAttributes(attributes map[string]string, rules map[string]Rule) error {
	var violations []Violation
	for name, value := range attributes {
		rule, ok := rules[name]
		switch {
		case !ok:
			violations = append(violations, Violation{Path: "attribute", Rule: "unknown"})
		case !rule.Valid(value):
			violations = append(violations, Violation{Path: name, Rule: rule.Name()})
		default:
			if found, ok := Detect(rule, value); ok {
				violations = append(violations, Violation{Path: name, Rule: found})
			}
		}
	}
	if len(violations) == 0 {
		return nil
	}
	slices.SortFunc(violations, func(a, b Violation) int { return strings.Compare(a.Path, b.Path) })
	return &Error{Violations: violations[:min(len(violations), maxViolations)]}
}
