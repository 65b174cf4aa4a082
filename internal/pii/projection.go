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
	// children are an object's members by their names, or an array's element as []. A value has none.
	children map[string]*node
	rule     Rule
	// optional: Minimize leaves out a value that breaks the rule or is of another kind.
	optional bool
	// number names the path among the values that Minimize gives.
	number int
}

// NewProjection makes a projection of paths such as body.lines[].product_id. Minimize leaves out what is bad
// at the optional ones, and objects in which everything is optional. It panics on a bad path, which is a
// mistake of the program.
func NewProjection(rules map[string]Rule, optional ...string) *Projection {
	p := &Projection{
		root: &node{children: map[string]*node{}}, rules: maps.Clone(rules), paths: map[string]*node{},
	}
	for path, rule := range rules {
		at := p.add(path)
		if at == nil || at.children != nil || rule == (Rule{}) {
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
	p.root.optional = false // the document itself
	return p
}

// Number names a path, or an array's elements such as lines[], among the values of Minimize. From 1 on.
func (p *Projection) Number(path string) int {
	if at := p.paths[path]; at != nil {
		return at.number
	}
	return 0
}

// Value is a value that was read, with its path and its position. An array's element precedes its members.
type Value struct{ Number, Start, End int }

// add is the node at a path, made where it is not there; nil: there can be none.
func (p *Projection) add(path string) *node {
	at, so := p.root, ""
	for name := range strings.SplitSeq(strings.ReplaceAll(path, "[]", ".[]"), ".") {
		if so != "" && name != "[]" {
			so += "."
		}
		so += name
		next := at.children[name]
		if next == nil {
			fits := isName(name) || name == "[]" && len(at.children) == 0 && !strings.Contains(path, "[][]")
			if !fits || at.rule != (Rule{}) || at.children["[]"] != nil {
				return nil
			}
			if at.children == nil {
				at.children = map[string]*node{}
			}
			next = &node{number: len(p.paths) + 1}
			at.children[name], p.paths[so] = next, next
		}
		at = next
	}
	return at
}

// settle makes objects optional in which everything is, except in arrays: a gap would change a list.
func (n *node) settle() bool {
	every := n.rule == (Rule{})
	for name, child := range n.children {
		every = child.settle() && every
		if name == "[]" {
			child.optional, every = false, false
		}
	}
	n.optional = n.optional || every
	return n.optional
}

// isName: one that JSON writes as it is, and that a path can name.
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

// Violation names a path, with indexes, and the rule that its value breaks, the detector that fired, or what
// is required there; never the value. A question mark replaces an unknown name that may hold anything.
type Violation struct {
	Path string `json:"path"`
	Rule string `json:"rule"`
}

func (v Violation) String() string { return v.Path + ": " + v.Rule }

// Error says why a document was not projected. Its text holds no value.
type Error struct {
	// Malformed: not one JSON document without duplicate names, nested at most 64 deep.
	Malformed bool
	Offset    int64
	// Violations lists the first twenty.
	Violations []Violation
}

func (e *Error) Error() string {
	if e.Malformed {
		return "pii: malformed JSON at byte " + strconv.FormatInt(e.Offset, 10)
	}
	return Describe("pii", e.Violations)
}

// Describe is the text of an error that lists violations.
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
	// maxText is the longest name or shape; maxEscaped its longest spelling in JSON.
	maxText    = 128
	maxEscaped = 6*maxText + 2
)

// Document is one JSON document in valid UTF-8.
type Document struct{ text []byte }

// Parse checks that src, which must not change, is a document, without names that stand twice in an object.
// Where they are allowed, projections refuse them in objects that they read. The error is an *Error.
func Parse(src []byte, as ...jsontext.Options) (Document, error) {
	if !jsontext.Value(src).IsValid(as...) {
		return Document{}, &Error{Malformed: true, Offset: offset(src)}
	}
	return Document{src}, nil
}

// Append projects src and appends the result, compact, in the order of the input: allowed fields alone, nulls
// and empty strings left out. The error is an *Error, and dst is then as it was.
func (p *Projection) Append(dst, src []byte) ([]byte, error) {
	d, err := Parse(src)
	if err != nil {
		return dst, err
	}
	dst, _, err = p.walk(dst, nil, d, plain)
	return dst, err
}

// Again is Append of what this process has encoded itself: its JSON needs no check.
func (p *Projection) Again(dst, encoded []byte) ([]byte, error) {
	dst, _, err := p.walk(dst, nil, Document{encoded}, plain)
	return dst, err
}

// Minimize is Append, but that it leaves out what is bad at an optional path, and takes a uid that is a whole
// number. dropped says what was left out and why, each once, with [] for every index, the first twenty.
// values, which may be nil, get the position of each value in out, without quotes.
func (p *Projection) Minimize(
	dst []byte, values *[]Value, d Document,
) (out []byte, dropped Dropped, err error) {
	return p.walk(dst, values, d, lenient)
}

// First is the first value of the projection in a document, whose rest is not read; empty: there is none.
func (p *Projection) First(dst []byte, values *[]Value, d Document) []byte {
	out, _, err := p.walk(dst, values, d, first)
	if err != nil || len(*values) == 0 {
		return nil
	}
	return out[(*values)[0].Start:(*values)[0].End]
}

// Exact is Append, but that it refuses unknown names, and takes a time without an offset for one in UTC.
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

// Dropped are the first twenty violations that were left out, each once.
type Dropped []Violation

// Add adds a violation.
func (d *Dropped) Add(path, rule string) {
	if v := (Violation{Path: path, Rule: rule}); len(*d) < maxViolations && !slices.Contains(*d, v) {
		*d = append(*d, v)
	}
}

// Has reports whether something at the path was left out.
func (d *Dropped) Has(path string) bool {
	return slices.ContainsFunc(*d, func(v Violation) bool { return v.Path == path })
}

// CheckAttributes looks over the attributes of a message that is about to leave. The error is an *Error; one
// without a rule is not named, since its name may be anything.
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
