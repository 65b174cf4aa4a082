package main

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"billhook/internal/platform/audit"
)

func (p *program) auditCommand() *cobra.Command {
	filters := map[string]*string{}
	var limit int
	command := &cobra.Command{
		Use: "audit", Short: "List what people have changed, the newest first: who, when, why, and what was there before", Args: cobra.NoArgs,
		Long: "It lists changes of all kinds: of queues, customers, products, stock, endpoints, periods and the books, and what was done\n" +
			"to dead letters, of which an operation is an entry about itself.",
	}
	ask := p.worker(command)
	for name, about := range map[string]string{
		"kind": "of this kind, such as queue, customer, product or operation", "subject": "about this one, by its id", "who": "by this person, as the audit names them",
		"since": "since " + moments, "until": "before " + moments,
	} {
		filters[name] = command.Flags().String(name, "", about)
	}
	command.Flags().IntVar(&limit, "limit", 50, "the most to list; 0: all")
	command.RunE = func(command *cobra.Command, _ []string) error {
		query := url.Values{}
		for name, value := range filters {
			if *value != "" {
				query.Set(name, *value)
			}
		}
		all, err := pages[audit.Entry](command.Context(), ask(), "/v1/ops/audit", query, limit)
		if err != nil {
			return err
		}
		var rows [][]string
		for _, e := range all.Items {
			rows = append(rows, row(when(e.At), e.Kind, e.Subject, e.Action, e.Who, e.Why, changed(e)))
		}
		if len(rows) == 0 {
			p.printf("Nothing was changed.\n")
		} else {
			p.table([]string{"WHEN", "KIND", "SUBJECT", "ACTION", "WHO", "WHY", "CHANGE"}, rows, "CHANGE")
		}
		if all.Next != "" {
			p.printf("There are more; raise --limit.\n")
		}
		return p.printJSON(all)
	}
	return command
}

// changed is what an entry says of before and after, such as "points 500 -> 600".
func changed(e audit.Entry) string {
	names := map[string]bool{}
	for name := range e.Before {
		names[name] = true
	}
	for name := range e.After {
		names[name] = true
	}
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(names)) {
		before, had := e.Before[name]
		after, has := e.After[name]
		switch {
		case !had:
			parts = append(parts, fmt.Sprintf("%s %v", name, after))
		case !has:
			parts = append(parts, fmt.Sprintf("%s %v -> none", name, before))
		case fmt.Sprint(before) != fmt.Sprint(after):
			parts = append(parts, fmt.Sprintf("%s %v -> %v", name, before, after))
		}
	}
	return strings.Join(parts, ", ")
}
