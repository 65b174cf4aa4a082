package main

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"billhook/catalog"
	"billhook/internal/console"
	"billhook/internal/platform/audit"
)

// help has a summary of each of the program's own commands, and the rest of its help.
//
//go:embed help.txt
var help string

// invocation is one use of an operation's command.
type invocation struct {
	console.Operation
	*program

	// args are its arguments; given has the values of its flags, by name.
	args  []string
	given map[string]string
	// why, yes and dryRun are the flags of a command that changes something.
	why         string
	yes, dryRun bool
	// every is how often a list is printed again; 0: it is printed once. out is the file that gets it.
	every time.Duration
	out   string
	// wait bounds the wait for a followed operation.
	wait time.Duration
}

// parts returns the fields that people give to an operation, and then those of its Before.
func (p *program) parts(o console.Operation) (parts []console.Field) {
	before, _ := known().Find(o.Before)
	_, whole := o.Answer().(console.Parted)
	for _, f := range slices.Concat(o.Fields, before.Fields) {
		known := slices.ContainsFunc(parts, func(other console.Field) bool { return flagOf(other) == flagOf(f) })
		if known || f.Name == "why" || f.Name == "page" || f.Expects != "" || whole && f.Name == "limit" {
			continue
		}
		if f.Name == "limit" {
			f.Help, f.Rules = "the most to list; 0: all", ""
		}
		parts = append(parts, f)
	}
	return parts
}

// operation adds the command that calls an operation of the worker and prints its answer.
func (p *program) operation(o console.Operation) {
	command, a := p.command(o, func(ctx context.Context, a *invocation) error {
		switch {
		case o.List:
			return a.watch(ctx)
		case o.Needs <= console.Act:
			return a.print(ctx, nil)
		default:
			return a.change(ctx)
		}
	})
	command.Aliases = map[string][]string{"ls": {"list"}, "rm": {"delete"}}[o.Verb()]
	if o.List {
		command.Flags().DurationVar(&a.every, "watch", 0, "list again and again, so often, until it is stopped")
		command.Flags().Lookup("watch").NoOptDefVal = "2s"
		const whole = "the file to write, which is there whole or not at all; without --limit it has all"
		command.Flags().StringVar(&a.out, "out", "", whole)
		p.completes(command, "out", cobra.FixedCompletions(nil, cobra.ShellCompDirectiveDefault))
		command.MarkFlagsMutuallyExclusive("watch", "out")
	}
}

// own adds a command that this program carries out itself, by a function and a struct of its arguments and
// flags with the tags of an operation's. The answer is printed as an operation's, even beside an error.
func own[Flags, Answer any](
	p *program, row console.Row, do func(context.Context, Flags) (Answer, error),
) *cobra.Command {
	var failed error
	row.Path = "GET /" + row.Name
	o := console.New(row, func(ctx context.Context, _ audit.Author, flags Flags) (answer Answer, _ error) {
		answer, failed = do(ctx, flags)
		return answer, nil
	})
	command, _ := p.command(o, func(ctx context.Context, a *invocation) error {
		in, err := a.input(o, nil)
		if err != nil {
			return err
		}
		answer, err := o.Call(ctx, audit.Author{}, in)
		if wrong, ok := errors.AsType[*console.Refusal](err); ok {
			return usageError("%s", wrong.Detail)
		}
		if reflect.ValueOf(answer).IsZero() {
			return failed
		}
		return errors.Join(failed, a.show(o.Columns, answer))
	})
	return command
}

// ofCatalog is like own, for a function that needs the deployment's catalog.
func ofCatalog[Flags, Answer any](
	p *program, row console.Row, do func(context.Context, *catalog.Catalog, Flags) (Answer, error),
) *cobra.Command {
	return own(p, row, func(ctx context.Context, flags Flags) (answer Answer, err error) {
		c, err := p.catalog()
		if err != nil {
			return answer, err
		}
		return do(ctx, c, flags)
	})
}

// command adds a command with the fields of an operation: fields of the path become arguments, all others
// flags. It adds those nouns of its name that are missing.
func (p *program) command(
	o console.Operation, run func(ctx context.Context, a *invocation) error,
) (*cobra.Command, *invocation) {
	a := &invocation{Operation: o, program: p, given: map[string]string{}}
	use, required, arguments := o.Name[strings.LastIndex(o.Name, " ")+1:], 0, []console.Field{}
	_, text, _ := strings.Cut("\n\n"+help, "\n\n# "+o.Name+"\n")
	text, _, _ = strings.Cut(text, "\n\n# ")
	summary, more, _ := strings.Cut(strings.TrimSpace(text), "\n\n")
	command := &cobra.Command{Short: cmp.Or(o.Summary, summary), Long: cmp.Or(o.Help, more)}
	for _, f := range p.parts(o) {
		if !f.Argument {
			a.flag(command, f)
			if f.Required {
				use += " --" + flagOf(f) + " <" + flagOf(f) + ">"
				_ = command.MarkFlagRequired(flagOf(f)) // the flag exists
			}
			continue
		}
		form := "<" + name(f) + ">"
		if len(f.OneOf) > 0 {
			form = strings.Join(f.OneOf, "|")
		}
		switch arguments = append(arguments, f); {
		case several(f):
			form = "[" + form + "...]"
		case !f.Required:
			form = "[" + form + "]"
		default:
			required++
		}
		use += " " + form
	}
	command.Use, command.Args = use, cobra.RangeArgs(required, len(arguments))
	if slices.ContainsFunc(arguments, several) {
		command.Args = cobra.MinimumNArgs(required)
	}
	command.ValidArgsFunction = p.completion(o.Noun(), append(arguments, console.Field{})[0])
	if o.Needs >= console.Reason {
		command.Use += " --why <reason>"
		command.Flags().StringVar(&a.why, "why", "", "the reason, for the audit; required")
		command.Flags().BoolVar(&a.yes, "yes", false, "do not ask")
		command.Flags().BoolVar(&a.dryRun, "dry-run", false, "show what would be done, and do nothing")
		command.PreRunE = func(*cobra.Command, []string) error {
			if !a.dryRun && strings.TrimSpace(a.why) == "" {
				return usageError("--why: say why, for the audit")
			}
			return nil
		}
	}
	if o.Follow != "" {
		const most = "how long to wait, at most, for what becomes of it; 0: not at all"
		command.Flags().DurationVar(&a.wait, "wait", 5*time.Minute, most)
	}
	command.RunE = func(command *cobra.Command, args []string) error {
		p.runs, a.args = true, args
		return run(command.Context(), a)
	}
	parent, missing, _ := p.root.Find(strings.Fields(o.Name)) // missing ones are no error
	for _, noun := range missing[:len(missing)-1] {
		made := &cobra.Command{Use: noun}
		parent.AddCommand(made)
		parent = made
	}
	parent.AddCommand(command)
	return command, a
}
