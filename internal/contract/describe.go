package contract

import (
	"fmt"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// All lists the contracts, format by format, in the order of their declaration.
func (s *Set) All() (all []*Contract) {
	if s == nil {
		return nil
	}
	for _, f := range s.formats {
		all = append(all, f.all...)
	}
	return all
}

// Contract finds a contract by its id.
func (s *Set) Contract(id string) (*Contract, bool) {
	all := s.All()
	if i := slices.IndexFunc(all, func(c *Contract) bool { return c.ID() == id }); i >= 0 {
		return all[i], true
	}
	return nil, false
}

// ID names the contract, such as message.v1:order.created:1.
func (c *Contract) ID() string {
	if c.format.Content == "" {
		return c.format.Name
	}
	return fmt.Sprintf("%s:%s:%d", c.format.Name, c.pattern, c.version)
}

// Format is the name of the contract's format.
func (c *Contract) Format() string { return c.format.Name }

// Type is the event type, or the pattern of event types, that the contract is of. It is # for all.
func (c *Contract) Type() string {
	if c.format.Content == "" {
		return "#"
	}
	return c.pattern.String()
}

// Version is the contract's version: 1 where bodies have none.
func (c *Contract) Version() int64 { return c.version }

// Members are what is declared of the content. A format without declarations has none.
func (c *Contract) Members() []Member { return c.declared }

// Schema returns the JSON Schema (2020-12) of the contract's bodies.
func (s *Set) Schema(c *Contract) ([]byte, error) {
	f := s.format(c.format.Name)
	of := f.schema()
	if f.Content != "" {
		instead := map[string]any{}
		if when := f.typeSchema(c); when != nil {
			instead[f.Type] = when
		}
		if f.Version != "" {
			instead[f.Version] = object{{"const", c.version}}
		}
		of = c.rules.schema(instead, false)
	}
	text, err := json.Marshal(titled(c.ID(), of), jsontext.WithIndent("  "))
	if err != nil {
		return nil, fmt.Errorf("contract: schema of %s: %w", c.ID(), err)
	}
	return text, nil
}
