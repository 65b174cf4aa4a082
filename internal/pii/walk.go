package pii

import (
	"bytes"
	"cmp"
	"errors"
	"hash/maphash"
	"regexp"
	"slices"
	"strconv"
	"strings"
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

type mode uint8

const (
	plain   mode = iota
	lenient      // leaves out bad optional values
	exact        // refuses unknown names, and completes times
	first        // ends at the first value
)

// walk is one run of a projection over a document that is known to be valid JSON, so it ignores separators
// and skips unread values by their quotes and brackets.
type walk struct {
	src        []byte
	pos, depth int
	mode
	path  []byte   // of the current value
	names []uint64 // hashes of the names in the objects around it: two names collide once in 2^64
	// malformed is the offset where nesting is too deep, or where an object with a duplicate name ends; else 0.
	malformed  int
	violations []Violation
	dropped    Dropped
	values     *[]Value // nil: they are not recorded
}

// done returns the walk to its pool. Its buffers keep only allowed names and hashes of a document.
func (w *walk) done() {
	*w = walk{path: w.path[:0], names: w.names[:0]}
	walks.Put(w)
}

func (w *walk) take(of *node, start, end int) {
	if w.values != nil {
		*w.values = append(*w.values, Value{of.number, start, end})
	}
}

func (w *walk) found() bool { return w.mode == first && len(*w.values) > 0 }

// peek returns the first byte of the next token.
func (w *walk) peek() byte {
	for w.src[w.pos] <= ' ' || w.src[w.pos] == ',' || w.src[w.pos] == ':' {
		w.pos++
	}
	return w.src[w.pos]
}

// enter enters an object or list, or leaves it with -1. It needs no bound: a projection is never too deep.
func (w *walk) enter(by int) {
	w.depth += by
	w.pos++
}

// raw reads the value of any kind that peek has found.
func (w *walk) raw() []byte {
	src, start, end := w.src, w.pos, w.pos
	switch src[start] {
	case '"':
		end = closing(src, start) + 1
	case '{', '[':
		for depth := w.depth; end == start || depth > w.depth; end++ {
			switch src[end] {
			case '"':
				end = closing(src, end)
			case '{', '[':
				if depth++; depth > maxDepth {
					w.malformed = cmp.Or(w.malformed, end)
				}
			case '}', ']':
				depth--
			}
		}
	default:
		for end < len(src) && src[end] > ' ' && src[end] != ',' && src[end] != ']' && src[end] != '}' {
			end++
		}
	}
	w.pos = end
	return src[start:end]
}

// closing returns where a string ends: the first quote after an even number of backslashes.
func closing(src []byte, i int) int {
	for escaped := true; escaped; {
		i += 1 + bytes.IndexByte(src[i+1:], '"')
		escaped = false
		for before := i - 1; src[before] == '\\'; before-- {
			escaped = !escaped
		}
	}
	return i
}

func (w *walk) value(dst []byte, at *node) []byte {
	kind, element, due := w.peek(), at.element, "object"
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
	w.enter(1)
	dst = append(dst, '{')
	empty, outside := true, len(w.names)
	for !w.found() && w.peek() != '}' {
		name := unquoted(w.raw())
		child := at.member(name)
		w.names = append(w.names, maphash.Bytes(seed, name))
		if w.peek() == 'n' || child == nil {
			if child == nil && w.mode == exact {
				w.unknown(name)
			}
			w.raw()
		} else {
			before, above := len(dst), len(w.path)
			w.path = append(append(w.path, '.'), name...)
			if !empty {
				dst = append(dst, ',')
			}
			dst = append(append(append(dst, '"'), name...), `":`...) // no name in a path needs escaping in JSON
			start := len(dst)
			dst = w.value(dst, child)
			if len(dst) == start {
				dst = dst[:before]
			} else {
				empty = false
			}
			w.path = w.path[:above]
		}
	}
	names := w.names[outside:]
	slices.Sort(names)
	if len(slices.Compact(names)) < len(names) {
		w.malformed = cmp.Or(w.malformed, w.pos)
	}
	w.enter(-1)
	w.names = w.names[:outside]
	return append(dst, '}')
}

func (w *walk) array(dst []byte, element *node) []byte {
	w.enter(1)
	dst = append(dst, '[')
	above := len(w.path)
	for i := 0; !w.found() && w.peek() != ']'; i++ {
		if i > 0 {
			dst = append(dst, ',')
		}
		w.take(element, len(dst), len(dst))
		w.path = append(strconv.AppendInt(append(w.path[:above], '['), int64(i), 10), ']')
		dst = w.value(dst, element)
	}
	w.path = w.path[:above]
	w.enter(-1)
	return append(dst, ']')
}

func (w *walk) scalar(dst []byte, at *node) []byte {
	rule, kind := at.rule, w.src[w.pos]
	var value []byte
	switch {
	case kind == '{' || kind == '[':
		w.raw()
	case rule.bare() && kind != '"':
		value = w.raw()
	case kind == '"' && !rule.bare():
		if value = unquoted(w.raw()); len(value) == 0 {
			return dst // providers send "" for absent; a required field is reported later
		}
	case rule == UID && kind < 'A' && w.mode == lenient:
		if value = w.raw(); !spelled(value, maxText, digit, digit) {
			value = nil // a number with a fraction or exponent is no uid
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
	// No valid value needs escaping in JSON.
	dst = append(dst, '"')
	dst = append(dst, value...)
	return append(dst, '"')
}

// unquoted copies only text with escapes that is short enough for a name or value.
func unquoted(quoted []byte) []byte {
	if bytes.IndexByte(quoted, '\\') < 0 || len(quoted) > maxEscaped {
		return quoted[1 : len(quoted)-1]
	}
	text, _ := jsontext.AppendUnquote(nil, quoted)
	return text
}

var indexes = regexp.MustCompile(`\[[0-9]+\]`)

// violate records the violation of the current value, or that the value is left out.
func (w *walk) violate(at *node, what string) {
	path := strings.TrimPrefix(string(w.path), ".")
	if w.mode == lenient && at.optional {
		w.dropped.Add(indexes.ReplaceAllString(path, "[]"), what)
	} else if len(w.violations) < maxViolations {
		w.violations = append(w.violations, Violation{Path: path, Rule: what})
	}
}

// unknown records an unknown member, by name only if that is a code: any other could be personal data.
func (w *walk) unknown(name []byte) {
	if !Code.valid(name) || detect(Code, name) != "" {
		name = []byte("?")
	}
	if len(w.violations) < maxViolations {
		path := strings.TrimPrefix(string(w.path)+"."+string(name), ".")
		w.violations = append(w.violations, Violation{Path: path, Rule: "unknown"})
	}
}
