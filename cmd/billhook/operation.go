package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"billhook/internal/console"
)

// nouns says of each noun what its commands are for.
var nouns = map[string]string{
	"customers": "Look at which of the provider's customers is which user, link them or unlink them",
	"accounts":  "Look at what accounts of points have, and at what has moved on any account",
	"journal":   "Look at the entries of the books and at what they add up to, and revert an entry",
	"ledger":    "Take the books elsewhere, verify them, and prove entries",
	"periods":   "Close months of the books, and open them again",
	"seals":     "Look at the seals that make entries provable",
	"audit":     "Look at what people have changed",
	"catalog":   "Check or print the declaration of queues, products and sources, or show that of a worker",
	"endpoints": "Look at the addresses that third parties registered to be told of events, and change them",
	"events":    "Look at events: which there are, where each waits, what became of it, and what a worker would do of it",
	"orders":    "Look at where the shop's orders stand",
	"outbox":    "Look at what is committed and waits to be published",
	"pauses":    "Look at which queues are paused, and by whom",
	"products":  "Look at what products are worth, and change it without a deployment",
	"queues":    "Look at where queues stand, pause them and have them go on",
	"refunds":   "Look at what became of the refunds that messages have asked for",
	"stock":     "Look at how many pieces of a product can be ordered, and change it",

	"dlq":           "Look at dead letters, replay them, discard them or complete them by hand",
	"subscriptions": "Look at how subscriptions stand",
	"usage":         "Look at what subscriptions have used, per meter and billing period",
	"operations":    "Look at what people do with dead letters, approve it, reject it, cancel it or go on with it",
}

// operationCommands are the commands of the operations, one for each noun.
func (p *program) operationCommands() (commands []*cobra.Command) {
	made := map[string]*cobra.Command{}
	for _, o := range p.known.Operations {
		if o.Verb() == "" {
			commands = append(commands, p.asks(p.operation(o)))
			continue
		}
		noun := made[o.Noun()]
		if noun == nil {
			noun = p.asks(&cobra.Command{Use: o.Noun(), Short: nouns[o.Noun()]})
			made[o.Noun()] = noun
			commands = append(commands, noun)
		}
		noun.AddCommand(p.operation(o))
	}
	return commands
}

// join puts commands that are written by hand among those of the operations: one takes the place of that of its name,
// and the commands of one noun stand together.
func join(parent *cobra.Command, written ...*cobra.Command) {
	for _, command := range written {
		i := slices.IndexFunc(parent.Commands(), func(c *cobra.Command) bool { return c.Name() == command.Name() })
		switch {
		case i < 0:
			parent.AddCommand(command)
		case command.HasSubCommands() && !command.Runnable():
			join(parent.Commands()[i], command.Commands()...)
		default:
			below := parent.Commands()[i].Commands()
			parent.RemoveCommand(parent.Commands()[i])
			parent.AddCommand(command)
			join(command, below...)
		}
	}
}

type asked struct {
	console.Operation

	p      *program
	ask    client
	call   *cobra.Command
	args   []string
	reason reason
}

// operation is the command of an operation: what stands in the path are its arguments, all else are flags.
func (p *program) operation(o console.Operation) *cobra.Command {
	use, arguments, required := cmp.Or(o.Verb(), o.Noun()), 0, 0
	command := &cobra.Command{Short: o.Summary, Long: o.Help}
	var why reason
	for _, f := range o.Fields {
		switch {
		case f.Argument && !f.Required:
			use, arguments = use+" [<"+name(f)+">]", arguments+1
		case f.Argument:
			use, arguments, required = use+" <"+name(f)+">", arguments+1, required+1
		case f.Name == "why" || f.Name == "page" || f.Expects != "" || !f.Typed():
			continue
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
	if o.Verb() == "ls" {
		command.Aliases = []string{"list"}
	}
	command.Use, command.Args = use, cobra.RangeArgs(required, arguments)
	if o.Needs >= console.Reason {
		command.Use += " --why <reason>"
		why.required(command)
	}
	var every *time.Duration
	if o.List {
		every = command.Flags().Duration("watch", 0, "list again and again, so often, until it is stopped")
		command.Flags().Lookup("watch").NoOptDefVal = "2s"
	}
	command.RunE = func(command *cobra.Command, args []string) error {
		a := &asked{Operation: o, p: p, ask: p.ask(), call: command, args: args, reason: why}
		switch {
		case o.List:
			return p.watch(command.Context(), *every, a.list)
		case o.Needs <= console.Act:
			return a.print(command.Context(), nil)
		default:
			return a.change(command.Context())
		}
	}
	return command
}

// watch does something again and again, each time on an empty screen; every 0: once.
func (p *program) watch(ctx context.Context, every time.Duration, does func(context.Context) error) error {
	for {
		if err := does(ctx); err != nil || every <= 0 {
			return err
		}
		select {
		case <-p.after(every):
		case <-ctx.Done():
			return nil
		}
		if p.screen.terminal {
			_, _ = io.WriteString(p.stdout, "\x1b[H\x1b[2J") // a closed terminal is no failure of the command
		}
	}
}

// exampleOf is the command with what it has to be given.
func exampleOf(o console.Operation) string {
	words := []string{o.Name}
	for _, f := range o.Fields {
		value := "<" + strings.ReplaceAll(name(f), " ", "-") + ">"
		if len(f.OneOf) > 0 {
			value = f.OneOf[0]
		} else if f.Type.Kind() == reflect.Int64 {
			value = "5"
		}
		switch {
		case f.Argument:
			words = append(words, value)
		case f.Name == "why":
			words = append(words, `--why "..."`)
		case f.Required:
			words = append(words, "--"+flagOf(f), value)
		}
	}
	return strings.Join(words, " ")
}

func flag(command *cobra.Command, f console.Field) {
	command.Flags().Var(&flagValue{f, f.Standard}, flagOf(f), f.Help)
	if len(f.OneOf) > 0 {
		oneOf(command, flagOf(f), f.OneOf...)
	}
}

func name(f console.Field) string {
	if f.In == console.InBody {
		return f.Name
	}
	return f.Help
}

func flagOf(f console.Field) string { return strings.ReplaceAll(f.Name, "_", "-") }

// flagValue is a flag for a field of a request. What it takes the operation checks.
type flagValue struct {
	of   console.Field
	text string
}

func (v *flagValue) String() string { return v.text }

func (v *flagValue) Set(text string) error {
	v.text = text
	return v.of.Check(text)
}

func (v *flagValue) Type() string { return v.of.Type.Kind().String() }

// input are the command's arguments and flags as the operation takes them.
func (a *asked) input(o console.Operation, expected map[string]any) (console.Input, error) {
	args := a.args
	in, err := o.Input(func(f console.Field) (string, bool) {
		switch {
		case f.Argument && len(args) == 0:
			return "", false
		case f.Argument:
			arg := args[0]
			args = args[1:]
			return arg, true
		case f.Name == "why":
			return a.reason.why, true
		case f.Expects != "":
			value, known := expected[f.Expects]
			return console.Text(reflect.ValueOf(value)), known
		}
		flag := a.call.Flags().Lookup(flagOf(f))
		if flag == nil || !flag.Changed {
			return "", false
		}
		return flag.Value.String(), true
	})
	if err != nil {
		return in, usageError(err.Error())
	}
	return in, nil
}

// list prints the items of a list, page after page, up to the flag limit, and what the answer says beside them.
func (a *asked) list(ctx context.Context) error {
	in, err := a.input(a.Operation, nil)
	if err != nil {
		return err
	}
	limit, most, err := a.limit(in)
	if err != nil {
		return err
	}
	all := reflect.ValueOf(a.Answer()).Elem()
	items, next := all.FieldByName("Items"), all.FieldByName("Next")
	for page := all; ; page = reflect.ValueOf(a.Answer()).Elem() {
		if in.Query.Del("limit"); limit > 0 {
			in.Query.Set("limit", strconv.Itoa(min(limit-items.Len(), most)))
		}
		if err := a.ask.get(ctx, a.URL(in), page.Addr().Interface()); err != nil {
			return err
		}
		if page != all {
			items.Set(reflect.AppendSlice(items, page.FieldByName("Items")))
			next.Set(page.FieldByName("Next"))
		}
		if next.String() == "" || (limit > 0 && items.Len() >= limit) {
			break
		}
		in.Query.Set("page", next.String())
	}
	if items.Len() == 0 && a.Empty != "" {
		a.p.printf("%s\n", a.Empty)
	}
	a.p.notes(a.p.items(a.Columns, items))
	a.p.notes(console.Notes(all.Interface()))
	if next.String() != "" {
		a.p.printf("There are more; raise --limit.\n")
	}
	return a.p.printJSON(all.Interface())
}

// limit is the most that is listed, 0 for all, and the most of a page.
func (a *asked) limit(in console.Input) (limit, most int, err error) {
	for _, f := range a.Fields {
		if f.Name == "limit" {
			most = f.Most()
			limit, err = strconv.Atoi(cmp.Or(in.Query.Get("limit"), f.Standard))
		}
	}
	if err != nil {
		return 0, 0, usageError(fmt.Sprintf("--limit: %q is not a whole number", in.Query.Get("limit")))
	}
	return limit, most, nil
}

// print calls the operation, which may expect what was there before, and prints its answer.
func (a *asked) print(ctx context.Context, expected map[string]any) error {
	in, err := a.input(a.Operation, expected)
	if err != nil {
		return err
	}
	var question any
	if len(in.Body) > 0 {
		question = json.RawMessage(in.Body)
	}
	answer := a.Answer()
	for more := true; more; {
		before := answer
		answer, more = a.Answer(), false
		if a.Needs >= console.Reason {
			a.ask.key = uuid.NewString()
		}
		if err := a.ask.do(ctx, a.Method, a.URL(in), question, answer); err != nil {
			return err
		}
		if parts, ok := answer.(console.Parted); ok {
			page := parts.Join(before)
			in.Query.Set("page", page)
			more = page != ""
		}
	}
	a.p.fields(a.Columns, answer)
	return a.p.printJSON(answer)
}

// change shows what there is, asks, makes the change and prints what is so then. Where nothing is there yet nobody is
// asked: nothing is lost.
func (a *asked) change(ctx context.Context) error {
	expected := map[string]any{}
	if before, ok := a.p.known.Find(a.Before); ok {
		in, err := a.input(before, nil)
		if err != nil {
			return err
		}
		var raw json.RawMessage
		err = a.ask.get(ctx, before.URL(console.Input{Path: in.Path, Query: in.Query}), &raw)
		if problem, ok := errors.AsType[*problemError](err); err != nil && (!ok || problem.Status != http.StatusNotFound) {
			return err
		}
		known := err == nil
		now := before.Answer()
		if known {
			if err := json.Unmarshal(raw, now); err != nil {
				return fmt.Errorf("ask the worker: answer: %w", err)
			}
			_ = json.Unmarshal(raw, &expected) // it was an object a line ago
			if !a.p.asCSV {                    // a file has one table: what is so then
				a.p.fields(before.Columns, now)
			}
		}
		if a.Help != "" {
			a.p.printf("%s\n", a.Help)
		}
		if known || a.reason.dryRun {
			if goOn, err := a.reason.confirmed(a.p, a.call, now, a.args[len(a.args)-1], a.Verb()+" it"); !goOn {
				return err
			}
		}
	}
	return a.print(ctx, expected)
}
