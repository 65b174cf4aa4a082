package main

import (
	"github.com/spf13/cobra"

	"billhook/internal/console/ops"
	"billhook/internal/contract/money"
)

func (p *program) subscriptionsCommand() *cobra.Command {
	command, ask := p.under("subscriptions", "Look at how subscriptions stand", true)
	command.AddCommand(shows(p, ask, question{
		use: "show <subscription>", short: "Show how a subscription stands, and every event of it", path: "/v1/ops/subscriptions/{}",
		long: "How it stands is what its newest event has said. usage show says what it has used.",
	}, p.printSubscription))
	return command
}

func (p *program) printSubscription(s ops.Subscription) {
	p.record([]string{"SUBSCRIPTION", "STATUS", "PRODUCT", "CUSTOMER", "USER"}, row(s.Subscription, orDash(s.Status), orDash(s.Product), orDash(s.Customer), orDash(s.UID)))
	var rows [][]string
	for _, e := range s.Events {
		amount := "-"
		if e.Amount != nil {
			amount = money.Text(*e.Amount, e.Currency) + " " + e.Currency
		}
		rows = append(rows, row(e.OccurredAt, e.EventType, orDash(e.Status), amount, orDash(e.PeriodStart), orDash(e.PeriodEnd), e.EventID))
	}
	p.table([]string{"HAPPENED", "TYPE", "STATUS", "AMOUNT", "PERIOD FROM", "TO", "EVENT"}, rows, "PERIOD FROM", "TO")
	if s.More {
		p.printf("There are more events than are shown, and the newest may be among them.\n")
	}
}
