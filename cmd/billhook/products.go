package main

import (
	"fmt"
	"net/http"
	"strconv"

	"github.com/spf13/cobra"

	"billhook/internal/apps/products"
	"billhook/internal/console/ops"
	"billhook/internal/platform/audit"
)

const productPath = "/v1/ops/products/{}"

func (p *program) productsCommand() *cobra.Command {
	command, ask := p.under("products", "Look at what products are worth, and change it without a deployment", true)
	print := func(changed products.Product) {
		if changed.State == products.Retired {
			p.printf("%s is retired since %s: an order that names it becomes a dead letter.\n", changed.ID, when(changed.Since))
		} else {
			p.printf("%s is worth %d points since %s.\n", changed.ID, changed.Points, when(changed.Since))
		}
	}
	var points int64
	set := changes(p, ask, change[products.Product]{
		question: question{
			use: "set <product id> --points <n> --why <reason>", short: "Make a product known, or change what one piece is worth from now on", path: productPath,
			long: "A product that is not known yet is set at once, and dead letters that name it can be replayed. Where one is known\n" +
				"already, the change is shown and asked for: it holds for every order that is credited from then on.",
		}, method: http.MethodPut, mayMiss: true,
		plan: func(_ []string, now products.Product, why reason) (word, do string, body any) {
			if now.Points != 0 && now.Points != points {
				p.printf("%s is worth %d points now, from the %s. Orders that are credited from now on would get %d for each.\n", now.ID, now.Points, now.Origin, points)
				word = strconv.FormatInt(points, 10)
			}
			return word, "change it", ops.SetProduct{Points: points, Change: products.Change{Why: why.why, Expect: &now.Points}}
		},
	}, print)
	set.Flags().Int64Var(&points, "points", 0, "what one piece is worth, from 1")
	command.AddCommand(lists(p, ask, question{
		use: "ls", short: "List the products of catalog and store, with what one piece is worth", path: "/v1/ops/products",
	}, columns[products.Product]{
		names: []string{"PRODUCT", "POINTS", "STATE", "SINCE", "FROM"},
		row:   func(p products.Product) []string { return row(p.ID, p.Points, p.State, when(p.Since), p.Origin) },
	}), set, changes(p, ask, change[products.Product]{
		question: question{use: "retire <product id> --why <reason>", short: "Make a product unknown from now on, also where the catalog has it", path: productPath},
		method:   http.MethodDelete, mayMiss: true,
		plan: func(_ []string, now products.Product, why reason) (word, do string, body any) {
			if now.Points != 0 {
				p.printf("%s is worth %d points, from the %s. Retired, it makes a dead letter of every order that names it.\n", now.ID, now.Points, now.Origin)
				word = now.ID
			}
			return word, "retire it", products.Change{Why: why.why, Expect: &now.Points}
		},
	}, print), lists(p, ask, question{
		use: "history <product id>", short: "Show who changed a product, when and why, the newest first", path: productPath + "/changes",
	}, columns[audit.Entry]{names: []string{"AT", "ACTION", "BEFORE", "AFTER", "WHO", "WHY"}, row: func(c audit.Entry) []string {
		return row(when(c.At), c.Action, pointsOf(c.Before), pointsOf(c.After), c.Who, c.Why)
	}}))
	return command
}

// pointsOf is a product's value on one side of a change: its points, its state, or nothing.
func pointsOf(side map[string]any) string {
	if side["state"] == nil {
		return ""
	}
	if side["state"] != string(products.Active) {
		return fmt.Sprint(side["state"])
	}
	points, _ := side["points"].(float64) // at most catalog.MaxPoints: exact
	return strconv.FormatInt(int64(points), 10)
}
