package contract

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"billhook/internal/pii"
)

// Body is a decoded body of any format. The zero value means that there is no body.
type Body struct {
	contract *Contract
	value    any
}

// Of wraps a pointer to the Head type of a format. The body does not know the declared content.
func Of(made any) Body {
	if c := ownTypes()[reflect.TypeOf(made)]; c != nil {
		return Body{c, made}
	}
	panic(fmt.Sprintf("contract: %T is no body of the table", made))
}

var ownTypes = sync.OnceValue(func() map[reflect.Type]*Contract {
	all := map[reflect.Type]*Contract{}
	for i := range Formats {
		f := &Formats[i]
		all[reflect.PointerTo(f.Head)] = newContract(Declaration{Format: f.Name, Version: 1}, f, f.Head)
	}
	return all
})

func (b Body) whole() reflect.Value { return reflect.ValueOf(b.value).Elem() }

// at returns the value at a path, or an invalid Value if the body has none.
func (b Body) at(path string) (found reflect.Value) {
	if f := b.contract.members[path]; f != nil {
		each(b.whole(), f.at, func(v reflect.Value) { found = reflect.Indirect(v) })
	}
	return found
}

func (b Body) text(path string) string {
	if v := b.at(path); v.Kind() == reflect.String {
		return v.String()
	}
	return ""
}

func (b Body) number(path string) int64 {
	if v := b.at(path); v.Kind() == reflect.Int64 {
		return v.Int()
	}
	return 0
}

func (b Body) member(name string) string { return b.contract.format.Content + "." + name }

// Text returns a text member of the content: user_id for data.user_id. It is empty if there is none.
func (b Body) Text(name string) string { return b.text(b.member(name)) }

// Number returns a number of the content: version for data.version. It is 0 if there is none.
func (b Body) Number(name string) int64 { return b.number(b.member(name)) }

// Declared reports whether the body's content may have a member of that name.
func (b Body) Declared(name string) bool { return b.contract.members[b.member(name)] != nil }

// Time returns when the body was made, as RFC 3339; empty: unknown.
func (b Body) Time() string { return b.text(b.contract.format.Time) }

// Document returns the body's content as a separate JSON object, with its tenant added.
func (b Body) Document(tenant string) ([]byte, error) {
	content := b.at(b.contract.format.Content)
	if !content.IsValid() {
		return nil, ErrMalformed
	}
	members := map[string]jsontext.Value{}
	text, err := json.Marshal(content.Addr().Interface())
	if err == nil {
		err = json.Unmarshal(text, &members)
	}
	if err == nil {
		members["tenant"], err = jsontext.AppendQuote(nil, tenant)
	}
	if err != nil {
		return nil, ErrMalformed
	}
	return json.Marshal(members, json.Deterministic(true))
}

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

// Contract returns the contract that decoded the body.
func (b Body) Contract() *Contract { return b.contract }

// Format returns the name of the body's format.
func (b Body) Format() string { return b.contract.format.Name }

// TypePath returns the path of the event type in bodies of this format.
func (b Body) TypePath() string { return b.contract.format.Type }

// UIDByCustomer reports whether the body has no uid, so that it is looked up by the customer.
func (b Body) UIDByCustomer() bool { return b.contract.format.UIDByCustomer }

// Identity returns the idempotency key and the event type.
func (b Body) Identity() (id, eventType string) {
	return b.text(b.contract.format.ID), b.text(b.contract.format.Type)
}

// KnownAs returns the body with the id of its event's record. The original must not be used afterwards.
func (b Body) KnownAs(id string) Body {
	if at := b.at(b.contract.format.ID); at.String() != id {
		at.SetString(id)
	}
	return b
}

// IdempotencyKey returns the id of the message's source; empty: it names none.
func (b Body) IdempotencyKey() string { return b.text(b.contract.format.IdempotencyKey) }

// MaxAttempts returns the message's own limit of attempts; 0: it has none.
func (b Body) MaxAttempts() int { return int(b.number(b.contract.format.MaxAttempts)) }

// Attempted returns how many attempts the message itself counts from before it came here.
func (b Body) Attempted() int {
	return int(max(b.number(b.contract.format.Attempts), b.number(b.contract.format.Attempt)-1, 0))
}

// Validate reports every broken rule as an *Invalid, but only the first missing member that the type needs.
func (b Body) Validate() error {
	violations := check(b.value, "")
	_, eventType := b.Identity()
	for _, n := range b.contract.format.Needs {
		v := b.at(n.Path)
		if n.of(eventType) && (!v.IsValid() || (v.Kind() == reflect.Slice && v.Len() == 0)) {
			violations = append(violations, pii.Violation{Path: n.Path, Rule: "required"})
			break
		}
	}
	return invalid(violations...)
}

func (n Need) of(eventType string) bool {
	return eventType == n.Types || (strings.HasSuffix(n.Types, ".") && strings.HasPrefix(eventType, n.Types))
}

func (b Body) repeat(a *Attributes) {
	for name, paths := range b.contract.format.Repeated {
		*a.named(name) = b.first(paths)
	}
	a.EventID, a.EventType = b.Identity()
	a.Contract = b.contract.format.Name
}

// Attributes returns the attributes that follow from the body, without ordering key and time.
func (b Body) Attributes() (a Attributes) {
	b.repeat(&a)
	a.CorrelationID = cmp.Or(a.CorrelationID, b.first(b.contract.format.Correlation))
	return a
}

// CheckAttributes checks the attributes of the body's message against their rules and the body. The error is
// an *Invalid.
func (b Body) CheckAttributes(message map[string]string) error {
	var repeated Attributes
	b.repeat(&repeated)
	return AttributesOf(message).agree(&repeated)
}

// OrderingKey returns the first named field that the message has: a member of the content or the body, else
// an attribute. The name subject means the first required id of the content.
func (b Body) OrderingKey(names []string, a *Attributes) string {
	for _, name := range names {
		value := ""
		if path := b.contract.keys[name]; path != "" {
			value = b.text(path)
		} else if a != nil {
			value = *a.named(name)
		}
		if value != "" {
			return value
		}
	}
	return ""
}

// PayloadHash returns a hash that shows whether two messages with one id have the same content.
func (b Body) PayloadHash() (string, error) {
	said := object{{"contract", b.contract.format.Name}}
	for _, path := range b.contract.format.Hashed {
		said = append(said, member{path, b.at(path).Addr().Interface()})
	}
	sum := sha256.New()
	if err := json.MarshalWrite(sum, said); err != nil {
		return "", ErrMalformed // a string that is not UTF-8, which no decoded body has
	}
	return "sha256:" + hex.EncodeToString(sum.Sum(nil)), nil
}

// Append appends the body as it is published: compact, with members in the order of its Go type.
func (b Body) Append(dst []byte) ([]byte, error) {
	buffer := bytes.NewBuffer(dst)
	if err := json.MarshalWrite(buffer, b.value); err != nil {
		return dst, ErrMalformed // see PayloadHash
	}
	return buffer.Bytes(), nil
}

// Post returns the request body for another service, the same in every attempt. The error is an *Invalid.
func (b Body) Post(key, tenant string) ([]byte, error) {
	post := object{{"event_id", key}, {"tenant", tenant}}
	for _, p := range b.contract.format.Posted {
		v := b.at(p.Path)
		switch {
		case v.IsValid() && !v.IsZero():
			post = append(post, member{p.Name, v.Addr().Interface()})
		case p.Needed:
			return nil, Broken(p.Path, "required")
		}
	}
	text, err := json.Marshal(post)
	if err != nil {
		return nil, ErrMalformed
	}
	return text, nil
}

// ErrType means that a body does not fit the type that its handler takes.
var ErrType = errors.New("contract: not the requested type of body")

// As converts the body to the type that a handler takes: a Body, a pointer to the Go type of the whole body,
// or any type that the declared content fits; see Set.Takes. Members unknown to the type are left out.
func As[B any](body Body) (b B, err error) {
	if whole, ok := body.value.(B); ok {
		return whole, nil
	}
	return convert[B](body)
}

// convert decodes the body into another type. It is a separate function so that As does not allocate.
func convert[B any](body Body) (b B, err error) {
	if itself, ok := any(body).(B); ok {
		return itself, nil
	}
	if body.None() {
		return b, ErrType
	}
	of := body.value
	if requested := reflect.TypeFor[B](); requested != reflect.PointerTo(body.contract.format.Head) {
		content := body.at(body.contract.format.Content)
		if ownTypes()[requested] != nil || !content.IsValid() {
			return b, ErrType
		}
		of = content.Addr().Interface()
	}
	text, err := json.Marshal(of)
	if err == nil {
		err = json.Unmarshal(text, &b) // members unknown to B are for other readers of the body
	}
	if err != nil {
		return b, ErrType // Takes has named the member that does not fit at the start
	}
	return b, nil
}
