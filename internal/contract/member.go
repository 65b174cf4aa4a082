package contract

import (
	"reflect"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Text is a text of the body's content, such as data.user_id under user_id; empty: there is none.
func (b Body) Text(name string) string {
	if v := b.member(name); v.IsValid() && v.Kind() == reflect.String {
		return v.String()
	}
	return ""
}

// Number is a number of the body's content, such as data.version under version; 0: there is none.
func (b Body) Number(name string) int64 {
	if v := b.member(name); v.IsValid() && v.CanInt() {
		return v.Int()
	}
	return 0
}

// Document is the body's content as a JSON object of its own, with the tenant that it is of.
func (b Body) Document(tenant string) ([]byte, error) {
	content := b.at(b.contract.format.Content)
	if b.contract.format.Content == "" || !content.IsValid() {
		return nil, ErrMalformed
	}
	members := map[string]jsontext.Value{}
	text, err := json.Marshal(content.Addr().Interface())
	if err == nil {
		err = json.Unmarshal(text, &members)
	}
	if err != nil {
		return nil, ErrMalformed
	}
	if members["tenant"], err = jsontext.AppendQuote(nil, tenant); err != nil {
		return nil, ErrMalformed
	}
	return json.Marshal(members, json.Deterministic(true))
}

// Declared reports whether the body's content may have a member of that name.
func (b Body) Declared(name string) bool {
	return b.contract.format.Content != "" && b.contract.places[b.contract.format.Content+"."+name] != nil
}

// Time is when the body says that it was made, as RFC 3339; empty where it does not say so.
func (b Body) Time() string {
	if b.contract.format.Time == "" {
		return ""
	}
	return b.text(b.contract.format.Time)
}

// member is a member of the content.
func (b Body) member(name string) reflect.Value {
	index, ok := b.contract.places[b.contract.format.Content+"."+name]
	if !ok || b.contract.format.Content == "" {
		return reflect.Value{}
	}
	return follow(b.whole(), index)
}
