package routing

import (
	"slices"
	"strings"
)

// The attributes that route a message: by its key, or to one queue alone.
const (
	AttrRoutingKey = "routing_key"
	AttrQueue      = "queue"
)

// maxFilterBytes is the longest filter that Pub/Sub takes.
const maxFilterBytes = 256

// Binding says which messages of a topic a queue takes.
type Binding struct {
	// Queue is the queue's id. Messages whose attribute queue is another id are not taken.
	Queue string
	// Patterns hold the routing keys that the queue takes. None: it takes all messages.
	Patterns []Pattern
	// Own: the topic is the queue's own, so a message without a routing key is for it.
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
	return !keyed && b.Own || slices.ContainsFunc(b.Patterns, func(p Pattern) bool { return p == "#" || p.Match(key) })
}

// Filter is a subscription filter. The zero value lets every message through.
type Filter struct {
	queue string
	// terms are of a message for no queue alone: one of them is enough. None: all pass.
	terms []term
	// unkeyed lets a message without a routing key through besides.
	unkeyed bool
}

// term is a condition on the routing key: it is the text, or begins with it.
type term struct {
	text  string
	exact bool
}

// Filter is the narrowest filter that fits Pub/Sub's 256 bytes and lets through what the binding takes: by
// pattern, else by the prefix that all patterns have, else all that is for no other queue, else everything.
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

// prefix begins every key that the pattern holds: a # may stand for no word, and no dot before it.
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

// String is the filter as Pub/Sub reads it; it is empty where everything passes.
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
