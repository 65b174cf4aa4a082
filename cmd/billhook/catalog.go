package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"billhook/catalog"
	"billhook/internal/compose/worker"
)

func (p *program) catalogCommand() *cobra.Command {
	command := &cobra.Command{Use: "catalog", Short: "Check or print the declaration of queues, products and sources, or show that of a worker"}
	command.AddCommand(
		&cobra.Command{
			Use:   "check [folder]",
			Short: "Report every mistake of the catalog at once, with file and line, and what a worker would refuse",
			Long: "Reads the folder's files, else those of CATALOG_DIR, else the built-in catalog. It reports what cannot be read,\n" +
				"relations that do not hold, handlers that no worker has, and contracts that a handler cannot decode, each with file and\n" +
				"line. What only a queue that is not enabled lacks is a note. The exit code is 0 for a sound catalog, 1 for one with\n" +
				"mistakes, and 2 where there is no such folder.",
			Example: "  billhook catalog check\n  billhook catalog check ./catalog",
			Args:    cobra.MaximumNArgs(1),
			RunE: func(_ *cobra.Command, args []string) error {
				folder := p.env.CatalogDir
				if len(args) > 0 {
					folder = args[0]
				}
				return p.checkCatalog(folder)
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

type checked struct {
	Queues   int `json:"queues"`
	Enabled  int `json:"enabled"`
	Products int `json:"products"`
	Sources  int `json:"sources"`
	// Mistakes keep services from starting.
	Mistakes []*catalog.Mistake `json:"mistakes"`
	// Notes would be mistakes if their queues were enabled.
	Notes []*catalog.Mistake `json:"notes,omitempty"`
}

func (p *program) checkCatalog(folder string) error {
	if info, err := os.Stat(folder); folder != "" && (err != nil || !info.IsDir()) {
		return usageError(folder + " is no folder; name one with the catalog's files")
	}
	c, err := catalog.Load(folder)
	answer := checked{Queues: len(c.Queues), Products: len(c.Products), Sources: len(c.Sources), Mistakes: catalog.Mistakes(err)}
	answer.Mistakes = append(answer.Mistakes, unlessKnown(answer.Mistakes, refusedHandlers(c))...)
	if err == nil {
		_, err = c.Only(p.env.Queues)
		answer.Mistakes = append(answer.Mistakes, catalog.Mistakes(err)...)
	}
	slices.SortStableFunc(answer.Mistakes, catalog.ByLine)
	all := *c // as if every queue were enabled
	all.Queues = slices.Clone(c.Queues)
	for i, q := range c.Queues {
		if q.Enabled {
			answer.Enabled++
		}
		all.Queues[i].Enabled = true
	}
	if answer.Enabled < len(c.Queues) {
		answer.Notes = unlessKnown(answer.Mistakes, refusedHandlers(&all))
	}
	if err := p.printJSON(answer); err != nil {
		return err
	}
	for _, m := range answer.Mistakes {
		p.printf("%s\n", at(folder, m))
	}
	for _, m := range answer.Notes {
		p.printf("%s (a note: the queue is not enabled)\n", at(folder, m))
	}
	switch n := len(answer.Mistakes); n {
	case 0:
		p.printf("The catalog is sound: %d queues (%d enabled), %d products, %d sources.\n", answer.Queues, answer.Enabled, answer.Products, answer.Sources)
		return nil
	case 1:
		return fmt.Errorf("catalog check: 1 mistake")
	default:
		return fmt.Errorf("catalog check: %d mistakes", n)
	}
}

func at(folder string, m *catalog.Mistake) string {
	if folder == "" || m.File == "" {
		return m.Error()
	}
	located := *m
	located.File = filepath.Join(folder, m.File)
	return located.Error()
}

// refusedHandlers is what a worker would refuse of the catalog. One whose contracts cannot be read
// would refuse everything.
func refusedHandlers(c *catalog.Catalog) []*catalog.Mistake {
	if c.Contracts == nil {
		return nil
	}
	named := *c // an entry without an id has its mistake already
	named.Queues = slices.DeleteFunc(slices.Clone(c.Queues), func(q catalog.Queue) bool { return q.ID == "" })
	found := catalog.Mistakes(worker.Check(&named, ""))
	slices.SortFunc(found, catalog.ByLine)
	return found
}

// unlessKnown leaves out mistakes on lines that have one already: they would follow from it.
func unlessKnown(known, found []*catalog.Mistake) []*catalog.Mistake {
	return slices.DeleteFunc(found, func(m *catalog.Mistake) bool {
		return slices.ContainsFunc(known, func(k *catalog.Mistake) bool {
			return k.File == m.File && k.Line == m.Line && (m.Line > 0 || k.Error() == m.Error())
		})
	})
}
