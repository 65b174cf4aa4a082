package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"billhook/catalog"
)

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
