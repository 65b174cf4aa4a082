package main

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	"github.com/spf13/cobra"

	"billhook/internal/apps/products"
	"billhook/internal/console/ops"
	"billhook/internal/platform/audit"
)

func (p *program) productsCommand() *cobra.Command {
	command := &cobra.Command{Use: "products", Short: "Look at what products are worth, and change it without a deployment"}
	ask, of := p.worker(command), flagTenant(command)
	command.AddCommand(
		&cobra.Command{
			Use: "ls", Short: "List the products of catalog and store, with what one piece is worth", Args: cobra.NoArgs,
			RunE: func(command *cobra.Command, _ []string) error {
				return columns[products.Product]{
					names: []string{"PRODUCT", "POINTS", "STATE", "SINCE", "FROM"},
					row:   func(p products.Product) []string { return row(p.ID, p.Points, p.State, when(p.Since), p.Origin) },
				}.list(command.Context(), p, ask(), "/v1/ops/products", of.values(), 0)
			},
		},
		p.productsSet(ask, of), p.productsRetire(ask, of),
		&cobra.Command{
			Use: "history <product id>", Short: "Show who changed a product, when and why, the newest first", Args: cobra.ExactArgs(1),
			RunE: func(command *cobra.Command, args []string) error {
				return columns[audit.Entry]{
					names: []string{"AT", "ACTION", "BEFORE", "AFTER", "WHO", "WHY"},
					row: func(c audit.Entry) []string {
						return row(when(c.At), c.Action, pointsOf(c.Before), pointsOf(c.After), c.Who, c.Why)
					},
				}.list(command.Context(), p, ask(), productPath(args[0])+"/changes", of.values(), 0)
			},
		},
	)
	return command
}

func productPath(id string) string { return "/v1/ops/products/" + url.PathEscape(id) }

// productChange is a change of a product that a person has looked at. Where the product is known,
// the person reads the effect and types the word.
type productChange struct {
	method           string
	effect, word, do string
	body             any
}

// changeProduct shows the effect of a change, asks, sends the change and prints the result. plan
// gets the product as it stands, with 0 points where it is unknown or retired. The
// worker refuses the change where the product is worth something else by then.
func (p *program) changeProduct(ask func() client, of *tenantFlag, why *reason, plan func(now products.Product) productChange) func(*cobra.Command, []string) error {
	return func(command *cobra.Command, args []string) error {
		ctx, path, worker := command.Context(), of.of(productPath(args[0])), ask()
		var product products.Product
		if _, err := worker.known(ctx, path, &product); err != nil {
			return err
		}
		change := plan(product)
		if change.effect != "" {
			p.printf("%s\n", change.effect)
		}
		if change.effect != "" || why.dryRun {
			if goOn, err := why.confirmed(p, command, product, change.word, change.do); !goOn {
				return err
			}
		}
		return send(ctx, p, worker, change.method, path, change.body, func(changed products.Product) {
			if changed.State == products.Retired {
				p.printf("%s is retired since %s: an order that names it becomes a dead letter.\n", changed.ID, when(changed.Since))
			} else {
				p.printf("%s is worth %d points since %s.\n", changed.ID, changed.Points, when(changed.Since))
			}
		})
	}
}

func (p *program) productsSet(ask func() client, of *tenantFlag) *cobra.Command {
	var points int64
	var why reason
	command := &cobra.Command{
		Use: "set <product id> --points <n> --why <reason>", Short: "Make a product known, or change what one piece is worth from now on", Args: cobra.ExactArgs(1),
		Long: "A product that is not known yet is set at once, and dead letters that name it can be replayed. Where one is known\n" +
			"already, the change is shown and asked for: it holds for every order that is credited from then on.",
		RunE: p.changeProduct(ask, of, &why, func(now products.Product) productChange {
			change := productChange{
				method: http.MethodPut, word: strconv.FormatInt(points, 10), do: "change it",
				body: ops.SetProduct{Points: points, Change: products.Change{Why: why.why, Expect: &now.Points}},
			}
			if now.Points != 0 && now.Points != points {
				change.effect = fmt.Sprintf("%s is worth %d points now, from the %s. Orders that are credited from now on would get %d for each.", now.ID, now.Points, now.Origin, points)
			}
			return change
		}),
	}
	command.Flags().Int64Var(&points, "points", 0, "what one piece is worth, from 1")
	return why.required(command)
}

func (p *program) productsRetire(ask func() client, of *tenantFlag) *cobra.Command {
	var why reason
	return why.required(&cobra.Command{
		Use: "retire <product id> --why <reason>", Short: "Make a product unknown from now on, also where the catalog has it", Args: cobra.ExactArgs(1),
		RunE: p.changeProduct(ask, of, &why, func(now products.Product) productChange {
			change := productChange{method: http.MethodDelete, word: now.ID, do: "retire it", body: products.Change{Why: why.why, Expect: &now.Points}}
			if now.Points != 0 {
				change.effect = fmt.Sprintf("%s is worth %d points, from the %s. Retired, it makes a dead letter of every order that names it.", now.ID, now.Points, now.Origin)
			}
			return change
		}),
	})
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
