package pii

import (
	"bytes"
	"errors"
	"hash/maphash"
	"slices"
	"strconv"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

func offset(src []byte) int64 {
	var syntactic *jsontext.SyntacticError
	if errors.As(json.Unmarshal(src, new(jsontext.Value)), &syntactic) {
		return syntactic.ByteOffset
	}
	return 0
}

var (
	walks = sync.Pool{New: func() any { return new(walk) }}
	seed  = maphash.MakeSeed()
)

// mostNames bounds the hashes that are kept for the next walk.
const mostNames = 4 << 10

type mode uint8

const (
	plain   mode = iota
	lenient      // leaves out what is bad and optional
	exact        // refuses names that are not on the list, and completes times
)

// walk is one run of a projection over a document that is known to be valid JSON: what parts its tokens says
// nothing, and what is not read is passed over by its quotes and brackets.
type walk struct {
	src []byte
	pos int
	mode
	path  []step // to the value at hand
	depth int
	// names are the hashes of those of the objects around it: two are equal once in 2^64.
	names []uint64
	// malformed is where it is nested too deep, or where an object ends in which a name stands twice; 0: nowhere.
	malformed  int
	violations []Violation
	dropped    Dropped
	values     *[]Value // nil: they are not taken down
}

// step is a member's name, or an element's index where there is none.
type step struct {
	name  []byte
	index int
}

// done gives the walk back. Nothing of a document stays behind.
func (w *walk) done() {
	clear(w.path[:cap(w.path)])
	if cap(w.names) > mostNames {
		w.names = nil
	}
	*w = walk{path: w.path[:0], names: w.names[:0]}
	walks.Put(w)
}

func (w *walk) take(of *node, start, end int) {
	if w.values != nil {
		*w.values = append(*w.values, Value{of.number, start, end})
	}
}

// at is where the walk is, as violations show it: with each index, or with [] for every.
func (w *walk) at(every bool) (text string) {
	for _, s := range w.path {
		switch {
		case s.name == nil && every:
			text += "[]"
		case s.name == nil:
			text += "[" + strconv.Itoa(s.index) + "]"
		case text == "":
			text = string(s.name)
		default:
			text += "." + string(s.name)
		}
	}
	return text
}

// peek is the first byte of the next token.
func (w *walk) peek() byte {
	for {
		c := w.src[w.pos]
		if c > ' ' && c != ',' && c != ':' {
			return c
		}
		w.pos++
	}
}

func (w *walk) open() {
	if w.depth++; w.depth > maxDepth {
		w.refuse()
	}
	w.pos++
}

func (w *walk) refuse() {
	if w.malformed == 0 {
		w.malformed = w.pos
	}
}

func (w *walk) close() {
	w.depth--
	w.pos++
}

// raw takes the next value, whatever is in it.
func (w *walk) raw() []byte {
	kind, start, depth := w.peek(), w.pos, w.depth
	if kind != '"' && kind != '{' && kind != '[' {
		for w.pos < len(w.src) && isScalar(w.src[w.pos]) {
			w.pos++
		}
		return w.src[start:w.pos]
	}
	for {
		switch w.src[w.pos] {
		case '"':
			w.pos = closing(w.src, w.pos) + 1
		case '{', '[':
			w.open()
		case '}', ']':
			w.close()
		default:
			w.pos++
		}
		if w.depth == depth {
			return w.src[start:w.pos]
		}
	}
}

// isScalar: of a number, true, false or null.
func isScalar(c byte) bool { return c > ' ' && c != ',' && c != ']' && c != '}' }

// closing is where the quote stands that ends a string.
func closing(src []byte, i int) int {
	for {
		i += 1 + bytes.IndexByte(src[i+1:], '"')
		first := i
		for src[first-1] == '\\' {
			first--
		}
		if (i-first)%2 == 0 { // else the last of them escapes the quote
			return i
		}
	}
}

func (w *walk) value(dst []byte, at *node) []byte {
	kind, element, due := w.peek(), at.children["[]"], "object"
	switch {
	case at.rule != (Rule{}):
		return w.scalar(dst, at)
	case element != nil && kind == '[':
		return w.array(dst, element)
	case element != nil:
		due = "array"
	case kind == '{':
		return w.object(dst, at)
	}
	w.raw()
	w.violate(at, due)
	return dst
}

func (w *walk) object(dst []byte, at *node) []byte {
	w.open()
	dst = append(dst, '{')
	empty, outside := true, len(w.names)
	for w.peek() != '}' {
		name := unquoted(w.raw())
		child := at.children[string(name)]
		w.names = append(w.names, maphash.Bytes(seed, name))
		w.path = append(w.path, step{name: name})
		switch {
		case child == nil:
			if w.mode == exact {
				w.unknown(name)
			}
			w.raw()
		case w.peek() == 'n':
			w.raw()
		default:
			before := len(dst)
			if !empty {
				dst = append(dst, ',')
			}
			dst = append(append(append(dst, '"'), name...), `":`...) // a path has no name that JSON would escape
			start := len(dst)
			dst = w.value(dst, child)
			if len(dst) == start {
				dst = dst[:before]
			} else {
				empty = false
			}
		}
		w.path = w.path[:len(w.path)-1]
	}
	names := w.names[outside:]
	slices.Sort(names)
	if len(slices.Compact(names)) < len(names) {
		w.refuse()
	}
	w.close()
	w.names = w.names[:outside]
	return append(dst, '}')
}

func (w *walk) array(dst []byte, element *node) []byte {
	w.open()
	dst = append(dst, '[')
	for i := 0; w.peek() != ']'; i++ {
		if i > 0 {
			dst = append(dst, ',')
		}
		w.take(element, len(dst), len(dst))
		w.path = append(w.path, step{index: i})
		dst = w.value(dst, element)
		w.path = w.path[:len(w.path)-1]
	}
	w.close()
	return append(dst, ']')
}

func (w *walk) scalar(dst []byte, at *node) []byte {
	rule, kind := at.rule, w.peek()
	var value []byte
	switch {
	case kind == '{' || kind == '[':
		w.raw()
	case rule.bare() && kind != '"':
		value = w.raw()
	case kind == '"' && !rule.bare():
		if value = unquoted(w.raw()); len(value) == 0 {
			return dst // providers write absent as empty; a required field is missed later
		}
	case rule == UID && kind < 'A' && w.mode == lenient:
		if value = w.raw(); !spelled(value, maxText, digit, digit) {
			value = nil // a fraction or an exponent is no name
		}
	default:
		w.raw()
	}
	if rule == Time && w.mode == exact {
		value = inUTC(value)
	}
	if !rule.valid(value) {
		w.violate(at, rule.Name())
		return dst
	}
	if found := detect(rule, value); found != "" {
		w.violate(at, found)
		return dst
	}
	if rule.bare() {
		w.take(at, len(dst), len(dst)+len(value))
		return append(dst, value...)
	}
	w.take(at, len(dst)+1, len(dst)+1+len(value))
	// No shape has a character that JSON would escape.
	dst = append(dst, '"')
	dst = append(dst, value...)
	return append(dst, '"')
}

// unquoted copies only what is escaped and may be a name or a shape.
func unquoted(quoted []byte) []byte {
	if bytes.IndexByte(quoted, '\\') < 0 || len(quoted) > maxEscaped {
		return quoted[1 : len(quoted)-1]
	}
	text, _ := jsontext.AppendUnquote(nil, quoted)
	return text
}

func (w *walk) violate(at *node, what string) {
	if w.mode == lenient && at.optional {
		w.dropped.Add(w.at(true), what)
		return
	}
	if len(w.violations) < maxViolations {
		w.violations = append(w.violations, Violation{Path: w.at(false), Rule: what})
	}
}

// unknown names what is a code: anything else could be personal.
func (w *walk) unknown(name []byte) {
	if len(w.violations) == maxViolations {
		return
	}
	if !Code.valid(name) || detect(Code, name) != "" {
		w.path[len(w.path)-1].name = []byte("?")
	}
	w.violations = append(w.violations, Violation{Path: w.at(false), Rule: "unknown"})
}
