package main

import (
	"github.com/spf13/cobra"

	"billhook/internal/console/ops"
)

func (p *program) eventsCommand() *cobra.Command {
	command, ask := p.under("events", "Ask a running worker about events", false)
	which := map[string]string{"queue": "the queue, by id or alias, where several know the id", "tenant": "the tenant, where several have the id"}
	story := shows(p, ask, question{
		use: "show <event id>", short: "Show where an event waits, and what happened to it: attempts, dead letters, replays", path: "/v1/ops/events/{}", flags: which,
	}, p.printEvent)
	find := story.RunE
	story.RunE = func(command *cobra.Command, args []string) error { return unknownEvent(args[0], find(command, args)) }
	command.AddCommand(story, sends(p, ask, question{
		use: "payload <event id>", short: "Show the minimized payload of an event that is kept; the audit says who has looked, and why",
		path: "/v1/ops/events/{}/payload", flags: which,
	}, func(why string) any { return ops.Reason{Why: why} }, p.printPayload), p.eventsListCommand(ask), p.eventsTail(ask), p.tryCommand(ask))
	return command
}
