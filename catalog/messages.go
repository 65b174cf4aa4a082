package catalog

import (
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"billhook/internal/contract"
	"billhook/internal/routing"
)

const messagesFile = "messages.yaml"

// readContracts compiles what the file declares. A folder without the file has what is
// built in.
func readContracts(files fs.FS) (*contract.Set, []error) {
	data, err := fs.ReadFile(files, messagesFile)
	if errors.Is(err, fs.ErrNotExist) {
		data, err = embedded.ReadFile(messagesFile)
	}
	var root *yaml.Node
	if err == nil {
		root, err = document(data)
	}
	if err != nil {
		return nil, []error{fmt.Errorf("%s: %w", messagesFile, err)}
	}
	m := &messages{}
	m.pairs(root, "", func(format, _ string, types *yaml.Node) {
		m.pairs(types, format, func(eventType, at string, versions *yaml.Node) {
			m.pairs(versions, at, func(version, at string, members *yaml.Node) {
				n, err := strconv.ParseInt(version, 10, 64)
				if err != nil {
					m.wrong(at, "a version is a number")
				}
				m.declared = append(m.declared, contract.Declaration{Format: format, Type: eventType, Version: n, Members: m.members(members, at)})
			})
		})
	})
	set, err := contract.NewSet(contract.Formats, m.declared)
	if err != nil {
		for line := range strings.SplitSeq(err.Error(), "\n") {
			m.mistakes = append(m.mistakes, errors.New(messagesFile+": "+line))
		}
	}
	return set, m.mistakes
}

// messages is the file as it is read.
type messages struct {
	declared []contract.Declaration
	mistakes []error
}

func (m *messages) wrong(at, what string) {
	m.mistakes = append(m.mistakes, fmt.Errorf("%s: %s: %s", messagesFile, at, what))
}

// pairs visits the keys of a map in their order, each once. A number is a key too.
func (m *messages) pairs(node *yaml.Node, at string, visit func(key, at string, value *yaml.Node)) {
	if what := ambiguity(node); what != "" || node.Kind != yaml.MappingNode {
		m.wrong(at, strings.TrimSpace("must be a map; "+what))
		return
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(node.Content); i += 2 {
		key := node.Content[i]
		place := strings.TrimPrefix(at+": "+shown(key.Value), ": ")
		if what := ambiguity(key); what != "" || key.Kind != yaml.ScalarNode || seen[key.Value] {
			m.wrong(place, strings.TrimSpace("must be a plain key, and stand here once "+what))
			continue
		}
		seen[key.Value] = true
		visit(key.Value, place, node.Content[i+1])
	}
}

func (m *messages) members(node *yaml.Node, at string) (members []contract.Member) {
	m.pairs(node, at, func(name, at string, value *yaml.Node) {
		member := contract.Member{Name: name}
		switch what := ambiguity(value); {
		case what != "":
			m.wrong(at, what)
		case value.Kind == yaml.ScalarNode:
			member.Shape, member.Required = strings.CutSuffix(value.Value, "!")
		case value.Kind == yaml.SequenceNode && len(value.Content) == 1:
			member.List = m.members(value.Content[0], at+"[]")
		default:
			m.wrong(at, "must be a shape, or a list of one object")
		}
		members = append(members, member)
	})
	return members
}

// checkContracts checks that what a queue takes is declared: its format, the names that
// its ordering key is made of, and its event types.
func (r *reader) checkContracts(place string, q Queue, contracts *contract.Set) {
	if !contracts.Known(q.Contract) {
		r.wrong(place, "contract", "must be one of "+strings.Join(contracts.Names(), ", "))
		return
	}
	for _, name := range q.OrderingKey {
		if !contracts.Keys(q.Contract, name) {
			r.wrong(place, "ordering_key", shown(name)+" is no attribute, and no member of a "+q.Contract+" body")
		}
	}
	for name := range q.Handlers {
		if _, err := routing.Parse(name); err == nil && eventType.MatchString(name) && !r.unread[messagesFile] && !contracts.Declares(q.Contract, name) {
			r.wrong(place, handlerPath(name), "is declared by no "+q.Contract+" contract")
		}
	}
}
