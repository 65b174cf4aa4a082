package env

import (
	"encoding"
	"fmt"
	"io"
	"maps"
	"net/url"
	"reflect"
	"slices"
	"strings"
)

// Variable is an environment variable of a program.
type Variable struct {
	Name string
	// About says what it is.
	About string
	// Default is its value where it is not set; empty: none.
	Default  string
	Required bool
	// Secret: its value is not shown.
	Secret bool
}

// Variables lists the variables of a configuration struct, in the order of its fields. The tag
// `about` says what each is. It panics at a variable without that tag: its reader would know
// nothing of it.
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
			Name: variableOf(field), About: about, Default: field.Tag.Get("envDefault"), Required: options == "required",
		})
	}
	return variables
}

// Help is what a program that is configured by its environment says of itself.
type Help struct {
	// About is a sentence on the program.
	About string
	// Own are the variables of its configuration struct.
	Own []Variable
	// Catalog are the variables that the catalog names.
	Catalog []Variable
}

// Asked reports whether the arguments ask for the help, and prints it then. Any other argument is
// a mistake, with the exit code of wrong use.
func (h Help) Asked(args []string, out io.Writer) (bool, error) {
	switch {
	case len(args) == 0:
		return false, nil
	case args[0] != "--help" && args[0] != "-h" && args[0] != "-help" && args[0] != "help":
		return true, wrongUse(fmt.Sprintf("unknown argument %q: environment variables configure this program, and --help lists them", args[0]))
	}
	var text strings.Builder
	fmt.Fprintf(&text, "%s\n\nIt takes no arguments. Environment variables configure it; in brackets is what one is\nwhere it is not set:\n", h.About)
	list := func(variables []Variable) {
		for _, v := range variables {
			note := ""
			switch {
			case v.Required:
				note = " (required)"
			case v.Default != "":
				note = " [" + v.Default + "]"
			}
			fmt.Fprintf(&text, "\n  %s%s\n      %s\n", v.Name, note, v.About)
		}
	}
	list(h.Own)
	if len(h.Catalog) > 0 {
		fmt.Fprintf(&text, "\nThe catalog names these, for the queues that run:\n")
		list(h.Catalog)
	}
	_, err := io.WriteString(out, text.String())
	return true, err
}

type wrongUse string

func (w wrongUse) Error() string { return string(w) }

// ExitCode is that of wrong use, as opposed to a failure.
func (w wrongUse) ExitCode() int { return 2 }

// Setting is what a program runs with of one variable, for people who look at it.
type Setting struct {
	Name  string `json:"name" show:"Variable"`
	About string `json:"about" show:"About,less"`
	// Value is [redacted] of a secret, and has no password of an address; empty: it is not set.
	Value string `json:"value" show:"Value"`
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

// Page is a page of the docs about a program: its variables, those of the catalog with the queues that are enabled.
func (h Help) Page(program string) string {
	var page strings.Builder
	fmt.Fprintf(&page, "# Variables of %s\n\nMade of what `%s --help` says by `go test ./cmd/%[1]s -run Reference -update`.\n", program, program)
	for _, part := range []struct {
		title     string
		variables []Variable
	}{{"Its own", h.Own}, {"Those that the catalog names", h.Catalog}} {
		if len(part.variables) == 0 {
			continue
		}
		fmt.Fprintf(&page, "\n## %s\n\n| variable | where it is not set | what it is |\n| --- | --- | --- |\n", part.title)
		for _, v := range part.variables {
			unset := v.Default
			if v.Required {
				unset = "required"
			}
			fmt.Fprintf(&page, "| `%s` | %s | %s |\n", v.Name, unset, strings.ReplaceAll(v.About, "|", `\|`))
		}
	}
	return page.String()
}
