package contract

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"billhook/internal/contract/routing"
	"billhook/internal/pii"
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
		return c.Format
	}
	return fmt.Sprintf("%s:%s:%d", c.Format, c.Type, c.Version)
}

// Takes reports whether a handler may take bodies of the event type, or pattern, as type b: every declared
// member that b has a field for must fit it. The error names the members that do not.
func (s *Set) Takes(format, eventType string, b reflect.Type) error {
	f := s.format(format)
	if f == nil {
		return fmt.Errorf("format %s: %w", format, ErrFormat)
	}
	if b == reflect.TypeFor[Body]() {
		return nil
	}
	whole := b == reflect.PointerTo(f.Head)
	switch {
	case !whole && (f.Content == "" || ownTypes()[b] != nil):
		return fmt.Errorf("format %s is taken as *%s, and not as %s", format, f.Head, b)
	case f.Content == "":
		return nil
	case whole:
		b = f.Head.FieldByIndex(f.whole.members[f.Content].at).Type
	}
	found := f.of(eventType)
	if len(found) == 0 {
		return fmt.Errorf("%s %s: %s", format, eventType, Undeclared)
	}
	var mistakes []error
	for _, c := range found {
		for _, misfit := range fits(c.typeAt(f.Content), b, "") {
			mistakes = append(mistakes, fmt.Errorf("%s %s, version %d: %s %s", format, c.Type, c.Version,
				f.Content, misfit))
		}
	}
	return errors.Join(mistakes...)
}

// of returns the narrowest contract for an event type or pattern, and narrower ones that overlap it.
func (k *known) of(eventType string) (found []*Contract) {
	pattern, err := routing.Parse(eventType)
	if err != nil {
		return nil
	}
	var whole routing.Pattern
	for _, c := range k.all {
		// Match takes the pattern's own * and # for words of a key, so a wider pattern matches them.
		p := routing.Pattern(c.Type)
		if p.Match(eventType) && (whole == "" || routing.Narrower(p, whole) < 0) {
			whole = p
		}
	}
	for _, c := range k.all {
		p := routing.Pattern(c.Type)
		if p == whole || routing.Overlap(pattern, p) && (whole == "" || routing.Narrower(p, whole) < 0) {
			found = append(found, c)
		}
	}
	return found
}

// Contents returns the contracts for an event type or pattern; none if the format declares no content.
func (s *Set) Contents(format, eventType string) []*Contract {
	if f := s.format(format); f != nil && f.Content != "" {
		return f.of(eventType)
	}
	return nil
}

// Declares reports whether a contract can decode bodies of the event type, which may be a pattern.
func (s *Set) Declares(format, eventType string) bool {
	f := s.format(format)
	return f != nil && len(f.of(eventType)) > 0
}

// Types returns the event types and patterns that are declared for the format.
func (s *Set) Types(format string) []string {
	if f := s.format(format); f != nil {
		return slices.Sorted(maps.Keys(f.declared))
	}
	return nil
}

func fits(declared, in reflect.Type, path string) (misfits []string) {
	if in = deref(in); in.Kind() == reflect.Interface {
		return nil
	}
	if in.Kind() != reflect.Struct {
		return []string{path + " does not fit " + in.String()}
	}
	for i := range declared.NumField() {
		field := declared.Field(i)
		name, of := path+"."+jsonName(field), deref(field.Type)
		places := reflect.VisibleFields(in)
		at := slices.IndexFunc(places, func(f reflect.StructField) bool { return jsonName(f) == jsonName(field) })
		if at < 0 {
			continue
		}
		place := deref(places[at].Type)
		switch {
		case of.Kind() == reflect.Slice && place.Kind() == reflect.Slice:
			misfits = append(misfits, fits(of.Elem(), place.Elem(), name+"[]")...)
		case of.Kind() == reflect.Struct && place.Kind() == reflect.Struct:
			misfits = append(misfits, fits(of, place, name)...)
		case of.Kind() != place.Kind():
			misfits = append(misfits, name+" is no "+place.String())
		}
	}
	return misfits
}

// Keys reports whether the field can be an ordering key: it is an attribute, or a member of some body.
func (s *Set) Keys(format, name string) bool {
	f := s.format(format)
	return AttributeRules[name] != (pii.Rule{}) ||
		(f != nil && slices.ContainsFunc(f.all, func(c *Contract) bool { return c.keys[name] != "" }))
}
