package main

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"billhook/internal/audit"
	"billhook/internal/ops"
	"billhook/internal/products"
)

func (p *program) productsCommand() *cobra.Command {
	command := &cobra.Command{Use: "products", Short: "Look at what products are worth, and change it without a deployment"}
	ask := p.worker(command)
	command.AddCommand(p.productsList(ask), p.productsSet(ask), p.productsRetire(ask), p.productsHistory(ask))
	return command
}

func (p *program) productsList(ask func() client) *cobra.Command {
	return &cobra.Command{
		Use: "ls", Short: "List the products of catalog and store, with what one piece is worth", Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			all, err := pages[products.Product](command.Context(), ask(), "/v1/ops/products", nil, 0)
			if err != nil {
				return err
			}
			var rows [][]string
			for _, product := range all.Items {
				rows = append(rows, row(product.ID, product.Points, product.State, when(product.Since), product.Origin))
			}
			p.table([]string{"PRODUCT", "POINTS", "STATE", "SINCE", "FROM"}, rows)
			return p.printJSON(all)
		},
	}
}

// product asks for one product. known reports whether it exists and is not retired.
func (w client) product(command *cobra.Command, id string) (product products.Product, known bool, err error) {
	err = w.get(command.Context(), productPath(id), &product)
	var problem *problemError
	if errors.As(err, &problem) && problem.status == http.StatusNotFound {
		return product, false, nil
	}
	return product, err == nil, err
}

// shownPoints is the value that the person has seen. The worker refuses the change where the
// product has another value by then.
func shownPoints(product products.Product, known bool) *int64 {
	if !known {
		product.Points = 0
	}
	return &product.Points
}

func productPath(id string) string { return "/v1/ops/products/" + url.PathEscape(id) }

// change sends a change of a product and prints the result.
func (p *program) change(command *cobra.Command, ask client, method, id string, question any) error {
	var product products.Product
	if err := ask.send(command.Context(), method, productPath(id), question, &product); err != nil {
		return err
	}
	if product.State == products.Retired {
		p.printf("%s is retired since %s: an order that names it becomes a dead letter.\n", product.ID, when(product.Since))
	} else {
		p.printf("%s is worth %d points since %s.\n", product.ID, product.Points, when(product.Since))
	}
	return p.printJSON(product)
}

func (p *program) productsSet(ask func() client) *cobra.Command {
	var points int64
	var why reason
	command := &cobra.Command{
		Use: "set <product id> --points <n> --why <reason>", Short: "Make a product known, or change what one piece is worth from now on", Args: cobra.ExactArgs(1),
		Long: "A product that is not known yet is set at once, and dead letters that name it can be replayed. Where one is known\n" +
			"already, the change is shown and asked for: it holds for every order that is credited from then on.",
		RunE: func(command *cobra.Command, args []string) error {
			if err := why.check(); err != nil {
				return err
			}
			worker := ask()
			product, known, err := worker.product(command, args[0])
			if err != nil {
				return err
			}
			changes := known && product.Points != points
			if changes {
				p.printf("%s is worth %d points now, from the %s. Orders that are credited from now on would get %d for each.\n", product.ID, product.Points, product.Origin, points)
			}
			if why.dryRun {
				return p.printJSON(product)
			}
			if changes {
				if err := p.confirm(command.InOrStdin(), why.yes, strconv.FormatInt(points, 10), "change it"); err != nil {
					return err
				}
			}
			return p.change(command, worker, http.MethodPut, args[0], ops.SetProduct{Points: points, Why: why.why, Expect: shownPoints(product, known)})
		},
	}
	command.Flags().Int64Var(&points, "points", 0, "what one piece is worth, from 1")
	why.flags(command)
	return command
}

func (p *program) productsRetire(ask func() client) *cobra.Command {
	var why reason
	command := &cobra.Command{
		Use: "retire <product id> --why <reason>", Short: "Make a product unknown from now on, also where the catalog has it", Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			if err := why.check(); err != nil {
				return err
			}
			worker := ask()
			product, known, err := worker.product(command, args[0])
			if err != nil {
				return err
			}
			if known {
				p.printf("%s is worth %d points, from the %s. Retired, it makes a dead letter of every order that names it.\n", product.ID, product.Points, product.Origin)
			}
			if why.dryRun {
				return p.printJSON(product)
			}
			if known {
				if err := p.confirm(command.InOrStdin(), why.yes, product.ID, "retire it"); err != nil {
					return err
				}
			}
			return p.change(command, worker, http.MethodDelete, args[0], ops.RetireProduct{Why: why.why, Expect: shownPoints(product, known)})
		},
	}
	why.flags(command)
	return command
}

func (p *program) productsHistory(ask func() client) *cobra.Command {
	return &cobra.Command{
		Use: "history <product id>", Short: "Show who changed a product, when and why, the newest first", Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			all, err := pages[audit.Entry](command.Context(), ask(), productPath(args[0])+"/changes", nil, 0)
			if err != nil {
				return err
			}
			var rows [][]string
			for _, change := range all.Items {
				rows = append(rows, row(change.At.Format(time.RFC3339), change.Action, pointsOf(change.Before), pointsOf(change.After), change.Who, change.Why))
			}
			p.table([]string{"AT", "ACTION", "BEFORE", "AFTER", "WHO", "WHY"}, rows)
			return p.printJSON(all)
		},
	}
}

// pointsOf is a product's value on one side of a change: its points, its state, or nothing.
func pointsOf(side map[string]any) string {
	if side == nil {
		return ""
	}
	if side["state"] != string(products.Active) {
		return fmt.Sprint(side["state"])
	}
	points, _ := side["points"].(float64) // at most catalog.MaxPoints: exact
	return strconv.FormatInt(int64(points), 10)
}
