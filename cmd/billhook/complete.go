package main

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"billhook/catalog"
	"billhook/internal/apps/endpoints"
	"billhook/internal/apps/products"
	"billhook/internal/console"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/pipeline/events"
)

// completionPatience bounds what the worker is asked while a person waits for the shell.
const completionPatience = time.Second

type completer func(p *program, command *cobra.Command, args []string) []string

// completers are those of arguments, by the name in the line of usage, and of flags, by theirs.
var completers = map[string]completer{
	"<queue>":    completeQueues,
	"[<queue>]":  completeQueues,
	"[queue":     completeQueues,
	"<source>":   known(func(c *catalog.Catalog) []string { return slices.Sorted(maps.Keys(c.Sources)) }),
	"<event id>": found("/v1/ops/events?limit=20", func(e events.Line) string { return e.EventID + "\t" + e.EventType + " " + string(e.Status) }),
	"<operation>": found("/v1/ops/operations?limit=20", func(op deadletter.Operation) string {
		return op.ID + "\t" + string(op.Kind) + " of " + op.Filter.Queue + ", " + string(op.Progress)
	}),
	"<endpoint>":   found("/v1/ops/endpoints?limit=50", func(e endpoints.Endpoint) string { return e.ID + "\t" + string(e.State) }),
	"<product id>": completeProducts,
	"<contract>": known(func(c *catalog.Catalog) (values []string) {
		for _, declared := range c.Contracts.All() {
			values = append(values, declared.ID())
		}
		return values
	}),
	"--queue":  completeQueues,
	"--type":   completeTypes,
	"--reason": completeReasons,
}

// paths are the flags whose value is a file or a folder: the shell completes them by itself.
var paths = []string{"file", "out", "seals", "catalog", "data"}

// completes has the shell complete the first argument of a command, and its flags. What nobody knows is
// not completed: the names of files would be offered.
func (p *program) completes(command *cobra.Command) {
	if _, argument, ok := strings.Cut(command.Use, " "); ok && command.ValidArgsFunction == nil && argument != "<file>" {
		command.ValidArgsFunction = func(command *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			for name, values := range completers {
				if len(args) == 0 && strings.HasPrefix(argument, name) {
					return values(p, command, args), cobra.ShellCompDirectiveNoFileComp
				}
			}
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
	}
	command.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if _, known := command.GetFlagCompletionFunc(f.Name); known || slices.Contains(paths, f.Name) {
			return
		}
		_ = command.RegisterFlagCompletionFunc(f.Name, func(command *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if values, ok := completers["--"+f.Name]; ok {
				return values(p, command, args), cobra.ShellCompDirectiveNoFileComp
			}
			return nil, cobra.ShellCompDirectiveNoFileComp
		}) // the flag is there, and has none
	})
}

// declared is the catalog, or an empty one where it cannot be read: a completion says nothing of that.
func (p *program) declared() *catalog.Catalog {
	c, err := p.catalog()
	if err != nil {
		return &catalog.Catalog{}
	}
	return c
}

// known completes what the catalog declares.
func known(of func(*catalog.Catalog) []string) completer {
	return func(p *program, _ *cobra.Command, _ []string) []string { return of(p.declared()) }
}

var completeQueues = known(func(c *catalog.Catalog) (values []string) {
	for _, q := range c.Queues {
		values = append(values, q.ID+"\t"+q.Description)
	}
	return values
})

func namedQueue(command *cobra.Command, args []string) string {
	if len(args) > 0 {
		return args[0]
	}
	queue, _ := command.Flags().GetString("queue") // not every command has it
	return queue
}

func completeTypes(p *program, command *cobra.Command, args []string) []string {
	c, types := p.declared(), map[string]bool{}
	only, named := c.Queue(namedQueue(command, args))
	for _, q := range c.Queues {
		for eventType := range q.Handlers {
			if !named || q.ID == only.ID {
				types[eventType] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(types))
}

func completeReasons(p *program, command *cobra.Command, args []string) []string {
	path := "/v1/ops/dead-letters/reasons?" + query(deadletter.Filter{Queue: namedQueue(command, args)}).Encode()
	all := found(path, func(r deadletter.Reason) string { return r.Reason })(p, command, nil)
	return slices.DeleteFunc(slices.Compact(slices.Sorted(slices.Values(all))), func(reason string) bool { return reason == "" })
}

func found[T any](path string, of func(T) string) completer {
	return func(p *program, command *cobra.Command, _ []string) (values []string) {
		var all console.List[T]
		ctx, cancel := context.WithTimeout(command.Context(), completionPatience)
		defer cancel()
		_ = p.ask().get(ctx, path, &all) // without an answer nothing is completed
		for _, item := range all.Items {
			values = append(values, of(item))
		}
		return values
	}
}

func completeProducts(p *program, command *cobra.Command, _ []string) []string {
	all := slices.Collect(maps.Keys(p.declared().Products))
	set := found("/v1/ops/products", func(p products.Product) string { return p.ID })(p, command, nil)
	return slices.Compact(slices.Sorted(slices.Values(append(all, set...))))
}
