package main

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"billhook/catalog"
)

// misused is the exit code of a command that was used wrongly. One that failed has 1.
const misused = 2

// usageError is a wrong use of a command: its text says what to type instead. The program exits with 2.
type usageError string

func (e usageError) Error() string { return string(e) }

// ExitCode is for serve.Main.
func (e usageError) ExitCode() int { return misused }

// ExitCode is for serve.Main. The worker answers 400 where the question was wrong.
func (e *problemError) ExitCode() int {
	if e.Status == http.StatusBadRequest {
		return misused
	}
	return 1
}

// misuse puts what to type instead behind an error of wrong use.
func misuse(command *cobra.Command, err error) error {
	wrong, ok := errors.AsType[interface {
		error
		ExitCode() int
	}](err)
	if !ok || wrong.ExitCode() != misused {
		return err
	}
	return usageError(fmt.Sprintf("%s\nusage: %s\n%s --help says more", err, useLine(command), command.CommandPath()))
}

func useLine(command *cobra.Command) string {
	if command.Annotations[parent] != "" {
		return command.CommandPath() + " <command>"
	}
	return command.UseLine()
}

// parent is the annotation of a command that only has others below it.
const parent = "billhook_parent"

// nameOf is a command without the program's name, which stands before every error.
func nameOf(command *cobra.Command) string {
	return strings.TrimPrefix(command.CommandPath(), command.Root().Name()+" ")
}

// strict has a command and its subcommands refuse what they do not know, and name what is close to it.
// Cobra by itself prints the help of a command with subcommands, and succeeds.
func (p *program) strict(command *cobra.Command) {
	command.SetFlagErrorFunc(wrongFlag)
	arguments := command.Args
	command.Args = func(command *cobra.Command, given []string) error {
		if len(given) > 0 && command.HasAvailableSubCommands() {
			return usageError(fmt.Sprintf("%s has no command %q%s", nameOf(command), given[0], meant(given[0], subcommands(command))))
		}
		if arguments != nil && arguments(command, given) != nil {
			return usageError(fmt.Sprintf("%s takes %s; %d given", nameOf(command), argumentsOf(command), len(given)))
		}
		return wrongValues(command)
	}
	if command.Name() == "help" {
		command.Args = topic
	}
	if !command.Runnable() {
		command.Annotations = map[string]string{parent: "true"}
		command.RunE = func(command *cobra.Command, _ []string) error {
			if !p.asJSON {
				_ = command.Help() // a closed terminal is no failure of the command
			}
			return usageError(nameOf(command) + ": say which command: " + strings.Join(subcommands(command), ", "))
		}
	}
	if example := examples[nameOf(command)]; example != "" {
		command.Example = "  " + strings.ReplaceAll(example, "\n", "\n  ")
	} else if declared, ok := p.known.Find(nameOf(command)); ok {
		command.Example = "  billhook " + exampleOf(declared)
	}
	p.completes(command)
	for _, sub := range command.Commands() {
		p.strict(sub)
	}
	if act := command.RunE; act != nil {
		command.RunE = func(command *cobra.Command, args []string) error {
			return p.nearQueue(command, args, act(command, args))
		}
	}
}

// nearQueue names the queues that are close to one that the worker does not know.
func (p *program) nearQueue(command *cobra.Command, args []string, err error) error {
	problem, ok := errors.AsType[*problemError](err)
	if !ok || problem.Code != "queue_unknown" {
		return err
	}
	if close := meant(namedQueue(command, args), queueNames(p.declared())); close != "" {
		return usageError(err.Error() + close)
	}
	return err
}

func queueNames(c *catalog.Catalog) (names []string) {
	for _, q := range c.Queues {
		if names = append(names, q.ID); q.Alias != "" {
			names = append(names, q.Alias)
		}
	}
	return names
}

func unknownQueue(c *catalog.Catalog, name string) error {
	return usageError(fmt.Sprintf("the catalog has no queue %q%s", name, meant(name, queueNames(c))))
}

// topic refuses to give help on what is no command.
func topic(help *cobra.Command, given []string) error {
	found, rest, err := help.Root().Find(given)
	if err != nil || len(rest) > 0 {
		return usageError(fmt.Sprintf("%s has no command %q%s", nameOf(found), rest[0], meant(rest[0], subcommands(found))))
	}
	return nil
}

func subcommands(command *cobra.Command) (names []string) {
	for _, sub := range command.Commands() {
		if sub.IsAvailableCommand() {
			names = append(names, sub.Name())
		}
	}
	return names
}

// argumentsOf names the arguments in the words of the command's own line of usage.
func argumentsOf(command *cobra.Command) string {
	_, arguments, _ := strings.Cut(command.Use, " ")
	arguments, _, _ = strings.Cut(arguments, " --")
	return cmp.Or(arguments, "no argument")
}

// wrongFlag says what is wrong with a flag, or with its value.
func wrongFlag(command *cobra.Command, err error) error {
	if invalid, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		kind := invalid.GetFlag().Value.Type()
		return usageError(fmt.Sprintf("--%s: %q is not %s", invalid.GetFlag().Name, invalid.GetValue(), cmp.Or(kinds[kind], kind)))
	}
	unknown, ok := errors.AsType[*pflag.NotExistError](err)
	if !ok || unknown.GetSpecifiedShortnames() != "" {
		return usageError(err.Error())
	}
	var names []string
	command.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, "--"+f.Name) })
	name := "--" + unknown.GetSpecifiedName()
	return usageError(fmt.Sprintf("%s has no flag %s%s", nameOf(command), name, meant(name, names)))
}

// kinds are the values that flags take, by pflag's names.
var kinds = map[string]string{
	"bool": "true or false", "int": "a whole number", "int64": "a whole number", "duration": "a duration such as 90s or 5m", "stringToString": "a list such as a=b,c=d",
}

// wrongValues checks that the required flags are there, and that flags have one of their values.
func wrongValues(command *cobra.Command) (err error) {
	if err := errors.Join(command.ValidateRequiredFlags(), command.ValidateFlagGroups()); err != nil {
		return usageError(err.Error())
	}
	command.Flags().Visit(func(f *pflag.Flag) {
		known := f.Annotations[fixedValues]
		i := slices.IndexFunc(known, func(v string) bool { return strings.EqualFold(v, f.Value.String()) })
		switch {
		case known == nil || err != nil:
		case i < 0:
			err = usageError(fmt.Sprintf("--%s: %q is none of %s%s", f.Name, f.Value, strings.Join(known, ", "), meant(f.Value.String(), known)))
		default:
			err = f.Value.Set(known[i])
		}
	})
	return err
}

// fixedValues is the annotation of a flag that takes one of a few values.
const fixedValues = "billhook_values"

// oneOf has a flag take one of these values and no other, and the shell complete them.
func oneOf(command *cobra.Command, flag string, known ...string) {
	err := errors.Join(
		command.Flags().SetAnnotation(flag, fixedValues, known),
		command.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(known, cobra.ShellCompDirectiveNoFileComp)))
	if err != nil {
		panic(err) // the flag is not there
	}
}

// meant asks whether one of the names was meant that Cobra finds close to a text. It is empty where none is.
func meant(text string, names []string) string {
	among := &cobra.Command{SuggestionsMinimumDistance: 2}
	for _, name := range names {
		among.AddCommand(&cobra.Command{Use: name, Run: func(*cobra.Command, []string) {}})
	}
	close := among.SuggestionsFor(text)
	if text == "" || len(close) == 0 {
		return ""
	}
	return "; did you mean " + strings.Join(close, " or ") + "?"
}
