// Package routing owns routing keys, which are words joined by dots, and patterns of them: * matches one
// word, # any number of words. It writes the Pub/Sub filter for a list of patterns, and does not know the
// queues' bindings.
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

const maxBytes = 128

var word = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

// Pattern is a pattern that Parse has accepted. The zero value matches no key.
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

// Exact reports whether the pattern has no wildcards, so that it matches only its own text.
func (p Pattern) Exact() bool { return !strings.ContainsAny(string(p), "*#") }

// Match reports whether the pattern matches the key, in time bounded by the product of both lengths.
func (p Pattern) Match(key string) bool {
	if p.Exact() {
		return p != "" && string(p) == key
	}
	return p.meets(key, false)
}

// Overlap reports whether some key matches both patterns.
func Overlap(a, b Pattern) bool { return a.meets(string(b), true) }

// meets reports whether the pattern matches the text, or if wild, whether it overlaps the text's pattern.
func (p Pattern) meets(text string, wild bool) bool {
	if p == "" || text == "" {
		return false
	}
	// ends[i] is true if the first i words of the pattern match all words read so far.
	ends, next := append(make([]bool, 0, maxBytes), true), make([]bool, 0, maxBytes)
	for w := range strings.SplitSeq(string(p), ".") {
		ends = append(ends, ends[len(ends)-1] && w == "#")
	}
	for have := range strings.SplitSeq(text, ".") {
		one, many := wild && have == "*", wild && have == "#"
		next = append(next[:0], many && ends[0])
		for w := range strings.SplitSeq(string(p), ".") {
			i := len(next) - 1
			if w == "#" {
				next[i] = next[i] || ends[i]
			}
			taken := next[i] && (many || w == "#") || many && ends[i+1]
			next = append(next, taken || ends[i] && (one || w == "*" || w == have))
		}
		ends, next = next, ends
	}
	return ends[len(ends)-1]
}

// Narrower is negative if a is narrower than b for a key that both match: a literal word is narrower than *,
// and * is narrower than #.
func Narrower(a, b Pattern) int { return cmp.Or(byWords(a, b), cmp.Compare(a, b)) }

// Ambiguous reports whether two patterns overlap and only their spelling would decide which is narrower.
func Ambiguous(a, b Pattern) bool { return a != b && byWords(a, b) == 0 && Overlap(a, b) }

func byWords(a, b Pattern) int {
	one, other := strings.Split(string(a), "."), strings.Split(string(b), ".")
	both := min(len(one), len(other))
	byRank := func(v, w string) int { return strings.Index("*#", v) - strings.Index("*#", w) } // letters: -1
	return cmp.Or(slices.CompareFunc(one[:both], other[:both], byRank), cmp.Compare(len(other), len(one)))
}

// Table maps the texts of patterns to values.
type Table[V any] map[string]V

// Find returns the value of the key itself, else the value of the narrowest pattern that matches it.
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

// The attributes that route a message: by its routing key, or to one queue only.
const (
	AttrRoutingKey = "routing_key"
	AttrQueue      = "queue"
)

// maxFilterBytes is the longest filter that Pub/Sub takes.
const maxFilterBytes = 256

// Binding selects the messages of a topic that a queue takes.
type Binding struct {
	// Queue is the queue's id. A message whose attribute queue names another id is not taken.
	Queue string
	// Patterns match the routing keys that the queue takes. Empty: it takes all messages.
	Patterns []Pattern
	// Own: the topic belongs to the queue, which also takes messages without a routing key.
	Own bool
}

// Takes reports whether a message with these attributes is bound to the queue.
func (b Binding) Takes(attributes map[string]string) bool {
	if len(b.Patterns) == 0 {
		return true
	}
	if alone, ok := attributes[AttrQueue]; ok {
		return alone == b.Queue
	}
	key, keyed := attributes[AttrRoutingKey]
	return !keyed && b.Own || slices.ContainsFunc(b.Patterns, func(p Pattern) bool {
		return p == "#" || p.Match(key)
	})
}

// Filter is a subscription filter. The zero value lets every message through.
type Filter struct {
	queue string
	// terms apply to a message that names no queue: one must hold. Empty: all pass.
	terms []term
	// unkeyed: a message without a routing key passes, too.
	unkeyed bool
}

// term is a condition on the routing key: it equals the text, or begins with it.
type term struct {
	text  string
	exact bool
}

// Filter returns the narrowest filter that fits Pub/Sub's 256 bytes and passes all messages of the binding:
// by pattern, else by the prefix of all patterns, else all messages for no other queue, else everything.
func (b Binding) Filter() Filter {
	if len(b.Patterns) == 0 {
		return Filter{}
	}
	narrow, all := Filter{queue: b.Queue, unkeyed: b.Own}, Filter{queue: b.Queue}
	shared := b.Patterns[0].prefix()
	for _, p := range b.Patterns {
		if p == "#" {
			return fitting(all)
		}
		if next := (term{p.prefix(), p.Exact()}); !slices.Contains(narrow.terms, next) {
			narrow.terms = append(narrow.terms, next)
		}
		for !strings.HasPrefix(p.prefix(), shared) {
			shared = shared[:len(shared)-1]
		}
	}
	return fitting(narrow, Filter{b.Queue, []term{{text: shared}}, b.Own}, all)
}

// prefix returns what every matching key begins with: no dot before a #, since a # may match no word.
func (p Pattern) prefix() string {
	before, _, _ := strings.Cut(string(p), "*")
	before, _, empty := strings.Cut(before, "#")
	if empty {
		before = strings.TrimSuffix(before, ".")
	}
	return before
}

func fitting(filters ...Filter) Filter {
	for _, f := range filters {
		if len(f.String()) <= maxFilterBytes {
			return f
		}
	}
	return Filter{}
}

// String returns the filter in Pub/Sub's syntax; empty: every message passes.
func (f Filter) String() string {
	if f.queue == "" {
		return ""
	}
	const key = "attributes." + AttrRoutingKey
	text := "attributes." + AttrQueue + ` = "` + f.queue + `" OR `
	others := "NOT attributes:" + AttrQueue
	if len(f.terms) == 0 {
		return text + others
	}
	var conditions []string
	if f.unkeyed {
		conditions = append(conditions, "NOT attributes:"+AttrRoutingKey)
	}
	for _, t := range f.terms {
		condition := "hasPrefix(" + key + `, "` + t.text + `")`
		switch {
		case t.exact:
			condition = key + ` = "` + t.text + `"`
		case t.text == "":
			condition = "attributes:" + AttrRoutingKey
		}
		conditions = append(conditions, condition)
	}
	return text + "(" + others + " AND (" + strings.Join(conditions, " OR ") + "))"
}

// Match reports whether a message with these attributes passes.
func (f Filter) Match(attributes map[string]string) bool {
	alone, one := attributes[AttrQueue]
	if f.queue == "" || one {
		return f.queue == "" || alone == f.queue
	}
	key, keyed := attributes[AttrRoutingKey]
	return len(f.terms) == 0 || !keyed && f.unkeyed || keyed && slices.ContainsFunc(f.terms, func(t term) bool {
		return key == t.text || !t.exact && strings.HasPrefix(key, t.text)
	})
}
