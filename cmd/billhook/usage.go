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

// strict has a command and its subcommands refuse what they do not know, and gives them examples and completions. Cobra
// by itself prints the help of a command with subcommands, and succeeds.
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
		command.SuggestionsMinimumDistance = 2
		var names []string
		for _, sub := range command.Commands() {
			names = append(names, sub.Name())
		}
		command.Short = cmp.Or(command.Short, strings.Join(names, ", "))
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
	if example := examples[nameOf(command)]; example != "" {
		command.Example = "  " + strings.ReplaceAll(example, "\n", "\n  ")
	} else if declared, ok := p.known.Find(nameOf(command)); ok {
		command.Example = "  " + exampleOf(declared)
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
	queues := func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		c, err := p.catalog()
		if err != nil { // a completion says nothing of that
			c = &catalog.Catalog{}
		}
		return queuesOf(c), cobra.ShellCompDirectiveNoFileComp
	}
	for _, flag := range []string{"body", "catalog", "data", "file", "message", "out", "seals"} {
		if command.Flag(flag) != nil {
			_ = command.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(nil, cobra.ShellCompDirectiveDefault)) // it is there
		}
	}
	if command.Flag("queue") != nil {
		_ = command.RegisterFlagCompletionFunc("queue", queues) // it is there
	}
	noun, _, _ := strings.Cut(nameOf(command), " ")
	if argument == "file" || argument == "folder" {
		command.ValidArgsFunction = cobra.FixedCompletions(nil, cobra.ShellCompDirectiveDefault)
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

// examples are uses of commands that no operation declares, or that show more than what they have to be given.
var examples = map[string]string{
	"send":                "billhook send paynow\nbillhook send paynow --order 502113004410999001 --uid some-user\nbillhook send paynow --sample refund --order 502113004410999001\nbillhook send paynow --repeat 100 --json",
	"enqueue":             "billhook enqueue <queue>\nbillhook enqueue <queue> --repeat 20 --key some-subscription\nbillhook enqueue <queue> --type order.shipped --key some-order\nbillhook enqueue <queue> -f message.json --deliver-at 10m",
	"admin switch":        "billhook admin switch <queue>",
	"dev":                 "billhook dev --data ./state",
	"admin provision":     "PUBSUB_EMULATOR_HOST=127.0.0.1:8085 PUSH_BASE_URL=http://127.0.0.1:8081 billhook admin provision",
	"admin doctor":        "billhook admin doctor --canary --webhook https://webhook.example.com",
	"admin catalog print": "billhook admin catalog print | jq '.queues[].id'",
	"admin import":        "REDIS_URL=redis://127.0.0.1:6379 billhook admin import redis <queue> --dry-run\nRABBITMQ_URL=amqp://127.0.0.1:5672 billhook admin import rabbitmq <queue>=<old name> --rate 50 --yes",
	"events ls":           "billhook events ls --queue <queue> --status FAILED --since 36h",
	"events tail":         "billhook events tail --queue <queue>\nbillhook events tail --status DEAD_LETTERED",
	"events try":          "billhook events try 900000000000000031\nbillhook events try --body message.json --queue <queue>",
	"dlq ls":              "billhook dlq ls\nbillhook dlq ls <queue> --since 7d --reason unknown_product",
	"dlq replay":          "billhook dlq replay <queue> --reason unknown_product --why \"the product is set\"\nbillhook dlq replay <queue> 4e538e03ba010d15~1795349102063893 --why \"the gateway is back\"",
	"operations items":    "billhook operations items 0b5c9c1e-7d9f-4d5c-9d25-2d6d7c9a5b10 --state open",
	"endpoints add":       "billhook endpoints add https://partner.example.com/hooks --events 'invoice.*' --why \"contract 12\"",
	"usage entries":       "billhook usage entries subscription-3 --period 2026-11 --limit 0 -o csv",
	"journal balances":    "billhook journal balances --period 2026-11\nbillhook journal balances --from 2026-10 --to 2026-12",
	"accounts statement":  "billhook accounts statement cash --period 2026-11",
	"ledger export":       "billhook ledger export --period 2026-11 -o csv --out november.csv\nbillhook ledger export --from 2026-10 --to 2026-12 -o csv\nbillhook ledger export --seals",
	"ledger prove":        "billhook ledger prove order-7 -o json > order-7.proof",
	"ledger compare":      "billhook ledger compare seals.jsonl",
	"admin catalog check": "billhook admin catalog check\nbillhook admin catalog check ./catalog",
	"ledger check-proof":  "billhook ledger check-proof order-7.proof --seals seals.jsonl",
}
