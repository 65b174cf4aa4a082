package catalog

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"billhook/internal/contract"
	"billhook/internal/contract/routing"
)

const messagesFile = "messages.yaml"

// readContracts compiles what the file declares, or the built-in one.
func (r *reader) readContracts(files fs.FS) *contract.Set {
	if _, err := fs.ReadFile(files, messagesFile); errors.Is(err, fs.ErrNotExist) {
		files = embedded
	}
	root, ok := r.root(files, messagesFile)
	if !ok {
		return nil
	}
	var declared []contract.Declaration
	places := map[string]string{} // of each declaration, by its name
	r.visit(root, messagesFile, func(format, at string, types *yaml.Node) {
		r.visit(types, at, func(eventType, at string, versions *yaml.Node) {
			r.visit(versions, at, func(version, at string, members *yaml.Node) {
				n, err := strconv.ParseInt(version, 10, 64)
				if err != nil {
					r.wrong(at, "", "a version is a number")
					return
				}
				places[declarationName(format, eventType, n)] = at
				declared = append(declared,
					contract.Declaration{Format: format, Type: eventType, Version: n, Members: r.members(members, at)})
			})
		})
	})
	set, err := contract.NewSet(contract.Formats, declared)
	for _, m := range Mistakes(err) {
		name := ""
		for of := range places {
			if strings.HasPrefix(m.What, of+": ") {
				name = of
			}
		}
		for what := range strings.SplitSeq(strings.TrimPrefix(m.What, name+": "), "\n") {
			member, _, _ := strings.Cut(what, ": ")
			r.mistakes = append(r.mistakes, &Mistake{
				File: messagesFile, Line: r.lines.of(cmp.Or(places[name], messagesFile), shown(member)),
				Where: name, What: what,
			})
		}
	}
	return set
}

// declarationName is how package contract names a declaration in its mistakes.
func declarationName(format, eventType string, version int64) string {
	return fmt.Sprintf("%s: %s: version %d", format, eventType, version)
}

// visit visits the entries of a map, each with the place that it is.
func (r *reader) visit(node *yaml.Node, place string, each func(key, at string, value *yaml.Node)) {
	r.pairs(node, place, "", func(key, value *yaml.Node) { each(key.Value, place+": "+shown(key.Value), value) })
}

func (r *reader) members(node *yaml.Node, place string) (members []contract.Member) {
	r.visit(node, place, func(name, at string, value *yaml.Node) {
		member := contract.Member{Name: name}
		switch what := ambiguity(value); {
		case what != "":
			r.wrong(at, "", what)
		case value.Kind == yaml.ScalarNode:
			member.Shape, member.Required = strings.CutSuffix(value.Value, "!")
		case value.Kind == yaml.SequenceNode && (len(value.Content) == 1 || len(value.Content) == 2 &&
			value.Content[1].Kind == yaml.ScalarNode):
			member.List = r.members(value.Content[0], at+"[]")
			if len(value.Content) == 2 {
				member.Shape = value.Content[1].Value
			}
		case value.Kind == yaml.MappingNode && len(value.Content) > 0:
			member.Object = r.members(value, at)
		default:
			r.wrong(at, "",
				"must be a shape, an object, or a list of one object and perhaps its bounds, such as 0..100")
		}
		members = append(members, member)
	})
	return members
}

// KeyMember is the member of a message's content that the queue's ordering key is made of; empty: none is.
func (c *Catalog) KeyMember(q Queue, eventType string) string {
	for _, declared := range c.Contracts.Contents(q.Contract, eventType) {
		for _, name := range q.OrderingKey {
			for _, m := range declared.Members {
				if m.Name == name || (name == "subject" && m.Required && m.Shape == "id") {
					return m.Name
				}
			}
		}
	}
	return ""
}

func (r *reader) checkContracts(place string, q Queue, contracts *contract.Set) {
	if !contracts.Known(q.Contract) {
		r.wrong(place, "contract", "must be one of "+strings.Join(contracts.Names(), ", "))
		return
	}
	for key, names := range map[string][]string{"ordering_key": q.OrderingKey, "rate.user": q.Rate.User} {
		for _, name := range names {
			if !contracts.Keys(q.Contract, name) {
				r.wrong(place, key, shown(name)+" is no attribute, and no member of a "+q.Contract+" body")
			}
		}
	}
	if q.DedupeBy == ByIdempotencyKey && !contracts.NamesKeys(q.Contract) {
		r.wrong(place, "dedupe_by", "must be event_id: a "+q.Contract+" body names no idempotency key")
	}
	for name := range q.Handlers {
		if _, err := routing.Parse(name); err == nil && eventType.MatchString(name) && !r.unread[messagesFile] &&
			!contracts.Declares(q.Contract, name) {
			r.wrong(place, handlerPath(name), "is declared by no "+q.Contract+" contract")
		}
	}
	if !r.unread[messagesFile] {
		r.checkBindings(place, q, contracts)
	}
}

// checkBindings checks that what a queue is bound to and what it handles are the same: else a message is
// taken that no handler wants, or a handler waits for one that never comes. A routing key is the event type
// unless its producer says otherwise.
func (r *reader) checkBindings(place string, q Queue, contracts *contract.Set) {
	types := slices.Sorted(maps.Keys(q.Handlers))
	for i, one := range types {
		for _, other := range types[i+1:] {
			if routing.Ambiguous(routing.Pattern(one), routing.Pattern(other)) {
				r.wrong(place, handlerPath(one),
					"holds event types that "+shown(other)+" holds too, and neither is narrower")
			}
		}
	}
	meets := func(p routing.Pattern) func(string) bool {
		return func(eventType string) bool { return routing.Overlap(p, routing.Pattern(eventType)) }
	}
	for _, p := range q.Bindings {
		_, err := routing.Parse(string(p))
		switch {
		case err != nil: // that is reported
		case !slices.ContainsFunc(contracts.Types(q.Contract), meets(p)):
			r.wrong(place, "bindings", "no "+q.Contract+" message that is declared matches "+shown(string(p)))
		case len(q.Handlers) > 0 && !slices.ContainsFunc(types, meets(p)):
			r.wrong(place, "bindings", "no handler takes what "+shown(string(p))+" lets through")
		}
	}
	for _, eventType := range types {
		lets := func(p routing.Pattern) bool { return routing.Overlap(p, routing.Pattern(eventType)) }
		if q.SharedTopic != "" && len(q.Bindings) > 0 && !slices.ContainsFunc(q.Bindings, lets) {
			r.wrong(place, handlerPath(eventType), "no binding lets it through")
		}
	}
}
