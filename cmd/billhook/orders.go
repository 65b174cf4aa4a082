package main

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"billhook/internal/apps/orders"
	"billhook/internal/apps/payments"
	"billhook/internal/console/ops"
	"billhook/internal/platform/audit"
)

func (p *program) ordersCommand() *cobra.Command {
	command, ask := p.under("orders", "Look at where the shop's orders stand", true)
	all := columns[orders.Order]{
		names: []string{"ORDER", "STATE", "REASON", "SHORT OF", "USER", "CREATED", "PAYMENT DUE"}, less: []string{"SHORT OF", "REASON", "USER"},
		row: func(o orders.Order) []string {
			return row(o.ID, o.State, o.Reason, o.ShortOf, o.UserID, when(o.CreatedAt), when(o.PaymentDue))
		},
	}
	command.AddCommand(lists(p, ask, question{
		use: "ls", short: "List the orders that wait for their payment, or those in another state", path: "/v1/ops/orders", limit: perPage,
		flags: map[string]string{"state": "PaymentInitiated, OrderConfirmed, OrderCancelled, OrderShipped or all"},
		usual: map[string]string{"state": string(orders.PaymentInitiated)},
		oneOf: map[string][]string{"state": texts(orders.PaymentInitiated, orders.OrderConfirmed, orders.OrderCancelled, orders.OrderShipped, "all")},
	}, all), shows(p, ask, question{
		use: "show <order id>", short: "Show an order, and every state that it has been in", path: "/v1/ops/orders/{}",
	}, func(o orders.Order) {
		p.record(all.names, all.row(o))
		columns[orders.Item]{names: []string{"PRODUCT", "QUANTITY"}, row: func(i orders.Item) []string {
			return row(i.ProductID, i.Quantity)
		}}.print(p, o.Items)
		columns[orders.Step]{names: []string{"AT", "STATE", "EVENT"}, row: func(s orders.Step) []string {
			return row(when(s.At), s.State, s.EventID)
		}}.print(p, o.History)
	}))
	return command
}

func (p *program) refundsCommand() *cobra.Command {
	command, ask := p.under("refunds", "Look at what became of the refunds that messages have asked for", true)
	all := columns[payments.Refund]{
		names: []string{"PAYMENT", "STATE", "REASON", "AMOUNT", "SINCE", "SETTLED", "QUEUE", "EVENT"}, less: []string{"QUEUE", "SETTLED"},
		row: func(r payments.Refund) []string {
			amount := "all"
			if r.Amount != "" {
				amount = strings.TrimSpace(r.Amount + " " + r.Currency)
			}
			return row(r.PaymentID, r.State, r.Reason, amount, when(r.ReservedAt), when(r.SettledAt), r.Queue, r.EventID)
		},
	}
	command.AddCommand(lists(p, ask, question{
		use: "ls", short: "List the refunds that are under way, or those in another state, the newest first", path: "/v1/ops/refunds", limit: perPage,
		flags: map[string]string{"state": "under_way, refunded, refused or all"},
		usual: map[string]string{"state": string(payments.UnderWay)},
		oneOf: map[string][]string{"state": texts(payments.UnderWay, payments.Refunded, payments.Refused, "all")},
	}, all), shows(p, ask, question{
		use: "show <payment id>", short: "Show the refund of a payment, and the message that it is for", path: "/v1/ops/refunds/{}",
	}, func(r payments.Refund) { p.record(all.names, all.row(r)) }))
	return command
}

func (p *program) stockCommand() *cobra.Command {
	command, ask := p.under("stock", "Look at how many pieces of a product can be ordered, and change it", true)
	all := columns[orders.Stock]{
		names: []string{"PRODUCT", "AVAILABLE", "RESERVED", "SOLD"},
		row:   func(s orders.Stock) []string { return row(s.ProductID, s.Available, s.Reserved, s.Sold) },
	}
	var available int64
	set := changes(p, ask, change[orders.Stock]{
		question: question{
			use: "set <product id> --available <n> --why <reason>", short: "Say how many pieces of a product can be ordered from now on", path: stockPath,
			long: "Pieces that are reserved or sold stay so. A product without stock gets one at once. Where it has stock, the change is\n" +
				"shown and asked for, and refused where orders have changed the stock by then.",
		}, method: http.MethodPut, mayMiss: true,
		plan: func(args []string, now orders.Stock, why reason) (word, do string, body any) {
			if (now.ProductID != "" && now.Available != available) || why.dryRun {
				p.printf("Of %s %d pieces are available now, %d reserved and %d sold. From now on %d would be available.\n",
					args[0], now.Available, now.Reserved, now.Sold, available)
				word = strconv.FormatInt(available, 10)
			}
			return word, "change it", ops.SetStock{Available: &available, Change: orders.Change{Why: why.why, Expect: &now.Available}}
		},
	}, func(after orders.Stock) {
		p.printf("Of %s %d pieces are available.\n", after.ProductID, after.Available)
	})
	set.Flags().Int64Var(&available, "available", 0, "how many pieces can be ordered, from 0")
	_ = set.MarkFlagRequired("available") // it is there
	command.AddCommand(lists(p, ask, question{use: "ls", short: "List the stock of every product that has one", path: "/v1/ops/stock"}, all),
		shows(p, ask, question{use: "show <product id>", short: "Show the pieces of a product that are available, reserved and sold", path: stockPath},
			func(s orders.Stock) { all.print(p, []orders.Stock{s}) }),
		set,
		lists(p, ask, question{
			use: "history <product id>", short: "Show who changed the stock of a product, when and why, the newest first", path: stockPath + "/changes",
		}, columns[audit.Entry]{names: []string{"AT", "BEFORE", "AFTER", "WHO", "WHY"}, row: func(c audit.Entry) []string {
			return row(when(c.At), shownOf(c.Before, "available"), shownOf(c.After, "available"), c.Who, c.Why)
		}}))
	return command
}

const stockPath = "/v1/ops/stock/{}"

func shownOf(side map[string]any, name string) string {
	if side[name] == nil {
		return ""
	}
	return fmt.Sprint(side[name])
}
