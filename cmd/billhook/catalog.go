package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"billhook/internal/worker"
)

func (p *program) catalogCommand() *cobra.Command {
	command := &cobra.Command{Use: "catalog", Short: "Check or print the declaration of queues, products and sources"}
	command.AddCommand(
		&cobra.Command{
			Use:   "check",
			Short: "Report every mistake of the catalog at once, and what a worker would refuse (CATALOG_DIR, else the built-in one)",
			Args:  cobra.NoArgs,
			RunE: func(*cobra.Command, []string) error {
				c, err := p.catalog()
				if err == nil {
					err = worker.Check(c, "")
				}
				if err != nil {
					return err
				}
				enabled := 0
				for _, q := range c.Queues {
					if q.Enabled {
						enabled++
					}
				}
				p.printf("The catalog is sound: %d queues (%d enabled), %d products, %d sources.\n",
					len(c.Queues), enabled, len(c.Products), len(c.Sources))
				return p.printJSON(map[string]int{
					"queues": len(c.Queues), "enabled": enabled, "products": len(c.Products), "sources": len(c.Sources),
				})
			},
		},
		&cobra.Command{
			Use:   "print",
			Short: "Print the catalog expanded, as JSON: defaults applied, names derived",
			Args:  cobra.NoArgs,
			RunE: func(*cobra.Command, []string) error {
				c, err := p.catalog()
				if err != nil {
					return err
				}
				expanded, err := c.JSON()
				if err != nil {
					return err
				}
				_, err = fmt.Fprintln(p.stdout, string(expanded))
				return err
			},
		},
	)
	return command
}
