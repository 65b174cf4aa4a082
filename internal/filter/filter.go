// Package filter reads a queue's binding: the Pub/Sub subscription filter that
// says which messages of a topic the queue takes, by their attributes. It owns the
// part of that language that the catalog may use, and refuses the rest instead of
// guessing what it would mean.
//
//	attributes.routing_key = "billing.invoice.paid"
//	hasPrefix(attributes.routing_key, "billing.")
//	attributes:tenant AND NOT attributes.priority = "low"
//	attributes.tenant = "t1" AND (attributes:uid OR attributes:paynow_customer_id)
package filter

import (
	"errors"
	"fmt"
	"strings"
)

// maxBytes is Pub/Sub's limit on a filter.
const maxBytes = 256

// ErrUnsupported is wrapped by every error of Parse.
var ErrUnsupported = errors.New("filter: not a filter that is understood here")

// Filter is a parsed filter. The zero value takes every message.
type Filter struct{ match matcher }

type matcher func(attributes map[string]string) bool

// Match reports whether a message with these attributes passes.
func (f Filter) Match(attributes map[string]string) bool {
	return f.match == nil || f.match(attributes)
}

// Parse reads a filter; an empty text takes every message. AND and OR are joined
// without parentheses only with their own kind, as Pub/Sub has it.
func Parse(text string) (Filter, error) {
	if strings.TrimSpace(text) == "" {
		return Filter{}, nil
	}
	if len(text) > maxBytes {
		return Filter{}, fmt.Errorf("%w: %d bytes, at most %d", ErrUnsupported, len(text), maxBytes)
	}
	p := &parser{rest: text, length: len(text)}
	match, err := p.expression()
	if err == nil && p.peek() != 0 {
		err = p.fail("the end")
	}
	if err != nil {
		return Filter{}, err
	}
	return Filter{match: match}, nil
}

type parser struct {
	rest   string
	length int
}

// peek skips white space and returns the next byte, 0 at the end.
func (p *parser) peek() byte {
	p.rest = strings.TrimLeft(p.rest, " \t\r\n")
	if p.rest == "" {
		return 0
	}
	return p.rest[0]
}

func (p *parser) fail(wanted string) error {
	return fmt.Errorf("%w: wanted %s at byte %d", ErrUnsupported, wanted, p.length-len(p.rest))
}

// take consumes the punctuation, and reports whether it was there.
func (p *parser) take(text string) bool {
	p.peek()
	rest, ok := strings.CutPrefix(p.rest, text)
	if ok {
		p.rest = rest
	}
	return ok
}

// word consumes the word, not a longer one that starts with it.
func (p *parser) word(word string) bool {
	p.peek()
	rest, ok := strings.CutPrefix(p.rest, word)
	if !ok || (rest != "" && isName(rest[0])) {
		return false
	}
	p.rest = rest
	return true
}

func (p *parser) expression() (matcher, error) {
	first, err := p.term()
	if err != nil {
		return nil, err
	}
	all := []matcher{first}
	conjunction := p.word("AND")
	if !conjunction && !p.word("OR") {
		return first, nil
	}
	joint := "OR"
	if conjunction {
		joint = "AND"
	}
	for {
		next, err := p.term()
		if err != nil {
			return nil, err
		}
		all = append(all, next)
		if !p.word(joint) {
			break
		}
	}
	return func(attributes map[string]string) bool {
		for _, match := range all {
			if match(attributes) != conjunction {
				return !conjunction
			}
		}
		return conjunction
	}, nil
}

func (p *parser) term() (matcher, error) {
	switch {
	case p.word("NOT"):
		inner, err := p.term()
		if err != nil {
			return nil, err
		}
		return func(attributes map[string]string) bool { return !inner(attributes) }, nil
	case p.take("("):
		inner, err := p.expression()
		if err != nil {
			return nil, err
		}
		if !p.take(")") {
			return nil, p.fail("a closing parenthesis")
		}
		return inner, nil
	case p.word("hasPrefix"):
		return p.hasPrefix()
	case p.word("attributes"):
		return p.attribute()
	default:
		return nil, p.fail("attributes, hasPrefix, NOT or a parenthesis")
	}
}

func (p *parser) hasPrefix() (matcher, error) {
	if !p.take("(") || !p.word("attributes") || !p.take(".") {
		return nil, p.fail("(attributes.")
	}
	key, err := p.key()
	if err != nil {
		return nil, err
	}
	if !p.take(",") {
		return nil, p.fail("a comma")
	}
	prefix, err := p.literal()
	if err != nil {
		return nil, err
	}
	if !p.take(")") {
		return nil, p.fail("a closing parenthesis")
	}
	return func(attributes map[string]string) bool {
		value, ok := attributes[key]
		return ok && strings.HasPrefix(value, prefix)
	}, nil
}

func (p *parser) attribute() (matcher, error) {
	if p.take(":") {
		key, err := p.key()
		if err != nil {
			return nil, err
		}
		return func(attributes map[string]string) bool {
			_, ok := attributes[key]
			return ok
		}, nil
	}
	if !p.take(".") {
		return nil, p.fail("a point or a colon")
	}
	key, err := p.key()
	if err != nil {
		return nil, err
	}
	// "!=" is refused: whether it takes a message without the attribute is not
	// written down. NOT says which of the two is meant.
	if !p.take("=") {
		return nil, p.fail("=")
	}
	want, err := p.literal()
	if err != nil {
		return nil, err
	}
	return func(attributes map[string]string) bool {
		value, ok := attributes[key]
		return ok && value == want
	}, nil
}

// key reads an attribute's key: a name of letters, digits, _ and -, or a literal.
func (p *parser) key() (string, error) {
	if p.peek() == '"' {
		return p.literal()
	}
	end := 0
	for end < len(p.rest) && isName(p.rest[end]) {
		end++
	}
	if end == 0 {
		return "", p.fail("an attribute's key")
	}
	key := p.rest[:end]
	p.rest = p.rest[end:]
	return key, nil
}

// literal reads a string in double quotes, in which \" and \\ are escapes.
func (p *parser) literal() (string, error) {
	if !p.take(`"`) {
		return "", p.fail("a string in double quotes")
	}
	var value strings.Builder
	for i := 0; i < len(p.rest); i++ {
		switch c := p.rest[i]; c {
		case '"':
			p.rest = p.rest[i+1:]
			return value.String(), nil
		case '\\':
			i++
			if i == len(p.rest) || (p.rest[i] != '"' && p.rest[i] != '\\') {
				return "", p.fail(`\" or \\ as the only escapes`)
			}
			value.WriteByte(p.rest[i])
		default:
			value.WriteByte(c)
		}
	}
	return "", p.fail("the end of the string")
}

func isName(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_' || c == '-'
}
