// Package env reads a program's configuration struct from the environment, and says what its
// variables are. It owns the types of a secret, which never prints itself, and of a port. It
// reports all mistakes of a configuration together. It refuses to read the process environment:
// the caller passes getenv.
package env

import (
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"strconv"
	"strings"

	"github.com/caarlos0/env/v11"
)

// Parse fills a T by its `env` and `envDefault` tags. It reports all mistakes together, each
// behind the name of its variable and without the value. If T has a method Check() error, its
// mistakes are among them.
func Parse[T any](getenv func(string) string) (T, error) {
	var config T
	params, err := env.GetFieldParams(&config)
	if err != nil {
		return config, fmt.Errorf("environment: %w", err)
	}
	values := make(map[string]string, len(params))
	for _, p := range params {
		if value := getenv(p.Key); value != "" {
			values[p.Key] = value
		}
	}
	var mistakes []error
	if err := env.ParseWithOptions(&config, env.Options{Environment: values}); err != nil {
		mistakes = append(mistakes, byVariable(err, reflect.TypeFor[T]())...)
	}
	if checked, ok := any(config).(interface{ Check() error }); ok {
		mistakes = append(mistakes, checked.Check())
	}
	return config, errors.Join(mistakes...)
}

// byVariable says for each mistake of the parser which variable must be what.
func byVariable(err error, config reflect.Type) (mistakes []error) {
	all := []error{err}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		all = joined.Unwrap()
	}
	for _, one := range all {
		var unset env.VarIsNotSetError
		var unread env.ParseError
		switch {
		case errors.As(one, &unset):
			mistakes = append(mistakes, fmt.Errorf("%s: is required", unset.Key))
		case errors.As(one, &unread):
			field, _ := config.FieldByName(unread.Name)
			mistakes = append(mistakes, fmt.Errorf("%s: must be %s", variableOf(field), wanted(unread.Type)))
		default:
			mistakes = append(mistakes, fmt.Errorf("environment: %w", one))
		}
	}
	return mistakes
}

// variableOf is the name of a field's variable; empty: it has none.
func variableOf(field reflect.StructField) string {
	name, _, _ := strings.Cut(field.Tag.Get("env"), ",")
	return name
}

// wanted says what the value of a field must be.
func wanted(t reflect.Type) string {
	switch {
	case t == reflect.TypeFor[slog.Level]():
		return "DEBUG, INFO, WARN or ERROR"
	case t == reflect.TypeFor[Port]():
		return "a port: a number from 0 to 65535"
	case t.Kind() == reflect.Int:
		return "a whole number"
	default:
		return "a " + t.String()
	}
}

// Port is the number of a TCP port, as text. Port 0 asks for a free one.
type Port string

// UnmarshalText refuses what is no number of a port.
func (p *Port) UnmarshalText(text []byte) error {
	if _, err := strconv.ParseUint(string(text), 10, 16); err != nil {
		return errors.New("not a port")
	}
	*p = Port(text)
	return nil
}

const redacted = "[redacted]"

// Secret is a value that must not be printed. Every way to format it gives "[redacted]".
type Secret string

func (s Secret) String() string               { return redacted }
func (s Secret) GoString() string             { return redacted }
func (s Secret) LogValue() slog.Value         { return slog.StringValue(redacted) }
func (s Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// UnmarshalText takes the value as it is.
func (s *Secret) UnmarshalText(text []byte) error {
	*s = Secret(text)
	return nil
}

// Format prints "[redacted]" for every verb, so that %x and %q do not leak either.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(redacted)) }

// List splits a comma-separated secret: during a rotation several are valid. It trims white
// space around each. A line break at the end of a stored secret, or a space after a comma,
// would otherwise make a secret that no sender uses.
func (s Secret) List() []string {
	if s == "" {
		return nil
	}
	list := strings.Split(string(s), ",")
	for i, one := range list {
		list[i] = strings.TrimSpace(one)
	}
	return list
}
