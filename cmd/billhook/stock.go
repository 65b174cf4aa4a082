package main

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	"github.com/spf13/cobra"

	"billhook/internal/apps/orders"
	"billhook/internal/console/ops"
	"billhook/internal/platform/audit"
)

func (p *program) stockCommand() *cobra.Command {
	command := &cobra.Command{Use: "stock", Short: "Look at how many pieces of a product can be ordered, and change it"}
	ask, of := p.worker(command), flagTenant(command)
	command.AddCommand(p.stockList(ask, of), p.stockShow(ask, of), p.stockSet(ask, of), p.stockHistory(ask, of))
	return command
}

var stockHead = []string{"PRODUCT", "AVAILABLE", "RESERVED", "SOLD"}

func stockRow(s orders.Stock) []string { return row(s.ProductID, s.Available, s.Reserved, s.Sold) }

func stockPath(product string) string { return "/v1/ops/stock/" + url.PathEscape(product) }

func (p *program) stockList(ask func() client, of *tenantFlag) *cobra.Command {
	return &cobra.Command{
		Use: "ls", Short: "List the stock of every product that has one", Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			all, err := pages[orders.Stock](command.Context(), ask(), "/v1/ops/stock", of.values(), 0)
			if err != nil {
				return err
			}
			var rows [][]string
			for _, s := range all.Items {
				rows = append(rows, stockRow(s))
			}
			p.table(stockHead, rows)
			return p.printJSON(all)
		},
	}
}

func (p *program) stockShow(ask func() client, of *tenantFlag) *cobra.Command {
	return &cobra.Command{
		Use: "show <product id>", Short: "Show the pieces of a product that are available, reserved and sold", Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			var s orders.Stock
			if err := ask().get(command.Context(), of.of(stockPath(args[0])), &s); err != nil {
				return err
			}
			p.table(stockHead, [][]string{stockRow(s)})
			return p.printJSON(s)
		},
	}
}

func (p *program) stockSet(ask func() client, of *tenantFlag) *cobra.Command {
	var available int64
	var why reason
	command := &cobra.Command{
		Use: "set <product id> --available <n> --why <reason>", Short: "Say how many pieces of a product can be ordered from now on", Args: cobra.ExactArgs(1),
		Long: "Pieces that are reserved or sold stay so. A product without stock gets one at once. Where it has stock, the change is\n" +
			"shown and asked for, and refused where orders have changed the stock by then.",
		RunE: func(command *cobra.Command, args []string) error {
			ctx, worker := command.Context(), ask()
			now := orders.Stock{ProductID: args[0]}
			err := worker.get(ctx, of.of(stockPath(args[0])), &now)
			var problem *problemError
			unknown := errors.As(err, &problem) && problem.Status == http.StatusNotFound
			if err != nil && !unknown {
				return err
			}
			asks := !unknown && now.Available != available
			if asks || why.dryRun {
				p.printf("Of %s %d pieces are available now, %d reserved and %d sold. From now on %d would be available.\n", now.ProductID, now.Available, now.Reserved, now.Sold, available)
			}
			if why.dryRun {
				return p.printJSON(now)
			}
			if asks {
				if err := p.confirm(command.InOrStdin(), why.yes, strconv.FormatInt(available, 10), "change it"); err != nil {
					return err
				}
			}
			var after orders.Stock
			set := ops.SetStock{Available: &available, Change: orders.Change{Why: why.why, Expect: &now.Available}}
			if err := worker.do(ctx, http.MethodPut, of.of(stockPath(args[0])), set, &after); err != nil {
				return err
			}
			p.printf("Of %s %d pieces are available.\n", after.ProductID, after.Available)
			return p.printJSON(after)
		},
	}
	command.Flags().Int64Var(&available, "available", 0, "how many pieces can be ordered, from 0")
	_ = command.MarkFlagRequired("available") // it is there
	return why.required(command)
}

func (p *program) stockHistory(ask func() client, of *tenantFlag) *cobra.Command {
	return &cobra.Command{
		Use: "history <product id>", Short: "Show who changed the stock of a product, when and why, the newest first", Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			all, err := pages[audit.Entry](command.Context(), ask(), stockPath(args[0])+"/changes", of.values(), 0)
			if err != nil {
				return err
			}
			pieces := func(side map[string]any) string {
				if side == nil {
					return ""
				}
				return fmt.Sprint(side["available"])
			}
			var rows [][]string
			for _, change := range all.Items {
				rows = append(rows, row(when(change.At), pieces(change.Before), pieces(change.After), change.Who, change.Why))
			}
			p.table([]string{"AT", "BEFORE", "AFTER", "WHO", "WHY"}, rows)
			return p.printJSON(all)
		},
	}
}
