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
)

// noun is the command of a noun, which is made where there is none yet.
func (p *program) noun(root *cobra.Command, name string) *cobra.Command {
	i := slices.IndexFunc(root.Commands(), func(made *cobra.Command) bool { return made.Name() == name })
	if i < 0 {
		made := p.asks(&cobra.Command{Use: name})
		root.AddCommand(made)
		return made
	}
	return root.Commands()[i]
}

// asked is an operation that a command asks for.
type asked struct {
	console.Operation
	*program

	call   *cobra.Command
	args   []string
	reason reason
	// wait is how long to wait for what a followed operation has begun.
	wait time.Duration
}

// parts are the fields of an operation that people name, and behind them those of the operation that it comes before.
func (p *program) parts(o console.Operation) (parts []console.Field) {
	before, _ := p.known.Find(o.Before)
	for _, f := range slices.Concat(o.Fields, before.Fields) {
		known := slices.ContainsFunc(parts, func(other console.Field) bool { return flagOf(other) == flagOf(f) })
		if !known && f.Name != "why" && f.Name != "page" && f.Expects == "" {
			parts = append(parts, f)
		}
	}
	return parts
}

// operation is the command that calls an operation and prints its answer.
func (p *program) operation(o console.Operation) *cobra.Command {
	var every time.Duration
	command := p.command(o, func(ctx context.Context, a *asked) error {
		switch {
		case o.List:
			return a.watch(ctx, every)
		case o.Needs <= console.Act:
			return a.print(ctx, nil)
		default:
			return a.change(ctx)
		}
	})
	command.Aliases = map[string][]string{"ls": {"list"}, "rm": {"delete"}}[o.Verb()]
	if o.List {
		command.Flags().DurationVar(&every, "watch", 0, "list again and again, so often, until it is stopped")
		command.Flags().Lookup("watch").NoOptDefVal = "2s"
	}
	return command
}

// command is a command with the fields of an operation: what stands in the path are its arguments, all else are flags.
func (p *program) command(o console.Operation, run func(ctx context.Context, a *asked) error) *cobra.Command {
	a := &asked{Operation: o, program: p}
	use, arguments, required := cmp.Or(o.Verb(), o.Noun()), 0, 0
	command := &cobra.Command{Short: o.Summary, Long: o.Help}
	for _, f := range p.parts(o) {
		switch several := f.Type.Kind() == reflect.Slice; {
		case f.Argument && several:
			use, arguments = use+" [<"+name(f)+">...]", -1
		case f.Argument && !f.Required:
			use, arguments = use+" [<"+name(f)+">]", arguments+1
		case f.Argument:
			use, arguments, required = use+" <"+name(f)+">", arguments+1, required+1
		default:
			if f.Name == "limit" {
				f.Help = "the most to list; 0: all"
			}
			flag(command, f)
			if f.Required {
				use += " --" + flagOf(f) + " <" + flagOf(f) + ">"
				_ = command.MarkFlagRequired(flagOf(f)) // it is there
			}
		}
	}
	if command.Use, command.Args = use, cobra.RangeArgs(required, arguments); arguments < 0 {
		command.Args = cobra.MinimumNArgs(required)
	}
	if o.Needs >= console.Reason {
		command.Use += " --why <reason>"
		a.reason.required(command)
	}
	if o.Follow != "" {
		command.Flags().DurationVar(&a.wait, "wait", 5*time.Minute, "how long to wait, at most, for what becomes of it; 0: not at all")
	}
	command.RunE = func(command *cobra.Command, args []string) error {
		a.call, a.args = command, args
		return run(command.Context(), a)
	}
	return command
}

func flag(command *cobra.Command, f console.Field) {
	command.Flags().Var(&flagValue{f, f.Standard}, flagOf(f), f.Help)
	if f.Type.Kind() == reflect.Bool {
		command.Flags().Lookup(flagOf(f)).NoOptDefVal = "true"
	}
	if len(f.OneOf) > 0 {
		_ = command.RegisterFlagCompletionFunc(flagOf(f), cobra.FixedCompletions(f.OneOf, cobra.ShellCompDirectiveNoFileComp)) // it is there
	}
}

func name(f console.Field) string {
	if f.In == console.InBody {
		return cmp.Or(f.Called, f.Name)
	}
	return cmp.Or(f.Called, f.Help)
}

func flagOf(f console.Field) string { return strings.ReplaceAll(f.Name, "_", "-") }

// flagValue is a flag for a field of a request, or a file that has it. What it takes the operation checks.
type flagValue struct {
	of   console.Field
	text string
}

func (v *flagValue) String() string { return v.text }

func (v *flagValue) Set(text string) error {
	v.text = text
	switch {
	case !v.of.Typed():
		return nil
	case len(v.of.OneOf) > 0:
		return oneOf(v.of.OneOf, &v.text)
	}
	return v.of.Check(text)
}

func (v *flagValue) Type() string {
	if !v.of.Typed() {
		return "file"
	}
	return v.of.Type.Kind().String()
}

// input are the command's arguments and flags as the operation takes them.
func (a *asked) input(o console.Operation, expected map[string]any) (console.Input, error) {
	args, unread := a.args, error(nil)
	in, err := o.Input(func(f console.Field) (text string, given bool) {
		switch {
		case f.Name == "why":
			return a.reason.why, true
		case f.Expects != "":
			var value any = expected
			for name := range strings.SplitSeq(f.Expects, ".") {
				object, _ := value.(map[string]any)
				value = object[name]
			}
			return console.Text(reflect.ValueOf(value)), value != nil
		case f.Argument && len(args) == 0:
			return "", false
		case f.Argument && f.Type.Kind() == reflect.Slice:
			return strings.Join(args, ","), true
		case f.Argument:
			text, args = args[0], args[1:]
			return text, true
		}
		flag := a.call.Flags().Lookup(flagOf(f))
		if flag == nil || !flag.Changed {
			return "", false
		}
		if text = flag.Value.String(); !f.Typed() {
			text, unread = contentOf(text, f.Type, a.call.InOrStdin())
		}
		return text, true
	})
	if err = errors.Join(unread, err); err != nil {
		return in, usageError(err.Error())
	}
	return in, nil
}

// contentOf is what a file holds of a member that nobody can type: JSON; of files by their names it is a folder's.
func contentOf(path string, member reflect.Type, stdin io.Reader) (string, error) {
	if member.Kind() != reflect.Map {
		text, err := readFile(path, stdin)
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

// readFile reads a file that the person names, - for standard input; without a name there is nothing to read.
func readFile(name string, stdin io.Reader) (data []byte, err error) {
	switch name {
	case "":
		return nil, nil
	case "-":
		data, err = io.ReadAll(stdin)
	default:
		data, err = os.ReadFile(filepath.Clean(name))
	}
	if err != nil {
		return nil, fmt.Errorf("read: %w", err)
	}
	return data, nil
}

// misused is the exit code of a command that was used wrongly. One that failed has 1.
const misused = 2

// usageError is a wrong use of a command: its text says what to type instead. The program exits with 2.
type usageError string

func (e usageError) Error() string { return string(e) }

// ExitCode is for serve.Main.
func (e usageError) ExitCode() int { return misused }

// misuse puts what to type instead behind an error of wrong use.
func misuse(command *cobra.Command, err error) error {
	wrong, ok := errors.AsType[interface {
		error
		ExitCode() int
	}](err)
	if !ok || wrong.ExitCode() != misused {
		return err
	}
	use := command.UseLine()
	if command.HasAvailableSubCommands() {
		use = command.CommandPath() + " <command>"
	}
	return usageError(fmt.Sprintf("%s\nusage: %s\n%s --help says more", err, use, command.CommandPath()))
}

// nameOf is a command without the program's name, which stands before every error.
func nameOf(command *cobra.Command) string {
	return strings.TrimPrefix(command.CommandPath(), command.Root().Name()+" ")
}

// strict has a command and its subcommands refuse what they do not know, and gives them completions. Cobra by itself
// prints the help of a command with subcommands, and succeeds.
func (p *program) strict(command *cobra.Command) {
	command.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError(err.Error()) })
	arguments := command.Args
	command.Args = func(command *cobra.Command, given []string) error {
		if command.HasAvailableSubCommands() {
			return nil // RunE names those that are close
		}
		err := errors.Join(command.ValidateRequiredFlags(), command.ValidateFlagGroups(), oneOf(outputs, &p.output))
		if arguments != nil {
			err = errors.Join(arguments(command, given), err)
		}
		if err != nil {
			return usageError(err.Error())
		}
		return nil
	}
	if command.HasAvailableSubCommands() {
		var names []string
		for _, sub := range command.Commands() {
			names = append(names, sub.Name())
		}
		command.SuggestionsMinimumDistance, command.Short = 2, cmp.Or(command.Short, strings.Join(names, ", "))
		command.RunE = func(command *cobra.Command, given []string) error {
			if len(given) == 0 {
				return usageError(nameOf(command) + ": say which command")
			}
			text := fmt.Sprintf("%s has no command %q", nameOf(command), given[0])
			if close := command.SuggestionsFor(given[0]); len(close) > 0 {
				text += "; did you mean " + strings.Join(close, " or ") + "?"
			}
			return usageError(text)
		}
	}
	p.completes(command)
	for _, sub := range command.Commands() {
		p.strict(sub)
	}
}

// oneOf has a text be one of those that are known, in any letter case.
func oneOf(known []string, text *string) error {
	i := slices.IndexFunc(known, func(value string) bool { return strings.EqualFold(value, *text) })
	if i < 0 {
		return usageError(fmt.Sprintf("%q is none of %s", *text, strings.Join(known, ", ")))
	}
	*text = known[i]
	return nil
}

// queue is a queue of the catalog, by its id or the name that it had before.
func queue(c *catalog.Catalog, name string) (catalog.Queue, error) {
	q, ok := c.Queue(name)
	if !ok {
		return q, usageError(fmt.Sprintf("the catalog has no queue %q; it has %s", name, strings.Join(queuesOf(c), ", ")))
	}
	return q, nil
}

func queuesOf(c *catalog.Catalog) (names []string) {
	for _, q := range c.Queues {
		names = append(names, q.ID)
	}
	return names
}

// completionPatience bounds what the worker is asked while a person waits for the shell.
const completionPatience = time.Second

// completes has the shell complete the first argument of a command: queues from the catalog, files, and what else is
// listed from the list. What nobody knows is not completed: the names of files would be offered.
func (p *program) completes(command *cobra.Command) {
	_, argument, _ := strings.Cut(command.Use, " ")
	argument, _, _ = strings.Cut(strings.Trim(argument, "[<"), ">")
	queues := func(*cobra.Command, []string, string) (names []string, _ cobra.ShellCompDirective) {
		if c, err := p.catalog(); err == nil { // a completion says nothing of that
			names = queuesOf(c)
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
	files := cobra.FixedCompletions(nil, cobra.ShellCompDirectiveDefault)
	for _, flag := range []string{"body", "catalog", "data", "file", "message", "out", "seals"} {
		_ = command.RegisterFlagCompletionFunc(flag, files) // not every command has it
	}
	_ = command.RegisterFlagCompletionFunc("queue", queues) // as above
	noun, _, _ := strings.Cut(nameOf(command), " ")
	if argument == "file" || argument == "folder" {
		command.ValidArgsFunction = files
	} else if command.ValidArgsFunction == nil && command.ValidArgs == nil {
		command.ValidArgsFunction = func(command *cobra.Command, given []string, begun string) (values []string, _ cobra.ShellCompDirective) {
			switch {
			case len(given) > 0:
			case argument == "queue":
				return queues(command, given, begun)
			default:
				values = p.listed(command.Context(), noun)
			}
			return values, cobra.ShellCompDirectiveNoFileComp
		}
	}
}

// listed are the first columns of a noun's newest, each with the second behind it.
func (p *program) listed(ctx context.Context, noun string) (values []string) {
	o, ok := p.known.Find(noun + " ls")
	if !ok || !o.List || len(o.Columns) < 2 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, completionPatience)
	defer cancel()
	answer := o.Answer()
	_ = p.get(ctx, o.Pattern, answer) // without an answer nothing is completed
	items := reflect.ValueOf(answer).Elem().FieldByName("Items")
	for i := range items.Len() {
		cells := p.cells(p.tabled(o.Columns), items.Index(i).Interface())
		values = append(values, cells[0]+"\t"+cells[1])
	}
	return values
}
