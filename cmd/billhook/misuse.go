package main

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

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

// strict has a command and its subcommands refuse what they do not know, and gives them examples and completions. Cobra
// by itself prints the help of a command with subcommands, and succeeds.
func (p *program) strict(command *cobra.Command) {
	command.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError(err.Error()) })
	arguments := command.Args
	command.Args = func(command *cobra.Command, given []string) error {
		if command.HasAvailableSubCommands() {
			return nil // RunE names those that are close
		}
		err := command.ValidateRequiredFlags()
		if err == nil {
			err = command.ValidateFlagGroups()
		}
		if arguments != nil {
			err = errors.Join(arguments(command, given), err)
		}
		if err != nil {
			return usageError(err.Error())
		}
		return nil
	}
	if command.HasAvailableSubCommands() {
		command.RunE = func(command *cobra.Command, given []string) error {
			var names []string
			for _, sub := range command.Commands() {
				if sub.IsAvailableCommand() {
					names = append(names, sub.Name())
				}
			}
			if len(given) == 0 {
				return usageError(nameOf(command) + ": say which command: " + strings.Join(names, ", "))
			}
			return usageError(fmt.Sprintf("%s has no command %q%s", nameOf(command), given[0], meant(given[0], names)))
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
}

func unknownQueue(c *catalog.Catalog, name string) error {
	var names []string
	for _, q := range c.Queues {
		if names = append(names, q.ID); q.Alias != "" {
			names = append(names, q.Alias)
		}
	}
	return usageError(fmt.Sprintf("the catalog has no queue %q%s", name, meant(name, names)))
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
