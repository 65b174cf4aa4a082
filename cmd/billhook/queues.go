package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"billhook/internal/console/ops"
	"billhook/internal/dedupe"
	"billhook/internal/pipeline/pause"
)

func (p *program) queuesCommand() *cobra.Command {
	command := &cobra.Command{
		Use:   "queues",
		Short: "Show where each queue stands: what waits and where, its last hour, its events by status, its open dead letters",
		Args:  cobra.NoArgs,
	}
	ask := p.worker(command)
	command.AddCommand(p.queuesShow(ask), p.queuesRates(ask), p.queuesHistory(ask),
		p.queuesSwitch(ask, "pause", "Have a queue's messages wait in Pub/Sub, without an attempt, until it is resumed"),
		p.queuesSwitch(ask, "resume", "Have a paused queue's messages pushed again"))
	command.RunE = show(p, ask, func([]string) string { return "/v1/ops/queues" }, func(queues ops.Queues) {
		var rows [][]string
		for _, q := range queues.Items {
			rows = append(rows, []string{
				q.ID, waiting(q), strconv.FormatInt(q.LastHour.In, 10), strconv.FormatInt(q.LastHour.Out, 10), percent(q.LastHour), number(q.Events[dedupe.Processing]), number(q.Events[dedupe.Completed]), number(q.Events[dedupe.Failed]),
				number(q.Events[dedupe.DeadLettered]), openLetters(q.DeadLetters), oldestLetter(q.DeadLetters), p.stateOf(q), q.Alias,
			})
		}
		p.table([]string{"QUEUE", "WAITING", "IN/H", "OUT/H", "FAILURES", "PROCESSING", "COMPLETED", "FAILED", "DEAD-LETTERED", "OPEN", "OLDEST", "STATE", "ALIAS"}, rows,
			"ALIAS", "COMPLETED", "DEAD-LETTERED", "PROCESSING", "OUT/H", "IN/H")
		for _, q := range queues.Items {
			if q.Paused != nil {
				p.printf("\n%s is paused since %s by %s: %s\n", q.ID, when(q.Paused.At), q.Paused.Who, q.Paused.Why)
			}
		}
		for _, q := range queues.Items {
			if q.Kept != nil {
				p.printf("\n%s\n", keptInWords(q))
			}
		}
		for _, q := range queues.Items {
			for _, b := range q.Breakers {
				p.printf("\n%s: the breaker of target %s is %s in instance %s since %s\n", q.ID, b.Target, strings.ReplaceAll(b.State, "_", "-"), b.Instance, when(b.Since))
			}
		}
		if books := queues.Books; books.Found > 0 {
			p.printf("\n%s %d findings in the verification of %s. See: billhook ledger verify\n", p.alert("THE BOOKS DO NOT VERIFY:"), books.Found, when(books.BegunAt))
		}
		if queues.Outbox.Lanes.Count == 0 {
			p.printf("\nThe outbox is empty.\n")
		} else {
			p.printf("\nThe outbox holds messages of %s keys, the oldest since %s.\n", number(queues.Outbox.Lanes), queues.Outbox.OldestSeconds)
		}
	})
	return command
}

// keptInWords says what becomes of the messages of a queue that does not run and has its subscription.
func keptInWords(q ops.Queue) string {
	waits := *q.Waiting.Unacknowledged
	switch {
	case waits == 0:
		return q.ID + " does not run and keeps its subscription, in which nothing waits."
	case q.Kept.DeletedAt.IsZero():
		return fmt.Sprintf("%s does not run and keeps what waits for it: %d in the broker, which keeps a message for %s. It is handled once the queue runs again.",
			q.ID, waits, inDays(q.Kept.RetentionSeconds))
	default:
		return fmt.Sprintf("%s does not run and keeps what waits for it: %d in the broker, which deletes the oldest at %s. It is handled once the queue runs again.",
			q.ID, waits, when(q.Kept.DeletedAt))
	}
}

func openLetters(d ops.Depth) string {
	if d.Dropped {
		return "dropped"
	}
	return fmt.Sprintf("%s (alert > %d)", number(d.Count), d.AlertAbove)
}

func oldestLetter(d ops.Depth) string {
	switch {
	case d.Count.Count == 0:
		return ""
	case d.OldestAlertSeconds == 0:
		return d.OldestSeconds.String()
	default:
		return fmt.Sprintf("%s (alert > %s)", d.OldestSeconds, d.OldestAlertSeconds)
	}
}

func (p *program) stateOf(q ops.Queue) string {
	switch {
	case q.Paused != nil && q.Paused.Subscription != pause.Paused && q.Paused.Subscription != pause.Unknown:
		return p.alert("PAUSED ON PAPER") // its messages are pushed all the same
	case len(q.Breakers) > 0 && q.Paused == nil && !q.DeadLetters.Alert:
		return p.alert("BREAKER OPEN")
	case q.DeadLetters.Alert && q.Paused != nil:
		return p.alert("ALERT, paused")
	case q.DeadLetters.Alert:
		return p.alert("ALERT")
	case q.Paused != nil:
		return "paused"
	case q.Kept != nil:
		return "off, kept"
	case !q.Enabled:
		return "off"
	default:
		return "on"
	}
}
