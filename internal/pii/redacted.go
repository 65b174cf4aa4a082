package pii

import (
	"fmt"
	"io"
	"log/slog"
)

// Redacted is text that must not be printed: a secret, a token, a person's data that
// is held for a moment. Logged, formatted or marshalled in any way it is [redacted];
// only a conversion to string gives it away. It must not be the key of a map:
// encoding/json writes keys of string types as they are.
type Redacted string

const redacted = "[redacted]"

var (
	_ slog.LogValuer = Redacted("")
	_ fmt.Formatter  = Redacted("")
)

// LogValue is [redacted].
func (Redacted) LogValue() slog.Value { return slog.StringValue(redacted) }

// String is [redacted].
func (Redacted) String() string { return redacted }

// GoString is [redacted].
func (Redacted) GoString() string { return redacted }

// Format writes [redacted], whatever the verb: %x and %q would go round String.
func (Redacted) Format(s fmt.State, _ rune) { _, _ = io.WriteString(s, redacted) }

// MarshalText is [redacted].
func (Redacted) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// MarshalJSON is "[redacted]".
func (Redacted) MarshalJSON() ([]byte, error) { return []byte(`"` + redacted + `"`), nil }
