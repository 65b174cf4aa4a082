package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"billhook/catalog"
	"billhook/internal/console"
	"billhook/internal/ingest/webhook/samples"
	"billhook/internal/platform/audit"
	"billhook/internal/platform/serve"
)

func several(f console.Field) bool { return f.Type.Kind() == reflect.Slice }

// flag adds the flag of a field.
func (a *invocation) flag(command *cobra.Command, f console.Field) {
	add := command.Flags().FuncP
	if f.Type.Kind() == reflect.Bool {
		add = command.Flags().BoolFuncP
	}
	short := map[string]string{"file": "f", "verbose": "v"}[f.Name]
	add(flagOf(f), short, f.Help, func(text string) (err error) {
		if before, again := a.given[flagOf(f)]; again && several(f) {
			text = before + "," + text
		}
		if len(f.OneOf) > 0 {
			err = oneOf(f.OneOf, &text)
		} else if f.Typed() {
			err = f.Check(text)
		}
		a.given[flagOf(f)] = text
		return err
	})
	command.Flags().Lookup(flagOf(f)).DefValue = f.Standard
	a.completes(command, flagOf(f), a.completion("", f))
}

func name(f console.Field) string {
	if f.In == console.InBody {
		return cmp.Or(f.Called, f.Name)
	}
	return cmp.Or(f.Called, f.Help)
}

func flagOf(f console.Field) string { return strings.ReplaceAll(f.Name, "_", "-") }

// input returns the command's arguments and flags as the input of the operation.
func (a *invocation) input(o console.Operation, expected any) (console.Input, error) {
	args, unread := a.args, error(nil)
	in, err := o.Input(func(f console.Field) (text string, given bool) {
		switch {
		case f.Name == "why":
			return a.why, true
		case f.Expects != "":
			text = console.Member(expected, f.Expects)
			return text, text != ""
		case f.Argument && len(args) == 0:
			return "", false
		case f.Argument && several(f):
			return strings.Join(args, ","), true
		case f.Argument:
			if text, args = args[0], args[1:]; len(f.OneOf) > 0 {
				unread = errors.Join(unread, oneOf(f.OneOf, &text))
			}
			return text, true
		}
		if text, given = a.given[flagOf(f)]; given && !f.Typed() {
			text, unread = a.contentOf(text, f.Type)
		}
		return text, given
	})
	if err = errors.Join(unread, err); err != nil {
		return in, usageError("%s", err)
	}
	return in, nil
}

// contentOf returns the JSON in a file, for a member that cannot be typed; for a map, a folder's files.
func (p *program) contentOf(path string, member reflect.Type) (string, error) {
	if member.Kind() != reflect.Map {
		text, err := p.readFile(path)
		if err == nil && !json.Valid(text) {
			err = fmt.Errorf("%s is not JSON", path)
		}
		return string(text), err
	}
	names, err := filepath.Glob(filepath.Join(path, "*.yaml"))
	if err == nil && len(names) == 0 {
		err = fmt.Errorf("the folder %s has no .yaml file", path)
	}
	files := map[string]string{}
	for _, name := range names {
		text, failed := os.ReadFile(filepath.Clean(name))
		files[filepath.Base(name)], err = string(text), errors.Join(err, failed)
	}
	text, _ := json.Marshal(files) // texts always marshal
	return string(text), err
}

// readFile reads a file by its name, - for standard input; without a name it reads nothing.
func (p *program) readFile(name string) (data []byte, err error) {
	switch name {
	case "":
	case "-":
		data, err = io.ReadAll(p.root.InOrStdin())
	default:
		data, err = os.ReadFile(filepath.Clean(name))
	}
	if err != nil {
		return nil, fmt.Errorf("read: %w", err)
	}
	return data, nil
}

// misused is the exit code for a wrong use of a command. Any other failure has 1.
const misused = 2

// codedError is an error with an exit code. Its text is escaped, because it may contain parts of the worker's
// answer.
type codedError struct {
	error
	code int
}

func (e codedError) Error() string { return audit.EscapeLines(e.error.Error()) }

func (e codedError) Unwrap() error { return e.error }

// ExitCode is for serve.Main.
func (e codedError) ExitCode() int { return e.code }

// usageError is a wrong use of a command: its text says what to type instead.
func usageError(format string, args ...any) error {
	return codedError{fmt.Errorf(format, args...), misused}
}

// failure returns the program's error. For a wrong use, which Cobra refuses before the command runs or which
// has the exit code misused, it says what to type instead.
func (p *program) failure(command *cobra.Command, err error) error {
	if code := serve.ExitCode(err); p.runs && code != misused {
		return codedError{err, code}
	}
	use := command.UseLine()
	if command.HasAvailableSubCommands() {
		use = command.CommandPath() + " <command>"
	}
	return usageError("%s\nusage: %s\n%s --help says more", err, use, command.CommandPath())
}

// nameOf returns a command without the program's name, which precedes every error.
func nameOf(command *cobra.Command) string {
	return strings.TrimPrefix(command.CommandPath(), command.Root().Name()+" ")
}

// grouped makes a command with subcommands refuse to run, and suggest close names. Cobra itself would print
// the help, and succeed.
func grouped(command *cobra.Command) {
	var names []string
	for _, sub := range command.Commands() {
		grouped(sub)
		names = append(names, sub.Name())
	}
	if names == nil {
		return
	}
	command.SuggestionsMinimumDistance, command.Short = 2, cmp.Or(command.Short, strings.Join(names, ", "))
	command.Args = cobra.ArbitraryArgs
	command.RunE = func(command *cobra.Command, given []string) error {
		if len(given) == 0 {
			return errors.New(nameOf(command) + ": say which command")
		}
		text := fmt.Sprintf("%s has no command %q", nameOf(command), given[0])
		if close := command.SuggestionsFor(given[0]); len(close) > 0 {
			text += "; did you mean " + strings.Join(close, " or ") + "?"
		}
		return errors.New(text)
	}
}

// oneOf replaces a text by the known one that it equals in any letter case.
func oneOf(known []string, text *string) error {
	i := slices.IndexFunc(known, func(value string) bool { return strings.EqualFold(value, *text) })
	if i < 0 {
		return usageError("%q is none of %s", *text, strings.Join(known, ", "))
	}
	*text = known[i]
	return nil
}

// queue finds a queue of the catalog by its id or alias.
func queue(c *catalog.Catalog, name string) (catalog.Queue, error) {
	q, ok := c.Queue(name)
	if !ok {
		return q, usageError("the catalog has no queue %q; it has %s", name, strings.Join(queuesOf(c), ", "))
	}
	return q, nil
}

func queuesOf(c *catalog.Catalog) (names []string) {
	for _, q := range c.Queues {
		names = append(names, q.ID)
	}
	return names
}

func (p *program) completes(command *cobra.Command, flag string, by cobra.CompletionFunc) {
	_ = command.RegisterFlagCompletionFunc(flag, by) // the flag exists
}

// completion completes the first argument of a command about a noun, or without a noun a flag: with queues of
// the catalog, files, or a list of the worker. Otherwise it offers nothing, not even names of files.
func (p *program) completion(noun string, of console.Field) cobra.CompletionFunc {
	called := name(of)
	if noun == "" {
		called = of.Name
	}
	return func(command *cobra.Command, given []string, _ string) (values []string, _ cobra.ShellCompDirective) {
		switch {
		case noun != "" && len(given) > 0:
		case len(of.OneOf) > 0:
			values = of.OneOf
		case called == "queue":
			if c, err := p.catalog(); err == nil { // a completion reports no error
				values = queuesOf(c)
			}
		case called == "sample":
			values = samples.Names()
		case slices.Contains(files, called), noun == "" && !of.Typed():
			return nil, cobra.ShellCompDirectiveDefault
		case noun != "":
			values = p.listed(command.Context(), noun)
		}
		return values, cobra.ShellCompDirectiveNoFileComp
	}
}

// files lists the arguments and flags that name files.
var files = []string{"data", "file", "folder", "read", "seals"}

// completionTimeout bounds a request to the worker while a person waits for the shell.
const completionTimeout = time.Second

// listed returns the first column of a noun's newest items, each with the second column as its description.
func (p *program) listed(ctx context.Context, noun string) (values []string) {
	o, ok := known().Find(noun + " ls")
	if !ok || !o.List || len(o.Columns) < 2 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, completionTimeout)
	defer cancel()
	answer := o.Answer()
	_ = p.get(ctx, o.Pattern, answer) // without an answer nothing is completed
	rows, _ := p.rows(o.Columns, reflect.ValueOf(answer).Elem().FieldByName("Items"))
	for _, cells := range rows[1:] {
		values = append(values, cells[0]+"\t"+cells[1])
	}
	return values
}
