package pii

import (
	"bytes"
	"errors"
	"strings"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// valid: Parse has looked for names that stand twice.
var valid = jsontext.AllowDuplicateNames(true)

func offset(src []byte) int64 {
	var syntactic *jsontext.SyntacticError
	if errors.As(json.Unmarshal(src, new(jsontext.Value)), &syntactic) {
		return syntactic.ByteOffset
	}
	return 0
}

var walks = sync.Pool{New: func() any { return &walk{Decoder: new(jsontext.Decoder)} }}

type mode uint8

const (
	plain   mode = iota
	lenient      // leaves out what is bad and optional
	exact        // refuses names that are not on the list, and completes times
)

// walk is one run of a projection over a document that is known to be valid JSON.
type walk struct {
	*jsontext.Decoder
	src bytes.Buffer // which the decoder reads in place
	mode
	violations []Violation
	dropped    Dropped
	values     *[]Value // nil: they are not taken down
}

// done gives the walk back. Nothing of a document stays behind.
func (w *walk) done() {
	*w = walk{Decoder: w.Decoder}
	walks.Put(w)
}

func (w *walk) take(of *node, start, end int) {
	if w.values != nil {
		*w.values = append(*w.values, Value{of.number, start, end})
	}
}

// at is where the value or name that was read last is, as violations show it: with each index, or with [] for every.
func (w *walk) at(every bool) (text string) {
	depth := 0
	for token := range w.StackPointer().Tokens() {
		depth++
		switch in, _ := w.StackIndex(depth); {
		case in == '[' && every:
			text += "[]"
		case in == '[':
			text += "[" + token + "]"
		case text == "":
			text = token
		default:
			text += "." + token
		}
	}
	return text
}

func (w *walk) value(dst []byte, at *node) []byte {
	kind, element, due := w.PeekKind(), at.children["[]"], "object"
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
	_ = w.SkipValue()
	w.violate(at, due)
	return dst
}

func (w *walk) object(dst []byte, at *node) []byte {
	_, _ = w.ReadToken() // nothing here can fail: the document is valid
	dst = append(dst, '{')
	empty := true
	for w.PeekKind() != '}' {
		name := unquoted(w.raw())
		child := at.children[string(name)]
		if child == nil || w.PeekKind() == 'n' {
			if child == nil && w.mode == exact {
				w.unknown(name)
			}
			_ = w.SkipValue()
		} else {
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
	}
	_, _ = w.ReadToken()
	return append(dst, '}')
}

func (w *walk) array(dst []byte, element *node) []byte {
	_, _ = w.ReadToken() // nothing here can fail: the document is valid
	dst = append(dst, '[')
	for i := 0; w.PeekKind() != ']'; i++ {
		if i > 0 {
			dst = append(dst, ',')
		}
		w.take(element, len(dst), len(dst))
		dst = w.value(dst, element)
	}
	_, _ = w.ReadToken()
	return append(dst, ']')
}

func (w *walk) scalar(dst []byte, at *node) []byte {
	rule, kind := at.rule, w.PeekKind()
	var value []byte
	switch {
	case kind == '{' || kind == '[':
		_ = w.SkipValue()
	case rule.bare() && kind != '"':
		value = w.raw()
	case kind == '"' && !rule.bare():
		if value = unquoted(w.raw()); len(value) == 0 {
			return dst // providers write absent as empty; a required field is missed later
		}
	case kind == '0' && rule == UID && w.mode == lenient:
		if value = w.raw(); !spelled(value, maxText, digit, digit) {
			value = nil // a fraction or an exponent is no name
		}
	default:
		_ = w.SkipValue()
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

func (w *walk) raw() []byte {
	text, _ := w.ReadValue()
	return text
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
	at := w.at(false)
	if !Code.valid(name) || detect(Code, name) != "" {
		at = strings.TrimSuffix(at, w.StackPointer().LastToken()) + "?"
	}
	w.violations = append(w.violations, Violation{Path: at, Rule: "unknown"})
}
