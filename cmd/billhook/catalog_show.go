package main

import (
	"cmp"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"billhook/internal/console/ops"
	"billhook/internal/platform/audit"
)

func (p *program) catalogOfTheWorker() []*cobra.Command {
	return []*cobra.Command{
		shows(p, nil, question{
			use: "show", short: "Show the catalog that the worker runs with: queues, contracts, topics, sources and targets", path: "/v1/ops/catalog",
			long: "It is the worker's catalog, and its hash names the files. That of this machine is shown by `billhook catalog print`.",
		}, p.printCatalog),
		shows(p, nil, question{
			use: "queue <queue>", short: "Show what the worker's catalog declares of a queue, who produces for it, and what it takes", path: "/v1/ops/catalog/queues/{}",
		}, p.printDeclaration),
		shows(p, nil, question{
			use: "contract <contract>", short: "Show a contract of the worker's catalog, by its id: schema, example, who produces and who consumes it",
			path: "/v1/ops/catalog/contracts/{}",
		}, p.printContract),
	}
}

func (p *program) printCatalog(c ops.Declared) {
	p.printf("Catalog %s. The tasks are run by the worker of pool %s.\n\n", orDash(c.Hash), c.TasksPool)
	var rows [][]string
	for _, q := range c.Queues {
		state := "on"
		if !q.Enabled {
			state = "off"
		}
		rows = append(rows, row(q.ID, state, q.Contract, q.Topic, q.Pool, q.Description))
	}
	p.table([]string{"QUEUE", "STATE", "CONTRACT", "TOPIC", "POOL", "DESCRIPTION"}, rows, "DESCRIPTION", "TOPIC")
	rows = nil
	for _, of := range c.Contracts {
		rows = append(rows, row(of.ID, of.Type, of.Version))
	}
	p.printf("\n")
	p.table([]string{"CONTRACT", "TYPE", "VERSION"}, rows)
	rows = nil
	for _, t := range c.Topics {
		of := "several queues"
		if t.Outbound {
			of = "others"
		}
		rows = append(rows, row(t.ID, of, t.Description))
	}
	p.printf("\n")
	p.table([]string{"TOPIC", "READ BY", "DESCRIPTION"}, rows)
	rows = nil
	for _, s := range c.Sources {
		var to []string
		for _, queue := range s.Events {
			to = append(to, queue)
		}
		slices.Sort(to)
		rows = append(rows, row(s.Name, "sends", s.Scheme, strings.Join(slices.Compact(to), ", ")))
	}
	for _, t := range c.Targets {
		rows = append(rows, row(t.Name, "is called", t.Scheme, t.URLVariable))
	}
	p.printf("\n")
	p.table([]string{"SERVICE", "DOES", "SIGNED BY", "QUEUES OR ADDRESS"}, rows)
}

func (p *program) printDeclaration(q ops.QueueDeclaration) {
	p.printf("%s", q.ID)
	if q.Alias != "" {
		p.printf(" (%s)", q.Alias)
	}
	p.printf(": %s\n", q.Description)
	if !q.Enabled {
		p.printf("It is not enabled.\n")
	}
	p.printf("\n")
	for _, sentence := range q.Words {
		p.printf("- %s\n", sentence)
	}
	var rows [][]string
	for _, t := range q.Takes {
		rows = append(rows, row(t.Type, t.Handler, strings.Join(t.Contracts, ", ")))
	}
	p.printf("\n")
	p.table([]string{"TAKES", "HANDLER", "CONTRACT"}, rows, "CONTRACT")
	p.printProducers(q.ProducedBy)
	if len(q.Emits) > 0 {
		p.printf("\nIts handlers publish to %s.\n", strings.Join(q.Emits, ", "))
	}
}

func (p *program) printContract(c ops.ContractDeclaration) {
	p.printf("%s: version %d of %s in %s\n\n", c.ID, c.Version, c.Type, c.Format)
	var rows [][]string
	for _, m := range c.Members {
		required := ""
		if m.Required {
			required = "required"
		}
		rows = append(rows, row(m.Name, m.Shape, required))
	}
	if len(rows) > 0 {
		p.table([]string{"MEMBER", "SHAPE", "REQUIRED"}, rows)
		p.printf("\n")
	}
	rows = nil
	for _, q := range c.ConsumedBy {
		state := "on"
		if !q.Enabled {
			state = "off"
		}
		rows = append(rows, row(q.Queue, state, strings.Join(q.Types, ", ")))
	}
	if len(rows) > 0 {
		p.table([]string{"CONSUMED BY", "STATE", "TYPES"}, rows)
	} else {
		p.printf("No queue here takes it.\n")
	}
	p.printProducers(c.ProducedBy)
	p.printf("\nSchema:\n%s\n", indented(c.Schema))
	if example := indented(c.Example); example != "" && example != "null" {
		p.printf("\nExample:\n%s\n", example)
	}
}

func indented(value jsontext.Value) own {
	if err := value.Indent(jsontext.WithIndent("  ")); err != nil {
		return ""
	}
	lines := strings.Split(string(value), "\n")
	for i, line := range lines {
		lines[i] = audit.EscapeJSON(line)
	}
	return own(strings.Join(lines, "\n"))
}

func (p *program) printProducers(all []ops.Producer) {
	var rows [][]string
	for _, one := range all {
		rows = append(rows, row(one.Kind, one.Name, cmp.Or(one.Queue, strings.Join(one.Types, ", ")), one.To))
	}
	p.printf("\n")
	if len(rows) == 0 {
		p.printf("Nobody produces for it here.\n")
		return
	}
	p.table([]string{"PRODUCED BY", "NAME", "OF QUEUE OR TYPES", "TO"}, rows, "OF QUEUE OR TYPES")
}
