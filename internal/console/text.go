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

// Text is a value as a table on a terminal or a page has it. A moment is in UTC to the second; what is empty
// is empty.
func Text(v reflect.Value) string {
	if v = reflect.Indirect(v); !v.IsValid() {
		return ""
	}
	switch value := v.Interface().(type) {
	case time.Time:
		return Stamp(value)
	case jsontext.Value:
		text := slices.Clone(value)
		_ = text.Indent(jsontext.WithIndent("  ")) // else it is shown as it came
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
	case float64: // a number of JSON whose type nobody knows
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

// Stamp is a moment in UTC to the second; a zero one is empty.
func Stamp(at time.Time) string {
	if at.IsZero() {
		return ""
	}
	return at.UTC().Format(time.RFC3339)
}

// Seconds is a length of time, which people see in its two largest units, such as 3h 12m.
type Seconds int64

// SecondsOf is a length of time in whole seconds; what another clock has from the future is none.
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

// Notes are the sentences that an answer, or an item of a list, has to say beside its columns: those of its
// method Notes() []string.
func Notes(of any) []string {
	if n, ok := of.(interface{ Notes() []string }); ok {
		return n.Notes()
	}
	return nil
}

// Alerts reports whether an answer, or an item of a list, needs somebody: what its method Alerts() bool says.
func Alerts(of any) bool {
	a, ok := of.(interface{ Alerts() bool })
	return ok && a.Alerts()
}

// Failure is what an answer says is wrong, so that a command that asked for it fails: its method Failure()
// string, which is empty where nothing is.
func Failure(of any) error {
	if f, ok := of.(interface{ Failure() string }); ok && f.Failure() != "" {
		return errors.New(f.Failure())
	}
	return nil
}

// Followed is an answer about something that goes on behind it.
type Followed interface {
	// Stands says how far it is, and reports whether it goes on.
	Stands() (line string, goesOn bool)
	// Missed is what has not become as it was asked for; nil: all has.
	Missed() error
}

// Parted is an answer that may come in parts. Join adds what the parts before it have, which are a pointer of
// the same type, and returns the parameter page of the request for the part behind it; empty: it is the last.
type Parted interface {
	Join(before any) (page string)
}

// Allows reports whether a verb makes sense for an answer as it stands: what its method Allows(verb) bool
// says, else it does.
func Allows(of any, verb string) bool {
	a, ok := of.(interface{ Allows(verb string) bool })
	return !ok || a.Allows(verb)
}

// Answer returns a pointer to an empty answer.
func (o Operation) Answer() any { return reflect.New(o.response).Interface() }
