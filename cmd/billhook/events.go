package main

import (
	"net/url"

	"github.com/spf13/cobra"
)

func (p *program) eventsCommand() *cobra.Command {
	var queue, tenant string
	command := &cobra.Command{Use: "events", Short: "Ask a running worker about events"}
	ask := p.worker(command)
	story := show(p, ask, func(args []string) string {
		path, values := "/v1/ops/events/"+url.PathEscape(args[0]), url.Values{}
		set(values, "queue", queue)
		set(values, "tenant", tenant)
		if len(values) > 0 {
			path += "?" + values.Encode()
		}
		return path
	}, p.printEvent)
	show := &cobra.Command{
		Use:   "show <event id>",
		Short: "Show where an event waits, and what happened to it: attempts, dead letters, replays",
		Args:  cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			err := story(command, args)
			if len(args) == 1 {
				err = unknownEvent(args[0], err)
			}
			return err
		},
	}
	show.Flags().StringVar(&queue, "queue", "", "the queue, by id or alias, where several know the id")
	show.Flags().StringVar(&tenant, "tenant", "", "the tenant, where several have the id")
	command.AddCommand(show, p.eventsListCommand(ask), p.eventsTail(ask), p.eventsAdopt(ask), p.eventsCleanup(ask), p.tryCommand(ask), p.compareCommand(ask))
	return command
}
