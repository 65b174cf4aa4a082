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

// readContracts compiles the declarations of the file, or the built-in ones.
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
				// package contract names a declaration so in its mistakes
				places[fmt.Sprintf("%s: %s: version %d", format, eventType, n)] = at
				one := contract.Declaration{Format: format, Type: eventType, Version: n}
				one.Members = r.members(members, at)
				declared = append(declared, one)
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
			line := r.lines.of(cmp.Or(places[name], messagesFile), shown(member))
			r.mistakes = append(r.mistakes, &Mistake{File: messagesFile, Line: line, Where: name, What: what})
		}
	}
	return set
}

// visit visits the entries of a map, with the place of each.
func (r *reader) visit(node *yaml.Node, place string, each func(key, at string, value *yaml.Node)) {
	r.pairs(node, place, "", func(key, value *yaml.Node) { each(key.Value, place+": "+shown(key.Value), value) })
}

func (r *reader) members(node *yaml.Node, place string) (members []contract.Member) {
	r.visit(node, place, func(name, at string, value *yaml.Node) {
		member, items := contract.Member{Name: name}, value.Content
		switch what := ambiguity(value); {
		case what != "":
			r.wrong(at, "", what)
		case value.Kind == yaml.ScalarNode:
			member.Shape, member.Required = strings.CutSuffix(value.Value, "!")
		case value.Kind == yaml.MappingNode && len(items) > 0:
			member.Object = r.members(value, at)
		case value.Kind == yaml.SequenceNode && len(items) == 1:
			member.List = r.members(items[0], at+"[]")
		case value.Kind == yaml.SequenceNode && len(items) == 2 && items[1].Kind == yaml.ScalarNode:
			member.List, member.Shape = r.members(items[0], at+"[]"), items[1].Value
		default:
			r.wrong(at, "", "must be a shape, an object, or a list of one object and perhaps its bounds: 0..100")
		}
		members = append(members, member)
	})
	return members
}

// KeyMember returns the content's member from which the queue takes its ordering key; empty: there is none.
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
	if r.unread[messagesFile] {
		return
	}
	for name := range q.Handlers {
		_, err := routing.Parse(name)
		if err == nil && eventType.MatchString(name) && !contracts.Declares(q.Contract, name) {
			r.wrong(place, handlerPath(name), "is declared by no "+q.Contract+" contract")
		}
	}
	r.checkBindings(place, q, contracts)
}

// checkBindings checks that a queue is bound to the event types that it handles. Otherwise it takes messages
// without a handler, or a handler gets no messages. A routing key is the event type, unless its producer says
// otherwise.
func (r *reader) checkBindings(place string, q Queue, contracts *contract.Set) {
	types := slices.Sorted(maps.Keys(q.Handlers))
	for i, one := range types {
		for _, other := range types[i+1:] {
			r.checkNarrower(place, handlerPath(one), other, one)
		}
	}
	for _, p := range q.Bindings {
		meets := func(eventType string) bool { return routing.Overlap(p, routing.Pattern(eventType)) }
		_, err := routing.Parse(string(p))
		switch {
		case err != nil: // checkNames reports it
		case !slices.ContainsFunc(contracts.Types(q.Contract), meets):
			r.wrong(place, "bindings", "no "+q.Contract+" message that is declared matches "+shown(string(p)))
		case len(q.Handlers) > 0 && !slices.ContainsFunc(types, meets):
			r.wrong(place, "bindings", "no handler takes what "+shown(string(p))+" lets through")
		}
	}
	for _, eventType := range types {
		meets := func(p routing.Pattern) bool { return routing.Overlap(p, routing.Pattern(eventType)) }
		if q.SharedTopic != "" && len(q.Bindings) > 0 && !slices.ContainsFunc(q.Bindings, meets) {
			r.wrong(place, handlerPath(eventType), "no binding lets it through")
		}
	}
}

// checkNarrower checks that, if two patterns match the same event type, one of them is narrower.
func (r *reader) checkNarrower(place, path, one, other string) {
	if routing.Ambiguous(routing.Pattern(one), routing.Pattern(other)) {
		r.wrong(place, path, "holds event types that "+shown(one)+" holds too, and neither is narrower")
	}
}
