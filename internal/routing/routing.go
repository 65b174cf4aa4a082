// Package routing owns routing keys and the patterns that are bound to them, in
// RabbitMQ's words: a key is words joined by dots, such as notification.email.sent; in a
// pattern * stands for exactly one word and # for any number of words, none included.
// It also writes the Pub/Sub filter that holds a list of patterns. It refuses to know
// which queue is bound to what: that is the catalog's.
package routing

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// ErrPattern is wrapped by every error of Parse.
var ErrPattern = errors.New("routing: not a pattern of words, * and # joined by dots")

// maxBytes is the longest key, and the longest pattern, in bytes.
const maxBytes = 128

var word = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

// Pattern is a parsed pattern. The zero value matches nothing.
type Pattern struct {
	text  string
	words []string
}

// Parse reads a pattern such as order.created, notification.email.*, billing.# or *.*.*.
func Parse(text string) (Pattern, error) {
	if len(text) > maxBytes {
		return Pattern{}, fmt.Errorf("%w: %d bytes, at most %d", ErrPattern, len(text), maxBytes)
	}
	words := strings.Split(text, ".")
	for i, w := range words {
		if w != "*" && w != "#" && !word.MatchString(w) {
			return Pattern{}, fmt.Errorf("%w: word %d", ErrPattern, i+1)
		}
	}
	return Pattern{text: text, words: words}, nil
}

// String is the pattern as it was parsed.
func (p Pattern) String() string { return p.text }

// Exact reports whether the pattern matches one key alone, which is then its own text.
func (p Pattern) Exact() bool { return !strings.ContainsAny(p.text, "*#") }

// Match reports whether the pattern holds the key.
func (p Pattern) Match(key string) bool {
	if p.words == nil || key == "" {
		return false
	}
	if p.Exact() {
		return p.text == key
	}
	return match(p.words, strings.Split(key, "."))
}

func match(pattern, key []string) bool {
	for i, w := range pattern {
		switch {
		case w == "#":
			for skip := range len(key) - i + 1 {
				if match(pattern[i+1:], key[i+skip:]) {
					return true
				}
			}
			return false
		case i >= len(key) || (w != "*" && w != key[i]):
			return false
		}
	}
	return len(pattern) == len(key)
}

// Narrower orders patterns that hold one key: it is negative where a says more of the
// key than b. At the first word in which they differ, a word of letters goes before *,
// and * before #.
func Narrower(a, b Pattern) int {
	rank := func(w string) int { return strings.Index("*#", w) } // -1 for a word of letters
	for i := range min(len(a.words), len(b.words)) {
		if by := cmp.Compare(rank(a.words[i]), rank(b.words[i])); by != 0 {
			return by
		}
	}
	return cmp.Or(cmp.Compare(len(b.words), len(a.words)), cmp.Compare(a.text, b.text))
}

// Table finds a value by the narrowest of the patterns that hold a key.
type Table[V any] struct {
	exact map[string]V
	wide  []row[V]
}

type row[V any] struct {
	pattern Pattern
	value   V
}

// NewTable returns the table of values by the texts of their patterns. The error joins
// those that are no pattern.
func NewTable[V any](values map[string]V) (Table[V], error) {
	t := Table[V]{exact: map[string]V{}}
	var mistakes []error
	for text, value := range values {
		p, err := Parse(text)
		switch {
		case err != nil:
			mistakes = append(mistakes, fmt.Errorf("%q: %w", text, err))
		case p.Exact():
			t.exact[text] = value
		default:
			t.wide = append(t.wide, row[V]{p, value})
		}
	}
	slices.SortFunc(t.wide, func(a, b row[V]) int { return Narrower(a.pattern, b.pattern) })
	return t, errors.Join(mistakes...)
}

// Find returns the value of the narrowest pattern that holds the key.
func (t Table[V]) Find(key string) (value V, ok bool) {
	if value, ok = t.exact[key]; ok {
		return value, true
	}
	for _, r := range t.wide {
		if r.pattern.Match(key) {
			return r.value, true
		}
	}
	return value, false
}
