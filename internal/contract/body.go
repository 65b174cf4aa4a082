// This file is over 400 lines: what all formats read of a body, and how.

package contract

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/go-json-experiment/json"

	"billhook/internal/contract/routing"
	"billhook/internal/pii"
)

// Body is a decoded body, of whatever format. The zero Body is none.
type Body struct {
	contract *Contract
	// value points to a value of the contract's Go type.
	value any
}

// Of is the body of a pointer to a Head of the table; declared content is not known to it.
func Of(made any) Body {
	if c := ownTypes()[reflect.TypeOf(made)]; c != nil {
		return Body{c, made}
	}
	panic(fmt.Sprintf("contract: %T is no body of the table", made))
}

// ownTypes are the contracts of the table's own types, by the type of a pointer to one.
var ownTypes = sync.OnceValue(func() map[reflect.Type]*Contract {
	all := map[reflect.Type]*Contract{}
	for i := range Formats {
		f := &Formats[i]
		all[reflect.PointerTo(f.Head)] = newContract(Contract{format: f, version: 1}, f.Head)
	}
	return all
})

func (b Body) whole() reflect.Value { return reflect.ValueOf(b.value).Elem() }

// at is the value at a path; not valid where the body has none.
func (b Body) at(path string) reflect.Value {
	return follow(b.whole(), b.contract.places[path])
}

func (b Body) text(path string) string { return textOf(b.at(path)) }

func textOf(v reflect.Value) string {
	if v.IsValid() {
		return v.String()
	}
	return ""
}

func (b Body) number(path string) int64 {
	if v := b.at(path); v.IsValid() {
		return v.Int()
	}
	return 0
}

// first is the first text that the body has at one of the paths.
func (b Body) first(paths []string) string {
	for _, path := range paths {
		if text := b.text(path); text != "" {
			return text
		}
	}
	return ""
}

// None reports whether there is no body.
func (b Body) None() bool { return b.value == nil }

// Contract is what the body was read by.
func (b Body) Contract() *Contract { return b.contract }

// Format is the name of the body's format.
func (b Body) Format() string { return b.contract.format.Name }

// TypePath is where bodies of the format say their event type.
func (b Body) TypePath() string { return b.contract.format.Type }

// UIDByCustomer reports whether the body's uid is that of its customer, to be looked up.
func (b Body) UIDByCustomer() bool { return b.contract.format.UIDByCustomer }

// Identity returns the idempotency key and the event type.
func (b Body) Identity() (id, eventType string) {
	return b.text(b.contract.format.ID), b.text(b.contract.format.Type)
}

// KnownAs returns the body with the id that its event is known by. The body must not be used any more.
func (b Body) KnownAs(id string) Body {
	if at := b.at(b.contract.format.ID); at.String() != id {
		at.SetString(id)
	}
	return b
}

// Version is that of the declaration of the body's content.
func (b Body) Version() int64 { return max(b.number(b.contract.format.Version), 1) }

// IdempotencyKey names what the message was made from; empty where it does not say so.
func (b Body) IdempotencyKey() string { return b.text(b.contract.format.IdempotencyKey) }

// MaxAttempts is how often the message may be tried; 0 where it does not say so.
func (b Body) MaxAttempts() int { return int(b.number(b.contract.format.MaxAttempts)) }

// Attempted is how often the message was tried before it came here, as it says itself.
func (b Body) Attempted() int {
	return int(max(b.number(b.contract.format.Attempts), b.number(b.contract.format.Attempt)-1, 0))
}

// Validate reports every rule that the body breaks, as an *Invalid.
func (b Body) Validate() error {
	err := check(b.value, "")
	if path := b.lacks(); path != "" {
		invalid := &Invalid{}
		_ = errors.As(err, &invalid)
		invalid.Violations = append(invalid.Violations, pii.Violation{Path: path, Rule: "required"})
		return invalid
	}
	return err
}

// lacks is the path of the first member that the body's event type needs and the body has not.
func (b Body) lacks() string {
	_, eventType := b.Identity()
	for _, n := range b.contract.format.Needs {
		if eventType != n.Types && (!strings.HasSuffix(n.Types, ".") || !strings.HasPrefix(eventType, n.Types)) {
			continue
		}
		if v := b.at(n.Path); !v.IsValid() || (v.Kind() == reflect.Slice && v.Len() == 0) {
			return n.Path
		}
	}
	return ""
}

// repeat fills in the attributes that repeat something of the body.
func (b Body) repeat(a *Attributes) {
	for name, paths := range b.contract.format.Repeated {
		*a.named(name) = b.first(paths)
	}
	a.EventID, a.EventType = b.Identity()
	a.Contract = b.contract.format.Name
}

// Attributes are those that follow from the body, without ordering key and time.
func (b Body) Attributes() (a Attributes) {
	b.repeat(&a)
	a.CorrelationID = cmp.Or(a.CorrelationID, b.first(b.contract.format.Correlation))
	return a
}

// CheckAttributes reports whether the attributes of the body's message keep their rules and agree with the
// body. The error is an *Invalid.
func (b Body) CheckAttributes(message map[string]string) error {
	var repeated Attributes
	b.repeat(&repeated)
	return AttributesOf(message).agree(&repeated)
}

// OrderingKey is the first of the named fields that the message has, as a member of the content or the body,
// else as an attribute. subject is the first id that the content must have.
func (b Body) OrderingKey(names []string, a *Attributes) string {
	for _, name := range names {
		value := ""
		if index, ok := b.contract.keys[name]; ok {
			value = textOf(follow(b.whole(), index))
		} else if a != nil {
			value = *a.named(name)
		}
		if value != "" {
			return value
		}
	}
	return ""
}

// PayloadHash is equal for two messages of one id exactly where they say the same.
func (b Body) PayloadHash() (string, error) {
	sum, f := sha256.New(), b.contract.format
	_, _ = sum.Write([]byte(`{"contract":"` + f.Name + `"`))
	for _, path := range f.Hashed {
		_, _ = sum.Write([]byte(`,"` + path + `":`))
		if err := json.MarshalWrite(sum, b.at(path).Addr().Interface()); err != nil {
			return "", ErrMalformed // a string that is not UTF-8, which no decoded body has
		}
	}
	_, _ = sum.Write([]byte{'}'})
	return "sha256:" + hex.EncodeToString(sum.Sum(nil)), nil
}

// Append appends the body as it goes on the topic: compact, members in the order of its type.
func (b Body) Append(dst []byte) ([]byte, error) {
	buffer := bytes.NewBuffer(dst)
	if err := json.MarshalWrite(buffer, b.value); err != nil {
		return dst, ErrMalformed // see PayloadHash
	}
	return buffer.Bytes(), nil
}

// Post is what another service is sent, the same for every attempt. The error is an *Invalid.
func (b Body) Post(key, tenant string) ([]byte, error) {
	dst, err := json.Marshal(struct {
		EventID string `json:"event_id"`
		Tenant  string `json:"tenant"`
	}{key, tenant})
	if err != nil {
		return nil, ErrMalformed
	}
	dst = dst[:len(dst)-1]
	for _, p := range b.contract.format.Posted {
		v := b.at(p.Path)
		if !v.IsValid() || v.IsZero() {
			if p.Needed {
				return nil, Broken(p.Path, "required")
			}
			continue
		}
		dst = append(append(append(dst, ',', '"'), p.Name...), '"', ':')
		value, err := json.Marshal(v.Addr().Interface())
		if err != nil {
			return nil, ErrMalformed
		}
		dst = append(dst, value...)
	}
	return append(dst, '}'), nil
}

// ErrType: a body is not what its handler takes.
var ErrType = errors.New("contract: not the type of body that is asked for")

// As is the body as a handler takes it: a Body, a pointer to the Go type of the whole body, or any type that
// the event's declared content fits; see Set.Takes. Members that the type has no place for are left out.
func As[B any](body Body) (b B, err error) {
	if whole, ok := body.value.(B); ok {
		return whole, nil
	}
	return convert[B](body)
}

// convert makes the body one of another type. It is apart from As, where nothing is allocated.
func convert[B any](body Body) (b B, err error) {
	if itself, ok := any(body).(B); ok {
		return itself, nil
	}
	if body.None() {
		return b, ErrType
	}
	of := body.value
	if asked := reflect.TypeFor[B](); asked != reflect.PointerTo(body.contract.format.Head) {
		content := body.at(body.contract.format.Content)
		if ownTypes()[asked] != nil || !content.IsValid() {
			return b, ErrType
		}
		of = content.Addr().Interface()
	}
	text, err := json.Marshal(of)
	if err == nil {
		err = json.Unmarshal(text, &b) // what it has no place for is for others, such as who is posted the body
	}
	if err != nil {
		return b, ErrType // which member does not fit is said by Takes, once, at the start
	}
	return b, nil
}

// Takes reports whether a handler may take bodies of the event type, or pattern, as b: every declared member
// for which b has a place fits it. The error names those that do not.
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
		b = typeAt(f.Head, f.Content)
	}
	found := f.of(eventType)
	if len(found) == 0 {
		return fmt.Errorf("%s %s: %s", format, eventType, Undeclared)
	}
	var mistakes []error
	for _, c := range found {
		for _, misfit := range fits(typeAt(c.typ, f.Content), b, "") {
			mistakes = append(mistakes, fmt.Errorf("%s %s, version %d: %s %s", format, c.pattern, c.version, f.Content, misfit))
		}
	}
	return errors.Join(mistakes...)
}

// of are the contracts that an event type, or a pattern, is read by: the narrowest, and narrower ones.
func (k *known) of(eventType string) (found []*Contract) {
	if k.Content == "" {
		return k.all
	}
	asked, err := routing.Parse(eventType)
	if err != nil {
		return nil
	}
	var whole routing.Pattern
	for _, c := range k.all {
		// Words of letters are words of a key, and so are * and # to a wider pattern.
		if c.pattern.Match(eventType) && (whole == "" || routing.Narrower(c.pattern, whole) < 0) {
			whole = c.pattern
		}
	}
	for _, c := range k.all {
		if c.pattern == whole || (routing.Overlap(asked, c.pattern) && (whole == "" || routing.Narrower(c.pattern, whole) < 0)) {
			found = append(found, c)
		}
	}
	return found
}

// Contents are the declarations that an event type, or a pattern, is read by; none for an open format.
func (s *Set) Contents(format, eventType string) (found []Declaration) {
	f := s.format(format)
	if f == nil || f.Content == "" {
		return nil
	}
	for _, c := range f.of(eventType) {
		found = append(found, Declaration{Format: format, Type: c.pattern.String(), Version: c.version, Members: c.declared})
	}
	return found
}

// Declares reports whether bodies of the event type, which may be a pattern, can be read.
func (s *Set) Declares(format, eventType string) bool {
	f := s.format(format)
	return f != nil && len(f.of(eventType)) > 0
}

// Types returns the event types and patterns that are declared for the format.
func (s *Set) Types(format string) []string {
	f := s.format(format)
	switch {
	case f == nil:
		return nil
	case f.Content == "":
		return []string{"#"}
	}
	return slices.Sorted(maps.Keys(f.declared))
}

// fits lists the members of a declared type that are something else in another.
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
		index := locate(in, jsonName(field))
		if index == nil {
			continue
		}
		place := deref(in.FieldByIndex(index).Type)
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

// Keys reports whether an ordering key may be made of the field: an attribute, or a member of some body.
func (s *Set) Keys(format, name string) bool {
	f := s.format(format)
	return AttributeRules[name] != (pii.Rule{}) || (f != nil && slices.ContainsFunc(f.all, func(c *Contract) bool { return c.keys[name] != nil }))
}
