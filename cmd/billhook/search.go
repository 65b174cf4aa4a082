package main

import (
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"billhook/internal/apps/ledger"
	"billhook/internal/console/ops"
)

func (p *program) searchCommand() *cobra.Command {
	command, _ := question{
		use: "search <id>", short: "Find what an id of any kind leads to, and how to look at it", path: "{}", flags: map[string]string{"tenant": "leave out what belongs to other tenants"},
		long: "The id of an event, an order, a customer, a user, an account, a subscription, a payment, an entry of the books, a dead\n" +
			"letter, an operation, an endpoint, a product, or a correlation id, an ordering key or an idempotency key. Space and quotes\n" +
			"around it are left out. Of each kind at most ten are shown. It says all that it has looked through.",
	}.command()
	command.RunE = show(p, p.worker(command), func(args []string) string {
		tenant, _ := command.Flags().GetString("tenant") // it is there
		return "/v1/ops/search?" + parameters(map[string]string{"q": args[0], "tenant": tenant}).Encode()
	}, p.printSearch)
	return command
}

func (p *program) printSearch(s ops.Search) {
	var rows [][]string
	for _, item := range s.Items {
		rows = append(rows, row(item.Kind, item.ID, orDash(item.Label), orDash(item.Queue), orDash(item.Tenant), item.How, orDash(shownBy(item))))
	}
	if len(rows) > 0 {
		p.table([]string{"KIND", "ID", "STANDS", "QUEUE", "TENANT", "FOUND BY", "SHOWN BY"}, rows, "TENANT", "QUEUE", "FOUND BY")
	} else {
		p.printf("Nothing has this id: %s\n", s.Query)
	}
	var kinds []ops.Kind
	looked := map[ops.Kind][]string{}
	for _, l := range s.Looked {
		if !slices.Contains(kinds, l.Kind) {
			kinds = append(kinds, l.Kind)
		}
		if l.More {
			l.How += " (there are more)"
		}
		looked[l.Kind] = append(looked[l.Kind], l.How)
	}
	p.printf("It has looked through:\n")
	for _, kind := range kinds {
		p.printf("  %s by %s\n", kind, strings.Join(looked[kind], "; "))
	}
}

// shownBy is the command that shows what was found; empty: there is none.
func shownBy(found ops.Found) string {
	command, flag := map[ops.Kind]string{
		ops.KindEvent: "events show", ops.KindDeadLetter: "dlq show", ops.KindOperation: "dlq operations show", ops.KindOrder: "orders show",
		ops.KindRefund: "refunds show", ops.KindCustomer: "customers show", ops.KindAccount: "ledger account", ops.KindEntry: "ledger show",
		ops.KindSubscription: "subscriptions show", ops.KindProduct: "products history", ops.KindStock: "stock show", ops.KindEndpoint: "endpoints show",
	}[found.Kind], ""
	switch found.Kind {
	case ops.KindAccount:
		if ledger.Control(found.ID) == found.ID {
			command = "ledger statement"
		}
		flag = " --tenant " + found.Tenant
	case ops.KindEvent:
		flag = " --queue " + found.Queue
	case ops.KindOrder, ops.KindRefund, ops.KindCustomer, ops.KindProduct, ops.KindStock, ops.KindSubscription:
		flag = " --tenant " + found.Tenant
	default:
	}
	if command == "" || found.ID == "" {
		return ""
	}
	if found.Tenant == "" {
		flag = strings.TrimSuffix(flag, " --tenant ")
	}
	return command + " " + quoted(found.ID) + flag
}

// quoted is a word as a shell takes it.
func quoted(word string) string {
	if strings.Trim(word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._:-/%") == "" {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

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
