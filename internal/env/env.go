// Package env reads a main's configuration struct from the environment. It owns
// the type of a secret, which never prints itself, and reports every mistake of a
// configuration together. It refuses to read the process environment: the caller
// brings getenv.
package env

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/caarlos0/env/v11"
)

// Parse fills a T by its `env` and `envDefault` tags. All mistakes are reported
// together; their texts name variables. A T with a method Check() error is checked
// too, so that relations between variables are reported in the same breath.
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
		mistakes = append(mistakes, err)
	}
	if checked, ok := any(config).(interface{ Check() error }); ok {
		mistakes = append(mistakes, checked.Check())
	}
	if err := errors.Join(mistakes...); err != nil {
		return config, fmt.Errorf("environment: %w", err)
	}
	return config, nil
}

const redacted = "[redacted]"

// Secret is a value that must not be printed. Every way of formatting it gives
// "[redacted]"; Reveal is the one way to the value.
type Secret string

// Reveal returns the value.
func (s Secret) Reveal() string { return string(s) }

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

// List splits a comma-separated secret, for rotation: all of them are valid at once.
// Space around each is none of it: the line break at the end of a stored secret, or a
// blank behind the comma, would make one that nothing is ever signed with.
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
