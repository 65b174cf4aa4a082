package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"billhook/internal/platform/audit"
)

func (p *program) auditCommand() *cobra.Command {
	return lists(p, nil, question{
		use: "audit", short: "List what people have changed, the newest first: who, when, why, and what was there before", path: "/v1/ops/audit", limit: 50,
		long: "It lists changes of all kinds: of queues, customers, products, stock, endpoints, periods and the books, and what was done\n" +
			"to dead letters, of which an operation is an entry about itself.",
		flags: map[string]string{
			"kind": "of this kind, such as queue, customer, product or operation", "subject": "about this one, by its id", "who": "by this person, as the audit names them",
			"since": "since " + moments, "until": "before " + moments,
		},
	}, columns[audit.Entry]{
		names: []string{"WHEN", "KIND", "SUBJECT", "ACTION", "WHO", "WHY", "CHANGE"}, less: []string{"CHANGE"}, none: "Nothing was changed.",
		row: func(e audit.Entry) []string {
			return row(when(e.At), e.Kind, e.Subject, e.Action, e.Who, e.Why, changed(e))
		},
	})
}

func changed(e audit.Entry) string {
	all := maps.Clone(e.After)
	if all == nil {
		all = map[string]any{}
	}
	maps.Copy(all, e.Before)
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
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
