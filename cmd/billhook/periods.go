package main

import (
	"errors"
	"net/http"

	"github.com/spf13/cobra"

	"billhook/internal/apps/journal"
	"billhook/internal/apps/ledger"
	"billhook/internal/console/ops"
)

const periodPath = "/v1/ops/journal/periods/{}"

func (b *books) periods() *cobra.Command {
	return lists(b.program, b.ask, b.ofTenant(question{
		use: "periods", short: "List the months that were ever closed, who closed or reopened each, and what waits for a second person", path: "/v1/ops/journal/periods",
	}), columns[journal.Period]{
		names: []string{"MONTH", "STATE", "CLOSED FROM", "BY", "WHY", "REOPENING ASKED BY"}, less: []string{"REOPENING ASKED BY"}, none: "No month was ever closed.",
		row: func(period journal.Period) []string {
			asked := ""
			if period.Reopening != nil {
				asked = period.Reopening.Who
			}
			return row(period.Period, period.State, when(period.ClosesAt), period.Who, period.Why, asked)
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

func (b *books) change(how, short string, tell func(ops.Period)) *cobra.Command {
	command := changes(b.program, b.ask, change[ops.Period]{
		question: b.ofTenant(question{use: how + " <month>", short: short, path: periodPath + "/" + how}), look: periodPath, method: http.MethodPost,
		plan: func(args []string, before ops.Period, why reason) (word, do string, body any) {
			b.printPeriod(before.Period)
			tell(before)
			return args[0], how + " it", journal.Change{Why: why.why}
		},
	}, b.printPeriod)
	act := command.RunE
	command.RunE = func(command *cobra.Command, args []string) (err error) {
		b.tenant, err = command.Flags().GetString("tenant")
		b.period = args[0]
		balance, failed := b.trial(command.Context())
		if err = errors.Join(err, failed); err != nil {
			return err
		}
		b.printBalances(balance)
		return act(command, args)
	}
	return command
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
	return changes(b.program, b.ask, change[ops.JournalEntry]{
		question: b.ofTenant(question{
			use: "revert <event or entry>", short: "Post the reversal of an entry: the same lines with their sides exchanged, in the month that runs", path: entryPath + "/revert",
		}), look: entryPath, method: http.MethodPost,
		plan: func(_ []string, entry ops.JournalEntry, why reason) (word, do string, body any) {
			b.printEntry(entry)
			return entry.EventID, "revert it", journal.Change{Why: why.why}
		},
	}, func(reversal ledger.Entry) { b.printf("Reverted by %s, in %s.\n", reversal.ID, reversal.Period) })
}
