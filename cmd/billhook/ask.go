package main

import (
	"errors"
	"net/http"
	"net/url"
	"strings"

	"github.com/spf13/cobra"
)

// question is a command that asks the worker for something.
type question struct {
	use, short, long string
	// path has {} where an argument stands.
	path string
	// flags are parameters by name, each with its help. usual are their values where none is given, and oneOf the only ones.
	flags, usual map[string]string
	oneOf        map[string][]string
	// limit is the most that a list has, unless --limit says another; 0: it has no such flag, and has all.
	limit int
}

func (q question) command() (*cobra.Command, func(command *cobra.Command, args []string) string) {
	command := &cobra.Command{Use: q.use, Short: q.short, Long: q.long, Args: cobra.ExactArgs(strings.Count(q.path, "{}"))}
	for name, about := range q.flags {
		command.Flags().String(name, q.usual[name], about)
	}
	for name, values := range q.oneOf {
		oneOf(command, name, values...)
	}
	return command, func(command *cobra.Command, args []string) string {
		path, values := q.path, url.Values{}
		for _, arg := range args {
			path = strings.Replace(path, "{}", url.PathEscape(arg), 1)
		}
		for name := range q.flags {
			value, _ := command.Flags().GetString(name) // it is there
			set(values, name, value)
		}
		tenant, _ := command.Flags().GetString("tenant") // not every command has it
		if set(values, "tenant", tenant); len(values) > 0 {
			path += "?" + values.Encode()
		}
		return path
	}
}

func texts[S ~string](values ...S) (all []string) {
	for _, value := range values {
		all = append(all, string(value))
	}
	return all
}

// shows is a command that prints one answer. Without ask it has a flag for the worker of its own.
func shows[T any](p *program, ask func() client, q question, print func(T)) *cobra.Command {
	command, path := q.command()
	if ask == nil {
		ask = p.worker(command)
	}
	command.RunE = func(command *cobra.Command, args []string) error {
		return send(command.Context(), p, ask(), http.MethodGet, path(command, args), nil, print)
	}
	return command
}

func lists[T any](p *program, ask func() client, q question, c columns[T]) *cobra.Command {
	command, path := q.command()
	if ask == nil {
		ask = p.worker(command)
	}
	limit := &q.limit
	if q.limit > 0 {
		limit = limitFlag(command, q.limit)
	}
	command.RunE = func(command *cobra.Command, args []string) error {
		at, _ := url.Parse(path(command, args)) // its parts are escaped
		return c.list(command.Context(), p, ask(), at.EscapedPath(), at.Query(), *limit)
	}
	return command
}

type change[Before any] struct {
	question
	// look is the path of what is there before, where that is another.
	look, method string
	// mayMiss: there may be nothing yet.
	mayMiss bool
	// plan prints what the change would do to what is there. It returns what a person types to confirm it, to do what, and
	// what is sent. Without a word nobody is asked.
	plan func(args []string, before Before, why reason) (word, do string, body any)
}

// changes is a command that shows the effect of a change, asks, sends it and prints the answer. The worker refuses it
// where what is there has changed meanwhile.
func changes[Before, After any](p *program, ask func() client, c change[Before], print func(After)) *cobra.Command {
	command, path := c.command()
	var why reason
	command.RunE = func(command *cobra.Command, args []string) error {
		ctx, worker, at := command.Context(), ask(), path(command, args)
		var before Before
		err := worker.get(ctx, strings.Replace(at, strings.TrimPrefix(c.path, c.look), "", 1), &before)
		if problem, ok := errors.AsType[*problemError](err); err != nil && (!c.mayMiss || !ok || problem.Status != http.StatusNotFound) {
			return err
		}
		word, do, body := c.plan(args, before, why)
		if word != "" || why.dryRun {
			if goOn, err := why.confirmed(p, command, before, word, do); !goOn {
				return err
			}
		}
		return send(ctx, p, worker, c.method, at, body, print)
	}
	return why.required(command)
}

// under is a command that only has others below it, and what asks for them.
func (p *program) under(name, short string, tenants bool) (*cobra.Command, func() client) {
	command := &cobra.Command{Use: name, Short: short}
	if tenants {
		command.PersistentFlags().String("tenant", "", "the tenant, where messages name one")
	}
	return command, p.worker(command)
}

func whyOnly(command *cobra.Command, why *string) *cobra.Command {
	command.Flags().StringVar(why, "why", "", "the reason, for the audit; required")
	command.PreRunE = func(*cobra.Command, []string) error { return given(*why) }
	return command
}

func sends[T any](p *program, ask func() client, q question, body func(why string) any, print func(T)) *cobra.Command {
	command, path := q.command()
	var why string
	command.RunE = func(command *cobra.Command, args []string) error {
		return send(command.Context(), p, ask(), http.MethodPost, path(command, args), body(why), print)
	}
	if body("") != nil {
		whyOnly(command, &why)
	}
	return command
}
