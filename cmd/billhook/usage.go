package main

import (
	"context"
	"encoding/csv"
	"fmt"
	"io"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"billhook/internal/apps/usage"
	"billhook/internal/console/ops"
)

func (p *program) usageCommand() *cobra.Command {
	command, ask := p.under("usage", "Look at what subscriptions have used, per meter and billing period", true)
	list := lists(p, ask, question{
		use: "ls (--subscription <id> | --month <2026-11>)", short: "List the usage of a subscription, or of all periods that begin in a month", path: "/v1/ops/usage", limit: perPage,
		flags: map[string]string{"subscription": "the usage of this subscription, period after period", "month": "the usage of the periods that begin in this month, of all subscriptions"},
	}, columns[usage.Total]{
		names: []string{"SUBSCRIPTION", "PERIOD", "METER", "USED", "ENTRIES", "COUNTED"}, less: []string{"ENTRIES"},
		row: func(t usage.Total) []string {
			return row(t.Subscription, t.Period, t.Meter, t.Used, t.Entries, when(t.CountedAt))
		},
	})
	of := func() url.Values {
		return parameters(map[string]string{"tenant": command.PersistentFlags().Lookup("tenant").Value.String()})
	}
	command.AddCommand(p.usageShow(ask, of), list, p.usageExport(ask, of))
	return command
}

// set sets a parameter that has a value: the API refuses an empty one.
func set(values url.Values, name, value string) {
	if value != "" {
		values.Set(name, value)
	}
}

func usagePath(subscription string) string { return "/v1/ops/usage/" + url.PathEscape(subscription) }

func usageOf(ctx context.Context, ask client, subscription string, values url.Values) (all ops.Usage, err error) {
	for {
		var page ops.Usage
		if err := ask.get(ctx, usagePath(subscription)+"?"+values.Encode(), &page); err != nil {
			return all, err
		}
		maps.Copy(page.Meters, all.Meters)
		all = page
		if page.Next == "" {
			return all, nil
		}
		values.Set("page", page.Next)
	}
}

func (p *program) usageShow(ask func() client, of func() url.Values) *cobra.Command {
	var period string
	command := &cobra.Command{
		Use: "show <subscription>", Short: "Show what a subscription has used in a period: in the one that is running, or another", Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			values := of()
			set(values, "period", period)
			shown, err := usageOf(command.Context(), ask(), args[0], values)
			if err != nil {
				return err
			}
			p.printf("Period %s%s\n", shown.Period, span(shown.Start, shown.End))
			var rows [][]string
			for _, meter := range slices.Sorted(maps.Keys(shown.Meters)) {
				m := shown.Meters[meter]
				quota, percent, warned := "", "", ""
				if m.Percent != nil {
					quota, percent = strconv.FormatInt(m.Quota, 10), fmt.Sprint(*m.Percent, " %")
				}
				if m.Warned > 0 {
					warned = fmt.Sprint(m.Warned, " %")
				}
				rows = append(rows, row(meter, m.Used, quota, percent, warned, m.Entries, when(m.CountedAt)))
			}
			p.table([]string{"METER", "USED", "QUOTA", "PART", "WARNED", "ENTRIES", "COUNTED"}, rows, "ENTRIES")
			for _, meter := range slices.Sorted(maps.Keys(shown.Meters)) {
				if m := shown.Meters[meter]; m.Warning != nil {
					p.printf("The warning of %s at %d %%: %s\n", meter, m.Warned, warningOf(*m.Warning))
				}
			}
			return p.printJSON(shown)
		},
	}
	command.Flags().StringVar(&period, "period", "", "such as 2026-11, or 20261102T101500Z for one of the subscription's own")
	return command
}

func warningOf(w ops.Warning) string {
	if w.Emission == nil {
		return "emitted by event " + w.EmittedBy + ", whose record is gone"
	}
	return w.Emission.String()
}

func span(start, end time.Time) string {
	switch {
	case start.IsZero():
		return ""
	case end.IsZero():
		return ", from " + when(start) + ", its end is not known yet"
	}
	return ", from " + when(start) + " to " + when(end)
}

func (p *program) usageExport(ask func() client, of func() url.Values) *cobra.Command {
	var period, meter, month, format string
	command := &cobra.Command{
		Use:   "export (<subscription> [--period <period>] [--meter <meter>] | --month <2026-11>)",
		Short: "Write the entries of a subscription's period, or the totals of a month, as CSV or JSON lines", Args: cobra.MaximumNArgs(1),
		Long: `Write the entries of a subscription's period, or the totals of all periods that begin in a month, as CSV or JSON lines.
The lines go to the standard output, page by page: what was written before an error is whole.`,
		RunE: func(command *cobra.Command, args []string) error {
			if p.asJSON && !command.Flags().Changed("format") {
				format = "jsonl"
			}
			if (len(args) == 1) == (month != "") {
				return usageError("name a subscription, or give --month")
			}
			values := of()
			if month != "" {
				values.Set("month", month)
				return each(command.Context(), ask(), "/v1/ops/usage", values, linesTo(p.stdout, format, totalColumns, totalRow))
			}
			meters := []string{meter}
			set(values, "period", period)
			if meter == "" || period == "" {
				shown, err := usageOf(command.Context(), ask(), args[0], values)
				if err != nil {
					return err
				}
				values.Set("period", shown.Period)
				if meter == "" {
					meters = slices.Sorted(maps.Keys(shown.Meters))
				}
			}
			write := linesTo(p.stdout, format, entryColumns, entryRow)
			for _, meter := range meters {
				values.Del("page")
				values.Set("meter", meter)
				if err := each(command.Context(), ask(), usagePath(args[0])+"/entries", values, write); err != nil {
					return err
				}
			}
			return write(nil)
		},
	}
	flags := command.Flags()
	flags.StringVar(&period, "period", "", "the period of the entries; the one that is running where there is none")
	flags.StringVar(&meter, "meter", "", "the entries of this meter alone")
	flags.StringVar(&month, "month", "", "the totals of the periods that begin in this month, of all subscriptions")
	flags.StringVar(&format, "format", "csv", "csv or jsonl")
	oneOf(command, "format", "csv", "jsonl")
	return command
}

func linesTo[Item any](out io.Writer, format string, columns []string, cells func(Item) []string) func([]Item) error {
	if format == "jsonl" {
		return func(items []Item) error { return jsonLines(out, items) }
	}
	table, named := csv.NewWriter(out), false // its cells are ids, times and numbers
	return func(items []Item) error {
		if !named {
			named = true
			_ = table.Write(columns) // an error stays, and Flush meets it again
		}
		for _, item := range items {
			_ = table.Write(cells(item))
		}
		table.Flush()
		if err := table.Error(); err != nil {
			return fmt.Errorf("export: %w", err)
		}
		return nil
	}
}

var (
	totalColumns = []string{"tenant", "subscription", "period", "start", "end", "meter", "used", "entries", "quota", "plan", "warned", "counted_at"}
	entryColumns = []string{"tenant", "subscription", "period", "meter", "event_id", "quantity", "occurred_at", "counted_at"}
)

func totalRow(t usage.Total) []string {
	end := ""
	if !t.End.IsZero() {
		end = t.End.Format(time.RFC3339Nano)
	}
	return row(t.Tenant, t.Subscription, t.Period, t.Start.Format(time.RFC3339Nano), end, t.Meter, t.Used, t.Entries, t.Quota, t.Plan, t.Warned,
		t.CountedAt.Format(time.RFC3339Nano))
}

func entryRow(e usage.Entry) []string {
	return row(e.Tenant, e.Subscription, e.Period, e.Meter, e.EventID, e.Quantity, e.OccurredAt.Format(time.RFC3339Nano), e.CountedAt.Format(time.RFC3339Nano))
}
