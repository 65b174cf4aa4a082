// Package env reads a program's configuration struct from the environment. It owns the type of
// a secret, which never prints itself. It reports all mistakes of a configuration together. It
// refuses to read the process environment: the caller passes getenv.
package env

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/caarlos0/env/v11"
)

// Parse fills a T by its `env` and `envDefault` tags. It reports all mistakes together; their
// texts name variables. If T has a method Check() error, its mistakes are among them.
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

// Secret is a value that must not be printed. Every way to format it gives "[redacted]". Only
// Reveal returns the value.
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
