// Package routing owns routing keys, which are words joined by dots, and the patterns that are bound to them:
// * stands for one word, # for any number. It writes the Pub/Sub filter of a list of patterns, and refuses to
// know which queue is bound to what.
package routing

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// ErrPattern is wrapped by every error of Parse.
var ErrPattern = errors.New("routing: not a pattern of words, * and # joined by dots")

const maxBytes = 128

var word = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

// Pattern is a pattern that Parse has taken. The zero value matches nothing.
type Pattern string

// Parse reads a pattern such as order.created, notification.email.*, billing.# or *.*.*.
func Parse(text string) (Pattern, error) {
	if len(text) > maxBytes {
		return "", fmt.Errorf("%w: %d bytes, at most %d", ErrPattern, len(text), maxBytes)
	}
	for i, w := range strings.Split(text, ".") {
		if w != "*" && w != "#" && !word.MatchString(w) {
			return "", fmt.Errorf("%w: word %d", ErrPattern, i+1)
		}
	}
	return Pattern(text), nil
}

// String is the pattern as it was parsed.
func (p Pattern) String() string { return string(p) }

// Exact reports whether the pattern matches one key alone, which is then its own text.
func (p Pattern) Exact() bool { return !strings.ContainsAny(string(p), "*#") }

// Match reports whether the pattern holds the key, in time bounded by the product of both lengths.
func (p Pattern) Match(key string) bool {
	if p == "" || key == "" {
		return false
	}
	if p.Exact() {
		return string(p) == key
	}
	left, right := remaining{string(p), true}, remaining{key, true}
	var after, from remaining // the pattern behind the last #, and where in the key it was tried last
	for right.more {
		w, rest := left.next()
		have, tail := right.next()
		switch {
		case w == "#":
			left, after, from = rest, rest, right
		case left.more && (w == "*" || w == have):
			left, right = rest, tail
		case from.more: // the last # takes one word more
			_, from = from.next()
			left, right = after, from
		default:
			return false
		}
	}
	for left.more {
		var w string
		if w, left = left.next(); w != "#" {
			return false
		}
	}
	return true
}

// remaining is what is left of a text of words; an empty text with more is one empty word.
type remaining struct {
	text string
	more bool
}

func (r remaining) next() (first string, rest remaining) {
	if !r.more {
		return "", r
	}
	first, rest.text, rest.more = strings.Cut(r.text, ".")
	return first, rest
}

// Narrower is negative where a says more of a key that both hold than b: words of letters go before *, and *
// before #.
func Narrower(a, b Pattern) int {
	rank := func(w string) int { return strings.Index("*#", w) } // -1 for a word of letters
	for left, right := (remaining{string(a), true}), (remaining{string(b), true}); left.more && right.more; {
		var one, other string
		one, left = left.next()
		other, right = right.next()
		if by := cmp.Compare(rank(one), rank(other)); by != 0 {
			return by
		}
	}
	return cmp.Or(cmp.Compare(strings.Count(string(b), "."), strings.Count(string(a), ".")), cmp.Compare(a, b))
}

// Table is values by the texts of their patterns.
type Table[V any] map[string]V

// Find returns the value of the key itself, else that of the narrowest pattern that holds it.
func (t Table[V]) Find(key string) (V, bool) {
	best := Pattern(key)
	if _, exact := t[key]; !exact {
		best = ""
		for text := range t {
			if p := Pattern(text); p.Match(key) && (best == "" || Narrower(p, best) < 0) {
				best = p
			}
		}
	}
	value, ok := t[string(best)]
	return value, ok
}

// Overlap reports whether some key is held by both patterns.
func Overlap(a, b Pattern) bool {
	if a == "" || b == "" {
		return false
	}
	one, other := strings.Split(string(a), "."), strings.Split(string(b), ".")
	// meet[j] says whether one[i:] and other[j:] have a key in common, for the i of the row.
	meet := make([]bool, len(other)+1)
	for i := len(one); i >= 0; i-- {
		below := meet
		meet = make([]bool, len(other)+1)
		for j := len(other); j >= 0; j-- {
			left, right := i < len(one), j < len(other)
			switch {
			case !left && !right:
				meet[j] = true
			case left && one[i] == "#": // it takes no word, or what the other's next takes
				meet[j] = below[j] || right && meet[j+1]
			case right && other[j] == "#":
				meet[j] = meet[j+1] || left && below[j]
			case left && right:
				meet[j] = below[j+1] && (one[i] == "*" || other[j] == "*" || one[i] == other[j])
			}
		}
	}
	return meet[0]
}

// Ambiguous reports whether patterns hold a key between which only their spelling would choose.
func Ambiguous(a, b Pattern) bool {
	if a == b || strings.Count(string(a), ".") != strings.Count(string(b), ".") || !Overlap(a, b) {
		return false
	}
	wild := func(w string) bool { return w == "*" || w == "#" }
	others := strings.Split(string(b), ".")
	for i, w := range strings.Split(string(a), ".") {
		if w != others[i] && (wild(w) || wild(others[i])) {
			return false
		}
	}
	return true
}
