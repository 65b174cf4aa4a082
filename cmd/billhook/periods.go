package main

import (
	"context"
	"net/http"
	"net/url"

	"github.com/spf13/cobra"

	"billhook/internal/apps/journal"
	"billhook/internal/apps/ledger"
	"billhook/internal/console/ops"
)

func periodPath(period, rest string) string {
	return "/v1/ops/journal/periods/" + url.PathEscape(period) + rest
}

// shown asks for a month as it stands, with the entries that came too late.
func (b *books) shown(ctx context.Context, period string) (shown ops.Period, err error) {
	err = b.ask().get(ctx, periodPath(period, "?"+b.query().Encode()), &shown)
	return shown, err
}

func (b *books) periods() *cobra.Command {
	return b.ofTenant(&cobra.Command{
		Use: "periods", Short: "List the months that were ever closed, who closed or reopened each, and what waits for a second person", Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			return columns[journal.Period]{
				names: []string{"MONTH", "STATE", "CLOSED FROM", "BY", "WHY", "REOPENING ASKED BY"}, less: []string{"REOPENING ASKED BY"},
				none: "No month of " + b.tenant + " was ever closed.",
				row: func(period journal.Period) []string {
					asked := ""
					if period.Reopening != nil {
						asked = period.Reopening.Who
					}
					return row(period.Period, period.State, when(period.ClosesAt), period.Who, period.Why, asked)
				},
			}.list(command.Context(), b.program, b.ask(), "/v1/ops/journal/periods", b.query(), 0)
		},
	})
}

func (b *books) close() *cobra.Command {
	return b.change("close", "Close a month that is over: no entry is posted in it any more", func(ops.Period) {
		b.printf("It takes no entries from then on; an event of the month becomes a dead letter with the reason period_closed.\n")
	})
}

func (b *books) reopen() *cobra.Command {
	return b.change("reopen", "Open a closed month again, once two people have asked for it", func(shown ops.Period) {
		switch {
		case shown.State == journal.Open:
		case shown.Reopening == nil:
			b.printf("The request is kept until a second person asks for the same.\n")
		default:
			b.printf("%s asked for it on %s: %s\n", shown.Reopening.Who, when(shown.Reopening.At), shown.Reopening.Why)
		}
	})
}

// change is a command that changes the state of a month. tell says what the change would mean.
func (b *books) change(how, short string, tell func(ops.Period)) *cobra.Command {
	var why reason
	return why.required(b.ofTenant(&cobra.Command{
		Use: how + " <month>", Short: short, Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			ctx := command.Context()
			before, err := b.shown(ctx, args[0])
			if err != nil {
				return err
			}
			b.printPeriod(before.Period)
			b.period = args[0]
			balance, err := b.trial(ctx)
			if err != nil {
				return err
			}
			b.printBalances(balance)
			tell(before)
			if goOn, err := why.confirmed(b.program, command, before, args[0], how+" it"); !goOn {
				return err
			}
			path := periodPath(args[0], "/"+how+"?"+b.query().Encode())
			return send(ctx, b.program, b.ask(), http.MethodPost, path, journal.Change{Why: why.why}, b.printPeriod)
		},
	}))
}

func (b *books) printPeriod(p journal.Period) {
	b.printf("%s of %s is %s", p.Period, p.Tenant, p.State)
	switch p.State {
	case journal.Open:
	case journal.Closing:
		b.printf(", and closed from %s", when(p.ClosesAt))
	case journal.Closed:
		b.printf(" since %s", when(p.ClosesAt))
	}
	if p.Reopening != nil {
		b.printf("; to open it again a second person must ask for it, after %s", p.Reopening.Who)
	}
	b.printf(".\n")
}

func (b *books) revert() *cobra.Command {
	var why reason
	return why.required(b.ofTenant(&cobra.Command{
		Use: "revert <event or entry>", Short: "Post the reversal of an entry: the same lines with their sides exchanged, in the month that runs", Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			entry, err := b.entry(command.Context(), args[0])
			if err != nil {
				return err
			}
			b.printEntry(entry)
			if goOn, err := why.confirmed(b.program, command, entry, entry.EventID, "revert it"); !goOn {
				return err
			}
			path := b.entryPath(args[0], "/revert")
			return send(command.Context(), b.program, b.ask(), http.MethodPost, path, journal.Change{Why: why.why}, func(reversal ledger.Entry) {
				b.printf("Reverted by %s, in %s.\n", reversal.ID, reversal.Period)
			})
		},
	}))
}
