package main

import (
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"billhook/internal/ops"
)

func (p *program) eventsCommand() *cobra.Command {
	var queue string
	command := &cobra.Command{Use: "events", Short: "Ask a running worker about events"}
	ask := p.worker(command)
	show := &cobra.Command{
		Use:   "show <event id>",
		Short: "Show what became of an event: its record, conflicts and dead letters",
		Args:  cobra.ExactArgs(1),
		RunE: show(p, ask, func(args []string) string {
			path := "/v1/ops/events/" + url.PathEscape(args[0])
			if queue != "" {
				path += "?queue=" + url.QueryEscape(queue)
			}
			return path
		}, p.printEvent),
	}
	show.Flags().StringVar(&queue, "queue", "", "the queue, by id or alias, where several know the id")
	command.AddCommand(show, p.eventsListCommand(ask), p.eventsAdopt(ask), p.tryCommand(ask), p.compareCommand(ask))
	return command
}

func (p *program) printEvent(e ops.Event) {
	row := func(name, value string) {
		if value != "" {
			p.printf("  %-15s %s\n", name, value)
		}
	}
	at := func(name string, t time.Time) {
		if !t.IsZero() {
			row(name, t.Format(time.RFC3339Nano))
		}
	}
	p.printf("%s  %s\n", e.EventID, e.Status)
	row("queue", e.Queue)
	row("type", e.EventType)
	row("result", e.Result)
	row("made", e.Ref)
	row("reason", e.Reason)
	p.printf("  %-15s %d\n", "attempts", e.Attempts)
	if e.IdempotencyKey != e.EventID {
		row("idempotency key", e.IdempotencyKey)
	}
	row("ordering key", e.OrderingKey)
	row("message", e.MessageID)
	row("payload", e.PayloadHash)
	at("created", e.CreatedAt)
	at("processed", e.ProcessedAt)
	at("lease until", e.LeaseUntil)
	at("next retry", e.NextRetryAt)
	for _, id := range e.Emitted {
		p.printf("  emitted         event %s\n", id)
	}
	if e.Waiting > 0 {
		p.printf("  in the outbox   %d of them\n", e.Waiting)
	}
	for _, c := range e.Conflicts {
		p.printf("  conflict        %s %s, message %s, %s\n", c.Status, c.Reason, c.MessageID, c.PayloadHash)
	}
	for _, d := range e.DeadLetters {
		p.printf("  dead letter     %s: %d %s, after %d attempts, message %s %s\n", d.State, d.Status, d.Reason, d.Attempts, d.SourceMessageID, d.Detail)
	}
}
