package console

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// Text returns a value as tables and pages show it: a time in UTC to the second, an empty value as no text.
func Text(v reflect.Value) string {
	if v = reflect.Indirect(v); !v.IsValid() {
		return ""
	}
	switch value := v.Interface().(type) {
	case time.Time:
		return Stamp(value)
	case jsontext.Value:
		text := slices.Clone(value)
		_ = text.Indent(jsontext.WithIndent("  ")) // malformed JSON is shown as it is
		return string(text)
	case []byte:
		if len(value) == 0 {
			return ""
		}
		return strconv.Quote(string(value))
	case fmt.Stringer:
		return value.String()
	case map[string]any:
		return pairs(value)
	case map[string]string:
		return pairs(value)
	case bool:
		return map[bool]string{true: "yes", false: "no"}[value]
	case float64: // a JSON number of unknown type
		return strconv.FormatFloat(value, 'f', -1, 64)
	}
	if v.Kind() != reflect.Slice {
		return fmt.Sprint(v.Interface())
	}
	var parts []string
	for i := range v.Len() {
		parts = append(parts, Text(v.Index(i)))
	}
	return strings.Join(parts, ", ")
}

// Stamp returns a time in UTC to the second; empty for the zero time.
func Stamp(at time.Time) string {
	if at.IsZero() {
		return ""
	}
	return at.UTC().Format(time.RFC3339)
}

// Seconds is a duration, shown in its two largest units, such as 3h 12m.
type Seconds int64

// SecondsOf returns a duration in whole seconds; 0 if it is negative, as by another clock.
func SecondsOf(d time.Duration) Seconds { return max(0, Seconds(d.Seconds())) }

func (s Seconds) String() string {
	if s < 60 {
		return fmt.Sprintf("%ds", s)
	}
	large, small, names := s/60, s%60, [2]string{"m", "s"}
	if s >= 24*60*60 {
		large, small, names = s/(24*60*60), s/(60*60)%24, [2]string{"d", "h"}
	} else if s >= 60*60 {
		large, small, names = s/(60*60), s/60%60, [2]string{"h", "m"}
	}
	return strings.TrimSuffix(fmt.Sprintf("%d%s %d%s", large, names[0], small, names[1]), " 0"+names[1])
}

func pairs[V any](of map[string]V) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(of)) {
		parts = append(parts, name+" "+Text(reflect.ValueOf(of[name])))
	}
	return strings.Join(parts, ", ")
}

// Notes returns the sentences that an answer or an item adds to its columns: its method Notes() []string.
func Notes(of any) []string {
	if n, ok := of.(interface{ Notes() []string }); ok {
		return n.Notes()
	}
	return nil
}

// Alerts reports whether an answer or an item needs a person: what its method Alerts() bool says.
func Alerts(of any) bool {
	a, ok := of.(interface{ Alerts() bool })
	return ok && a.Alerts()
}

// Failure returns the error that a command ends with, from its answer's method Failure() string; nil if that
// is empty.
func Failure(of any) error {
	if f, ok := of.(interface{ Failure() string }); ok && f.Failure() != "" {
		return errors.New(f.Failure())
	}
	return nil
}

// Followed is an answer about something that still runs.
type Followed interface {
	// Stands says how far it is, and reports whether it continues.
	Stands() (line string, goesOn bool)
	// Missed says what was not done as requested; nil: all was.
	Missed() error
}

// Parted is an answer that may come in parts. Join adds the earlier parts, a pointer of the same type, and
// returns the parameter page for the next part; empty: this is the last.
type Parted interface {
	Join(before any) (page string)
}

// Allows reports whether a verb makes sense for an answer: what its method Allows(verb) bool says, else true.
func Allows(of any, verb string) bool {
	a, ok := of.(interface{ Allows(verb string) bool })
	return !ok || a.Allows(verb)
}

// Answer returns a pointer to an empty answer.
func (o Operation) Answer() any { return reflect.New(o.response).Interface() }
