// Package env reads a program's configuration struct from environment variables, and describes them. It owns
// secrets, which never print their value. It does not read the process environment itself.
package env

import (
	"encoding"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/caarlos0/env/v11"
)

// Parse fills a T by its `env` and `envDefault` tags. It reports all mistakes together, each with the name of
// its variable but without the value, and also the error of T's method Check() error, if T has one.
func Parse[T any](getenv func(string) string) (T, error) {
	values := map[string]string{}
	for _, field := range reflect.VisibleFields(reflect.TypeFor[T]()) {
		if name := variableOf(field); name != "" && getenv(name) != "" {
			values[name] = getenv(name)
		}
	}
	config, err := env.ParseAsWithOptions[T](env.Options{Environment: values})
	mistakes := byVariable(err, reflect.TypeFor[T]())
	if checked, ok := any(config).(interface{ Check() error }); ok {
		mistakes = append(mistakes, checked.Check())
	}
	return config, errors.Join(mistakes...)
}

func byVariable(err error, config reflect.Type) (mistakes []error) {
	var all env.AggregateError
	_ = errors.As(err, &all) // the library returns no other type
	for _, one := range all.Errors {
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

func variableOf(field reflect.StructField) string {
	name, _, _ := strings.Cut(field.Tag.Get("env"), ",")
	return name
}

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

// Port is the number of a TCP port, as text. Port 0 means any free port.
type Port string

// UnmarshalText refuses anything but the number of a port.
func (p *Port) UnmarshalText(text []byte) error {
	if _, err := strconv.ParseUint(string(text), 10, 16); err != nil {
		return errors.New("not a port")
	}
	*p = Port(text)
	return nil
}

const redacted = "[redacted]"

// Secret is a value that must not be printed. Every way to format it prints "[redacted]".
type Secret string

func (s Secret) String() string               { return redacted }
func (s Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// Format prints "[redacted]" for every verb, also for %x and %q.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(redacted)) }

// List splits a comma-separated secret, as used in a rotation, and trims white space around each.
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

// Variable is an environment variable of a program.
type Variable struct {
	Name string
	// About describes it.
	About string
	// Default is its value if it is not set; empty: none.
	Default  string
	Required bool
	// Secret: its value is not shown.
	Secret bool
}

// Variables lists the variables of a configuration struct, in the order of its fields, each with its tag
// `about`. It panics if a field has none: the reference would not describe it.
func Variables[T any]() (variables []Variable) {
	for _, field := range reflect.VisibleFields(reflect.TypeFor[T]()) {
		tag, ok := field.Tag.Lookup("env")
		if !ok {
			continue
		}
		about := field.Tag.Get("about")
		if about == "" {
			panic("env: the variable of field " + field.Name + " has no tag that says what it is about")
		}
		_, options, _ := strings.Cut(tag, ",")
		variables = append(variables, Variable{
			Name: variableOf(field), About: about, Default: field.Tag.Get("envDefault"),
			Required: options == "required",
		})
	}
	return variables
}

// Help describes a program that environment variables configure.
type Help struct {
	// About describes the program in one sentence.
	About string
	// Own are the variables of its configuration struct.
	Own []Variable
	// Catalog are the variables that the catalog names.
	Catalog []Variable
}

// Asked reports whether there are arguments. It prints the help if the first one requests it; any other
// argument is an error with the exit code of wrong use.
func (h Help) Asked(args []string, out io.Writer) (bool, error) {
	switch {
	case len(args) == 0:
		return false, nil
	case args[0] != "--help" && args[0] != "-h" && args[0] != "-help" && args[0] != "help":
		const unknown = "unknown argument %q: environment variables configure this program, and --help lists them"
		return true, wrongUse(fmt.Sprintf(unknown, args[0]))
	}
	text := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0) // Flush returns its errors
	_, _ = fmt.Fprintf(text, "%s\n\nIt takes no arguments. Environment variables configure it; in brackets is "+
		"what one is\nwhere it is not set:\n\n", h.About)
	list := func(variables []Variable) {
		for _, v := range variables {
			note := ""
			switch {
			case v.Required:
				note = " (required)"
			case v.Default != "":
				note = " [" + v.Default + "]"
			}
			_, _ = fmt.Fprintf(text, "  %s%s\t%s\n", v.Name, note, v.About)
		}
	}
	list(h.Own)
	if len(h.Catalog) > 0 {
		_, _ = fmt.Fprint(text, "\nThe catalog names these, for the queues that run:\n\n")
		list(h.Catalog)
	}
	return true, text.Flush()
}

type wrongUse string

func (w wrongUse) Error() string { return string(w) }

// ExitCode returns the code for wrong use, which differs from the code of a failure.
func (w wrongUse) ExitCode() int { return 2 }

// Setting is the value of one variable in a running program, for people.
type Setting struct {
	Name  string `json:"name" show:"Variable"`
	About string `json:"about" show:"About,less"`
	// Value is [redacted] for a secret, and an address without its password; empty: it is not set.
	Value string `json:"value" show:"Value"`
}

// Settings lists the values of a configuration struct, in the order of its fields, and then the values of the
// variables that the catalog names, which it reads with getenv.
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

// shown formats a value as it would be set, without secrets.
func shown(value reflect.Value) string {
	if value.IsZero() && value.Kind() != reflect.Int { // a number is always shown
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

// address removes the password and the query from a text that is a URL.
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
