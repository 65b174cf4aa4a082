package env

import (
	"encoding"
	"fmt"
	"maps"
	"net/url"
	"reflect"
	"slices"
	"strings"
)

// Setting is what a program runs with of one variable, for people who look at it.
type Setting struct {
	Name  string `json:"name"`
	About string `json:"about"`
	// Value is [redacted] of a secret, and has no password of an address; empty: it is not set.
	Value string `json:"value"`
}

// Settings lists the values of a configuration struct by its variables, in the order of its fields, and
// behind them those of the variables that the catalog names, which getenv reads.
func Settings[T any](config T, named []Variable, getenv func(string) string) (settings []Setting) {
	fields := reflect.VisibleFields(reflect.TypeFor[T]())
	fields = slices.DeleteFunc(fields, func(f reflect.StructField) bool { return variableOf(f) == "" })
	for i, v := range Variables[T]() {
		value := reflect.ValueOf(config).FieldByIndex(fields[i].Index)
		settings = append(settings, Setting{Name: v.Name, About: v.About, Value: shown(value)})
	}
	for _, v := range named {
		value := reflect.ValueOf(getenv(v.Name))
		if v.Secret {
			value = reflect.ValueOf(Secret(getenv(v.Name)))
		}
		settings = append(settings, Setting{Name: v.Name, About: v.About, Value: shown(value)})
	}
	return settings
}

// shown is a value as it would be set, without what is secret in it.
func shown(value reflect.Value) string {
	if value.IsZero() && value.Kind() != reflect.Int { // a number is always set
		return ""
	}
	switch v := value.Interface().(type) {
	case encoding.TextMarshaler:
		text, err := v.MarshalText()
		if err != nil {
			return redacted
		}
		return string(text)
	case []string:
		return strings.Join(v, ",")
	case map[string]string:
		var pairs []string
		for _, key := range slices.Sorted(maps.Keys(v)) {
			pairs = append(pairs, key+"="+address(v[key]))
		}
		return strings.Join(pairs, ",")
	case string:
		return address(v)
	default:
		return fmt.Sprint(v)
	}
}

// address is a text without the password, and without the query, of the URL that it may be.
func address(text string) string {
	u, err := url.Parse(text)
	switch {
	case err != nil && strings.Contains(text, "://"):
		return redacted // it could have a password
	case err != nil || u.Host == "":
		return text
	}
	if u.User != nil {
		u.User = url.User(redacted)
	}
	if u.RawQuery != "" {
		u.RawQuery = redacted
	}
	return strings.ReplaceAll(u.String(), url.PathEscape(redacted), redacted)
}
