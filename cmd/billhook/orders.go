package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"billhook/internal/apps/orders"
	"billhook/internal/apps/payments"
	"billhook/internal/console/ops"
	"billhook/internal/platform/audit"
)

func (p *program) ordersCommand() *cobra.Command {
	command := &cobra.Command{Use: "orders", Short: "Look at where the shop's orders stand"}
	ask := p.worker(command)
	command.AddCommand(p.ordersList(ask), p.ordersShow(ask))
	return command
}

func (p *program) ordersList(ask func() client) *cobra.Command {
	var state string
	var limit *int
	command := &cobra.Command{
		Use: "ls", Short: "List the orders that wait for their payment, or those in another state", Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			return columns[orders.Order]{
				names: orderHead, row: orderRow, less: []string{"SHORT OF", "REASON", "USER"},
			}.list(command.Context(), p, ask(), "/v1/ops/orders", url.Values{"state": {state}}, *limit)
		},
	}
	command.Flags().StringVar(&state, "state", string(orders.PaymentInitiated), "PaymentInitiated, OrderConfirmed, OrderCancelled, OrderShipped or all")
	oneOf(command, "state", orders.PaymentInitiated, orders.OrderConfirmed, orders.OrderCancelled, orders.OrderShipped, "all")
	limit = limitFlag(command, perPage)
	return command
}

func (p *program) ordersShow(ask func() client) *cobra.Command {
	command := &cobra.Command{Use: "show <order id>", Short: "Show an order, and every state that it has been in", Args: cobra.ExactArgs(1)}
	of := flagTenant(command)
	command.RunE = show(p, ask, func(args []string) string { return of.of("/v1/ops/orders/" + url.PathEscape(args[0])) }, func(o orders.Order) {
		p.record(orderHead, orderRow(o))
		columns[orders.Item]{names: []string{"PRODUCT", "QUANTITY"}, row: func(i orders.Item) []string {
			return row(i.ProductID, i.Quantity)
		}}.print(p, o.Items)
		columns[orders.Step]{names: []string{"AT", "STATE", "EVENT"}, row: func(s orders.Step) []string {
			return row(when(s.At), s.State, s.EventID)
		}}.print(p, o.History)
	})
	return command
}

var orderHead = []string{"ORDER", "STATE", "REASON", "SHORT OF", "USER", "CREATED", "PAYMENT DUE"}

func orderRow(o orders.Order) []string {
	return row(o.ID, o.State, o.Reason, o.ShortOf, o.UserID, when(o.CreatedAt), when(o.PaymentDue))
}

func (p *program) refundsCommand() *cobra.Command {
	command := &cobra.Command{Use: "refunds", Short: "Look at what became of the refunds that messages have asked for"}
	ask := p.worker(command)
	command.AddCommand(p.refundsList(ask), p.refundsShow(ask))
	return command
}

func (p *program) refundsList(ask func() client) *cobra.Command {
	var state string
	var limit *int
	command := &cobra.Command{
		Use: "ls", Short: "List the refunds that are under way, or those in another state, the newest first", Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			return columns[payments.Refund]{
				names: refundHead, row: refundRow, less: []string{"QUEUE", "SETTLED"},
			}.list(command.Context(), p, ask(), "/v1/ops/refunds", url.Values{"state": {state}}, *limit)
		},
	}
	command.Flags().StringVar(&state, "state", string(payments.UnderWay), "under_way, refunded, refused or all")
	oneOf(command, "state", payments.UnderWay, payments.Refunded, payments.Refused, "all")
	limit = limitFlag(command, perPage)
	return command
}

func (p *program) refundsShow(ask func() client) *cobra.Command {
	command := &cobra.Command{Use: "show <payment id>", Short: "Show the refund of a payment, and the message that it is for", Args: cobra.ExactArgs(1)}
	of := flagTenant(command)
	command.RunE = show(p, ask, func(args []string) string { return of.of("/v1/ops/refunds/" + url.PathEscape(args[0])) }, func(r payments.Refund) {
		p.record(refundHead, refundRow(r))
	})
	return command
}

var refundHead = []string{"PAYMENT", "STATE", "REASON", "AMOUNT", "SINCE", "SETTLED", "QUEUE", "EVENT"}

func refundRow(r payments.Refund) []string {
	amount := "all"
	if r.Amount != "" {
		amount = strings.TrimSpace(r.Amount + " " + r.Currency)
	}
	return row(r.PaymentID, r.State, r.Reason, amount, when(r.ReservedAt), when(r.SettledAt), r.Queue, r.EventID)
}

func (p *program) stockCommand() *cobra.Command {
	command := &cobra.Command{Use: "stock", Short: "Look at how many pieces of a product can be ordered, and change it"}
	ask, of := p.worker(command), flagTenant(command)
	command.AddCommand(
		&cobra.Command{
			Use: "ls", Short: "List the stock of every product that has one", Args: cobra.NoArgs,
			RunE: func(command *cobra.Command, _ []string) error {
				return stocks.list(command.Context(), p, ask(), "/v1/ops/stock", of.values(), 0)
			},
		},
		&cobra.Command{
			Use: "show <product id>", Short: "Show the pieces of a product that are available, reserved and sold", Args: cobra.ExactArgs(1),
			RunE: show(p, ask, func(args []string) string { return of.of(stockPath(args[0])) }, func(s orders.Stock) { stocks.print(p, []orders.Stock{s}) }),
		},
		p.stockSet(ask, of),
		&cobra.Command{
			Use: "history <product id>", Short: "Show who changed the stock of a product, when and why, the newest first", Args: cobra.ExactArgs(1),
			RunE: func(command *cobra.Command, args []string) error {
				return columns[audit.Entry]{
					names: []string{"AT", "BEFORE", "AFTER", "WHO", "WHY"},
					row: func(c audit.Entry) []string {
						return row(when(c.At), shownOf(c.Before, "available"), shownOf(c.After, "available"), c.Who, c.Why)
					},
				}.list(command.Context(), p, ask(), stockPath(args[0])+"/changes", of.values(), 0)
			},
		},
	)
	return command
}

var stocks = columns[orders.Stock]{
	names: []string{"PRODUCT", "AVAILABLE", "RESERVED", "SOLD"},
	row:   func(s orders.Stock) []string { return row(s.ProductID, s.Available, s.Reserved, s.Sold) },
}

func stockPath(product string) string { return "/v1/ops/stock/" + url.PathEscape(product) }

// shownOf is a member on one side of a change; empty: that side has none.
func shownOf(side map[string]any, name string) string {
	if side[name] == nil {
		return ""
	}
	return fmt.Sprint(side[name])
}

func (p *program) stockSet(ask func() client, of *tenantFlag) *cobra.Command {
	var available int64
	var why reason
	command := &cobra.Command{
		Use: "set <product id> --available <n> --why <reason>", Short: "Say how many pieces of a product can be ordered from now on", Args: cobra.ExactArgs(1),
		Long: "Pieces that are reserved or sold stay so. A product without stock gets one at once. Where it has stock, the change is\n" +
			"shown and asked for, and refused where orders have changed the stock by then.",
		RunE: func(command *cobra.Command, args []string) error {
			ctx, worker, path := command.Context(), ask(), of.of(stockPath(args[0]))
			now := orders.Stock{ProductID: args[0]}
			known, err := worker.known(ctx, path, &now)
			if err != nil {
				return err
			}
			asks := known && now.Available != available
			if asks || why.dryRun {
				p.printf("Of %s %d pieces are available now, %d reserved and %d sold. From now on %d would be available.\n", now.ProductID, now.Available, now.Reserved, now.Sold, available)
				if goOn, err := why.confirmed(p, command, now, strconv.FormatInt(available, 10), "change it"); !goOn {
					return err
				}
			}
			set := ops.SetStock{Available: &available, Change: orders.Change{Why: why.why, Expect: &now.Available}}
			return send(ctx, p, worker, http.MethodPut, path, set, func(after orders.Stock) {
				p.printf("Of %s %d pieces are available.\n", after.ProductID, after.Available)
			})
		},
	}
	command.Flags().Int64Var(&available, "available", 0, "how many pieces can be ordered, from 0")
	_ = command.MarkFlagRequired("available") // it is there
	return why.required(command)
}

// known gets an answer, and reports whether there is what it is about.
func (w client) known(ctx context.Context, path string, answer any) (bool, error) {
	err := w.get(ctx, path, answer)
	if problem, ok := errors.AsType[*problemError](err); ok && problem.Status == http.StatusNotFound {
		return false, nil
	}
	return err == nil, err
}
