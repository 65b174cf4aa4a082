package main

import (
	"net/url"

	"github.com/spf13/cobra"

	"billhook/internal/apps/orders"
)

func (p *program) ordersCommand() *cobra.Command {
	command := &cobra.Command{Use: "orders", Short: "Look at where the shop's orders stand"}
	ask := p.worker(command)
	command.AddCommand(p.ordersList(ask), p.ordersShow(ask))
	return command
}

func (p *program) ordersList(ask func() client) *cobra.Command {
	var state string
	var limit int
	command := &cobra.Command{
		Use: "ls", Short: "List the orders that wait for their payment, or those in another state", Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			all, err := pages[orders.Order](command.Context(), ask(), "/v1/ops/orders", url.Values{"state": {state}}, limit)
			if err != nil {
				return err
			}
			var rows [][]string
			for _, o := range all.Items {
				rows = append(rows, orderRow(o))
			}
			p.table(orderHead, rows, "SHORT OF", "REASON", "USER")
			if all.Next != "" {
				p.printf("There are more; raise --limit.\n")
			}
			return p.printJSON(all)
		},
	}
	command.Flags().StringVar(&state, "state", string(orders.PaymentInitiated), "PaymentInitiated, OrderConfirmed, OrderCancelled, OrderShipped or all")
	oneOf(command, "state", orders.PaymentInitiated, orders.OrderConfirmed, orders.OrderCancelled, orders.OrderShipped, "all")
	command.Flags().IntVar(&limit, "limit", perPage, "the most to list; 0: all")
	return command
}

func (p *program) ordersShow(ask func() client) *cobra.Command {
	var of *tenantFlag
	command := &cobra.Command{
		Use: "show <order id>", Short: "Show an order, and every state that it has been in", Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			path := "/v1/ops/orders/" + url.PathEscape(args[0])
			var o orders.Order
			if err := ask().get(command.Context(), of.of(path), &o); err != nil {
				return err
			}
			p.record(orderHead, orderRow(o))
			var items, steps [][]string
			for _, item := range o.Items {
				items = append(items, row(item.ProductID, item.Quantity))
			}
			p.table([]string{"PRODUCT", "QUANTITY"}, items)
			for _, step := range o.History {
				steps = append(steps, row(when(step.At), step.State, step.EventID))
			}
			p.table([]string{"AT", "STATE", "EVENT"}, steps)
			return p.printJSON(o)
		},
	}
	of = flagTenant(command)
	return command
}

var orderHead = []string{"ORDER", "STATE", "REASON", "SHORT OF", "USER", "CREATED", "PAYMENT DUE"}

func orderRow(o orders.Order) []string {
	return row(o.ID, o.State, orDash(o.Reason), orDash(o.ShortOf), orDash(o.UserID), when(o.CreatedAt), when(o.PaymentDue))
}
