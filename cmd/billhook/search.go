package main

import (
	"net/url"
	"strconv"

	"github.com/spf13/cobra"

	"billhook/internal/console/ops"
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
			amount = decimal(*e.Amount, e.Currency) + " " + e.Currency
		}
		rows = append(rows, row(e.OccurredAt, e.EventType, orDash(e.Status), amount, orDash(e.PeriodStart), orDash(e.PeriodEnd), e.EventID))
	}
	p.table([]string{"HAPPENED", "TYPE", "STATUS", "AMOUNT", "PERIOD FROM", "TO", "EVENT"}, rows, "PERIOD FROM", "TO")
	if s.More {
		p.printf("There are more events than are shown, and the newest may be among them.\n")
	}
}

func (b *books) account() *cobra.Command {
	var asOf string
	var limit int
	command := &cobra.Command{
		Use: "account <account>", Short: "Show the points of a user or a customer, now or at the end of a day", Args: cobra.ExactArgs(1),
		Long: "An account is points:user:<uid> or points:customer:<id>. ledger statement shows the others, a month at a time.",
		RunE: func(command *cobra.Command, args []string) error {
			if limit < 1 {
				return usageError("--limit: at least 1")
			}
			path, values := "/v1/ops/accounts/"+url.PathEscape(args[0]), b.query()
			set(values, "as_of", asOf)
			var all ops.Account
			for {
				values.Set("limit", strconv.Itoa(min(limit-len(all.Entries), perPage)))
				var page ops.Account
				if err := b.ask().get(command.Context(), path+"?"+values.Encode(), &page); err != nil {
					return err
				}
				page.Entries = append(all.Entries, page.Entries...)
				all = page
				if all.Next == "" || len(all.Entries) >= limit {
					break
				}
				values.Set("page", all.Next)
			}
			b.printAccount(all)
			return b.printJSON(all)
		},
	}
	command.Flags().StringVar(&asOf, "as-of", "", "the balance at the end of this day in UTC, such as 2026-11-30, or at a moment")
	command.Flags().IntVar(&limit, "limit", 50, "how many entries to show, the newest first")
	return b.whose(command)
}

func (b *books) printAccount(a ops.Account) {
	at := "now"
	if !a.AsOf.IsZero() {
		at = "before " + when(a.AsOf)
	}
	b.printf("%s has %s %s, %s\n", a.Account, decimal(a.Balance, a.Currency), a.Currency, at)
	var rows [][]string
	balance := a.Balance
	for _, e := range a.Entries {
		moved := e.Amount
		if string(e.To) != a.Account {
			moved = -moved
		}
		rows = append(rows, row(when(e.CreatedAt), e.Kind, e.Order, decimal(moved, e.Currency), decimal(balance, e.Currency), e.EventID))
		balance -= moved
	}
	b.table([]string{"AT", "KIND", "ORDER", "MOVED", "THEN", "EVENT"}, rows)
	if a.More {
		b.printf("There are more; raise --limit.\n")
	}
}
