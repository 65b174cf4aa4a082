package main

import (
	"context"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"billhook/catalog"
	"billhook/internal/console"
)

// completionPatience bounds what the worker is asked while a person waits for the shell.
const completionPatience = time.Second

// completes has the shell complete the first argument of a command: queues, sources and contracts from the catalog, and
// what else is listed from the list. What nobody knows is not completed: the names of files would be offered.
func (p *program) completes(command *cobra.Command) {
	_, argument, _ := strings.Cut(command.Use, " ")
	argument, _, _ = strings.Cut(strings.Trim(argument, "[<"), ">")
	noun, _, _ := strings.Cut(nameOf(command), " ")
	complete := func(of func() []string) cobra.CompletionFunc {
		return func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return of(), cobra.ShellCompDirectiveNoFileComp
		}
	}
	files := func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return nil, cobra.ShellCompDirectiveDefault
	}
	for _, flag := range []string{"body", "catalog", "data", "file", "message", "out", "seals"} {
		if command.Flag(flag) != nil {
			_ = command.RegisterFlagCompletionFunc(flag, files) // it is there
		}
	}
	if argument == "file" || argument == "folder" {
		command.ValidArgsFunction = files
	} else if command.ValidArgsFunction == nil {
		command.ValidArgsFunction = complete(func() []string {
			if values := p.declared(argument); values != nil {
				return values
			}
			return p.listed(command.Context(), noun)
		})
	}
	if command.Flag("queue") != nil {
		_ = command.RegisterFlagCompletionFunc("queue", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return p.declared("queue"), cobra.ShellCompDirectiveNoFileComp
		}) // it is there
	}
}

// declared is what the catalog has of a kind; nothing where it cannot be read: a completion says nothing of that.
func (p *program) declared(kind string) (values []string) {
	c, err := p.catalog()
	if err != nil {
		c = &catalog.Catalog{}
	}
	switch kind {
	case "queue":
		for _, q := range c.Queues {
			values = append(values, q.ID+"\t"+q.Description)
		}
	case "source":
		values = slices.Sorted(maps.Keys(c.Sources))
	case "contract":
		for _, declared := range c.Contracts.All() {
			values = append(values, declared.ID())
		}
	}
	return values
}

// listed are the first columns of a noun's newest, each with the second behind it.
func (p *program) listed(ctx context.Context, noun string) (values []string) {
	o, ok := p.known.Find(noun + " ls")
	if !ok || !o.List {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, completionPatience)
	defer cancel()
	answer := o.Answer()
	_ = p.ask().get(ctx, o.Pattern, answer) // without an answer nothing is completed
	items := reflect.ValueOf(answer).Elem().FieldByName("Items")
	columns := slices.DeleteFunc(slices.Clone(o.Columns), func(c console.Column) bool { return c.Detail })
	for i := 0; i < items.Len() && len(columns) > 1; i++ {
		item := items.Index(i).Interface()
		values = append(values, columns[0].Text(item)+"\t"+columns[1].Text(item))
	}
	return values
}
