package main

import (
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

// under is a command that only has others below it, and what asks for them.
func (p *program) under(name, short string, tenants bool) (*cobra.Command, func() client) {
	command := &cobra.Command{Use: name, Short: short}
	if tenants {
		command.PersistentFlags().String("tenant", "", "the tenant, where messages name one")
	}
	return command, p.worker(command)
}
