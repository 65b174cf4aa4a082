package main

import (
	"net/http"
	"net/url"

	"github.com/spf13/cobra"

	"billhook/internal/console/ops"
)

func (p *program) eventsCommand() *cobra.Command {
	var queue, tenant string
	command := &cobra.Command{Use: "events", Short: "Ask a running worker about events"}
	ask := p.worker(command)
	path := func(id, more string) string {
		path, values := "/v1/ops/events/"+url.PathEscape(id)+more, parameters(map[string]string{"queue": queue, "tenant": tenant})
		if len(values) > 0 {
			path += "?" + values.Encode()
		}
		return path
	}
	story := show(p, ask, func(args []string) string { return path(args[0], "") }, p.printEvent)
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
	var why reason
	payload := &cobra.Command{
		Use:   "payload <event id>",
		Short: "Show the minimized payload of an event that is kept; the audit says who has looked, and why",
		Args:  cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			return send(command.Context(), p, ask(), http.MethodPost, path(args[0], "/payload"), ops.Reason{Why: why.why}, p.printPayload)
		},
	}
	why.needed(payload)
	for _, one := range []*cobra.Command{show, payload} {
		one.Flags().StringVar(&queue, "queue", "", "the queue, by id or alias, where several know the id")
		one.Flags().StringVar(&tenant, "tenant", "", "the tenant, where several have the id")
	}
	command.AddCommand(show, payload, p.eventsListCommand(ask), p.eventsTail(ask), p.tryCommand(ask))
	return command
}
